"""Pipeline role on librdkafka: a consumer and a producer of one application."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from functools import partial

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from consumer import ConsumerRole, OnCommit, committed_positions
from outcomes import Outcomes, error_text, note_death
from producer import ProducerRole
from transactional import TURN_S, Make, TransactionalRole
from worker_kit import layouts as lay
from worker_kit.consuming import Partition
from worker_kit.pipelining import Pipeline, Settlement
from worker_kit.process import Session

#: What is acknowledged apart from positions is waited for as long when the worker is to end.
_END_S = 5.0
MakeConsumer = Callable[[OnCommit], Consumer]


def offsets_of(positions: Mapping[Partition, int]) -> list[TopicPartition]:
    return [TopicPartition(topic, partition, at) for (topic, partition), at in positions.items()]


class Together(TransactionalRole):
    """A pipeline that sends its outputs and commits the positions after their inputs in one
    transaction."""

    def __init__(
        self, session: Session, make: Make, outcomes: Outcomes, consumer: Consumer
    ) -> None:
        super().__init__(session, make, outcomes)
        self._consumer = consumer
        self._positions: Mapping[Partition, int] | None = None
        self._refusals = 0

    def begin_next(self) -> None:
        if not self.transactions.number and not self.is_dead:
            self._refusals = self.fail
            self._begin()

    def in_transaction(self, number: int) -> None:
        self.row_state = 1 | number << 32

    def send_one(self, index: int, seq: int, due_ns: int, kind: int, payload: bytes) -> None:
        super().send_one(index, seq, due_ns, kind, payload)
        if self.transactions.number:
            self.transactions.wrote(self.rows, self.at - lay.ROW_BYTES[lay.SENDS], self.at)
            self.transactions.sent += 1

    def is_full(self) -> bool:
        return not self.transactions.room()

    def left_s(self) -> float:
        return self.transactions.left_s()

    def serve(self, seconds: float) -> None:
        ProducerRole.serve(self, seconds)

    def settle(self, positions: Mapping[Partition, int] | None) -> Settlement:
        if not self.transactions.number:
            return "again"
        self._positions = positions
        return "settled" if self._end() == lay.OK else "again"

    def ended(self) -> tuple[int, str]:
        """Return the outcome of the transaction, after its positions were added before the
        commit."""
        if self._positions is None:  # the application wants it: its partitions are others' by now
            text = self._abort()
            return (lay.INFO, text) if text else (lay.ABORTED, "")
        if self.transactions.aborts:
            return super().ended()
        if self.fail > self._refusals:  # the client did not take all of it
            return self._given_up("a message was refused in the call")
        offsets = offsets_of(self._positions)
        error = self._until_answered(
            lambda turn_s: self.producer.send_offsets_to_transaction(
                offsets, self._consumer.consumer_group_metadata(), turn_s
            )
        )
        if error is None:
            return super().ended()
        text = error_text(error)
        self.session.report.error(error.name(), f"send_offsets_to_transaction: {text}")
        return (lay.INFO, text) if error.fatal() else self._given_up(text)

    def _given_up(self, why: str) -> tuple[int, str]:
        text = self._abort()
        return (lay.INFO, text) if text else (lay.FAIL, why)


class Apart(ProducerRole):
    """A pipeline that sends its outputs first, and commits the positions after what was
    acknowledged at intervals.
    """

    def __init__(
        self,
        session: Session,
        producer: Producer,
        outcomes: Outcomes,
        consumer: Consumer,
        every_ns: int,
    ) -> None:
        super().__init__(session, producer, outcomes)
        self._consumer = consumer
        self._every_ns = every_ns
        self._next_ns = time.monotonic_ns() + every_ns
        self._failed = 0

    def begin_next(self) -> None:
        """Nothing is to be begun."""

    def is_full(self) -> bool:
        return False

    def left_s(self) -> float:
        return max(0, self._next_ns - time.monotonic_ns()) / 1e9

    def settle(self, positions: Mapping[Partition, int] | None) -> Settlement:
        self._next_ns = time.monotonic_ns() + self._every_ns
        if positions is None or not self._acknowledged():
            return "again"
        try:
            found = self._consumer.commit(offsets=offsets_of(positions), asynchronous=False)
        except KafkaException as raised:
            return self._later(raised.args[0])
        refused = next((each.error for each in found or () if each.error is not None), None)
        return "settled" if refused is None else self._later(refused)

    def _acknowledged(self) -> bool:
        """Wait for every delivery report; whether all of them since the last time are good ones."""
        give_up = time.monotonic() + _END_S
        while len(self.producer) and not self.session.report.died:
            self.flush(TURN_S)
            if self.control.stopped and time.monotonic() > give_up:
                break
        self.serve(0)
        failed, self._failed = self._failed, self.fail + self.info
        return not self.open_calls() and failed == self._failed

    def _later(self, error: KafkaError) -> Settlement:
        """A refused commit is repeated with the next, or a rebalance has given the partitions
        away."""
        if not note_death(self.session.report, error):
            self.session.report.error(error.name(), f"commit: {error_text(error)}")
        return "later"


class PipelineRole(Pipeline):
    """``make_writer`` constructs the half that sends, for the consumer."""

    def __init__(
        self,
        session: Session,
        make: MakeConsumer,
        make_writer: Callable[[Consumer], Together | Apart],
    ) -> None:
        self._reading = ConsumerRole(session.half("consumer"), make, commits_itself=True)
        self._consumer = self._reading.consumer
        self._sender = make_writer(self._consumer)
        super().__init__(session, self._reading.journal, self._sender)
        self._reading.deliver = self.handed_over

    def run(self) -> None:
        self._sender.connect()
        super().run()

    def join(self) -> None:
        self._consumer.subscribe(
            self._reading.journal.topics,
            on_assign=self._given,
            on_revoke=partial(self._taken, self.revoked),
            on_lost=partial(self._taken, self.lost),
        )

    def _given(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        found = committed_positions(consumer, partitions) or {}
        self.assigned(
            {(p.topic, p.partition): found.get((p.topic, p.partition), -1) for p in partitions}
        )

    @staticmethod
    def _taken(
        then: Callable[[Collection[Partition]], None], _: Consumer, partitions: list[TopicPartition]
    ) -> None:
        then([(p.topic, p.partition) for p in partitions])

    def take(self, most: int, seconds: float) -> None:
        for _ in range(most):
            if self.reads_again or not self._reading.take_one(seconds):
                return

    def committed(self) -> Mapping[Partition, int] | None:
        asked = [
            TopicPartition(topic, partition) for topic, partition in self._reading.journal.assigned
        ]
        return committed_positions(self._consumer, asked) if asked else {}

    def seek(self, partition: Partition, position: int) -> bool:
        place = TopicPartition(*partition, OFFSET_BEGINNING if position < 0 else position)
        try:
            self._consumer.seek(place)
        except KafkaException as error:
            self._reading.report.error(error.args[0].name(), f"seek: {error_text(error.args[0])}")
            return False
        return True

    def leave(self) -> None:
        try:
            self._consumer.close()
        except KafkaException as error:
            self._reading.report.error(error.args[0].name(), f"close: {error_text(error.args[0])}")
