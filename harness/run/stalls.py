"""Monitors consumers that are handed nothing while messages wait for them, and keeps their stacks.

Unlike a hang no call has a deadline here, and a consumer may continue by itself: it is not ended.
Judging of the sealed capture says by stream what it was (analysis/kernels/stall.py); this is the
evidence, taken while there is a process to ask.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from harness.contracts.plan import Plan
from harness.errors import BrokerstormError
from harness.faultlog import FaultTail
from harness.protocols.cluster import Admin, HasBacklogs
from harness.run.draining import shares, waiting_for
from harness.run.liveness import Stall, StallDetector
from harness.run.worker_pool import WorkerPool
from harness.run.worker_process import WorkerProcess
from harness.rundir import RunDir

StallsByConsumer = Mapping[str, Stall | None]


class StallMonitor:
    """Call `check` every `CHECK_EVERY_S`. Reports what two checks in a row have seen, and its
    end."""

    def __init__(
        self, plan: Plan, run: RunDir, admin: Callable[[], Admin], pool: WorkerPool
    ) -> None:
        self._plan = plan
        self._faults = FaultTail(run.faults)
        self._admin = admin
        self._pool = pool
        limit_s = plan.limits["stall"]
        # The application's own work is not a stall of the client.
        self._detectors = {c.name: StallDetector(limit_s + c.work_s) for c in plan.consumers}
        self._suspected: dict[str, int] = {}
        self._reported: set[str] = set()

    def check_now(self) -> None:
        """Look at every consumer now."""
        self.check(time.monotonic_ns())

    def check(self, now_ns: int) -> None:
        """``now_ns``: CLOCK_MONOTONIC."""
        faulted = self._faults.is_any_applied
        stalls = {w.plan_name: self._detect(w, now_ns, faulted) for w in self._pool.consumers}
        for number, worker in enumerate(self._pool.consumers):
            stall = stalls[worker.plan_name]
            if stall is None and worker.plan_name in self._reported:
                self._reported.discard(worker.plan_name)
                self._pool.note_stall_over(worker)
            elif stall is not None and worker.plan_name not in self._reported:
                self._suspect(number, stall, stalls)

    def _detect(self, worker: WorkerProcess, now_ns: int, faulted: bool) -> Stall | None:
        counts = worker.is_alive and not worker.is_stopped and not faulted
        return self._detectors[worker.plan_name].check(now_ns, worker.stats, counts=counts)

    def _suspect(self, number: int, stall: Stall, stalls: StallsByConsumer) -> None:
        worker = self._pool.consumers[number]
        name = worker.plan_name
        before, self._suspected[name] = self._suspected.get(name), stall.since_ns
        if before != stall.since_ns:
            return  # a message that came a moment ago may still be on its way
        waiting = self._waiting(number, stalls)
        if waiting:
            self._reported.add(name)
            self._pool.note_stall(worker, stall, waiting)

    def _waiting(self, number: int, stalls: StallsByConsumer) -> int:
        admin = self._admin()
        is_common = isinstance(admin, HasBacklogs) or shares(self._plan.consumers[number])
        if is_common and not self._is_group_stalled(number, stalls):
            return 0  # what the subscription holds may be for the members that continue
        stats = [each.stats for each in self._pool.consumers]
        try:
            return waiting_for(self._plan, admin, stats, number)
        except BrokerstormError:
            return 0  # brokers that cannot say what waits may be what the consumer waits for

    def _is_group_stalled(self, number: int, stalls: StallsByConsumer) -> bool:
        group = self._plan.consumers[number].group
        return all(stalls[c.name] is not None for c in self._plan.consumers if c.group == group)
