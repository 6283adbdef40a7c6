"""The metrics of the runs of one command: follows the current run, and feeds the outlets."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Protocol

from harness.contracts.plan import Plan
from harness.run.periodic import PeriodicThread
from harness.rundir import RunDir
from harness.telemetry.instruments import Now, Values
from harness.telemetry.run_follower import RunFollower

READ_EVERY_S: Final = 1.0


class Outlet(Protocol):
    """Where metrics go."""

    url: str

    def flush(self) -> None: ...
    def close(self) -> None: ...


class Telemetry:
    """Follows one run after the other. Without outlets nothing is read and nothing is started.

    The values of a run stay until the next one begins.
    """

    def __init__(self) -> None:
        self._outlets: list[Outlet] = []
        self._follower: RunFollower | None = None
        self._has_ended = False
        self._thread = PeriodicThread("telemetry", self._look, period_s=READ_EVERY_S)

    @property
    def urls(self) -> list[str]:
        return [outlet.url for outlet in self._outlets]

    def open(self, make: Callable[[Now], Outlet]) -> None:
        """Open one more outlet, and begin to read.

        Raises:
            EnvironmentNotReady: it cannot be opened.
        """
        self._outlets.append(make(self._now))
        if len(self._outlets) == 1:
            self._thread.start()

    def begin(self, plan: Plan, run: RunDir, name: str) -> None:
        """A run begins in the folder ``run``; ``name`` is what its points bear."""
        if self._outlets:
            self._has_ended = False
            self._follower = RunFollower(plan, run, name)

    def phase(self, name: str) -> None:
        """A phase of the current run begins."""
        if self._follower is not None:
            self._follower.phase(name)

    def end(self) -> None:
        """The workers of the run have ended: take a last look, and tell the outlets."""
        if self._follower is not None:
            self._has_ended = True
            self._thread.call()
            for outlet in self._outlets:
                outlet.flush()

    def close(self) -> None:
        """End what was opened. Idempotent."""
        self.end()
        self._thread.stop()
        while self._outlets:
            self._outlets.pop().close()

    def _now(self) -> tuple[Values, int, int]:
        follower, now_ns = self._follower, time.time_ns()
        return (follower.values(), follower.began_ns, now_ns) if follower else ({}, now_ns, now_ns)

    def _look(self) -> None:
        if self._follower is not None:
            self._follower.close() if self._has_ended else self._follower.read()
