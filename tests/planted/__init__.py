"""Captures with known truth: tiny hand-made histories and large planted runs, for tests and
benches."""
