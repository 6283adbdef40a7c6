"""The commands, by what they are about; cli.py collects them.

console      global options, output as text or one JSON document; options: those that several commands share
starting     list, new, plan, run, repro
running      what `run` does; repro: what `repro` does
plans        from a scenario to plans and timelines; preflight: checks before a run starts
campaigns    clusters, faults and Spark for the rounds; summaries: results written and shown
clusters     up, down, inject
reading      analyze, show, compare, explain; tracing: trace
suites       suite plan, suite run; suite_plans: from a suite to a night; nights, turns: running it
histories    suite report, history import, history export
upkeep       doctor, fetch, clean
inventory    rows of `list`; plan_text: a plan for people

Everything heavy (Spark, client libraries, pydantic) is imported inside the commands, so that help and
usage errors answer at once.
"""
