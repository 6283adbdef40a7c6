"""One archive of a run to attach to a bug report, and the way back from it to a run folder."""
