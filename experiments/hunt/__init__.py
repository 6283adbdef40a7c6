"""Looks for unknown defects: changes a scenario round by round, keeps what showed
something new, and changes that."""
