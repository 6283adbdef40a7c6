"""The worker protocol on real brokers, for every worker of Kafka: what docs/worker-protocol.md promises.

A package, so that its modules share one cluster.
"""

from __future__ import annotations

import pytest

from harness.workers import load_worker, worker_names

MARKS = [
    pytest.mark.live,
    # kafka-python leaves the sockets of refused connections to the garbage collector
    pytest.mark.filterwarnings(
        "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"
    ),
]


def _with_role(role: str) -> list[str]:
    return [name for name in worker_names("kafka") if role in load_worker(name).roles]


def every_producer_but(nightly: str) -> pytest.MarkDecorator:
    """Each producer; the one that takes long at night only."""
    names = [n if n != nightly else pytest.param(n, marks=pytest.mark.slow) for n in _with_role("producer")]
    return pytest.mark.parametrize("library", names)


every_producer = pytest.mark.parametrize("library", _with_role("producer"))
every_producer_with_threads = pytest.mark.parametrize(
    "library", [n for n in _with_role("producer") if "many" in load_worker(n).supports.get("threads", ())]
)
every_consumer = pytest.mark.parametrize("library", _with_role("consumer"))
