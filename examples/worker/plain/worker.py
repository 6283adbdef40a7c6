"""kafka-python: one process, one role (docs/worker-protocol.md)."""

import mmap
import sys
import time

import kafka
from kafka.errors import KafkaError, KafkaTimeoutError
from worker_kit import layouts as lay
from worker_kit.failure import WorkerFailure
from worker_kit.kafka_codes import outcome_of
from worker_kit.open_loop import BLOCKED_NS, OpenLoop
from worker_kit.process import Session, main
from worker_kit.streams import StreamIds

REFUSALS = (KafkaError, ValueError, TypeError, AssertionError)


def value(text: str) -> object:
    """Options arrive as text."""
    words = {"true": True, "false": False}
    return int(text) if text.lstrip("-").isdigit() else words.get(text, text)


class Producer(OpenLoop):
    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.streams = StreamIds(session)
        options = {name: value(text) for name, text in session.spec.options.items()}
        servers = session.spec.bootstrap.split(",")
        try:  # an option that the client does not take ends the worker, in the client's own words
            fixed = {"client_id": session.spec.name, "bootstrap_servers": servers}
            self.client = kafka.KafkaProducer(**fixed, **options)
        except REFUSALS as error:
            raise WorkerFailure(
                f"kafka-python refused to start: {error}", hint="see its docs"
            ) from error

    def connect(self) -> None:
        for topic in {lane.topic for lane in self.lanes}:
            try:
                self.client.partitions_for(topic)
            except KafkaError as error:
                raise WorkerFailure(f"no metadata of topic {topic}: {error}") from error

    def offer(self, first: int, stop: int, kind: int) -> int:
        """A row, then the call, message by message."""
        for i in range(first, stop):
            lane, seq, now = (
                self.lanes[i % len(self.lanes)],
                i // len(self.lanes),
                time.monotonic_ns(),
            )
            period = self.schedule.period_ns
            due = self.schedule.t0_ns + int(i * period) if period else now
            payload = self.payload(i % len(self.lanes), seq, due, kind)
            row = self.open_row(lane.lane, seq, due, kind, 0, now)
            self.attempted, self.blocked_since_ns = i + 1, now
            partition = None if lane.partition < 0 else lane.partition
            try:
                future = self.client.send(lane.topic, payload, lane.key, None, partition)
            except REFUSALS as error:  # never queued: certainly not stored
                self.finish(*row, lay.FAIL, f"{type(error).__name__}: {error}")
            else:
                future.add_callback(self.stored, *row)
                future.add_errback(self.failed, *row)
            took, self.blocked_since_ns = time.monotonic_ns() - now, 0
            # time that is the client's, not ours
            self.blocked_ns += took if took > BLOCKED_NS else 0
            if self.control.stop_load:
                return i + 1
        return stop

    def stored(self, rows: mmap.mmap, at: int, told: object) -> None:
        with self.lock:
            if self.capture:
                now, stream = time.monotonic_ns(), self.streams[told.topic][told.partition]
                lay.SENDS_DONE.pack_into(rows, at, now, told.offset, 0, 0, stream, 0, 0, 0, lay.OK)
            self.ok += 1

    def failed(self, rows: mmap.mmap, at: int, error: BaseException) -> None:
        """Fail only where the code says that it is certain; in doubt info."""
        outcome = outcome_of(getattr(error, "errno", None), retries=True)
        self.finish(rows, at, outcome, type(error).__name__)

    def serve(self, seconds: float) -> None:
        time.sleep(seconds)  # the client calls back on a thread of its own

    def flush(self, seconds: float) -> None:
        try:
            self.client.flush(timeout=seconds)
        except KafkaTimeoutError:
            return
        time.sleep(0.001)  # flushed, and the last callbacks may still be running

    def close(self) -> None:
        if not self.open_calls():
            self.client.close(timeout=1.0)


if __name__ == "__main__":
    versions = {"client_version": kafka.__version__}
    sys.exit(main({"producer": lambda session: Producer(session).run()}, versions, (KafkaError,)))
