"""Consumer role on librdkafka: a member of a group.

Messages are taken one by one with `poll`: `consume` of many would serve a rebalance in the middle
of a batch, and the journal could no longer say which messages came before it. All callbacks come
out of `poll`, so one thread writes the journal.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from outcomes import error_text, note_death
from reading import payload_of
from worker_kit import layouts as lay
from worker_kit.consuming import ConsumerSession, Partition
from worker_kit.interruptions import Interruptions
from worker_kit.process import Session

#: The group's committed positions are asked for when partitions are assigned.
COMMITTED_TIMEOUT_S = 2.0
POLL_S = 0.05
#: Messages between two looks at the clock and the commands.
BURST = 1000
OnCommit = Callable[[KafkaError | None, list[TopicPartition]], None]


class ConsumerRole:
    """``make`` constructs the consumer with our commit callback; ``commits_itself``: auto-commit is
    on."""

    def __init__(
        self, session: Session, make: Callable[[OnCommit], Consumer], *, commits_itself: bool
    ) -> None:
        self.session = session
        self.control = session.control
        self.report = session.report
        self.journal = ConsumerSession(session)
        self.commits_itself = commits_itself
        self.is_reader = bool(session.spec.part.get("reader"))
        self.consumer = make(self._committed)
        self.interruptions = Interruptions(session.spec.part, session.control)
        self.is_paused = False
        #: Partitions that came during a pause are not paused yet.
        self.has_new_partitions = False
        #: Takes topic, partition, offset and value of a message.
        self.deliver: Callable[[str, int, int, bytes], object] = self.journal.deliver

    def run(self) -> None:
        journal, control = self.journal, self.control
        self.report.counts = journal.counts
        if self.is_reader:
            self._assign_itself()
        else:
            pattern = self.session.spec.part.get("pattern")
            self.consumer.subscribe(
                [f"^{pattern}$"]
                if pattern
                else journal.topics,  # the client knows a pattern by its first letter
                on_assign=self._assigned,
                on_revoke=self._revoked,
                on_lost=self._revoked,
            )
        journal.await_assignment(lambda: self._take(1))
        self.session.ready()
        next_commit = time.monotonic_ns() + journal.commit_every_ns
        while not control.stopped and time.monotonic_ns() < control.deadline_ns:
            if self.report.died:
                time.sleep(POLL_S)
                continue
            self._interrupt()
            self._take(BURST)
            if time.monotonic_ns() >= next_commit:
                self._commit(asynchronous=True)
                next_commit = time.monotonic_ns() + journal.commit_every_ns
        self._commit(asynchronous=False)
        try:
            self.consumer.close()
        except KafkaException as error:
            self.report.error(error.args[0].name(), f"close: {error_text(error.args[0])}")

    def _take(self, most: int) -> None:
        """Hand over up to ``most`` messages; returns early when none comes for a moment."""
        for _ in range(most):
            if not self.take_one(POLL_S):
                return

    # -- pauses and seeks

    def _interrupt(self) -> None:
        """Pause, resume or seek if it is time to."""
        wanted = self.interruptions.is_paused()
        if wanted != self.is_paused or (wanted and self.has_new_partitions):
            self.is_paused = wanted
            self._pause_or_resume()
        self.has_new_partitions = False
        if back := self.interruptions.messages_back():
            self._seek(back)

    def _pause_or_resume(self) -> None:
        partitions = self.consumer.assignment()
        act = self.consumer.pause if self.is_paused else self.consumer.resume
        act(partitions)
        kind = "pause" if self.is_paused else "resume"
        self.report.event(kind, f"{len(partitions)} partitions")

    def _seek(self, back: int) -> None:
        """Go back in each partition of which something was handed over."""
        sought = 0
        for topic, partition in sorted(self.journal.assigned):
            position = self.journal.positions.get((topic, partition))
            if position is None:
                continue
            target = max(position - back, 0)
            try:
                self.consumer.seek(TopicPartition(topic, partition, target))
            except KafkaException as error:
                self.report.error(error.args[0].name(), f"seek: {error_text(error.args[0])}")
                continue
            self.journal.sought(topic, partition, target)
            sought += 1
        self.report.event("seek", f"{back} messages back in {sought} partitions")

    def take_one(self, seconds: float) -> bool:
        """Hand the next message over; False: none came for so long, or none will come any more."""
        try:
            message = self.consumer.poll(seconds)
        except KafkaException as raised:
            if not note_death(self.report, raised.args[0]):
                raise
            return False
        if message is None:
            return False
        error = message.error()
        if error is None:
            self.deliver(
                message.topic(), message.partition(), message.offset(), payload_of(message)
            )
        elif note_death(self.report, error):
            return False
        else:
            self.report.error(error.name(), error_text(error))
        return True

    # -- the group

    def _assign_itself(self) -> None:
        """Read every partition of the topics without a group."""
        topics = self.session.spec.topics
        own = [(name, p) for name in self.journal.topics for p in range(topics[name].partitions)]
        self.consumer.assign([TopicPartition(name, p) for name, p in own])
        self.journal.assign(dict.fromkeys(own, -1))

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        committed = committed_positions(consumer, partitions) or {}
        self.journal.assign(
            {(p.topic, p.partition): committed.get((p.topic, p.partition), -1) for p in partitions}
        )
        self.has_new_partitions = True

    def _revoked(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.journal.revoke((p.topic, p.partition) for p in partitions)

    # -- commits

    def _commit(self, *, asynchronous: bool) -> None:
        """Commit what was handed over since the last commit, as an application would."""
        if self.is_reader or self.commits_itself or not self.journal.uncommitted:
            return
        taken = self.journal.take_uncommitted()
        offsets = [TopicPartition(topic, p, position) for (topic, p), position in taken.items()]
        try:
            confirmed = self.consumer.commit(offsets=offsets, asynchronous=asynchronous)
        except KafkaException as error:
            self.report.error(error.args[0].name(), f"commit: {error_text(error.args[0])}")
            return
        if not asynchronous:  # the client returns these, and does not call back
            self._committed(None, confirmed)

    def _committed(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        """The client confirms or refuses a commit; only confirmed ones become COMMIT rows."""
        for p in partitions:
            trouble = error or p.error
            if trouble is not None:
                self.report.error(
                    trouble.name(), f"commit of {p.topic}-{p.partition}: {trouble.str()}"
                )
            elif p.offset >= 0:
                self.journal.note(lay.COMMIT, p.topic, p.partition, p.offset)


def committed_positions(
    consumer: Consumer, partitions: list[TopicPartition]
) -> dict[Partition, int] | None:
    """Positions that the group has committed; none of a partition where it has not. None = in
    trouble."""
    try:
        found = consumer.committed(partitions, timeout=COMMITTED_TIMEOUT_S)
    except KafkaException:
        return None
    if any(p.error is not None for p in found):
        return None
    return {(p.topic, p.partition): p.offset for p in found if p.offset >= 0}
