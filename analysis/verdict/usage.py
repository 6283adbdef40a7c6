"""Reads CPU and memory of nodes and clients from the lines of metrics.jsonl."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from analysis.findings import Usage
from harness.contracts.rows import MetricRow

#: Samples kept of a process, and processes kept (those that used most CPU): what a chart can show.
MAX_SAMPLES = 600
MAX_PROCESSES = 24


def usage_of(metrics: Sequence[MetricRow], zero_ns: int) -> list[Usage]:
    """One row a process: nodes first, then clients, each in order of their names.

    Of a long run every n-th sample is kept; CPU is the mean since the one before.

    Args:
        zero_ns: start of load.
    """
    own: dict[tuple[str, str], list[tuple[int, float, int]]] = {}
    for row in metrics:
        if row.cpu_s is not None and row.rss_bytes is not None:
            role = "node" if row.node else "client"
            sample = (row.t_ns, row.cpu_s, row.rss_bytes)
            own.setdefault((role, row.node or row.worker), []).append(sample)
    rows = [_row(name, role, samples, zero_ns) for (role, name), samples in own.items()]
    rows.sort(key=lambda row: sum(value or 0 for value in row.cpu), reverse=True)
    return sorted(rows[:MAX_PROCESSES], key=lambda row: (row.role != "node", row.name))


def _row(name: str, role: str, samples: list[tuple[int, float, int]], zero_ns: int) -> Usage:
    kept = samples[:: -(-len(samples) // MAX_SAMPLES)]
    cpu: list[float | None] = [None]
    for (t_ns, cpu_s, _), (later_ns, later_s, _) in pairwise(kept):
        # A process that was started again counts from 0: nobody knows what it used in between.
        known = later_ns > t_ns and later_s >= cpu_s
        cpu.append(round((later_s - cpu_s) * 1e9 / (later_ns - t_ns), 3) if known else None)
    return Usage(
        name=name,
        role=role,
        t_s=[round((t_ns - zero_ns) / 1e9, 3) for t_ns, _, _ in kept],
        cpu=cpu,
        rss_bytes=[rss for _, _, rss in kept],
    )
