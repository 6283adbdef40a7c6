"""Metrics of a run while it goes on: pushed over OTLP, or served for Prometheus."""
