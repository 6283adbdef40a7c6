"""Producer role on kafka-python. Delivery callbacks run on the client's own thread, concurrently."""

from __future__ import annotations

import mmap
import threading
import time
from typing import Any

from kafka import KafkaProducer
from kafka.errors import KafkaError, KafkaTimeoutError
from outcomes import Outcomes, error_text
from worker_kit import layouts as lay
from worker_kit.failure import WorkerFailure
from worker_kit.open_loop import ROW_BYTES, OpenLoop
from worker_kit.payload import encode
from worker_kit.process import Session
from worker_kit.streams import StreamIds

#: A call of `send` longer than this was blocked (waiting for metadata or room), not just busy.
BLOCKED_NS = 5_000_000
REFUSALS = (KafkaError, ValueError, TypeError, AssertionError)


class ProducerRole(OpenLoop):
    def __init__(self, session: Session, producer: KafkaProducer, outcomes: Outcomes) -> None:
        super().__init__(session)
        self.producer = producer
        self.outcomes = outcomes
        self.streams = StreamIds(session)
        self.tally_lock = threading.Lock()

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
        lanes, count, send, clock = self.lanes, len(self.lanes), self.producer.send, time.monotonic_ns
        tag, instance, length = self.session.spec.run_tag, self.instance, self.length
        t0, period, rows, at = self.schedule.t0_ns, self.schedule.period_ns, self.rows, self.at
        for i in range(first, stop):
            number, topic, key, partition, key_number = lanes[i % count]
            seq, now = i // count, clock()
            due = t0 + int(i * period) if period else now
            value = encode(
                run_tag=tag, instance=instance, lane=number, seq=seq, t_intended_ns=due, kind=kind,
                key=key_number, length=length,
            )  # fmt: skip
            if self.capture:
                if at == self.end:
                    rows, at, self.end = self.segments.rotate()
                lay.SENDS_OPEN.pack_into(rows, at, number, 0, kind, seq, due, now, 1)
            self.attempted, self.blocked_since_ns = i + 1, now
            try:
                future = send(topic, value, key, None, None if partition < 0 else partition)
            except REFUSALS as error:
                self._finish(rows, at + 40, lay.FAIL, error)
            else:
                future.add_callback(self._stored, rows, at + 40)
                future.add_errback(self._failed, rows, at + 40)
            took, self.blocked_since_ns = clock() - now, 0
            self.blocked_ns += took if took > BLOCKED_NS else 0
            at += ROW_BYTES
            if took > BLOCKED_NS and self.control.stop_load:
                stop = i + 1
                break
        self.rows, self.at = rows, at
        return stop

    # -- outcomes; on the client's thread, or on ours when the future was done already

    def _stored(self, rows: mmap.mmap, at: int, metadata: Any) -> None:
        now = time.monotonic_ns()
        with self.tally_lock:
            if self.capture:
                if rows[at + lay.OUTCOME_IN_DONE]:
                    rows[at + lay.LATE_OUTCOME_IN_DONE] = lay.OK
                    return
                stream = self.streams[metadata.topic][metadata.partition]
                lay.SENDS_DONE.pack_into(rows, at, now, metadata.offset, 0, 0, stream, 0, 0, 0, lay.OK)
            self.ok += 1

    def _failed(self, rows: mmap.mmap, at: int, error: BaseException) -> None:
        self._finish(rows, at, self.outcomes.reported(error), error)

    def _finish(self, rows: mmap.mmap, at: int, outcome: int, error: BaseException) -> None:
        with self.tally_lock:
            if self.capture:
                self.complete(rows, at, outcome, error_text(error))
            else:
                self.tally(outcome)
