"""Producer role in transactions: each sending task has a client and a transactional id of its own.

A task waits for the end of one transaction before it begins the next, as the client wants it: what
is due meanwhile is offered late, and the time counts as blocked. Neither end has a time-out. The
client commits what was stored and says nothing of what was not: an application has to look at the
answers to its sends first, and to abort when one of them is an error (its documentation awaits each
send).
"""

from __future__ import annotations

import asyncio
import mmap
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import IllegalOperation
from outcomes import death
from producer import ProducerRole
from worker_kit import layouts as lay
from worker_kit.error_texts import error_text
from worker_kit.process import Session
from worker_kit.sending import Share, Step
from worker_kit.transactions import Transactions

#: Makes a client with a transactional id, on a running loop.
Make = Callable[[str], AIOKafkaProducer]


class TransactionalRole(ProducerRole):
    #: The last, no `KafkaError`: what every call says that comes outside of a transaction.
    client_errors = (*ProducerRole.client_errors, IllegalOperation)

    def __init__(
        self,
        session: Session,
        make: Make,
        first: TransactionalRole | None = None,
        share: Share | None = None,
    ) -> None:
        part, thread = session.spec.part, share.thread if share else 0
        self.transactions = Transactions(
            session, part["transactions"], thread, part.get("threads", 1)
        )
        if first:
            self.transactions.share(first.transactions)
        super().__init__(session, partial(make, self.transactions.id), share)
        self._make_own = make
        #: Those of all tasks, this one first.
        self._roles = [self]
        #: Answers to sends of the open transaction that are not there yet.
        self._answers: set[asyncio.Future[Any]] = set()
        #: Sends of the open transaction that share the outcome of the transaction.
        self._sent = 0
        #: Why a message of the open transaction was not stored.
        self._refused = ""
        self._is_dead = False

    async def connect(self) -> None:
        self._roles += [
            TransactionalRole(
                self.session, self._make_own, self, Share(k, self.threads, self.segments)
            )
            for k in range(1, self.threads)
        ]
        for role in self._roles:
            await ProducerRole.connect(role)

    def for_thread(self, share: Share) -> TransactionalRole:
        return self._roles[share.thread]

    async def flush(self) -> None:
        """Every transaction is at its end, or its end is not known."""

    async def close(self) -> None:
        for role in self._roles:
            await role._producer.stop()

    # -- what is sent

    async def offer(self, step: Step) -> int:
        """Offer messages in one transaction after the other; see `ProducerRole.offer`."""
        own, first = self.transactions, step.first
        while first < step.stop and not self.control.stop_load:
            if not own.number and not self._is_dead:
                await self._begin()
            stop = min(step.stop, first + own.room()) if own.number else step.stop
            sent = await super().offer(step._replace(first=first, stop=stop))
            own.sent += sent - first
            first = sent
            if own.number and own.is_due():
                await self._end()
        return first

    async def sleep_until(self, wake_ns: int) -> None:
        own = self.transactions
        while own.number and time.monotonic_ns() + own.left_s() * 1e9 < wake_ns:
            await super().sleep_until(time.monotonic_ns() + int(own.left_s() * 1e9))
            if not own.is_due():
                return  # the load is over
            await self._end()
        await super().sleep_until(wake_ns)

    async def load_over(self) -> None:
        if self.transactions.number:
            await self._end()

    async def send(self, lane: Any, payload: bytes) -> Awaitable[Any]:
        answer = asyncio.ensure_future(await super().send(lane, payload))
        if self.transactions.number:
            self._sent += 1
            if self.capture:
                self.transactions.wrote(self.rows, self.at - lay.ROW_BYTES[lay.SENDS], self.at)
            self._answers.add(answer)
            answer.add_done_callback(self._answers.discard)
        return answer

    def stored(self, rows: mmap.mmap, at: int, answer: tuple[str, int, int]) -> None:
        """The outcome of the row is its transaction's, and comes with it."""
        if self.capture and not rows[at + lay.OUTCOME_IN_DONE]:
            topic, partition, position = self.place(answer)
            stream = self.streams[topic][partition]
            lay.SENDS_DONE_PLAIN.pack_into(
                rows, at, time.monotonic_ns(), position, stream, lay.NONE
            )

    def failed(
        self,
        rows: mmap.mmap,
        at: int,
        error: BaseException,
        again: Callable[[], None],
        *,
        refused: bool,
    ) -> None:
        if refused:
            self._note(error)
            super().failed(rows, at, error, again, refused=True)
        else:
            self._refused = self._refused or error_text(error)

    # -- transactions

    async def _begin(self) -> None:
        own = self.transactions
        own.begin()
        self._refused, self._sent = "", 0
        try:
            await self._producer.begin_transaction()
        except self.client_errors as error:
            self._note(error)
            own.answered(lay.FAIL, self._error(error_text(error)))
        self.row_state = 1 | own.number << 32

    async def _end(self) -> None:
        """End the open transaction as the application wants it, and complete the rows of its
        sends."""
        own, began = self.transactions, time.monotonic_ns()
        self.blocked_since_ns = began
        outcome, text = await self._ended_as()
        self.blocked_since_ns = 0
        self.blocked_ns += time.monotonic_ns() - began
        error = self._error(text) if text else 0
        own.answered(lay.ABORTED if outcome == lay.FAIL else outcome, error)
        self.tally(outcome, own.complete(outcome, error) if self.capture else self._sent)
        self.row_state = 1

    async def _ended_as(self) -> tuple[int, str]:
        """Outcome of the messages, and why it is not another one."""
        own = self.transactions
        if self._answers:  # an abort of what was never stored would hide nothing
            await asyncio.wait(self._answers)
            await asyncio.sleep(0)  # their callbacks
        if own.aborts:
            text = await self._asked(lay.ABORT_ASKED)
            return (lay.INFO, text) if text else (lay.ABORTED, "")
        why = self._refused or await self._asked(lay.COMMIT_ASKED)
        if not why:
            return lay.OK, ""
        if self._is_dead or await self._asked(lay.ABORT_ASKED):
            return lay.INFO, why
        return lay.FAIL, why

    async def _asked(self, what: int) -> str:
        """Commit or abort; why it is not known to be done, empty = it is."""
        self.transactions.ask(what)
        is_commit = what == lay.COMMIT_ASKED
        try:
            await (
                self._producer.commit_transaction()
                if is_commit
                else self._producer.abort_transaction()
            )
        except self.client_errors as error:
            self._note(error)
            text = error_text(error)
            self.session.report.error(
                type(error).__name__, f"{'commit' if is_commit else 'abort'}_transaction: {text}"
            )
            return text
        return ""

    def _note(self, error: BaseException) -> None:
        if why := death(error, refused=True):
            self._is_dead = True
            self.session.report.client_died(type(error).__name__, error_text(error), why)

    def _error(self, text: str) -> int:
        return self.session.names.id("error", text)
