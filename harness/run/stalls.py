"""Consumers that are handed nothing while messages wait for them: noticed, told, kept with their stacks.

Unlike a hang no call has a deadline here, and a consumer may go on by itself: it is not ended. Judging of the
sealed capture says by stream what it was (analysis/kernels/stall.py); this is the evidence, taken while there
is a process to ask.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from harness.errors import BrokerstormError
from harness.faultlog import read_faults
from harness.plan.model import Plan
from harness.protocols.cluster import Admin, HasBacklogs
from harness.run.draining import waiting_for
from harness.run.liveness import Silence, StallJudge
from harness.run.worker_process import WorkerProcess
from harness.rundir import RunDir

Silences = Mapping[str, Silence | None]


class Watched(Protocol):
    """The crew, as far as it is looked after here; ``consumers`` in the order of the plan."""

    consumers: list[WorkerProcess]

    def note_stall(self, worker: WorkerProcess, silence: Silence, waiting: int) -> None: ...
    def note_going_on(self, worker: WorkerProcess) -> None: ...


class Stalls:
    """Call `look` once a second. What two looks in a row have seen is told, and its end too."""

    def __init__(self, plan: Plan, run: RunDir, admin: Callable[[], Admin], crew: Watched) -> None:
        self._plan = plan
        self._run = run
        self._admin = admin
        self._crew = crew
        limit_s = plan.limits["stall"]
        # The application's own work is no silence of the client.
        self._judges = {c.name: StallJudge(limit_s + c.work_s) for c in plan.consumers}
        self._suspected: dict[str, int] = {}
        self._told: set[str] = set()

    def look(self, now_ns: int) -> None:
        """``now_ns``: CLOCK_MONOTONIC."""
        faulted = any(fault.is_applied for fault in read_faults(self._run.faults))
        silences = {w.name: self._silence(w, now_ns, faulted) for w in self._crew.consumers}
        for number, worker in enumerate(self._crew.consumers):
            silence = silences[worker.name]
            if silence is None and worker.name in self._told:
                self._told.discard(worker.name)
                self._crew.note_going_on(worker)
            elif silence is not None and worker.name not in self._told:
                self._suspect(number, silence, silences)

    def _silence(self, worker: WorkerProcess, now_ns: int, faulted: bool) -> Silence | None:
        counts = worker.is_alive and not worker.is_stopped and not faulted
        return self._judges[worker.name].look(now_ns, worker.stats, counts=counts)

    def _suspect(self, number: int, silence: Silence, silences: Silences) -> None:
        worker = self._crew.consumers[number]
        before, self._suspected[worker.name] = self._suspected.get(worker.name), silence.since_ns
        if before != silence.since_ns:
            return  # a message that came a moment ago may still be on its way
        waiting = self._waiting(number, silences)
        if waiting:
            self._told.add(worker.name)
            self._crew.note_stall(worker, silence, waiting)

    def _waiting(self, number: int, silences: Silences) -> int:
        admin = self._admin()
        if isinstance(admin, HasBacklogs) and not self._is_group_silent(number, silences):
            return 0  # what the subscription holds may be for the members that go on
        stats: Sequence[Mapping[str, Any]] = [each.stats for each in self._crew.consumers]
        try:
            return waiting_for(self._plan, admin, stats, number)
        except BrokerstormError:
            return 0  # brokers that cannot say what waits may be what the consumer waits for

    def _is_group_silent(self, number: int, silences: Silences) -> bool:
        group = self._plan.consumers[number].group
        return all(silences[c.name] is not None for c in self._plan.consumers if c.group == group)
