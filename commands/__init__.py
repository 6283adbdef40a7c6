"""The commands, by what they are about; cli.py collects them.

console      global options, output as text or one JSON document; options: those of several commands
repeating    the command line that does the same again
starting     list, new, plan, run, repro
rounds       plays what `run` and `repro` ask for; summaries: results shown
clusters     up, down, inject
reading      analyze, show, compare, explain; tracing: trace
suites       suite plan, suite run
histories    suite report, history import, history export
upkeep       doctor, fetch, clean
inventory    rows of `list`; plan_text: a plan and the checks before a run, for people

Everything heavy (Spark, client libraries, pydantic) is imported inside the commands, so that help
and usage errors answer at once.
"""
