"""Times that brokers tell by the wall clock, on the clock of a capture."""

from __future__ import annotations

import time

_NS_A_MS = 1_000_000
_LOOKS = 5


class WallClock:
    """How far the wall clock is ahead of CLOCK_MONOTONIC, measured once.

    Exact as long as nobody sets the wall clock: brokers and harness share a machine.
    """

    def __init__(self) -> None:
        self._ahead_ns = min(map(_look, range(_LOOKS)))[1]

    def monotonic_ns(self, wall_ms: int) -> int:
        """CLOCK_MONOTONIC at a time; 0, for not known, stays 0."""
        return wall_ms * _NS_A_MS - self._ahead_ns if wall_ms else 0


def _look(_: int) -> tuple[int, int]:
    """How long looking at both clocks took, so how wrong it may be, and what it gave."""
    before, wall, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
    return after - before, wall - (before + after) // 2
