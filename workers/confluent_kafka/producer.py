"""Producer role on librdkafka.

Delivery reports come out of `poll`, which the first sending thread calls between batches.
"""

from __future__ import annotations

import contextlib
import mmap
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import repeat, starmap
from operator import length_hint
from types import MethodType
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import TopicMetadata
from outcomes import Outcomes, error_text, note_death
from worker_kit import layouts as lay
from worker_kit.bursts import BURST, OpenRows, Payloads, around
from worker_kit.failure import WorkerFailure
from worker_kit.open_loop import ROW_BYTES, OpenLoop, Share
from worker_kit.process import Session
from worker_kit.streams import StreamIds
from worker_kit.template import HEADER, parted

METADATA_TIMEOUT_S = 15.0
METADATA_TURN_S = 2.0
#: Between two tries with a full queue, of a thread that does not poll.
FULL_PAUSE_S = 0.002
Report = Callable[..., None]


class _Later(Exception):
    """Raised by a delivery report: the client ends the poll (rd_kafka_yield) and keeps the later
    ones."""


class ProducerRole(OpenLoop):
    def __init__(
        self,
        session: Session,
        producer: Producer,
        outcomes: Outcomes,
        share: Share | None = None,
        poller: ProducerRole | None = None,
    ) -> None:
        super().__init__(session, share)
        self.producer = producer
        #: The sending thread that polls.
        self.poller = poller or self
        self.outcomes = outcomes
        self.streams = StreamIds(session)
        self.payloads = Payloads(
            self.lanes, session.spec.run_tag, self.sizes, self.turns, self.template
        )
        self.open_rows = OpenRows(self.lanes)
        self.topics, self.keys, self.partitions = (
            [getattr(lane, name) for lane in around(self.lanes)]
            for name in ("topic", "key", "partition")
        )
        self.sent_headers = [(name, value.encode()) for name, value in self.headers]
        #: by lane, the delivery report of messages whose rows are in the current segment
        self.reports: list[Report] = []

    def for_thread(self, share: Share) -> ProducerRole:
        other = ProducerRole(self.session, self.producer, self.outcomes, share, self)
        self.answered_here.append(other)
        return other

    def connect(self) -> None:
        for topic in sorted({lane.topic for lane in self.lanes}):
            found = self._metadata(topic)
            if found.error is not None:
                raise WorkerFailure(f"topic {topic}: {error_text(found.error)}")

    @property
    def produce(self) -> Callable[..., None]:
        """The client's call, with the headers of every message."""
        call: Callable[..., None] = self.producer.produce
        if self.template:
            return partial(self._produce_body, call)
        return partial(call, headers=self.sent_headers) if self.sent_headers else call

    def _produce_body(
        self,
        call: Callable[..., None],
        topic: str,
        payload: bytes,
        key: bytes | None,
        partition: int,
        report: Report,
    ) -> None:
        """Send the body of a payload, and its identity in a header."""
        body, identity = parted(payload)
        headers = [*self.sent_headers, *self.made_headers(payload), (HEADER, identity)]
        call(topic, body, key, partition, report, headers=headers)

    def _metadata(self, topic: str) -> TopicMetadata:
        """Asked in short turns: between them the client may say why it gets none."""
        give_up_at = time.monotonic() + METADATA_TIMEOUT_S
        while True:
            try:
                return self.producer.list_topics(topic, timeout=METADATA_TURN_S).topics[topic]
            except KafkaException as error:
                self.producer.poll(0)
                if time.monotonic() < give_up_at:
                    continue
                raise WorkerFailure(
                    f"no metadata of topic {topic} from {self.session.spec.bootstrap} within "
                    f"{METADATA_TIMEOUT_S:.0f} s: {error_text(error.args[0])}"
                ) from error

    def serve(self, seconds: float) -> None:
        if self.poller is not self:
            if seconds:
                time.sleep(seconds)
            return
        # librdkafka waits in whole milliseconds and would take less as "do not wait".
        with self._listening(), contextlib.suppress(_Later):
            self.producer.poll(max(seconds, 0.001) if seconds else 0)

    def flush(self, seconds: float) -> None:
        if self.poller is self:
            with self._listening():
                self.producer.flush(seconds)
        else:
            time.sleep(min(seconds, 0.01))

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        """A fatal error comes out of the call that serves reports, once; reports continue with the
        next."""
        try:
            yield
        except KafkaException as error:
            if not note_death(self.session.report, error.args[0]):
                raise

    def close(self) -> None:
        # With messages still queued `close` would keep waiting for them; they stay open instead.
        # Older releases have no `close`: theirs ends with the process.
        if not len(self.producer) and hasattr(self.producer, "close"):
            with self._listening():
                self.producer.close()

    def offer(self, first: int, stop: int, kind: int) -> int:
        """Send a run of messages in bursts, up to the end of a segment each."""
        while first < stop:
            count = min(BURST, stop - first)
            if self.capture:
                if self.at == self.end:
                    self._next_segment()
                count = min(count, (self.end - self.at) // ROW_BYTES)
            sent = self._burst(first, count, kind)
            first += sent
            self.attempted = first
            if sent < count and self.control.stop_load:
                break
        return first

    def _next_segment(self) -> None:
        self.rows, self.at, self.end = self.segments.rotate()
        self.open_rows.use(self.rows)
        by_topic = {topic: self._make_report(self.rows, topic) for topic in set(self.topics)}
        self.reports = [by_topic[topic] for topic in self.topics]

    def _burst(self, first: int, count: int, kind: int) -> int:
        """Rows, then calls. The hot loop: nearly all of its time is the client's.

        Returns how many messages were offered: fewer than ``count`` when a full queue was waited
        for.
        """
        now, row = time.monotonic_ns(), self.at
        columns = self.payloads.columns(first, count, self.schedule, now)
        values = self.payloads.of(first, count, kind, columns)
        phase = first % len(self.lanes)
        burst = slice(phase, phase + count)
        topics, keys, partitions = self.topics[burst], self.keys[burst], self.partitions[burst]
        callbacks: Iterator[Report] = repeat(self._count)
        if self.capture:
            self.open_rows.write(row, first, count, kind, columns, now)
            self.at += count * ROW_BYTES
            # A bound method of a number: half the cost of a partial, to make and to call.
            done = range(row + lay.SENDS_DONE_OFFSET, self.at, ROW_BYTES)
            callbacks = map(MethodType, self.reports[burst], done)
        left = iter(values)
        calls = starmap(self.produce, zip(topics, left, keys, partitions, callbacks, strict=False))
        while True:
            try:
                # makes them all, and no step of the interpreter between two of them
                deque(calls, 0)
                return count
            except (BufferError, KafkaException) as error:
                k = count - length_hint(left) - 1
                self.attempted = first + k + 1
                done_at = row + k * ROW_BYTES + lay.SENDS_DONE_OFFSET
                report = (
                    MethodType(self.reports[phase + k], done_at) if self.capture else self._count
                )
                send = (topics[k], values[k], keys[k], partitions[k], report)
                if self._refused(error, send, row + k * ROW_BYTES):
                    return k + 1

    def send_one(self, index: int, seq: int, due_ns: int, kind: int, payload: bytes) -> None:
        """Send one message that no schedule knows, to lane ``index``."""
        if self.at == self.end:
            self._next_segment()
        lane, row = self.lanes[index], self.at
        lay.SENDS_OPEN.pack_into(
            self.rows, row, lane.lane, 0, kind, seq, due_ns, time.monotonic_ns(), self.row_state
        )
        self.at += ROW_BYTES
        self.attempted += 1
        report = MethodType(self.reports[index], row + lay.SENDS_DONE_OFFSET)
        send = (lane.topic, payload, lane.key, lane.partition, report)
        try:
            self.produce(*send)
        except (BufferError, KafkaException) as error:
            self._refused(error, send, row)

    def _refused(self, error: Exception, send: tuple[Any, ...], row: int) -> bool:
        """`produce` raised, so the client did not take the message: wait for room, or it failed.

        Returns whether it was waited for. The rows after it are taken back then: it is not known
        when their messages will be sent, if ever.
        """
        waits = isinstance(error, BufferError) and self.wait_when_full
        begun = self.blocked_since_ns = time.monotonic_ns()
        if waits and self.capture:
            self.open_rows.take_back(row + ROW_BYTES, self.at)
            self.at = row + ROW_BYTES
        while isinstance(error, BufferError) and self.wait_when_full and not self.control.stop_load:
            if self.poller is self:
                self.producer.poll(0.05)
            else:
                time.sleep(FULL_PAUSE_S)
            try:
                self.produce(*send)
            except (BufferError, KafkaException) as again:
                error = again
            else:
                break
        else:
            if isinstance(error, BufferError):
                text = f"_QUEUE_FULL: {error}"
            else:
                text = error_text(error.args[0])
                note_death(self.session.report, error.args[0])
            self.finish(self.rows, row + lay.SENDS_DONE_OFFSET, lay.FAIL, text)
        self.blocked_since_ns = 0
        self.blocked_ns += time.monotonic_ns() - begun
        del error  # of the last try: its traceback has this frame, and nothing collects cycles here
        return waits

    def _make_report(
        self, rows: mmap.mmap, topic: str
    ) -> Callable[[int, KafkaError | None, Message], None]:
        """The delivery report of messages to a topic whose rows lie in this segment: a closure,
        because every message calls it. Its first argument is where the completion part of the row
        is."""
        streams, poller = self.streams[topic], self.poller
        write, clock = lay.SENDS_DONE_PLAIN.pack_into, time.monotonic_ns

        def done(at: int, error: KafkaError | None, message: Message) -> None:
            now = clock()
            if error is None and not rows[at + 48]:
                offset = message.offset()  # None with acks=0
                write(
                    rows, at, now, -1 if offset is None else offset, streams[message.partition()], 1
                )
                self.ok += 1
            else:
                outcome = lay.OK if error is None else self.outcomes.reported(error)
                self.finish(rows, at, outcome, "" if error is None else error_text(error))
            if now > poller.serve_by_ns:
                raise _Later

        return done

    def _count(self, error: KafkaError | None, _message: Message) -> None:
        """The delivery report without capture."""
        with self.lock:
            self.tally(lay.OK if error is None else self.outcomes.reported(error))
