"""Consumer role on kafka-python: a member of a group.

The client calls listeners and commit callbacks on its own thread or inside `poll`. They only queue
what happened; the main thread writes it down before the records of that `poll`, so one thread
writes the journal, in the order in which the application sees things.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Mapping
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata
from outcomes import note_death
from worker_kit import layouts as lay
from worker_kit.consuming import ConsumerSession
from worker_kit.error_texts import error_text
from worker_kit.process import Session
from worker_kit.template import joined

POLL_MS = 50
#: The last commit, before the group is left, and the leaving.
CLOSE_TIMEOUT_MS = 3000


class GroupEvents(ConsumerRebalanceListener):  # type: ignore[misc]  # the client has no types
    """Events of the group since the last look: (event, time, partition -> position)."""

    def __init__(self) -> None:
        self.queue: deque[tuple[int, int, dict[TopicPartition, int]]] = deque()

    def _put(self, event: int, positions: dict[TopicPartition, int]) -> None:
        self.queue.append((event, time.monotonic_ns(), positions))

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self._put(lay.ASSIGN, dict.fromkeys(assigned, -1))

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self._put(lay.REVOKE, dict.fromkeys(revoked, -1))

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self._put(lay.COMMIT, {tp: at.offset for tp, at in offsets.items()})


class ConsumerRole:
    """``commits_itself``: the scenario turned the client's own auto-commit on; we only read
    then."""

    def __init__(self, session: Session, settings: dict[str, Any], make: Any) -> None:
        self.session = session
        self.control = session.control
        self.report = session.report
        self.journal = ConsumerSession(session)
        self.happened = GroupEvents()
        #: Positions that were asked to be committed, until the client answers.
        self._unanswered: dict[tuple[str, int], int] = {}
        self.commits_itself = bool(settings["enable_auto_commit"])
        self.consumer: KafkaConsumer = make(
            KafkaConsumer, {**settings, "default_offset_commit_callback": self._committed}
        )

    def run(self) -> None:
        journal, control = self.journal, self.control
        self.report.counts = journal.counts
        self.consumer.subscribe(journal.topics, listener=self.happened)
        self._learn_topics()
        journal.await_assignment(self._take)
        self.session.ready()
        next_commit = time.monotonic_ns() + journal.commit_every_ns
        while not control.stopped and time.monotonic_ns() < control.deadline_ns:
            if self.report.died:
                time.sleep(POLL_MS / 1000)
                continue
            self._take()
            if time.monotonic_ns() >= next_commit:
                self._commit_async()
                next_commit = time.monotonic_ns() + journal.commit_every_ns
        self._commit_sync()
        self.consumer.close(timeout_ms=CLOSE_TIMEOUT_MS)
        self._write_down()

    def _learn_topics(self) -> None:
        """Wait for the topics' metadata between subscribing and the first `poll`, which joins the
        group.

        A leader (seen with 3.0.0 and 3.0.12) that joins without joins again when the metadata have
        come; if a `poll` ends during that second join, its answer is lost, and the member never
        reads (docs/bugs/other-defects.md).
        """
        try:
            self.consumer.topics()
        except KafkaError as error:  # no broker answers now; the group may be joined all the same
            self.report.error(type(error).__name__, error_text(error))

    def _take(self) -> None:
        """One `poll`, its events first, then its records."""
        try:
            polled = self.consumer.poll(timeout_ms=POLL_MS)
        except KafkaError as error:
            note_death(self.report, error)
            self.report.error(type(error).__name__, error_text(error))
            polled = {}
        self._write_down()
        deliver = self.journal.deliver
        for (topic, partition), records in polled.items():
            for record in records:
                deliver(topic, partition, record.offset, joined(record.value, record.headers))

    def _write_down(self) -> None:
        journal, queue = self.journal, self.happened.queue
        while queue:
            event, t_ns, positions = queue.popleft()
            if event == lay.ASSIGN:
                journal.assign({(topic, p): at for (topic, p), at in positions.items()}, t_ns)
            elif event == lay.REVOKE:
                journal.revoke(((topic, p) for topic, p in positions), t_ns)
            else:
                for (topic, partition), position in positions.items():
                    journal.note(event, topic, partition, position, t_ns)

    # -- commits

    def _taken(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what was handed over since the last commit, in the form in which an application
        commits it.
        """
        if self.commits_itself:
            return {}
        taken = self.journal.take_uncommitted()
        return {
            TopicPartition(topic, p): OffsetAndMetadata(at, "", -1)
            for (topic, p), at in taken.items()
        }

    def _commit_async(self) -> None:
        if offsets := self._taken():
            self._unanswered |= {(p.topic, p.partition): at.offset for p, at in offsets.items()}
            self.consumer.commit_async(offsets, callback=self._committed)

    def _commit_sync(self) -> None:
        """The last one. What was asked for and not answered goes with it: closing drops the
        answer."""
        open_ = {each: at for each, at in self._unanswered.items() if each in self.journal.assigned}
        self.journal.uncommitted = {**open_, **self.journal.uncommitted}
        if not (offsets := self._taken()):
            return
        try:
            self.consumer.commit(offsets, timeout_ms=CLOSE_TIMEOUT_MS)
        except KafkaError as error:
            self.report.error(type(error).__name__, f"commit: {error_text(error)}")
        else:
            self.happened.committed(offsets)

    def _committed(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], result: object
    ) -> None:
        """The client confirms or refuses a commit; only confirmed ones become COMMIT rows."""
        if isinstance(result, Exception):
            self.report.error(type(result).__name__, f"commit: {error_text(result)}")
        else:
            for partition, at in offsets.items():
                each = (partition.topic, partition.partition)
                if self._unanswered.get(each) == at.offset:
                    del self._unanswered[each]
            self.happened.committed(offsets)
