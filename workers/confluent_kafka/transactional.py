"""Producer role in transactions: each sending thread has a client and a transactional id of its
own.

An end that times out is asked for again, as the client's documentation has it; one that the client
refuses for good is aborted.
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
from worker_kit.open_loop import Share
from worker_kit.process import Session
from worker_kit.transacting import Transacting

#: A call for the coordinator; it is repeated until it is answered.
TURN_S = 2.0
INIT_S = 60.0
AGAIN_S = 0.1
#: t_done_ns, position and stream, zeros between them: what a delivery report says while nothing is
#: decided.
_REPORTED = Struct("<qq16xi")
#: Makes a client with a transactional id.
Make = Callable[[str], Producer]


class TransactionalRole(Transacting, ProducerRole):
    def __init__(
        self, session: Session, make: Make, outcomes: Outcomes, first: TransactionalRole | None = None,
        share: Share | None = None,
    ) -> None:  # fmt: skip
        self.transact(session, first, share)
        super().__init__(session, make(self.transactions.id), outcomes, share)
        self.make = make
        #: Why a message of the open transaction was not taken by the brokers.
        self.refused = ""

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

    def _burst(self, first: int, count: int, kind: int) -> int:
        rows, at = self.rows, self.at
        sent = super()._burst(first, count, kind)
        if self.transactions.number and self.capture:
            self.transactions.wrote(rows, at, self.at)
        return sent

    def _make_report(
        self, rows: mmap.mmap, topic: str
    ) -> Callable[[int, KafkaError | None, Message], None]:
        """Make the delivery report of a row that has the outcome of its transaction."""
        plain, streams = super()._make_report(rows, topic), self.streams[topic]
        write, clock = _REPORTED.pack_into, time.monotonic_ns

        def done(at: int, error: KafkaError | None, message: Message) -> None:
            if self.is_dead and not self.transactions.number:
                plain(at, error, message)
            elif error is not None:
                self.refused = self.refused or error_text(error)
            elif not rows[at + lay.OUTCOME_IN_DONE]:
                offset = message.offset()
                write(
                    rows,
                    at,
                    clock(),
                    -1 if offset is None else offset,
                    streams[message.partition()],
                )

        return done

    def _count(self, error: KafkaError | None, _message: Message) -> None:
        """Without capture, too, messages are counted with their transaction."""
        if error is not None:
            self.refused = self.refused or error_text(error)

    # -- transactions

    def in_transaction(self, number: int) -> None:
        self.open_rows.in_transaction(number)

    def begin(self) -> str:
        self.refused = ""
        try:
            self.producer.begin_transaction()
        except KafkaException as error:
            self._note(error.args[0])
            return error_text(error.args[0])
        return ""

    def ended(self) -> tuple[int, str]:
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
        while len(self.producer) and not self.gives_up() and not self.is_dead:
            with self._listening():
                self.producer.flush(TURN_S)

    def _abort(self) -> str:
        """Why it is not known to be aborted; empty = it is."""
        self.transactions.ask(lay.ABORT_ASKED)
        error = self._until_answered(self.producer.abort_transaction)
        if error is None:
            return ""
        self.session.report.error(error.name(), f"abort_transaction: {error_text(error)}")
        return error_text(error)

    def _until_answered(self, call: Callable[[float], None]) -> KafkaError | None:
        """Ask until the client answers, or nothing waits any more."""
        while True:
            try:
                call(TURN_S)
            except KafkaException as raised:
                error: KafkaError = raised.args[0]
                self._note(error)
                if not error.retriable() or self.gives_up():
                    return error
                time.sleep(AGAIN_S)
            else:
                return None

    def _note(self, error: KafkaError) -> None:
        if note_death(self.session.report, error):
            self.is_dead = True

    def close(self) -> None:
        with contextlib.suppress(KafkaException):
            super().close()
