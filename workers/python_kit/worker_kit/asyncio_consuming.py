"""The consumer role of asyncio clients, a member of a group: the journal is written on the event
loop.

A worker derives from `AsyncConsumer` and adds the client. The application's work on a message is a
sleep of its task, so the client's own tasks (heartbeats) continue; commits have a task of their
own, as reading does not wait for them.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

from . import asyncio_run
from . import layouts as lay
from .consuming import ConsumerSession, Partition
from .process import Session

#: For the last commit and for leaving the group, each.
END_S = 3.0
Message = tuple[str, int, int, bytes]


class AsyncConsumer(ABC):
    """One consumer session on an event loop.

    Attributes:
        client_errors: what the client raises and an application would live with; each is reported.
        commits_itself: the client's own auto-commit is on.
    """

    client_errors: tuple[type[BaseException], ...] = ()
    commits_itself = False

    def __init__(self, session: Session) -> None:
        self.session = session
        self.control = session.control
        self.journal = ConsumerSession(session)

    # -- what the client adds

    @abstractmethod
    async def subscribe(self) -> None:
        """Make the client and subscribe to `journal.topics`. From then on its listener calls
        `journal.assign` and `journal.revoke`."""

    @abstractmethod
    async def poll(self) -> Iterable[Message]:
        """Messages that the client hands over: topic, partition, offset, value; none after a
        moment."""

    @abstractmethod
    async def commit(self, positions: Mapping[Partition, int]) -> None:
        """Commit; return when the client confirms it."""

    @abstractmethod
    async def close(self) -> None:
        """Leave the group and close the client."""

    def error_text(self, error: BaseException) -> str:
        """The text of an error id."""
        return f"{type(error).__name__}: {error}"

    # -- life

    def run(self) -> None:
        asyncio_run.run(self._run())

    async def _run(self) -> None:
        journal = self.journal
        self.session.report.counts = journal.counts
        await self.subscribe()
        begun = time.monotonic()
        while journal.awaits_assignment(begun):
            await self._take()
        self.session.ready()
        reading = asyncio.create_task(self._read(), name="read")
        committing = asyncio.create_task(self._commit_regularly(), name="commit")
        await asyncio_run.until(self.control, [reading, committing])
        committing.cancel()
        for last in (self._commit(), self.close()):
            task = asyncio.create_task(last)
            await asyncio.wait({task}, timeout=END_S)
            if task.done() and (error := task.exception()):
                self._report(error)

    async def _read(self) -> None:
        while not asyncio_run.over(self.control):
            await self._take()

    async def _take(self) -> None:
        """One poll of the client, and what the application does with its messages."""
        journal = self.journal
        try:
            messages = await self.poll()
        except self.client_errors as error:
            self._report(error)
            return
        held = dict(journal.assigned)
        for topic, partition, offset, value in messages:
            # The group may take a partition while the application works. Whoever is next, perhaps
            # this member, reads from the last commit: the rest of these messages is not used.
            place = topic, partition
            if journal.assigned.get(place) != held.get(place):
                continue
            journal.handed_over(topic, partition, offset, value)
            if journal.work_s:
                await asyncio.sleep(journal.work_s)
                if asyncio_run.over(self.control):
                    return
            journal.positions[place] = offset + 1
            if place in journal.assigned and journal.assigned[place] == held.get(place):
                journal.uncommitted[place] = offset + 1

    async def _commit_regularly(self) -> None:
        while True:
            await asyncio.sleep(self.journal.commit_every_ns / 1e9)
            await self._commit()

    async def _commit(self) -> None:
        """Commit what was handed over since the last commit, as an application would."""
        if self.commits_itself or not self.journal.uncommitted:
            return
        taken = self.journal.take_uncommitted()
        try:
            await self.commit(taken)
        except self.client_errors as error:
            self._report(error, "commit: ")
            return
        for (topic, partition), position in taken.items():
            self.journal.note(lay.COMMIT, topic, partition, position)

    def _report(self, error: BaseException, what: str = "") -> None:
        self.session.report.error(type(error).__name__, what + self.error_text(error))
