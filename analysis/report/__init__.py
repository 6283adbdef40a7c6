"""Output for people and tools: the result as terminal text, HTML, JUnit and JSON.

words      numbers, times and message sequences as text, the same on every surface
terminal   summaries of a run; terminal_campaign, terminal_repro and terminal_lookups for others
html       report.html: one self-contained file, with charts, chart_frame, windows and the templates
junit      JUnit XML for CI systems
documents  the --json documents and their JSON Schemas; reading result.json back
trace      one message through all tables (life: its dataclasses)
compare    two runs side by side
explain    what a class means

`trace` and `documents` read the run folder; everything else is made from
`analysis.findings.Result`.
"""
