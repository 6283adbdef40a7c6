"""Which nodes a cluster has, where they listen, and what their settings say: the same on every runtime."""
