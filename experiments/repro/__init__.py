"""A known bug: the affected version against the fixed one."""
