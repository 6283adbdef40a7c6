"""Producer role on librdkafka. One thread: delivery reports come out of `poll`, called between batches."""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable
from types import MethodType
from typing import Any
from zlib import crc32

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from outcomes import Outcomes, error_text
from worker_kit import layouts as lay
from worker_kit.failure import WorkerFailure
from worker_kit.open_loop import ROW_BYTES, OpenLoop
from worker_kit.process import Session
from worker_kit.streams import StreamIds

METADATA_TIMEOUT_S = 20.0


class ProducerRole(OpenLoop):
    def __init__(self, session: Session, producer: Producer, outcomes: Outcomes) -> None:
        super().__init__(session)
        self.producer = producer
        self.outcomes = outcomes
        self.streams = StreamIds(session)
        topics = list(dict.fromkeys(lane.topic for lane in self.lanes))
        #: lane id, topic, key, partition, key number, number of the topic
        self.routes = [(*lane, topics.index(lane.topic)) for lane in self.lanes]
        self.topics = topics
        #: by number of the topic, the delivery report of messages whose rows are in the current segment
        self.reports: list[Callable[..., None]] = []

    def connect(self) -> None:
        for topic in sorted({lane.topic for lane in self.lanes}):
            try:
                found = self.producer.list_topics(topic, timeout=METADATA_TIMEOUT_S).topics[topic]
            except KafkaException as error:
                raise WorkerFailure(
                    f"no metadata of topic {topic} from {self.session.spec.bootstrap} within "
                    f"{METADATA_TIMEOUT_S:.0f} s: {error_text(error.args[0])}"
                ) from error
            if found.error is not None:
                raise WorkerFailure(f"topic {topic}: {error_text(found.error)}")

    def serve(self, seconds: float) -> None:
        # librdkafka waits in whole milliseconds and would take less as "do not wait".
        self.producer.poll(max(seconds, 0.001) if seconds else 0)

    def flush(self, seconds: float) -> None:
        self.producer.flush(seconds)

    def close(self) -> None:
        # With messages still queued `close` would go on waiting for them; they stay open instead.
        # Older releases have no `close`: theirs ends with the process.
        if not len(self.producer) and hasattr(self.producer, "close"):
            self.producer.close()

    def offer(self, first: int, stop: int, kind: int) -> int:
        """Send a run of messages. The hot loop: about 2 microseconds each, most of them the client's."""
        routes, count, produce, capture = self.routes, len(self.routes), self.producer.produce, self.capture
        pack, open_row, clock = lay.HEADER.pack, lay.SENDS_OPEN.pack_into, time.monotonic_ns
        tag, instance, length, filling = self.session.spec.run_tag, self.instance, self.length, self.filler
        t0, period, report = self.schedule.t0_ns, self.schedule.period_ns, self._count
        rows, at, end, reports, bind = self.rows, self.at, self.end, self.reports, MethodType
        for i in range(first, stop):
            number, topic, key, partition, key_number, topic_number = routes[i % count]
            seq, now = i // count, clock()
            due = t0 + int(i * period) if period else now
            body = (
                pack(b"BS", 1, kind, tag, instance, number, seq, due, key_number, 0, 0, length, 0) + filling
            )
            if capture:
                if at == end:
                    self.attempted = i
                    rows, at, end = self.segments.rotate()
                    reports = self.reports = [self._make_report(rows, topic) for topic in self.topics]
                open_row(rows, at, number, 0, kind, seq, due, now, 1)
                # A bound method of a number: half the cost of a partial, to make and to call.
                report = bind(reports[topic_number], at + 40)
                at += ROW_BYTES
            send = (topic, body + crc32(body).to_bytes(4, "little"), key, partition, report)
            try:
                produce(*send)
            except (BufferError, KafkaException) as error:
                self.attempted = i + 1
                self._refused(error, send, rows, at - ROW_BYTES + 40)
                if self.control.stop_load:
                    stop = i + 1
                    break
        self.rows, self.at, self.end = rows, at, end
        self.attempted = stop
        return stop

    def _refused(self, error: Exception, send: tuple[Any, ...], rows: mmap.mmap, at: int) -> None:
        """`produce` raised, so the client did not take the message: wait for room, or it failed."""
        begun = self.blocked_since_ns = time.monotonic_ns()
        while isinstance(error, BufferError) and self.wait_when_full and not self.control.stop_load:
            self.producer.poll(0.05)
            try:
                self.producer.produce(*send)
            except (BufferError, KafkaException) as again:
                error = again
            else:
                break
        else:
            text = f"_QUEUE_FULL: {error}" if isinstance(error, BufferError) else error_text(error.args[0])
            if self.capture:
                self.complete(rows, at, lay.FAIL, text)
            else:
                self.tally(lay.FAIL)
        self.blocked_since_ns = 0
        self.blocked_ns += time.monotonic_ns() - begun

    def _make_report(self, rows: mmap.mmap, topic: str) -> Callable[[int, KafkaError | None, Message], None]:
        """The delivery report of messages to a topic whose rows lie in this segment: a closure, because
        every message calls it. Its first argument is where the completion part of the row is."""
        streams = self.streams[topic]
        write, clock = lay.SENDS_DONE_PLAIN.pack_into, time.monotonic_ns

        def done(at: int, error: KafkaError | None, message: Message) -> None:
            if error is None and not rows[at + 48]:
                offset = message.offset()  # None with acks=0
                write(rows, at, clock(), -1 if offset is None else offset, streams[message.partition()], 1)
                self.ok += 1
            else:
                outcome = lay.OK if error is None else self.outcomes.reported(error)
                self.complete(rows, at, outcome, "" if error is None else error_text(error))

        return done

    def _count(self, error: KafkaError | None, _message: Message) -> None:
        """The delivery report without capture."""
        self.tally(lay.OK if error is None else self.outcomes.reported(error))
