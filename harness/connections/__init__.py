"""Clusters that brokerstorm did not start: the connection file, and the secrets that it names."""
