"""Executes a timeline on a live cluster, and heals all of it."""

from __future__ import annotations

import threading
import time

from faults.engine.claims import NodeClaims
from faults.engine.firing import ExecutionContext, FaultExecution
from faults.engine.journal import FaultJournal, OnEvent
from faults.engine.ledger import Ledger
from faults.kit.cluster_view import ClusterView
from faults.schedule.timeline import Firing, Timeline
from harness.contracts.rows import FaultEvent
from harness.protocols.cluster import Cluster
from harness.protocols.faulting import ClientLives, Clients
from harness.rundir import RunDir

#: A killed node takes 7 to 20 s to be in sync again on a busy machine, over a minute on a swamped
#: one.
VERIFY_S = 120.0
_A_DAY_S = 24 * 3600.0
#: Once somebody wants the run to stop, `heal_all` waits at most this long for the cluster to
#: recover.
STOPPING_S = 10.0
#: How soon `heal_all` notices that it shall hurry.
_SLICE_S = 0.1


def ignore(event: FaultEvent) -> None:
    """A listener that does nothing."""


class Injector:
    """The faults of one run (`harness.protocols.faulting.FaultInjector`).

    Firings start at absolute times, each in a thread of its own. `heal_all` may be called at any
    time, from any thread and again; what it cannot heal in its time stays in the ledger.
    """

    def __init__(
        self,
        timeline: Timeline,
        cluster: Cluster,
        run: RunDir,
        *,
        on_event: OnEvent = ignore,
        stopping: threading.Event | None = None,
        hurry: threading.Event | None = None,
        verify_s: float | None = None,
    ) -> None:
        """``stopping``: once set, `heal_all` waits only `STOPPING_S` more for the cluster to
        recover. ``hurry``: once set, it undoes but no longer waits at all."""
        self._timeline = timeline
        claims = NodeClaims()
        view = ClusterView(cluster, timeline.inventory, faulted=claims.nodes)
        self._context = ExecutionContext(
            view,
            FaultJournal(run, on_event),
            Ledger(run),
            claims,
            VERIFY_S if verify_s is None else verify_s,
        )
        self._executions: list[FaultExecution] = []
        self._stopped = threading.Event()
        self._scheduler = threading.Thread(target=self._schedule, name="faults", daemon=True)
        self._stopping = stopping or threading.Event()
        self._hurry = hurry or threading.Event()
        self._epoch_ns, self._since_s = 0, 0.0

    def start(
        self,
        epoch_ns: int,
        clients: Clients = dict,
        lives: ClientLives | None = None,
        *,
        since_s: float = 0.0,
    ) -> None:
        """Begin; ``epoch_ns`` (CLOCK_MONOTONIC) is the timeline's t = 0. Once. ``since_s``: what
        was due before is left out."""
        self._epoch_ns, self._since_s = epoch_ns, since_s
        self._context.view.clients = clients
        self._context.view.lives = lives
        self._scheduler.start()

    def _schedule(self) -> None:
        for firing in self._timeline.firings:
            if firing.t_s < self._since_s:
                continue
            due_ns = self._epoch_ns + int(firing.t_s * 1e9)
            if self._stopped.wait(max(0.0, (due_ns - time.monotonic_ns()) / 1e9)):
                self._context.journal.skipped(firing, "the run stopped before it was due")
                continue
            self.fire(firing)

    def fire(self, firing: Firing, *, leave: bool = False) -> None:
        """Fire now; ``leave``: without healing, the ledger keeps it for `heal_from_ledger`."""
        execution = FaultExecution(firing, self._context, leave=leave)
        # In a load of hours, thousands of firings would be over.
        self._executions = [*(each for each in self._executions if not each.is_over), execution]
        execution.start()

    def stop(self) -> None:
        """Inject nothing more; what is applied stays until its time or `heal_all`. Idempotent."""
        self._stopped.set()

    def heal_all(self, timeout_s: float) -> list[str]:
        """Heal and verify whatever is applied. Bounded, idempotent; returns at once when nothing
        is.

        Returns:
            What is still applied, as text. A node that runs again but is not in sync yet is not
            among them: its ``healed`` row says ``ok: false``, and readiness is the run's to judge.
        """
        deadline = time.monotonic() + timeout_s
        self.stop()
        self._context.view.stopping.set()
        if self._scheduler.ident is not None:
            self._scheduler.join(_left(deadline))
        executions = list(self._executions)
        asked = self._stopping.is_set()  # before this call: its time has been set with that in mind
        for execution in executions:
            while execution.is_alive() and time.monotonic() < deadline and not self._hurry.is_set():
                execution.join(min(_SLICE_S, _left(deadline)))
                if not asked and self._stopping.is_set():
                    asked, deadline = True, min(deadline, time.monotonic() + STOPPING_S)
        for execution in executions:
            execution.stop_waiting()
        return [
            text
            for text in (execution.failure or execution.undo_now() for execution in executions)
            if text
        ]

    def join(self, timeout_s: float = _A_DAY_S) -> None:
        """Wait until every firing has come and is healed, at most ``timeout_s``.

        Raises:
            OSError: an event still finds no room on the disk.
        """
        deadline = time.monotonic() + timeout_s
        if self._scheduler.ident is not None:
            self._scheduler.join(_left(deadline))
        for execution in list(self._executions):
            execution.join(_left(deadline))
        self._context.journal.flush()


def _left(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())
