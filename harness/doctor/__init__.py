"""Checks of this machine: what a run needs of it, each with a remedy."""
