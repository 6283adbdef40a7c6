"""Consumer role on pulsar-client: every subscription type; receive loop, listener or batches."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any
from zlib import crc32

import pulsar
from options import accepted
from outcomes import note_death, result_name
from worker_kit import layouts as lay
from worker_kit import payload
from worker_kit.interruptions import Interruptions
from worker_kit.payload import RESIDUE
from worker_kit.process import Session
from worker_kit.segments import SegmentWriter
from worker_kit.template import joined

RECEIVE_MS = 50
CLOSE_TIMEOUT_S = 3.0


class Journal:
    """Journal of one consumer session, in the order of events. Listener threads share it."""

    def __init__(self, session: Session) -> None:
        spec, part = session.spec, session.spec.part
        group = session.names.id("subscription", part["group"])
        self._segments = SegmentWriter(
            spec.folder, lay.DELIVERIES, part["session"], spec.run_tag, subscription=group
        )
        self._rows, self._at, self._end = self._segments.rotate()
        self._lock = threading.Lock()
        self._run_tag = spec.run_tag
        self._prefixes = payload.accepted_prefixes(spec.run_tag)
        self._names = session.names
        self._streams = stream_ids(session)
        #: Everything that was handed over, and the probes among it.
        self._handed_over = self._probes = 0
        self.epoch = 0

    @property
    def delivered(self) -> int:
        """Messages that were handed over, without probes."""
        return self._handed_over - self._probes

    def deliver(self, message: pulsar.Message) -> int:
        """The application has it; returns its number in this session, from 1."""
        value = message.data()
        if value[:2] != lay.HEADER_MAGIC:
            value = joined(value, message.properties().items())
        is_ours = value[:8] in self._prefixes and crc32(value) == RESIDUE
        check = lay.CHECK_OK if is_ours else payload.check(value, self._run_tag)
        with self._lock:
            self._row(lay.DELIVER, message, message.redelivery_count(), value[:48], check)
            self._handed_over += 1
            if payload.is_probe(value, check):
                self._probes += 1
            return self._handed_over

    def note(self, kind: int, message: pulsar.Message) -> None:
        """Something the application did with a message."""
        with self._lock:
            self._row(kind, message, -1, b"", 0)

    def sought(self, topic: str, target: pulsar.MessageId) -> None:
        """The application goes to a message, and acknowledgements from there on are undone."""
        with self._lock:
            self._write(
                target.entry_id(), target.ledger_id(), self._stream(topic), target.batch_index(), -1, b"", 0,
                lay.SEEK,
            )  # fmt: skip

    def assigned(self) -> None:
        """Subscribed: the client does not say to what, nor when it connects again."""
        with self._lock:
            self.epoch += 1
            self._write(-1, -1, 0, -1, -1, b"", 0, lay.ASSIGN)

    def _row(
        self, kind: int, message: pulsar.Message, redelivery: int, header: bytes, check: int
    ) -> None:
        found = message.message_id()
        stream = self._stream(message.topic_name())
        self._write(
            found.entry_id(),
            found.ledger_id(),
            stream,
            found.batch_index(),
            redelivery,
            header,
            check,
            kind,
        )

    def _stream(self, address: str) -> int:
        if address not in self._streams:
            self._streams[address] = self._names.id("stream", address)
        return self._streams[address]

    def _write(
        self,
        entry: int,
        ledger: int,
        stream: int,
        batch: int,
        redelivery: int,
        header: bytes,
        check: int,
        kind: int,
    ) -> None:
        if self._at == self._end:
            self._rows, self._at, self._end = self._segments.rotate()
        lay.DELIVERIES_ROW.pack_into(
            self._rows, self._at, time.monotonic_ns(), entry, ledger, 0, stream, batch, self.epoch,
            redelivery, header, check, kind,
        )  # fmt: skip
        self._at += lay.ROW_BYTES[lay.DELIVERIES]


def stream_ids(session: Session) -> dict[str, int]:
    """Name id of every stream of the spec by the topic that holds it."""
    ids: dict[str, int] = {}
    for name, topic in session.spec.topics.items():
        for partition in range(topic.partitions):
            suffix = f"-partition-{partition}" if topic.partitions > 1 else ""
            ids[topic.address + suffix] = session.names.id("stream", f"{name}-{partition}")
    return ids


class Replay:
    """The newest messages of the application's only partition, and its seeks back among them."""

    def __init__(self, session: Session, journal: Journal) -> None:
        part = session.spec.part
        self._report = session.report
        self._journal = journal
        self._interruptions = Interruptions(part, session.control)
        self._newest: deque[pulsar.MessageId] = deque(maxlen=part["seeks"]["back"])
        self._topic = ""
        #: The newest message before a seek that failed: it may have moved the subscription all the
        #: same.
        self._in_doubt_from: pulsar.MessageId | None = None

    def seek_if_due(self, consumer: pulsar.Consumer) -> bool:
        """Seek if it is time to; returns whether it did."""
        if not self._interruptions.messages_back() or not self._newest:
            return False
        target, last = self._newest[0], self._newest[-1]
        self._journal.sought(self._topic, target)
        try:
            consumer.seek(target)
        except pulsar.PulsarException as error:
            self._in_doubt_from = last
            self._report.error(result_name(error), f"seek: {error}")
            return True
        self._report.event("seek", f"{len(self._newest)} messages back")
        self._newest.clear()
        self._in_doubt_from = None
        return True

    def handed_over(self, message: pulsar.Message) -> None:
        """Call before the message is journaled."""
        found = message.message_id()
        doubtful = self._in_doubt_from
        if doubtful is not None and _order(found) <= _order(doubtful):
            self._journal.sought(message.topic_name(), found)
            self._in_doubt_from = None
            self._newest.clear()
        self._topic = message.topic_name()
        self._newest.append(found)


