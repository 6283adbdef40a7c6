"""Samples CPU, memory, descriptors and counters of every worker and node, and the machine's CPU,
into metrics.jsonl."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping

import psutil

from harness.contracts.worker import StatsLine
from harness.run.periodic import PeriodicThread
from harness.rundir import RunDir, append_jsonl

PERIOD_S = 1.0
#: Fields of a worker's ``stats`` line that are metrics.
COUNTERS = {
    "attempted",
    "ok",
    "fail",
    "info",
    "open",
    "late_max_ns",
    "blocked_ns",
    "frozen_ns",
    "delivered",
}

Sources = Callable[[], Mapping[str, tuple[int | None, StatsLine]]]


class Meter(PeriodicThread):
    """Samples in a thread of its own; a sample that cannot be written is not the last.

    Args:
        workers: name -> (pid, latest stats) of the workers, asked at each sample.
        nodes: node name -> (pid, no numbers), likewise.
    """

    def __init__(self, run: RunDir, *, workers: Sources, nodes: Sources) -> None:
        self._run = run
        self._sources = {"worker": workers, "node": nodes}
        super().__init__("metrics", self.sample, period_s=PERIOD_S)

    def stop(self) -> None:
        """End with a last sample."""
        super().stop()
        self.call()

    def sample(self) -> None:
        """Write one row for each process that runs now, and one of the machine."""
        for label, source in self._sources.items():
            for name, (pid, stats) in source().items():
                usage = _usage(pid)
                if usage is None:
                    continue
                counters = stats.model_dump(include=COUNTERS, exclude_unset=True)
                row = {"t_ns": time.monotonic_ns(), "wall_ns": time.time_ns(), label: name}
                append_jsonl(self._run.metrics, {**row, **usage, **counters})
        now = {"t_ns": time.monotonic_ns(), "wall_ns": time.time_ns()}
        append_jsonl(self._run.metrics, now | _machine())


def _machine() -> dict[str, float]:
    """CPU seconds since boot: busy, given to other machines of the host, and of this process
    itself."""
    times = psutil.cpu_times()._asdict()
    idle = ("idle", "iowait", "steal", "guest", "guest_nice")  # user counts guests already
    own = psutil.Process().cpu_times()
    return {
        "cores": psutil.cpu_count() or 1,
        "busy_s": round(sum(seconds for name, seconds in times.items() if name not in idle), 3),
        "stolen_s": round(times.get("steal", 0.0), 3),
        "own_s": round(own.user + own.system, 3),
    }


def _usage(pid: int | None) -> dict[str, float] | None:
    if pid is None:
        return None
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            times = process.cpu_times()
            usage = {
                "cpu_s": round(times.user + times.system, 3),
                "rss_bytes": process.memory_info().rss,
            }
    except psutil.Error:
        return None
    with contextlib.suppress(psutil.Error):  # processes of other users cannot be read
        usage["descriptors"] = process.num_fds()
    return usage
