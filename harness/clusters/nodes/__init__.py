"""Nodes as local processes: their identity, launch and end."""
