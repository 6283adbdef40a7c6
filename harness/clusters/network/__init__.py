"""Proxies and packet filters between nodes that run as processes."""
