"""The sending thread of a producer in transactions: when it begins one and ends it, and what is
written down.

A thread waits for the end of one transaction before it begins the next, as clients want it: what is
due meanwhile is offered late, and the time counts as blocked.
"""

from __future__ import annotations

import mmap
import time
from abc import abstractmethod

from . import layouts as lay
from .open_loop import NEVER_NS, OpenLoop, Share
from .process import Session
from .transactions import Transactions


class Transacting(OpenLoop):
    """Before the client's own `OpenLoop` in the list of bases, whose `offer` and `serve` it calls.

    Attributes:
        is_dead: the client takes nothing any more.
    """

    is_dead = False

    def transact(self, session: Session, first: Transacting | None, share: Share | None) -> None:
        """To be called before `__init__`: the constructor of the client wants the transactional
        id."""
        part = session.spec.part
        thread = share.thread if share else 0
        self.transactions = Transactions(
            session, part["transactions"], thread, part.get("threads", 1)
        )
        if first:
            self.transactions.share(first.transactions)

    # -- what the client adds

    @abstractmethod
    def begin(self) -> str:
        """Begin one; why it cannot be, empty = it did."""

    @abstractmethod
    def ended(self) -> tuple[int, str]:
        """End the open one as the application wants it: outcome of the messages, and why it is not
        another one.

        Says before each call, by `Transactions.ask`, what it asks for.
        """

    # -- what is sent

    def offer(self, first: int, stop: int, kind: int) -> int:
        """Offer messages to the client in one transaction after the other."""
        own = self.transactions
        while first < stop and not self.control.stop_load:
            if not own.number and not self.is_dead:
                self._begin()
            last = min(stop, first + own.room()) if own.number else stop
            sent = super().offer(first, last, kind)  # type: ignore[safe-super]  # the client's
            own.sent += sent - first
            first = sent
            if own.number and own.is_due():
                self._end()
        return first

    def serve(self, seconds: float) -> None:
        if not self.transactions.number:
            super().serve(seconds)  # type: ignore[safe-super]
            return
        super().serve(min(seconds, self.transactions.left_s()))  # type: ignore[safe-super]
        if self.transactions.is_due():
            self._end()

    def load_over(self) -> None:
        if self.transactions.number:
            self._end()

    # -- transactions

    def in_transaction(self, number: int) -> None:
        """Rows are of this one from now on; 0 = of none."""
        self.row_state = 1 | number << 32

    def open_row(
        self, lane: int, seq: int, due_ns: int, kind: int, attempt: int, now_ns: int
    ) -> tuple[mmap.mmap, int]:
        rows, at = super().open_row(lane, seq, due_ns, kind, attempt, now_ns)
        if self.transactions.number and self.capture:
            self.transactions.wrote(rows, self.at - lay.ROW_BYTES[lay.SENDS], self.at)
        return rows, at

    def _begin(self) -> None:
        own = self.transactions
        own.begin()
        if why := self.begin():
            own.answered(lay.FAIL, self._error(why))
        self.in_transaction(own.number)

    def _end(self) -> int:
        """End the open transaction, and complete the rows of its sends; their outcome."""
        own, began = self.transactions, time.monotonic_ns()
        self.blocked_since_ns, by, self.serve_by_ns = began, self.serve_by_ns, NEVER_NS
        try:
            outcome, text = self.ended()
        finally:
            self.serve_by_ns, self.blocked_since_ns = by, 0
            self.blocked_ns += time.monotonic_ns() - began
        error = self._error(text) if text else 0
        own.answered(lay.ABORTED if outcome == lay.FAIL else outcome, error)
        with self.lock:
            self.tally(outcome, own.complete(outcome, error) if self.capture else own.sent)
        self.in_transaction(0)
        return outcome

    def gives_up(self) -> bool:
        """Nobody waits for an answer any more."""
        return self.control.stopped or time.monotonic_ns() > self.control.deadline_ns

    def _error(self, text: str) -> int:
        return self.session.names.id("error", text)
