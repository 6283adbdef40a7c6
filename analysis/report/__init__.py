"""What people and tools read: everything here is made from `analysis.findings` and nothing else.

words      numbers, times and message sequences as text, the same on every surface
terminal   the end of a run and of a campaign on the console
html       report.html: one offline file; charts, templates
junit      JUnit XML for CI systems
documents  the --json documents and their JSON Schemas; reading result.json back
trace      one message's life across all tables
compare    two runs side by side
explain    what a class means
"""
