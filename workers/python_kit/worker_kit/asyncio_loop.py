"""The producer role of asyncio clients: like `open_loop`, on an event loop.

A worker derives from `AsyncOpenLoop` and adds the client. A task (with ``threads``: so many) offers
the messages one after the other; a call that waits holds up the messages after it and nothing else:
reports come in, commands are obeyed, and the process ends when the harness says so.
"""

from __future__ import annotations

import asyncio
import mmap
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from . import asyncio_run
from . import layouts as lay
from .failure import WorkerFailure
from .process import Session
from .sending import BLOCKED_NS, SETTLE_NS, Sender, Share, Step, together
from .spec import Lane
from .streams import StreamIds

#: The task that sends gives way to the others after this long, even when no call of the client
#: waits.
YIELD_NS = 2_000_000
CLOSE_S = 2.0
Answer = Any
Again = Callable[[], None]


class AsyncOpenLoop(Sender, ABC):
    """One sending task of a producer instance on an event loop. `run`, of the first, returns when
    every row that the instance will ever complete is complete.

    Attributes:
        client_errors: what the client raises; anything else is a bug of the worker.
    """

    client_errors: tuple[type[BaseException], ...] = ()

    def __init__(self, session: Session, share: Share | None = None) -> None:
        super().__init__(session, share)
        self.streams = StreamIds(session)
        self.waits_for_answer = session.spec.part.get("calls", "async") == "sync"
        #: From now on answers are ignored: they belong to calls that our own end cancels.
        self._ended = False
        self._broken: Exception | None = None

    # -- what the client adds

    @abstractmethod
    async def connect(self) -> None:
        """Make the client; return when it knows the topics of every lane."""

    @abstractmethod
    async def send(self, lane: Lane, payload: bytes) -> Awaitable[Answer]:
        """Call the client once, and return what gives its answer. An exception is a refusal."""

    @abstractmethod
    def place(self, answer: Answer) -> tuple[str, int, int]:
        """Topic, partition and position of an answer; position -1 when it does not say."""

    @abstractmethod
    def outcome(self, error: BaseException, *, refused: bool) -> tuple[int, str]:
        """Outcome and text of an error; ``refused`` by the call itself."""

    def death(self, error: BaseException, *, refused: bool) -> str:
        """Why the client takes nothing any more, if this error of a send says so: error, fenced or
        asked."""
        return ""

    @abstractmethod
    async def flush(self) -> None:
        """Push what is queued."""

    @abstractmethod
    async def close(self) -> None:
        """Close the client; no call is open."""

    async def load_over(self) -> None:
        """No message is offered any more. For clients that owe something then, such as a commit."""

    def for_thread(self, share: Share) -> AsyncOpenLoop:
        """A further sending task on the same client, which is connected. Only for ``threads``."""
        raise WorkerFailure("this worker sends from one task: threads must be 1")

    # -- life

    def run(self) -> None:
        asyncio_run.run(self._run())

    async def _run(self) -> None:
        await self.connect()
        shares = [Share(k, self.threads, self.segments) for k in range(1, self.threads)]
        loops = [self, *(self.for_thread(share) for share in shares)]
        self.session.report.counts = lambda: together(loops)
        self.session.ready()
        while not self.control.started.is_set():
            await asyncio.sleep(asyncio_run.LOOK_S)
        try:
            tasks = [
                asyncio.create_task(loop._load(), name=f"send-{k}") for k, loop in enumerate(loops)
            ]
            await asyncio_run.until(self.control, tasks)
            await self._settle(loops, self.control.deadline_ns)
        except WorkerFailure:  # no room for the next row: what is under way still gets its outcome
            await self._settle(loops, time.monotonic_ns() + SETTLE_NS)
            raise
        finally:
            for loop in loops:
                loop._ended = True
        for loop in loops:
            if loop._broken:
                raise loop._broken
        if not any(loop.open_calls() for loop in loops):
            await asyncio.wait({asyncio.create_task(self.close(), name="close")}, timeout=CLOSE_S)

    async def _load(self) -> None:
        self.schedule = replace(self.schedule, t0_ns=self.control.t0_ns)
        if self.schedule.rate_per_s:
            await self._load_at_rate()
        else:
            await self._load_unlimited()
        await self.load_over()
        while not self.control.draining or (
            self.sends_again and (self.open_calls() or self.resends)
        ):
            await asyncio.sleep(asyncio_run.LOOK_S)
            await self.resend_due()

    async def _load_at_rate(self) -> None:
        sent = 0
        while sent < self.schedule.total and not self.control.stop_load:
            span, step = self.span(), self.step(sent)
            if step.wake_ns:
                await self.sleep_until(step.wake_ns)
                self.caught_up(span, step.wake_ns)
                continue
            sent = await self.offer(step)
            await asyncio.sleep(0)
            await self.resend_due()
            self.worked(span, step.first, sent)

    async def _load_unlimited(self) -> None:
        sent = 0
        await self.sleep_until(self.schedule.t0_ns)
        while not self.control.stop_load and (step := self.unlimited_step(sent)):
            sent = await self.offer(step)
            await asyncio.sleep(0)
            await self.resend_due()

    async def sleep_until(self, wake_ns: int) -> None:
        while (left := wake_ns - time.monotonic_ns()) > 0 and not self.control.stop_load:
            await asyncio.sleep(min(left / 1e9, 0.1))
            await self.resend_due()

    async def _settle(self, loops: Sequence[AsyncOpenLoop], deadline_ns: int) -> None:
        """Wait for every open call, until the deadline or `stop`."""
        flushing = asyncio.create_task(self.flush(), name="flush")
        while any(loop.open_calls() for loop in loops) and not asyncio_run.over(self.control):
            if time.monotonic_ns() > deadline_ns:
                break
            await asyncio.sleep(asyncio_run.LOOK_S)
        if flushing.done() and (error := flushing.exception()):
            self.session.report.error(type(error).__name__, f"flush: {error}")

    # -- sends

    async def offer(self, step: Step) -> int:
        """Send the messages of a step, a row before each call; returns the next index. The hot
        loop."""
        count, dues = len(self.lanes), self.dues_ns(step.first, step.stop)
        yielded = time.monotonic_ns()
        for i in range(step.first, step.stop):
            now = time.monotonic_ns()
            if now - yielded > YIELD_NS:
                await asyncio.sleep(0)
                now = yielded = time.monotonic_ns()
            due = dues[i - step.first] if dues else now
            await self._send(i % count, self.turns.seq(i), due, step.kind, 0)
            if self.control.stop_load:
                return i + 1
        return step.stop

    async def resend_due(self) -> None:
        """Send again what failed long enough ago, as the application would."""
        for what in self.due_resends():
            await self._send(what.lane_index, what.seq, what.due_ns, what.kind, what.attempt)

    async def _send(self, index: int, seq: int, due_ns: int, kind: int, attempt: int) -> None:
        """Row, call; with ``calls: sync`` its answer too."""
        lane, begun = self.lanes[index], time.monotonic_ns()
        value = self.payload(index, seq, due_ns, kind, attempt)
        rows, at = self.open_row(lane.lane, seq, due_ns, kind, attempt, begun)
        again = partial(self.schedule_resend, index, seq, due_ns, kind, attempt)
        self.blocked_since_ns = begun
        if attempt == 0:
            self.attempted += 1
        try:
            answer = asyncio.ensure_future(await self.send(lane, value))
        except self.client_errors as error:
            self.failed(rows, at, error, again, refused=True)
        else:
            answer.add_done_callback(partial(self._answered, rows, at, again))
            if self.waits_for_answer:
                await asyncio.wait({answer})
        took, self.blocked_since_ns = time.monotonic_ns() - begun, 0
        self.blocked_ns += took if self.waits_for_answer or took > BLOCKED_NS else 0

    def _answered(
        self, rows: mmap.mmap, at: int, again: Again, answer: asyncio.Future[Answer]
    ) -> None:
        if self._ended:
            return
        try:
            error = asyncio.CancelledError() if answer.cancelled() else answer.exception()
            if error is None:
                self.stored(rows, at, answer.result())
            else:
                self.failed(rows, at, error, again, refused=False)
        except Exception as error:  # noqa: BLE001 - the event loop would only log it
            self._broken = error
            self.control.stop()

    def stored(self, rows: mmap.mmap, at: int, answer: Answer) -> None:
        if self.capture:
            if rows[at + lay.OUTCOME_IN_DONE]:
                rows[at + lay.LATE_OUTCOME_IN_DONE] = lay.OK
                return
            topic, partition, position = self.place(answer)
            now, stream = time.monotonic_ns(), self.streams[topic][partition]
            lay.SENDS_DONE.pack_into(rows, at, now, position, 0, 0, stream, 0, 0, 0, lay.OK)
        self.ok += 1

    def failed(
        self, rows: mmap.mmap, at: int, error: BaseException, again: Again, *, refused: bool
    ) -> None:
        outcome, text = self.outcome(error, refused=refused)
        if why := self.death(error, refused=refused):
            self.session.report.client_died(type(error).__name__, text, why)
        self.finish(rows, at, outcome, text, again)
