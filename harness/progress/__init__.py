"""Progress output of a run, on stderr: a live view, plain lines, or quiet."""
