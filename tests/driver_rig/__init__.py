"""Nodes for drivers, and what drivers reach them by: an operator's program, a stand-in of
Kubernetes' API."""
