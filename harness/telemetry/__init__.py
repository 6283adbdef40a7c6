"""Metrics of a run while it runs: pushed over OTLP, or served for Prometheus."""
