"""The log of a partition as each of its replicas has it.

A broker gives readers what it has, leader or not (KIP-392: fetches of version 11 and later may go
to a follower), up to the high watermark as it knows it. Replicas are copies byte by byte, batch by
batch, so two of them are compared by the bytes of their batches.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Any, Final

from kafka.errors import for_code
from kafka.record.default_records import DefaultRecordBatch

from harness.contracts.rows import ReplicaRow, ReplicaSpan
from harness.errors import EnvironmentNotReady
from harness.protocols.cluster import PartitionState
from harness.systems.kafka.failover import KafkaFailover
from harness.systems.kafka.transactions import Partition, batches

#: A follower hears of the leader's high watermark with its next fetch, within half a second.
_STUCK_S: Final = 10.0
_PAUSE_S: Final = 0.2
_OUT_OF_RANGE: Final = 1
#: CORRUPT_MESSAGE, UNKNOWN_SERVER_ERROR, KAFKA_STORAGE_ERROR: said of a log that cannot be read.
_UNREADABLE: Final = frozenset({2, -1, 56})
#: Spans kept of a replica that differs nearly everywhere.
_KEPT: Final = 1000

_Span = tuple[int, int, str]


class _Replica:
    """The rows of a partition on one node, as far as they were read."""

    def __init__(self, begin: int) -> None:
        self.begin = self.offset = begin
        self.spans: list[_Span] = []
        self.asked: list[int] = []  # offsets whose answers gave the spans, increasing
        self.why = ""
        self.refused = False

    def take(self, answer: Any) -> None:
        """The row of the partition in a FetchResponse."""
        if answer.error_code == _OUT_OF_RANGE and answer.log_start_offset > self.offset:
            self.begin = self.offset = answer.log_start_offset
            return
        self.why = for_code(answer.error_code).__name__ if answer.error_code else ""
        asked = self.offset
        for batch, header in batches(bytes(answer.records or b"")):
            first, delta = header[0], header[6]
            if first + delta < self.offset:
                continue  # the batch that the last answer ended with
            self.spans.append((first, first + delta, blake2b(batch, digest_size=8).hexdigest()))
            self.offset = first + delta + 1
        if self.offset > asked:
            self.asked.append(asked)

    def asked_for(self, first: int) -> int:
        """Return the offset whose answer gave the batch that begins at an offset."""
        return self.asked[max(0, bisect_right(self.asked, first) - 1)]

    def take_last(self, answer: Any) -> None:
        """Take the answer about a partition that gave nothing for a while and was asked for alone;
        see `take`. An error is final, and the answer has a whole batch or none.
        """
        before = self.offset
        self.take(answer)
        self.refused = answer.error_code in _UNREADABLE
        if answer.records and self.offset == before:
            self.refused, self.why = True, "its answer is not a batch"


class ReplicaReading:
    """Reads the replicas of some streams, each up to where its leader's log ended at first."""

    def __init__(
        self,
        ask: KafkaFailover,
        states: Mapping[str, PartitionState],
        bounds: Mapping[str, tuple[int, int]],
    ) -> None:
        """``states``: who has what; ``bounds``: where the leader's log of a stream begins and
        ends."""
        self._ask, self._states, self._bounds = ask, states, bounds
        self._found = {
            (stream, node): _Replica(bounds[stream][0])
            for stream, state in states.items()
            for node in state.replicas
        }

    def read(self, *, within_s: float) -> None:
        """Read what there is; returns early when no node gives more."""
        now = time.monotonic()
        deadline, moved = now + within_s, now
        while (left := self._left()) and time.monotonic() < min(deadline, moved + _STUCK_S):
            before = self._sum()
            for node in {node for _, node in left}:
                self._fetch(
                    node, {_partition(s): one for (s, its), one in left.items() if its == node}
                )
            if self._sum() > before:
                moved = time.monotonic()
            else:
                time.sleep(_PAUSE_S)
        for (stream, node), one in self._left().items():
            if answer := self._answer(node, stream, one.offset):
                one.take_last(answer)

    def _left(self) -> dict[tuple[str, str], _Replica]:
        found = self._found.items()
        return {key: one for key, one in found if one.offset < self._bounds[key[0]][1]}

    def _sum(self) -> int:
        return sum(one.offset for one in self._found.values())

    def _fetch(self, node: str, replicas: Mapping[Partition, _Replica]) -> None:
        asked = {one: replica.offset for one, replica in replicas.items()}
        with suppress(EnvironmentNotReady):
            answers = self._ask(lambda broker: broker.fetch(asked, committed_only=False), only=node)
            for one, answer in answers.items():
                replicas[one].take(answer)

    def _answer(self, node: str, stream: str, offset: int) -> Any:
        """Return a node's rows of one stream from an offset on; None if it does not answer."""
        asked = {_partition(stream): offset}
        with suppress(EnvironmentNotReady):
            answers = self._ask(lambda broker: broker.fetch(asked, committed_only=False), only=node)
            return answers.get(_partition(stream))
        return None

    def rows(self, after: Mapping[str, PartitionState]) -> list[ReplicaRow]:
        """A row for each replica, with the spans that not all replicas of its stream have.

        Args:
            after: who leads and is in sync now that reading is over.
        """
        rows = []
        for stream, state in self._states.items():
            own = {node: self._found[stream, node] for node in state.replicas}
            begin, end = max(one.begin for one in own.values()), self._bounds[stream][1]
            have = Counter(span for one in own.values() for span in one.spans)
            now = after.get(stream, PartitionState(None, (), ()))
            for node, one in own.items():
                odd = [
                    span for span in one.spans if have[span] < len(own) and begin <= span[0] < end
                ]
                told, known_to = self._all_told(node, stream, odd, end)
                row = ReplicaRow(
                    stream=stream,
                    node=node,
                    leads=node == state.leader == now.leader,
                    in_sync=node in state.in_sync and node in now.in_sync,
                    begin=begin,
                    end=end,
                    read_to=min(one.offset, known_to),
                    why=one.why,
                    refused=one.refused and known_to == end,
                    odd=told,
                )
                rows.append(row)
        return rows

    def _all_told(
        self, node: str, stream: str, odd: Sequence[_Span], end: int
    ) -> tuple[tuple[ReplicaSpan, ...], int]:
        """Odd spans, and up to where they are known: the node may answer no more, or they are too
        many."""
        told: list[ReplicaSpan] = []
        for span in odd:
            said = self._told(node, stream, span) if len(told) < _KEPT else None
            if said is None:
                return tuple(told), span[0]
            told.append(said)
        return tuple(told), end

    def _told(self, node: str, stream: str, span: _Span) -> ReplicaSpan | None:
        """The span, fetched once more: few are odd, and a checksum in Python is slow. None = no
        answer."""
        first, last, digest = span
        answer = self._answer(node, stream, first)
        if answer is not None and answer.error_code in _UNREADABLE:
            # A broker that looks for an offset reads the headers of batches up to it, and fails at
            # a damaged one. It gives that batch with the batches before it, as it did in the first
            # reading.
            answer = self._answer(node, stream, self._found[stream, node].asked_for(first))
        if answer is None or answer.error_code:
            return None
        again = batches(bytes(answer.records or b""))
        data = next((batch for batch, header in again if header[0] == first), None)
        return ReplicaSpan(
            first, last, digest, data is not None and DefaultRecordBatch(data).validate_crc()
        )


def _partition(stream: str) -> Partition:
    topic, _, number = stream.rpartition("-")
    return topic, int(number)
