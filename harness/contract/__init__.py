"""The worker contract (docs/worker-protocol.md) as checks that run against live brokers.

One contract for every client: what differs between systems follows from `harness.systems`, what
differs between clients from ``[contract]`` of their worker.toml. `brokerstorm check-worker` and
tests/live run the same checks.
"""

from __future__ import annotations

from harness.contract import (
    consuming,
    deaths,
    ends,
    groups,
    outcomes,
    pipelines,
    queues,
    secrets,
    sending,
    transactions,
)
from harness.contract.checks import CHECKS, WorkerCheck
from harness.workers.spec import WorkerSpec

__all__ = ["WorkerCheck", "checks_of"]
#: In the order in which a broken worker is understood best.
_PARTS = [
    part.__name__
    for part in (
        sending,
        ends,
        secrets,
        outcomes,
        transactions,
        groups,
        consuming,
        pipelines,
        queues,
        deaths,
    )
]


def checks_of(worker: WorkerSpec) -> list[WorkerCheck]:
    """All that can be asked of a worker."""
    return sorted(
        (check for check in CHECKS if check.concerns(worker)),
        key=lambda check: _PARTS.index(check.part),
    )
