"""Audit role: read whole partitions from their begin to the end that stood at the start.

No group, no commits: partitions are assigned. A partition that makes no progress for ``stall_s``
while the reader was not busy with others is put aside, so that the others continue; when they are
done it gets a second chance of ``stall_s`` without them (a broker may serve some partitions of a
fetch and starve the rest), and only then counts as stalled.
"""

from __future__ import annotations

import json
import time
from bisect import bisect_left
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from zlib import crc32

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from outcomes import error_text
from reading import payload_of
from worker_kit import layouts as lay
from worker_kit import payload
from worker_kit.failure import WorkerFailure
from worker_kit.payload import RESIDUE
from worker_kit.process import Session
from worker_kit.segments import SegmentWriter

#: Messages a `consume` call returns at most.
BATCH = 10_000
WATERMARK_TIMEOUT_S = 10.0
#: While the log grows: before an error is asked for again.
RETRY_S = 1.0
NO_END = 1 << 62


@dataclass(slots=True)
class Progress:
    """Read progress of one stream. ``why`` is empty while it is being read."""

    stream: str
    stream_id: int
    begin: int = -1
    end: int = -1
    low: int = 0  # where the log begins now: what retention removed is not read a second time
    read_to: int = 0
    why: str = ""
    seen: int = -1  # read_to at the last look
    idle_since_ns: int = 0  # the reader had nothing to do and this stream did not move
    aside: bool = False  # made no progress while the others did
    second_chance: bool = False
    #: While the log grows: leader epochs of what was read, each with the first position of it.
    epochs: list[tuple[int, int]] = field(default_factory=list)
    epoch: int = -2  # of the last message
    again: int = -1  # what was read from there on is read a second time


def truncated_from(
    read: list[tuple[int, int]], read_to: int, now: list[tuple[int, int]], low: int
) -> int:
    """The first position of what was read that the log does not hold any more, of those from
    ``low`` on; ``read_to``: it holds all.

    Args:
        read: leader epochs of what was read, each with its first position, ascending.
        now: those that the log has now (KIP-101). Of one that retention removed whole a leader says
            that it ends where the log begins. Empty: not known, and everything is read a second
            time.
        low: where the log begins now.
    """
    if not now:
        return read[0][1] if read else read_to
    now = now[_lowest(now, low) :]
    numbers = [epoch for epoch, _ in now]
    for index, (epoch, first) in enumerate(read):
        behind = read[index + 1][1] if index + 1 < len(read) else read_to
        if behind <= low:
            continue
        first = max(first, low)
        at = bisect_left(numbers, epoch)
        is_there = at < len(now) and numbers[at] == epoch
        if epoch > numbers[0] and (not is_there or now[at][1] > first):
            return first
        later = at + is_there
        if later < len(now) and behind > now[later][1]:
            return max(first, now[later][1])
    return read_to


def _lowest(now: list[tuple[int, int]], low: int) -> int:
    """Index of the leader epoch that the log begins with."""
    return max(sum(first <= low for _, first in now) - 1, 0)


