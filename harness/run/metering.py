"""Once a second: CPU, memory and counters of every worker and node, into metrics.jsonl."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import psutil

from harness.rundir import RunDir, append_jsonl

_LOG = logging.getLogger(__name__)
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
    """Samples in a thread of its own.

    Args:
        workers: name -> (pid, latest stats) of the workers, asked at each sample.
        nodes: node name -> (pid, {}), likewise.
    """

    def __init__(self, run: RunDir, *, workers: Sources, nodes: Sources) -> None:
        self._run = run
        self._sources = {"worker": workers, "node": nodes}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="meter", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Take a last sample and end. Idempotent."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(2 * PERIOD_S)

    def _loop(self) -> None:
        due = time.monotonic()
        while not self._stop.is_set():
            self._sample_if_there_is_room()
            due += PERIOD_S
            self._stop.wait(max(0.0, due - time.monotonic()))
        self._sample_if_there_is_room()

    def _sample_if_there_is_room(self) -> None:
        try:
            self.sample()
        except OSError as error:  # a full disk ends workers, who say so; here the next second may do
            _LOG.warning("metrics: %s", error)

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
