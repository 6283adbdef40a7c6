"""Finds in a round how client processes behaved where no class of anomalies applies: memory and
descriptors, a core that is used for nothing, a close that does not return. Pure.

The limits are far above the needs of a load of a hunt, which has at most a few megabytes per
second and fewer than a hundred clients and partitions.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from harness.contracts.rows import Manifest, MetricRow, WorkerRow

#: Features of behavior that is a finding of its own begin with this word.
STRANGE: Final = "strange"
#: Memory and descriptors of a client that are more than this above the first sample of the load.
MOST_GROWTH_BYTES: Final = 512 << 20
MOST_GROWTH_DESCRIPTORS: Final = 256
#: A client that uses this share of a core for so long, while no counter of it changes.
BUSY_SHARE: Final = 0.8
BUSY_S: Final = 3.0
#: Roles whose processes are clients under test.
CLIENTS: Final = frozenset({"producer", "consumer", "pipeline"})


def strange_conduct(manifest: Manifest, metrics: Sequence[MetricRow]) -> Iterator[str]:
    """Yield the features of a round that are findings, each once for a role.

    Args:
        metrics: samples of all processes, in the order of time.
    """
    for worker in manifest.workers:
        if worker.role not in CLIENTS:
            continue
        samples = [
            row for row in metrics if row.worker == worker.name and row.t_ns >= manifest.epoch_ns
        ]
        yield from (f"{STRANGE} {worker.role}: {text}" for text in _strange(worker, samples))


def _strange(worker: WorkerRow, samples: Sequence[MetricRow]) -> Iterator[str]:
    if _is_close_open(worker):
        yield "close does not return"
    if _growth(row.rss_bytes for row in samples) > MOST_GROWTH_BYTES:
        yield f"memory grows by more than {MOST_GROWTH_BYTES >> 20} MiB"
    if _growth(row.descriptors for row in samples) > MOST_GROWTH_DESCRIPTORS:
        yield f"more than {MOST_GROWTH_DESCRIPTORS} descriptors are added"
    if _busy_s(samples) >= BUSY_S:
        yield f"a core is used for {BUSY_S:g} s and nothing is sent or received"


def _is_close_open(worker: WorkerRow) -> bool:
    """Whether a client was asked to end and was ended by the harness, for no other reason."""
    if worker.hung or worker.killed or worker.crashed or worker.done:
        return False
    return worker.stuck or worker.exit_code == -signal.SIGKILL


def _growth(values: Iterable[int | None]) -> int:
    """Return how far the last of the known values is above the first one."""
    known = [value for value in values if value is not None]
    return known[-1] - known[0] if known else 0


def _busy_s(samples: Sequence[MetricRow]) -> float:
    """Return the longest time in which a process used a core and no counter of it changed."""
    longest_ns = since_ns = 0
    for before, after in pairwise(samples):
        took_ns = after.t_ns - before.t_ns
        used_s = (after.cpu_s or 0.0) - (before.cpu_s or 0.0)
        is_busy = used_s * 1e9 >= BUSY_SHARE * took_ns and _counters(before) == _counters(after)
        since_ns = since_ns + took_ns if is_busy else 0
        longest_ns = max(longest_ns, since_ns)
    return longest_ns / 1e9


def _counters(row: MetricRow) -> tuple[int, ...]:
    return row.attempted, row.ok, row.fail, row.info, row.delivered
