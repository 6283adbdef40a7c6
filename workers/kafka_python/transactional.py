"""Producer role in transactions: each sending thread has a client and a transactional id of its
own.

The client waits for the end of a transaction without a time-out. An application looks at the
answers to its sends first, and aborts when one of them is an error (README, "KafkaProducer":
`future.get()`, then commit).
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable
from typing import Any

from kafka import KafkaProducer
from kafka.errors import KafkaError
from outcomes import Outcomes, note_death
from producer import ProducerRole
from worker_kit import layouts as lay
from worker_kit.error_texts import error_text
from worker_kit.failure import WorkerFailure
from worker_kit.open_loop import Share
from worker_kit.process import Session
from worker_kit.transacting import Transacting

TURN_S = 2.0
#: Makes a client with a transactional id.
Make = Callable[[str], KafkaProducer]


class TransactionalRole(Transacting, ProducerRole):
    is_held = True

    def __init__(
        self, session: Session, make: Make, outcomes: Outcomes, first: TransactionalRole | None = None,
        share: Share | None = None,
    ) -> None:  # fmt: skip
        self.transact(session, first, share)
        super().__init__(session, make(self.transactions.id), outcomes, share)
        self.make = make
        self.others: list[TransactionalRole] = []
        #: Sends of the open transaction that the client answered.
        self.answered = 0
        #: Why a message of the open transaction was not stored.
        self.refused = ""

    def for_thread(self, share: Share) -> TransactionalRole:
        other = TransactionalRole(self.session, self.make, self.outcomes, self, share)
        other._init()
        self.others.append(other)
        return other

    def connect(self) -> None:
        super().connect()
        self._init()

    def _init(self) -> None:
        try:
            self.producer.init_transactions()
        except KafkaError as error:
            raise WorkerFailure(
                f"init_transactions of {self.transactions.id}: {error_text(error)}"
            ) from error

    def close(self) -> None:
        for role in (self, *self.others):
            if not role.open_calls():
                role.producer.close(timeout=1.0)

    # -- what comes back; on the client's thread, or on ours when the future was done already

    def finish(
        self,
        rows: mmap.mmap,
        at: int,
        outcome: int,
        error: str,
        again: Callable[[], None] | None = None,
    ) -> None:
        """The call itself refused the message."""
        super().finish(rows, at, outcome, error, again)
        with self.lock:
            self.answered += 1

    def _stored(self, rows: mmap.mmap, at: int, metadata: Any) -> None:
        """The outcome of the row is its transaction's, and comes with it."""
        with self.lock:
            if self.capture and not rows[at + lay.OUTCOME_IN_DONE]:
                stream = self.streams[metadata.topic][metadata.partition]
                lay.SENDS_DONE_PLAIN.pack_into(
                    rows, at, time.monotonic_ns(), metadata.offset, stream, lay.NONE
                )
            self.answered += 1

    def _failed(self, rows: mmap.mmap, at: int, error: BaseException) -> None:
        self._note(error)
        with self.lock:
            self.refused = self.refused or error_text(error)
            self.answered += 1

    # -- transactions

    def begin(self) -> str:
        self.refused, self.answered = "", 0
        try:
            self.producer.begin_transaction()
        except KafkaError as error:
            self._note(error, at_begin=True)
            return error_text(error)
        return ""

    def ended(self) -> tuple[int, str]:
        self._settle_sends()
        if self.transactions.aborts:
            text = self._asked(lay.ABORT_ASKED)
            return (lay.INFO, text) if text else (lay.ABORTED, "")
        why = self.refused or self._asked(lay.COMMIT_ASKED)
        if not why:
            return lay.OK, ""
        if self.is_dead or self._asked(lay.ABORT_ASKED):
            return lay.INFO, why
        return lay.FAIL, why

    def _settle_sends(self) -> None:
        """Wait for the answers to all sends: an abort of what was never stored would hide
        nothing."""
        while self.answered < self.transactions.sent and not self.gives_up():
            self.flush(TURN_S)

    def _asked(self, what: int) -> str:
        """Commit or abort; why it is not known to be done, empty = it is."""
        self.transactions.ask(what)
        call = "commit_transaction" if what == lay.COMMIT_ASKED else "abort_transaction"
        try:
            getattr(self.producer, call)()
        except KafkaError as error:
            self._note(error)
            self.session.report.error(type(error).__name__, f"{call}: {error_text(error)}")
            return error_text(error)
        return ""

    def _note(self, error: BaseException, *, at_begin: bool = False) -> None:
        if note_death(self.session.report, error, at_begin=at_begin):
            self.is_dead = True
