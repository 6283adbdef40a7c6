"""Samples CPU, memory and counters of every worker and node into metrics.jsonl, once a second."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import psutil

from harness.run.periodic import PeriodicThread
from harness.rundir import RunDir, append_jsonl

PERIOD_S = 1.0
#: Fields of a worker's ``stats`` line that are metrics.
COUNTERS = (
    "attempted",
    "ok",
    "fail",
    "info",
    "open",
    "late_max_ns",
    "blocked_ns",
    "frozen_ns",
    "delivered",
)

Sources = Callable[[], Mapping[str, tuple[int | None, Mapping[str, Any]]]]


class Meter:
    """Samples in a thread of its own; a sample that cannot be written is not the last.

    Args:
        workers: name -> (pid, latest stats) of the workers, asked at each sample.
        nodes: node name -> (pid, {}), likewise.
    """

    def __init__(self, run: RunDir, *, workers: Sources, nodes: Sources) -> None:
        self._run = run
        self._sources = {"worker": workers, "node": nodes}
        self._thread = PeriodicThread("metrics", self.sample, period_s=PERIOD_S)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End with a last sample."""
        self._thread.stop()
        self._thread.call()

    def sample(self) -> None:
        """Write one row for each process that runs now."""
        for label, source in self._sources.items():
            for name, (pid, stats) in source().items():
                usage = _usage(pid)
                if usage is None:
                    continue
                counters = {key: stats[key] for key in COUNTERS if key in stats}
                row = {"t_ns": time.monotonic_ns(), "wall_ns": time.time_ns(), label: name}
                append_jsonl(self._run.metrics, {**row, **usage, **counters})


def _usage(pid: int | None) -> dict[str, float] | None:
    if pid is None:
        return None
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            times = process.cpu_times()
            return {"cpu_s": round(times.user + times.system, 3), "rss_bytes": process.memory_info().rss}
    except psutil.Error:
        return None
