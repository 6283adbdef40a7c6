"""The commands, by what they are about; cli.py collects them.

console      global options, output as text or one JSON document
starting     list, new, plan, run
running      what `run` does; summaries: results written and shown
clusters     up, down, inject
reading      analyze, show, trace, compare, explain
upkeep       doctor, fetch, clean
inventory    rows of `list`; plan_text: a plan for people
wiring       what a run is made of: the only place where harness, faults and analysis meet

Everything heavy (Spark, client libraries, pydantic) is imported inside the commands, so that help and
usage errors answer at once.
"""
