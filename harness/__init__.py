"""brokerstorm: chaos load tests for message brokers with an exact per-message verdict."""

__version__ = "0.1.0"
