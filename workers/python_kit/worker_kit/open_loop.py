"""The producer role of clients that are called from threads: life, schedule, and how results come
in.

A worker derives from `OpenLoop` and adds the client: how to connect, how to send a run of messages
(its hot loop), how to let delivery reports come in, how to flush. The client is never helped:
nothing is sent twice, nothing is reordered, every result is written down.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace

from .failure import WorkerFailure
from .process import Session
from .sending import BATCH, BLOCKED_NS, ROW_BYTES, SETTLE_NS, Resend, Sender, Share, together

__all__ = ["BATCH", "BLOCKED_NS", "ROW_BYTES", "OpenLoop", "Resend", "Share"]
#: With messages due, delivery reports get this long between two batches.
GLANCE_NS = 2_000_000
NEVER_NS = 2**63 - 1
#: How long several sending threads get to notice the end.
END_S = 2.0


class OpenLoop(Sender, ABC):
    """One sending thread of a producer instance. `run`, of the first, returns when every row that
    the instance will ever complete is complete.

    Attributes:
        is_held: a call of the client may never return, so that the main thread makes none.
    """

    is_held = False

    def __init__(self, session: Session, share: Share | None = None) -> None:
        super().__init__(session, share)
        #: Delivery reports that `serve` has not come to by then are left for the next. Of no use to
        #: clients that report on threads of their own.
        self.serve_by_ns = NEVER_NS
        self.failure: Exception | None = None
        #: The other threads, where the client gives the answers of all of them to this one.
        self.answered_here: list[OpenLoop] = []
        #: Whether this thread, one of several, waits for no answer any more.
        self.is_settled = False

    # -- what the client adds

    @abstractmethod
    def connect(self) -> None:
        """Return when the client knows the topics of every lane."""

    @abstractmethod
    def offer(self, first: int, stop: int, kind: int) -> int:
        """Send messages ``first .. stop-1`` of the schedule, a row before each; returns the next
        index.

        Returns early when the load is to stop. Sets `attempted` before it returns, waits or asks
        for a segment, and `blocked_ns` when a call blocked.
        """

    @abstractmethod
    def serve(self, seconds: float) -> None:
        """Let delivery reports come in for up to this long; 0 = those that are there. See
        `serve_by_ns`."""

    @abstractmethod
    def flush(self, seconds: float) -> None:
        """Push what is queued, for up to this long."""

    @abstractmethod
    def close(self) -> None:
        """Close the client if that needs no waiting for brokers."""

    def load_over(self) -> None:
        """No message is offered any more. For clients that owe something then, such as a commit."""

    def resend(self, what: Resend) -> None:
        """Send one message again, as the application would. Only for ``results: resent``."""
        raise WorkerFailure("this worker cannot re-send: results must be checked or ignored")

    def for_thread(self, share: Share) -> OpenLoop:
        """A further sending thread on the same client. Only for ``threads``."""
        raise WorkerFailure("this worker sends from one thread: threads must be 1")

    # -- life

    def run(self) -> None:
        self.connect()
        shares = [Share(k, self.threads, self.segments) for k in range(1, self.threads)]
        loops = [self, *(self.for_thread(share) for share in shares)]
        self.session.report.counts = lambda: together(loops)
        self.session.ready()
        while not self.control.started.is_set():
            self.serve(0.02)
        if len(loops) == 1 and not self.is_held:
            self._produce()
        else:
            self._produce_in_threads(loops)
        if len(loops) == 1 or not any(loop.open_calls() for loop in loops):
            self.close()

    def _produce_in_threads(self, loops: Sequence[OpenLoop]) -> None:
        """A thread each. One that the client holds for ever delays nothing: this one continues at
        the end."""
        threads = [
            threading.Thread(target=loop._produce_or_fail, name=f"send-{k}", daemon=True)
            for k, loop in enumerate(loops)
        ]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads) and not self._is_over():
            time.sleep(0.02)
        give_up = time.monotonic() + END_S
        for thread in threads:
            thread.join(max(0.0, give_up - time.monotonic()))
        for loop in loops:
            if loop.failure:
                raise loop.failure

    def _produce_or_fail(self) -> None:
        """`_produce` of one of several threads: a failure ends the whole worker."""
        try:
            self._produce()
        except Exception as error:  # noqa: BLE001 - the main thread raises it
            self.failure = error
            self.control.stop()
        finally:
            self.is_settled = True

    def _produce(self) -> None:
        """Follow the schedule, then see every call of this thread to its outcome."""
        self.schedule = replace(self.schedule, t0_ns=self.control.t0_ns)
        try:
            if self.schedule.rate_per_s:
                self._load_at_rate()
            else:
                self._load_unlimited()
        except WorkerFailure:  # no room for the next row: what is under way still gets its outcome
            self._settle(time.monotonic_ns() + SETTLE_NS)
            raise
        self.load_over()
        while not self.control.draining:
            self.serve(0.02)
            self.resend_due()
        self._settle(self.control.deadline_ns)

    def _is_over(self) -> bool:
        return self.control.stopped or time.monotonic_ns() > self.control.deadline_ns

    def _load_at_rate(self) -> None:
        sent = 0
        while sent < self.schedule.total and not self.control.stop_load:
            span, step = self.span(), self.step(sent)
            if step.wake_ns:
                self._serve_until(step.wake_ns)
                self.caught_up(span, step.wake_ns)
                continue
            sent = self.offer(step.first, step.stop, step.kind)
            self._serve_by(max(self.schedule.due_ns(sent), time.monotonic_ns() + GLANCE_NS), 0)
            self.resend_due()
            self.worked(span, step.first, sent)

    def _load_unlimited(self) -> None:
        sent = 0
        self._serve_until(self.schedule.t0_ns)
        while not self.control.stop_load and (step := self.unlimited_step(sent)):
            sent = self.offer(step.first, step.stop, step.kind)
            self.serve(0)
            self.resend_due()

    def _serve_until(self, wake_ns: int) -> None:
        while (left := wake_ns - time.monotonic_ns()) > 0 and not self.control.stop_load:
            self._serve_by(wake_ns, min(left / 1e9, 0.1))
            self.resend_due()

    def _serve_by(self, by_ns: int, seconds: float) -> None:
        """`serve`, but what is due then does not wait: a broker that comes back answers everything
        that was sent meanwhile at once, which is seconds of delivery reports."""
        self.serve_by_ns = by_ns
        self.serve(seconds)
        self.serve_by_ns = NEVER_NS

    def _settle(self, deadline_ns: int) -> None:
        """Wait for every open call, those of threads that are answered here too, until the
        deadline or `stop`."""
        while self._awaits_answers() and not self.control.stopped:
            if time.monotonic_ns() > min(deadline_ns, self.control.deadline_ns):
                break
            self.flush(0.1)
            self.resend_due()
        self.serve(0)

    def _awaits_answers(self) -> bool:
        if self.open_calls() or self.resends:
            return True
        return not all(other.is_settled for other in self.answered_here)

    def resend_due(self) -> None:
        """Send again what failed long enough ago."""
        for what in self.due_resends():
            self.resend(what)
