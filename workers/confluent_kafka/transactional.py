"""Producer role in transactions: each sending thread has a client and a transactional id of its own.

A thread waits for the end of one transaction before it begins the next, as the client wants it: what is due
meanwhile is offered late, and the time counts as blocked. An end that times out is asked for again, as the
client's documentation has it; one that the client refuses for good is aborted.
"""

from __future__ import annotations

import contextlib
import mmap
import time
from collections.abc import Callable
from struct import Struct

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from outcomes import Outcomes, error_text, note_death
from producer import ProducerRole
from worker_kit import layouts as lay
from worker_kit.failure import WorkerFailure
from worker_kit.open_loop import NEVER_NS, Share
from worker_kit.process import Session
from worker_kit.transactions import Transactions

#: A call for the coordinator; it is made again until it is answered.
TURN_S = 2.0
INIT_S = 60.0
AGAIN_S = 0.1
#: t_done_ns, position and stream, zeros between them: what a delivery report says while nothing is decided.
_REPORTED = Struct("<qq16xi")
#: Makes a client with a transactional id.
Make = Callable[[str], Producer]


class TransactionalRole(ProducerRole):
    def __init__(
        self, session: Session, make: Make, outcomes: Outcomes, first: TransactionalRole | None = None,
        share: Share | None = None,
    ) -> None:  # fmt: skip
        part = session.spec.part
        thread = share.thread if share else 0
        self.transactions = Transactions(session, part["transactions"], thread, part.get("threads", 1))
        if first:
            self.transactions.share(first.transactions)
        super().__init__(session, make(self.transactions.id), outcomes, share)
        self.make = make
        #: Why a message of the open transaction was not taken by the brokers.
        self.refused = ""
        self.is_dead = False

    def for_thread(self, share: Share) -> TransactionalRole:
        other = TransactionalRole(self.session, self.make, self.outcomes, self, share)
        other._init()
        return other

    def connect(self) -> None:
        super().connect()
        self._init()

    def _init(self) -> None:
        give_up = time.monotonic() + INIT_S
        while True:
            try:
                self.producer.init_transactions(TURN_S)
                return
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > give_up:
                    raise WorkerFailure(
                        f"init_transactions of {self.transactions.id}: {error_text(error.args[0])}"
                    ) from error

    # -- what is sent

    def offer(self, first: int, stop: int, kind: int) -> int:
        """As `ProducerRole.offer`, in one transaction after the other."""
        own = self.transactions
        while first < stop and not self.control.stop_load:
            if not own.number and not self.is_dead:
                self._begin()
            sent = super().offer(first, min(stop, first + own.room()) if own.number else stop, kind)
            own.sent += sent - first
            first = sent
            if own.number and own.is_due():
                self._end()
        return first

    def _burst(self, first: int, count: int, kind: int) -> int:
        rows, at = self.rows, self.at
        sent = super()._burst(first, count, kind)
        if self.transactions.number and self.capture:
            self.transactions.wrote(rows, at, self.at)
        return sent

    def serve(self, seconds: float) -> None:
        if not self.transactions.number:
            super().serve(seconds)
            return
        super().serve(min(seconds, self.transactions.left_s()))
        if self.transactions.is_due():
            self._end()

    def load_over(self) -> None:
        if self.transactions.number:
            self._end()

    def _make_report(self, rows: mmap.mmap, topic: str) -> Callable[[int, KafkaError | None, Message], None]:
        """What a delivery report says of a row whose outcome is that of its transaction."""
        plain, streams = super()._make_report(rows, topic), self.streams[topic]
        write, clock = _REPORTED.pack_into, time.monotonic_ns

        def done(at: int, error: KafkaError | None, message: Message) -> None:
            if self.is_dead and not self.transactions.number:
                plain(at, error, message)
            elif error is not None:
                self.refused = self.refused or error_text(error)
            elif not rows[at + lay.OUTCOME_IN_DONE]:
                offset = message.offset()
                write(rows, at, clock(), -1 if offset is None else offset, streams[message.partition()])

        return done

    def _count(self, error: KafkaError | None, _message: Message) -> None:
        """Without capture, too, messages are counted with their transaction."""
        if error is not None:
            self.refused = self.refused or error_text(error)

    # -- transactions

    def _begin(self) -> None:
        own = self.transactions
        own.begin()
        self.refused = ""
        try:
            self.producer.begin_transaction()
        except KafkaException as error:
            self._note(error.args[0])
            own.answered(lay.FAIL, self._error(error_text(error.args[0])))
        self.open_rows.in_transaction(own.number)

    def _end(self) -> None:
        """End the open transaction as the application wants it, and complete the rows of its sends."""
        own, began = self.transactions, time.monotonic_ns()
        self.blocked_since_ns, by, self.serve_by_ns = began, self.serve_by_ns, NEVER_NS
        try:
            outcome, text = self._ended()
        finally:
            self.serve_by_ns, self.blocked_since_ns = by, 0
            self.blocked_ns += time.monotonic_ns() - began
        error = self._error(text) if text else 0
        own.answered(lay.ABORTED if outcome == lay.FAIL else outcome, error)
        with self.lock:
            self.tally(outcome, own.complete(outcome, error) if self.capture else own.sent)
        self.open_rows.in_transaction(0)

    def _ended(self) -> tuple[int, str]:
        """Outcome of the messages, and why it is no other."""
        own = self.transactions
        if own.aborts:
            self._deliver()
            text = self._abort()
            return (lay.INFO, text) if text else (lay.ABORTED, "")
        own.ask(lay.COMMIT_ASKED)
        error = self._until_answered(self.producer.commit_transaction)
        if error is None:
            return lay.OK, ""
        text = error_text(error)
        self.session.report.error(error.name(), f"commit_transaction: {text}")
        if error.fatal() or not error.txn_requires_abort():
            return lay.INFO, text
        why = self.refused or text
        return (lay.INFO, text) if self._abort() else (lay.FAIL, why)

    def _deliver(self) -> None:
        """Wait for the delivery reports: an abort of what was never stored would hide nothing."""
        while len(self.producer) and not self._gives_up() and not self.is_dead:
            with self._listening():
                self.producer.flush(TURN_S)

    def _gives_up(self) -> bool:
        """Nobody waits for an answer any more."""
        return self.control.stopped or time.monotonic_ns() > self.control.deadline_ns

    def _abort(self) -> str:
        """Why it is not known to be aborted; empty = it is."""
        self.transactions.ask(lay.ABORT_ASKED)
        error = self._until_answered(self.producer.abort_transaction)
        if error is None:
            return ""
        self.session.report.error(error.name(), f"abort_transaction: {error_text(error)}")
        return error_text(error)

    def _until_answered(self, call: Callable[[float], None]) -> KafkaError | None:
        """Ask until the client answers, or nobody waits any more."""
        while True:
            try:
                call(TURN_S)
            except KafkaException as raised:
                error: KafkaError = raised.args[0]
                self._note(error)
                if not error.retriable() or self._gives_up():
                    return error
                time.sleep(AGAIN_S)
            else:
                return None

    def _note(self, error: KafkaError) -> None:
        if note_death(self.session.report, error):
            self.is_dead = True

    def _error(self, text: str) -> int:
        return self.session.names.id("error", text)

    def close(self) -> None:
        with contextlib.suppress(KafkaException):
            super().close()
