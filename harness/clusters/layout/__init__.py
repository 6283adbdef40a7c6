"""The nodes of a cluster, their addresses and their settings: the same on every runtime."""