class AuditRole:
    def __init__(self, session: Session, connect: Callable[[], Consumer]) -> None:
        part = session.spec.part
        self.session = session
        self.control = session.control
        self.connect, self.consumer = connect, connect()
        self.isolation: str = part["isolation"]
        self.stall_ns = int(part["stall_s"] * 1e9)
        self.progress: dict[str, dict[int, Progress]] = {}
        for name in part["streams"]:
            topic, _, partition = name.rpartition("-")
            state = Progress(name, session.names.id("stream", name))
            self.progress.setdefault(topic, {})[int(partition)] = state
        self.segments = SegmentWriter(
            session.spec.folder, lay.LOG, part["reader"], session.spec.run_tag
        )
        self.rows, self.at, self.end = self.segments.rotate()
        self.prefixes = payload.accepted_prefixes(session.spec.run_tag)
        self.read = 0
        self.follows: bool = part.get("follow", False)
        self.later = frozenset(part.get("later") or ())

    def counts(self) -> dict[str, int]:
        return {"read": self.read, "streams_open": len(self._open())}

    def _all(self) -> list[tuple[str, int, Progress]]:
        return [
            (topic, p, state)
            for topic, parts in self.progress.items()
            for p, state in parts.items()
        ]

    def _open(self) -> list[tuple[str, int, Progress]]:
        return [entry for entry in self._all() if not entry[2].why]

    def _reading(self) -> list[tuple[str, int, Progress]]:
        return [entry for entry in self._open() if not entry[2].aside]

    def run(self) -> None:
        self.session.report.counts = self.counts
        if self.follows:
            self._fix_bounds()  # what brokers drop later was there
        self.session.ready()
        if self.follows:
            self._follow()
        self.control.started.wait()
        try:
            self._fix_bounds()
            if self.follows:
                self._go_back()
            self._assign()
            while (
                self._open()
                and not self.control.stopped
                and time.monotonic_ns() < self.control.deadline_ns
            ):
                messages = self.consumer.consume(num_messages=BATCH, timeout=0.1)
                self._take(messages)
                self._look(was_busy=len(messages) == BATCH)
            for _, _, state in self._open():
                state.why = "deadline"
        finally:
            self._write_bounds()
        self.consumer.close()

    def _follow(self) -> None:
        """Read what comes until `start`. Whatever goes wrong meanwhile is tried again, and judged
        then."""
        for _, _, state in self._all():
            # else there is nothing yet to follow
            if state.begin >= 0 or state.stream not in self.later:
                state.end, state.why = NO_END, ""
        self._assign()
        while not self.control.started.is_set() and not self.control.stopped:
            messages = self.consumer.consume(num_messages=BATCH, timeout=0.1)
            self._take(messages)
            if any(message.error() and message.error().code() in _HOPELESS for message in messages):
                time.sleep(RETRY_S)
                self._pass_removed()
                self._assign()
        for _, _, state in self._all():
            state.end = state.read_to + 1  # if its end is not known

    def _pass_removed(self) -> None:
        """Continue after what was removed before it was read."""
        for topic, partition, state in self._all():
            with suppress(KafkaException):  # it is asked again
                bounds = self.consumer.get_watermark_offsets(
                    TopicPartition(topic, partition), timeout=RETRY_S
                )
                if bounds is not None and state.read_to < bounds[0]:
                    state.begin = state.read_to = bounds[0]

    def _go_back(self) -> None:
        """Where leader epochs show that what was read was truncated since, go back before that.

        Where a topic was recreated, a client that knew the one before asks the old leaders for its
        end, and does not come back to its partitions: another client asks again.
        """
        path = self.session.spec.folder / "leader_epochs.json"
        told = json.loads(path.read_text()) if path.exists() else {}
        for _, _, state in self._all():
            now = [(epoch, first) for epoch, first in told.get(state.stream, ())]
            position = state.begin
            if state.epochs:
                position = truncated_from(state.epochs, state.read_to, now, state.low)
            position = min(max(position, state.low), state.end)
            if position < state.read_to:
                text = f"{state.stream}: read to {state.read_to}, and from {position} on it is read again"
                self.session.report.event("truncated", text)
                state.again, state.read_to = position, position
                state.why = "end" if position >= state.end else ""
        if any(state.again >= 0 or state.why == "error" for _, _, state in self._all()):
            self.consumer.close()
            self.consumer = self.connect()
            self._fix_bounds()

    def _fix_bounds(self) -> None:
        """Ask every partition for begin and end; from now on they are fixed."""
        for topic, partition, state in self._all():
            if state.stream in self.later and self._lacks(topic, partition):
                state.end, state.why = 0, "end"
                continue
            state.why = ""
            try:
                bounds = self.consumer.get_watermark_offsets(
                    TopicPartition(topic, partition), timeout=WATERMARK_TIMEOUT_S
                )
            except KafkaException as error:
                state.why = "error"
                self.session.report.error(
                    error.args[0].name(), f"{state.stream}: {error_text(error.args[0])}"
                )
                continue
            if bounds is None:
                state.why = "error"
                self.session.report.error(
                    "watermarks", f"{state.stream}: no answer within {WATERMARK_TIMEOUT_S:.0f} s"
                )
                continue
            state.low, state.end = bounds
            if not self.follows or state.read_to < state.low or state.begin < 0:
                state.begin = state.read_to = state.low
            if state.read_to >= state.end:
                state.why = "end"

    def _lacks(self, topic: str, partition: int) -> bool:
        """Whether brokers say that a topic has no such partition; if they say nothing it may be
        there."""
        try:
            told = self.consumer.list_topics(topic, timeout=WATERMARK_TIMEOUT_S).topics[topic]
        except KafkaException:
            return False
        return told.error is None and partition not in told.partitions

    def _assign(self) -> None:
        """Read what is open and not put aside, each from its position."""
        self.consumer.assign([TopicPartition(t, p, s.read_to) for t, p, s in self._reading()])

    def _take(self, messages: list[Message]) -> None:
        """Write a row a message. The hot loop: about 1 microsecond each."""
        progress, prefixes, tag = self.progress, self.prefixes, self.session.spec.run_tag
        follows = self.follows and not self.control.started.is_set()
        write, crc, rows, at, end = lay.LOG_ROW.pack_into, crc32, self.rows, self.at, self.end
        row_bytes = lay.ROW_BYTES[lay.LOG]
        for message in messages:
            if message.error() is not None:
                self._trouble(message)
                continue
            state, offset = progress[message.topic()][message.partition()], message.offset()
            if follows and (epoch := message.leader_epoch()) is not None and epoch != state.epoch:
                state.epoch = epoch
                state.epochs.append((epoch, offset))
            if offset >= state.end or offset < state.read_to:
                continue  # after the fixed end; or a second look at what was already read
            value = payload_of(message)
            check = (
                0 if value[:8] in prefixes and crc(value) == RESIDUE else payload.check(value, tag)
            )
            if at == end:
                rows, at, end = self.segments.rotate()
            write(
                rows,
                at,
                offset,
                0,
                -1,
                message.timestamp()[1],
                state.stream_id,
                0,
                0,
                0,
                check,
                value[:48],
                1,
            )
            at += row_bytes
            state.read_to = offset + 1
            self.read += 1
        self.rows, self.at, self.end = rows, at, end

    def _trouble(self, message: Message) -> None:
        error = message.error()
        state = self.progress.get(message.topic() or "", {}).get(message.partition())
        if error.code() == KafkaError._PARTITION_EOF and state is not None:
            # Offsets before the end may hold no message (transaction markers): the position is the
            # proof.
            if message.offset() >= state.end:
                state.read_to = state.end
            return
        self.session.report.error(error.name(), error_text(error))
        is_final = not self.follows or self.control.started.is_set()
        if is_final and state is not None and not error.retriable() and error.code() in _HOPELESS:
            state.why = "error"

    def _look(self, *, was_busy: bool) -> None:
        """Close streams that reached their end, and put aside or close those that stopped
        moving."""
        now, gone = time.monotonic_ns(), []
        for topic, partition, state in self._reading():
            if state.read_to >= state.end:
                state.why = "end"
            elif state.read_to != state.seen:
                state.seen, state.idle_since_ns = state.read_to, 0
            elif not was_busy:
                # Only time in which this reader waited for messages counts: a stream after others
                # in the client's queue is not stalled.
                state.idle_since_ns = state.idle_since_ns or now
                if now - state.idle_since_ns > self.stall_ns:
                    self._stalled(state)
            if state.why or state.aside:
                gone.append(TopicPartition(topic, partition))
        if gone:
            self.consumer.incremental_unassign(gone)
        if self._open() and not self._reading():
            for _, _, state in self._open():
                state.aside, state.second_chance, state.idle_since_ns = False, True, 0
            self._assign()

    def _stalled(self, state: Progress) -> None:
        if state.second_chance:
            state.why = "stall"
            text = f"{state.stream} stopped at {state.read_to} of {state.end}"
            self.session.report.event("stall", text)
        else:
            state.aside = True

    def _write_bounds(self) -> None:
        path = self.session.spec.folder / "log_bounds.jsonl"
        lines = [
            json.dumps(
                {
                    "stream": s.stream,
                    "stream_id": s.stream_id,
                    "begin": max(s.begin, 0),
                    "end": s.end,
                    "read_to": s.read_to,
                    "why": s.why or "error",
                    "isolation": self.isolation,
                    **({"again": s.again} if s.again >= 0 else {}),
                }
            )
            for _, _, s in self._all()
        ]
        try:
            path.write_text("\n".join(lines) + "\n")
        except OSError as error:
            raise WorkerFailure(f"cannot write {path}: {error.strerror}") from error


#: Errors after which a partition will not come back within an audit.
_HOPELESS = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._AUTO_OFFSET_RESET,
        KafkaError.OFFSET_OUT_OF_RANGE,
    }
)
