"""The producer role of clients that are called from a thread: life, schedule, and how results come in.

A worker derives from `OpenLoop` and adds the client: how to connect, how to send a run of messages (its
hot loop), how to let delivery reports come in, how to flush. The client is never helped: nothing is sent
twice, nothing is reordered, every result is written down.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import replace

from .failure import WorkerFailure
from .process import Session
from .sending import BATCH, BLOCKED_NS, ROW_BYTES, SETTLE_NS, Resend, Sender

__all__ = ["BATCH", "BLOCKED_NS", "ROW_BYTES", "OpenLoop", "Resend"]
#: With messages due, delivery reports get this long between two batches.
GLANCE_NS = 2_000_000
NEVER_NS = 2**63 - 1


class OpenLoop(Sender, ABC):
    """One producer instance. `run` returns when every row it will ever complete is complete."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        #: Delivery reports that `serve` has not come to by then are left for the next. Of no use to clients
        #: that report on threads of their own.
        self.serve_by_ns = NEVER_NS

    # -- what the client adds

    @abstractmethod
    def connect(self) -> None:
        """Return when the client knows the topics of every lane."""

    @abstractmethod
    def offer(self, first: int, stop: int, kind: int) -> int:
        """Send messages ``first .. stop-1`` of the schedule, a row before each; returns the next index.

        Returns early when the load is to stop. Sets `attempted` before it returns, waits or asks for a
        segment, and `blocked_ns` when a call blocked.
        """

    @abstractmethod
    def serve(self, seconds: float) -> None:
        """Let delivery reports come in for up to this long; 0 = those that are there. See `serve_by_ns`."""

    @abstractmethod
    def flush(self, seconds: float) -> None:
        """Push what is queued, for up to this long."""

    @abstractmethod
    def close(self) -> None:
        """Close the client if that needs no waiting for brokers."""

    def resend(self, what: Resend) -> None:
        """Send one message again, as the application would. Only for ``results: resent``."""
        raise WorkerFailure("this worker cannot re-send: results must be checked or ignored")

    # -- life

    def run(self) -> None:
        self.connect()
        self.session.report.counts = self.counts
        self.session.ready()
        while not self.control.started.is_set():
            self.serve(0.02)
        self.schedule = replace(self.schedule, t0_ns=self.control.t0_ns)
        try:
            if self.schedule.rate_per_s:
                self._load_at_rate()
            else:
                self._load_unlimited()
        except WorkerFailure:  # no room for the next row: what is under way still gets its outcome
            self._settle(time.monotonic_ns() + SETTLE_NS)
            raise
        while not self.control.draining:
            self.serve(0.02)
            self.resend_due()
        self._settle(self.control.deadline_ns)
        self.close()

    def _load_at_rate(self) -> None:
        sent = 0
        while sent < self.schedule.total and not self.control.stop_load:
            span, turn = self.span(), self.turn(sent)
            if turn.wake_ns:
                self._serve_until(turn.wake_ns)
                self.caught_up(span, turn.wake_ns)
                continue
            sent = self.offer(turn.first, turn.stop, turn.kind)
            self._serve_by(max(self.schedule.due_ns(sent), time.monotonic_ns() + GLANCE_NS), 0)
            self.resend_due()
            self.worked(span, sent - turn.first)

    def _load_unlimited(self) -> None:
        sent = 0
        self._serve_until(self.schedule.t0_ns)
        while not self.control.stop_load and (turn := self.unlimited_turn(sent)):
            sent = self.offer(turn.first, turn.stop, turn.kind)
            self.serve(0)
            self.resend_due()

    def _serve_until(self, wake_ns: int) -> None:
        while (left := wake_ns - time.monotonic_ns()) > 0 and not self.control.stop_load:
            self._serve_by(wake_ns, min(left / 1e9, 0.1))
            self.resend_due()

    def _serve_by(self, by_ns: int, seconds: float) -> None:
        """`serve`, but what is due then does not wait: a broker that comes back answers everything that was
        sent meanwhile at once, which is seconds of delivery reports."""
        self.serve_by_ns = by_ns
        self.serve(seconds)
        self.serve_by_ns = NEVER_NS

    def _settle(self, deadline_ns: int) -> None:
        """Wait for every open call, until the deadline or `stop`."""
        while (self.open_calls() or self.resends) and not self.control.stopped:
            if time.monotonic_ns() > min(deadline_ns, self.control.deadline_ns):
                break
            self.flush(0.1)
            self.resend_due()
        self.serve(0)

    def resend_due(self) -> None:
        """Send again what failed long enough ago."""
        for what in self.due_resends():
            self.resend(what)