def _order(found: pulsar.MessageId) -> tuple[int, int, int]:
    return found.ledger_id(), found.entry_id(), found.batch_index()


class ConsumerRole:
    def __init__(self, session: Session, client: pulsar.Client, options: dict[str, Any]) -> None:
        part = session.spec.part
        self.session = session
        self.control = session.control
        self.report = session.report
        self.client = client
        self.options = options
        self.receive: str = part.get("receive", "loop")
        self.settle: str = part.get("settle", "ack")
        self.work_s: float = part.get("work_s", 0.0)
        self.nack_every: int = part.get("nack_every", 0)
        self.journal = Journal(session)
        self.full_batches = 0
        #: The newest message of each topic that no cumulative acknowledgement covers.
        self._newest: dict[str, tuple[pulsar.Consumer, pulsar.Message]] = {}
        self._acknowledging = threading.Lock()
        self._every_ns = int(part.get("commit_every_s", 1.0) * 1e9)
        self._next_ns = 0
        self._replay = Replay(session, self.journal) if part.get("seeks") else None

    def counts(self) -> dict[str, object]:
        numbers: dict[str, object] = {
            "delivered": self.journal.delivered,
            "epoch": self.journal.epoch,
            "positions": {},
        }
        if self.receive == "batch":
            numbers["exposure"] = {"full_batches": self.full_batches}
        return numbers

    def run(self) -> None:
        self.report.counts = self.counts
        consumer = self._subscribe()
        self.journal.assigned()
        self.report.event("assign", f"subscribed as {self.session.spec.part['group']}", epoch=1)
        self.session.ready()
        while not self._is_over():
            if self.receive == "listener" or self.report.died:
                time.sleep(RECEIVE_MS / 1000)
            elif self.receive == "batch":
                self._take_batch(consumer)
            else:
                self._seek_if_due(consumer)
                self._take(consumer)
            self._acknowledge_newest()
        self._acknowledge_newest(is_last=True)
        closing = threading.Thread(target=self.client.close, name="close", daemon=True)
        closing.start()
        closing.join(CLOSE_TIMEOUT_S)

    def _is_over(self) -> bool:
        return self.control.stopped or time.monotonic_ns() >= self.control.deadline_ns

    def _subscribe(self) -> pulsar.Consumer:
        """One topic is subscribed by itself, as an application would; several as one consumer of
        all."""
        spec = self.session.spec
        addresses = [spec.topics[name].address for name in spec.part["topics"]]
        listener = {"message_listener": self._heard} if self.receive == "listener" else {}
        # Without, the client drops the message that it seeks, and leaves it in the backlog.
        inclusive = {"start_message_id_inclusive": True} if self._replay is not None else {}
        return accepted(
            self.client.subscribe,
            addresses[0] if len(addresses) == 1 else addresses,
            spec.part["group"],
            initial_position=pulsar.InitialPosition.Earliest,
            consumer_name=spec.name,
            **self.options,
            **listener,
            **inclusive,
        )

    def _seek_if_due(self, consumer: pulsar.Consumer) -> None:
        if self._replay is not None and self._replay.seek_if_due(consumer):
            # An acknowledgement of everything before the seek would undo it.
            with self._acknowledging:
                self._newest.clear()

    def _take(self, consumer: pulsar.Consumer) -> None:
        try:
            message = consumer.receive(timeout_millis=RECEIVE_MS)
        except pulsar.Timeout:
            return
        except pulsar.PulsarException as error:
            note_death(self.report, error)
            self.report.error(result_name(error), f"receive: {error}")
            time.sleep(RECEIVE_MS / 1000)
            return
        if self._replay is not None:
            self._replay.handed_over(message)
        self._process(consumer, message, self.journal.deliver(message))

    def _take_batch(self, consumer: pulsar.Consumer) -> None:
        """All of a batch is in the application's hands before it works on the first."""
        try:
            messages = consumer.batch_receive()
        except pulsar.PulsarException as error:
            note_death(self.report, error)
            self.report.error(result_name(error), f"batch_receive: {error}")
            time.sleep(RECEIVE_MS / 1000)
            return
        self._count_full(len(messages))
        for message, number in [(message, self.journal.deliver(message)) for message in messages]:
            self._process(consumer, message, number)

    def _count_full(self, count: int) -> None:
        policy = self.options.get("batch_receive_policy")
        most = policy.policy().getMaxNumMessages() if policy is not None else 0
        if 0 < most <= count:
            self.full_batches += 1

    def _heard(self, consumer: pulsar.Consumer, message: pulsar.Message) -> None:
        """The listener: on threads of the client."""
        if not self._is_over():
            self._process(consumer, message, self.journal.deliver(message))

    def _process(self, consumer: pulsar.Consumer, message: pulsar.Message, number: int) -> None:
        """The application: work, then settle."""
        if self.work_s:
            time.sleep(self.work_s)
        if self.settle == "none":
            return
        if self.nack_every and number % self.nack_every == 0:
            self.journal.note(lay.NACK, message)
            consumer.negative_acknowledge(message)
            return
        if self.settle == "cumulative":
            with self._acknowledging:
                self._newest[message.topic_name()] = consumer, message
            return
        self._acknowledge(consumer.acknowledge, message)

    def _acknowledge_newest(self, *, is_last: bool = False) -> None:
        """Acknowledge cumulatively what was handed over, each `commit_every`."""
        now_ns = time.monotonic_ns()
        if not self._newest or not (is_last or now_ns >= self._next_ns):
            return
        self._next_ns = now_ns + self._every_ns
        with self._acknowledging:
            newest, self._newest = self._newest, {}
        for consumer, message in newest.values():
            self._acknowledge(consumer.acknowledge_cumulative, message)

    def _acknowledge(self, how: Callable[[pulsar.Message], None], message: pulsar.Message) -> None:
        self.journal.note(lay.ACK_CALLED, message)
        try:
            how(message)
        except pulsar.PulsarException as error:
            self.report.error(result_name(error), f"acknowledge: {error}")
            return
        self.journal.note(lay.ACK_CONFIRMED, message)
