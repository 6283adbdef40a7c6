"""Disks of nodes that know what was synced, and lose the rest when power fails."""
