"""Producer role on kafka-python. Delivery callbacks run on the client's own thread,
concurrently."""

from __future__ import annotations

import mmap
import time
from typing import Any

from kafka import KafkaProducer
from kafka.errors import KafkaError, KafkaTimeoutError
from outcomes import Outcomes, note_death
from worker_kit import layouts as lay
from worker_kit.error_texts import error_text
from worker_kit.failure import WorkerFailure
from worker_kit.open_loop import BLOCKED_NS, OpenLoop, Share
from worker_kit.process import Session
from worker_kit.streams import StreamIds
from worker_kit.template import HEADER, parted

REFUSALS = (KafkaError, ValueError, TypeError, AssertionError)


class ProducerRole(OpenLoop):
    def __init__(
        self,
        session: Session,
        producer: KafkaProducer,
        outcomes: Outcomes,
        share: Share | None = None,
    ) -> None:
        super().__init__(session, share)
        self.producer = producer
        self.outcomes = outcomes
        self.streams = StreamIds(session)
        self.sent_headers = [(name, value.encode()) for name, value in self.headers] or None

    def for_thread(self, share: Share) -> ProducerRole:
        return ProducerRole(self.session, self.producer, self.outcomes, share)

    def connect(self) -> None:
        for topic in sorted({lane.topic for lane in self.lanes}):
            try:
                found = self.producer.partitions_for(topic)
            except KafkaError as error:
                raise WorkerFailure(f"no metadata of topic {topic}: {error_text(error)}") from error
            if not found:
                raise WorkerFailure(f"topic {topic}: the cluster does not know it")

    def serve(self, seconds: float) -> None:
        if seconds:
            time.sleep(seconds)

    def flush(self, seconds: float) -> None:
        try:
            self.producer.flush(timeout=seconds)
        except KafkaTimeoutError:
            return
        if self.open_calls():  # flushed, and the last callbacks are still running
            time.sleep(0.001)

    def close(self) -> None:
        if not self.open_calls():
            self.producer.close(timeout=1.0)

    def offer(self, first: int, stop: int, kind: int) -> int:
        """Send a run of messages. The hot loop; nearly all of its time is the client's."""
        lanes, count, send, clock = (
            self.lanes,
            len(self.lanes),
            self.producer.send,
            time.monotonic_ns,
        )
        payload, open_row, dues = self.payload, self.open_row, self.dues_ns(first, stop)
        headers = self.sent_headers
        for i in range(first, stop):
            number, topic, key, partition, _ = lanes[i % count]
            seq, now = self.turns.seq(i), clock()
            due = dues[i - first] if dues else now
            value = payload(i % count, seq, due, kind)
            if self.template:
                headers = [*(self.sent_headers or ()), *self.made_headers(value)]
                value, identity = parted(value)
                headers.append((HEADER, identity))
            rows, done = open_row(number, seq, due, kind, 0, now)
            self.attempted, self.blocked_since_ns = i + 1, now
            try:
                future = send(topic, value, key, headers, None if partition < 0 else partition)
            except REFUSALS as error:
                note_death(self.session.report, error)
                self.finish(rows, done, lay.FAIL, error_text(error))
            else:
                future.add_callback(self._stored, rows, done)
                future.add_errback(self._failed, rows, done)
            took, self.blocked_since_ns = clock() - now, 0
            self.blocked_ns += took if took > BLOCKED_NS else 0
            if took > BLOCKED_NS and self.control.stop_load:
                return i + 1
        return stop

    # -- outcomes; on the client's thread, or on ours when the future was done already

    def _stored(self, rows: mmap.mmap, at: int, metadata: Any) -> None:
        now = time.monotonic_ns()
        with self.lock:
            if self.capture:
                if rows[at + lay.OUTCOME_IN_DONE]:
                    rows[at + lay.LATE_OUTCOME_IN_DONE] = lay.OK
                    return
                stream = self.streams[metadata.topic][metadata.partition]
                lay.SENDS_DONE.pack_into(
                    rows, at, now, metadata.offset, 0, 0, stream, 0, 0, 0, lay.OK
                )
            self.ok += 1

    def _failed(self, rows: mmap.mmap, at: int, error: BaseException) -> None:
        note_death(self.session.report, error)
        self.finish(rows, at, self.outcomes.reported(error), error_text(error))
