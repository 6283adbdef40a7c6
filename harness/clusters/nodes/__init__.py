"""Nodes as local processes: their identity, launch and end, and their formatted storage."""
