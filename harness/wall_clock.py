"""Turns the wall clock of logs and brokers into the clock of the capture (CLOCK_MONOTONIC) and
back.

Every row of metrics.jsonl has both clocks, as the start of load has in the manifest: a wall clock
that was set during the run is followed.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from harness.contracts import read_document, read_rows
from harness.contracts.rows import Manifest, MetricRow
from harness.rundir import RunDir, reading

#: Reading two clocks one after the other takes less; further apart, and one of them was set.
_SAME_NS = 5_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOOKS = 5


class WallClock:
    """Both clocks of one run, or of this machine.

    Args:
        readings: (CLOCK_MONOTONIC, wall clock since 1970) in ns; at least one.
        epoch_ns: the start of load.
    """

    def __init__(self, readings: Iterable[tuple[int, int]], epoch_ns: int = 0) -> None:
        self.epoch_ns = epoch_ns
        self._begins: list[int] = []
        self._ahead: list[int] = []
        for t_ns, wall_ns in sorted(readings):
            if not self._ahead or abs(wall_ns - t_ns - self._ahead[-1]) > _SAME_NS:
                self._begins.append(t_ns)
                self._ahead.append(wall_ns - t_ns)

    @classmethod
    def read_from(cls, run: RunDir) -> WallClock | None:
        """Return the wall clock of a run; None if the run does not say when it was, as in a capture
        of another tool.

        Raises:
            UsageError: the manifest or metrics.jsonl is damaged.
        """
        with reading(run):
            manifest = read_document(run.manifest, Manifest)
            if not manifest.epoch_wall:
                return None
            started = datetime.fromisoformat(manifest.epoch_wall)
            wall_ns = (started - _EPOCH) // timedelta(microseconds=1) * 1000
            rows = read_rows(run.metrics, MetricRow)
            both = [(row.t_ns, row.wall_ns) for row in rows if row.wall_ns is not None]
            return cls([(manifest.epoch_ns, wall_ns), *both], manifest.epoch_ns)

    @classmethod
    def now(cls) -> WallClock:
        """Measured once. Exact as long as the wall clock is not set: brokers and harness share a
        machine."""
        return cls([min(map(_look, range(_LOOKS)))[1:]])

    def wall_ns(self, t_ns: int) -> int:
        return t_ns + self._ahead[max(bisect_right(self._begins, t_ns) - 1, 0)]

    def t_ns_of_ms(self, wall_ms: int) -> int:
        """`t_ns` of a time in ms; 0, for not known, stays 0."""
        return self.t_ns(wall_ms * 1_000_000) if wall_ms else 0

    def t_ns(self, wall_ns: int) -> int:
        """Return the moment of a wall-clock time; for a time that occurred twice because the clock
        was set back, the later one.
        """
        for begin, ahead in zip(reversed(self._begins), reversed(self._ahead), strict=True):
            if wall_ns - ahead >= begin:
                return wall_ns - ahead
        return wall_ns - self._ahead[0]


def _look(_: int) -> tuple[int, int, int]:
    """How long looking at both clocks took, so how wrong it may be, and a reading of them."""
    before, wall, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
    return after - before, (before + after) // 2, wall
