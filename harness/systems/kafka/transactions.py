"""Transactions in the log of a partition: which offsets each has, and the marker after them.

No client shows markers. So the log is fetched once more, as readers of committed data fetch it, and
of every batch the header alone is read: producer id, epoch, first and last offset, transactional or
control (KIP-98). Readers of committed data know what was aborted from a list that the broker sends
along, not from the markers; both are compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from struct import Struct
from typing import Any, Final

from kafka.record.default_records import DefaultRecordBatch

from harness.contracts.rows import LogSpan, StaleWrite, StreamTransactions
from harness.errors import EnvironmentNotReady
from harness.systems.kafka.failover import KafkaFailover

#: The last stable offset is waited for: markers are written after a commit was acknowledged.
STABLE_S: Final = 20.0
_PAUSE_S: Final = 0.2
#: base offset, bytes after this field, leader epoch, magic, crc, attributes, last offset delta,
#: first and last timestamp, producer id, epoch
_BATCH: Final = Struct(">qiibIhiqqqh")
_BEFORE_LENGTH: Final = 12
_TRANSACTIONAL, _CONTROL = 1 << 4, 1 << 5
_NO_TRANSACTIONS_MAGIC: Final = 2  # older formats have none

Partition = tuple[str, int]
#: Partition -> the node that leads it, None while there is none.
Leaders = Callable[[str], Mapping[int, str | None]]


class PartitionScan:
    """The part of a partition that was read. It takes the answers to fetches in order."""

    def __init__(self) -> None:
        self.offset = 0
        self.end = -1  # the high watermark when it was first asked
        self.stable = -1
        self._spans: list[LogSpan] = []
        # by producer id, of the transaction that is going on
        self._open: dict[int, list[LogSpan]] = {}
        #: First offsets of aborted transactions, by producer id, as the broker lists them.
        self._aborted: dict[int, set[int]] = {}
        self._disagree = 0
        self._newest: dict[int, int] = {}  # epoch by producer id
        self._stale: list[StaleWrite] = []

    @property
    def is_read(self) -> bool:
        """Whether every row up to the end of the partition was read."""
        return self.offset >= self.end >= 0

    def take(self, answer: Any, *, committed_only: bool) -> None:
        """Rows of one partition in a FetchResponse; ``committed_only``: with the list of aborted
        ones."""
        if self.end < 0:
            self.end = answer.high_watermark
        self.stable = answer.last_stable_offset
        for one in answer.aborted_transactions or ():
            self._aborted.setdefault(one.producer_id, set()).add(one.first_offset)
        for batch, header in batches(bytes(answer.records or b"")):
            first, _, _, magic, _, attributes, delta, _, _, producer, epoch = header
            if first + delta < self.offset:
                continue  # the batch that the last answer ended with
            self.offset = first + delta + 1
            if magic < _NO_TRANSACTIONS_MAGIC or not attributes & _TRANSACTIONAL:
                continue
            is_marker = bool(attributes & _CONTROL)
            newest = self._newest.setdefault(producer, epoch)
            if epoch < newest:
                self._stale.append(
                    StaleWrite(first, first + delta, producer, epoch, newest, is_marker)
                )
            self._newest[producer] = max(epoch, newest)
            if is_marker:
                self._ended(producer, epoch, first, batch, is_compared=committed_only)
            else:
                self._wrote(producer, epoch, first, first + delta)

    def _wrote(self, producer: int, epoch: int, first: int, last: int) -> None:
        spans = self._open.setdefault(producer, [])
        if spans and spans[-1].last == first - 1 and spans[-1].epoch == epoch:
            first = spans.pop().first
        spans.append(LogSpan(producer, epoch, first, last))

    def _ended(
        self, producer: int, epoch: int, position: int, batch: bytes, *, is_compared: bool
    ) -> None:
        """A marker: everything that the producer wrote since its last one is committed or
        aborted."""
        spans = self._open.pop(producer, [])
        if not spans:
            return
        marker = next(iter(DefaultRecordBatch(batch)))
        is_listed = spans[0].first in self._aborted.get(producer, ())
        if is_compared and is_listed != marker.abort:
            self._disagree += 1
        is_aborted = is_listed or (marker.abort and not is_compared)
        state = "aborted" if is_aborted else "committed"
        self._spans += [
            replace(one, end=position, state=state, end_epoch=epoch)  # type: ignore[arg-type]
            for one in spans
        ]

    def stream_transactions(self, stream: str) -> StreamTransactions:
        """Return the result for one stream."""
        still_open = [one for spans in self._open.values() for one in spans]
        spans = sorted((*self._spans, *still_open), key=lambda one: one.first)
        return StreamTransactions(
            stream, self.offset, self.stable, spans, self._disagree, self._stale
        )


def batches(data: bytes) -> Iterator[tuple[bytes, tuple[Any, ...]]]:
    """The whole batches of a fetched set of records, each with its header; the last may be cut
    off."""
    at = 0
    while at + _BATCH.size <= len(data):
        header = _BATCH.unpack_from(data, at)
        end = at + _BEFORE_LENGTH + header[1]
        if end > len(data):
            return
        yield data[at:end], header
        at = end


def transactions(
    ask: KafkaFailover, leaders: Leaders, partitions: Sequence[Partition], *, within_s: float
) -> list[StreamTransactions]:
    """Return the transactions in the log of each partition. What could not be read in time is
    missing at the end.

    Partitions are read to the high watermark that each has at first, a leader's partitions
    together.
    """
    scans = {one: PartitionScan() for one in partitions}
    deadline, moved = time.monotonic() + within_s, time.monotonic()
    while time.monotonic() < min(deadline, moved + STABLE_S):
        before = {one: scan.offset for one, scan in scans.items()}
        for leader, own in _by_leader(leaders, scans).items():
            with suppress(EnvironmentNotReady):
                _fetch(ask, leader, own, committed_only=True)
        if all(scan.is_read for scan in scans.values()):
            break
        if any(scan.offset > before[one] for one, scan in scans.items()):
            moved = time.monotonic()
        else:
            time.sleep(_PAUSE_S)
    _read_open(ask, leaders, scans, deadline)
    return [
        scan.stream_transactions(f"{topic}-{number}") for (topic, number), scan in scans.items()
    ]


def _read_open(
    ask: KafkaFailover, leaders: Leaders, scans: Mapping[Partition, PartitionScan], deadline: float
) -> None:
    """Read what follows the last stable offset, which readers of committed data do not receive."""
    while time.monotonic() < deadline and (own := _by_leader(leaders, scans)):
        before = sum(scan.offset for scan in scans.values())
        for leader, some in own.items():
            with suppress(EnvironmentNotReady):
                _fetch(ask, leader, some, committed_only=False)
        if sum(scan.offset for scan in scans.values()) == before:
            return


def _by_leader(
    leaders: Leaders, scans: Mapping[Partition, PartitionScan]
) -> dict[str, dict[Partition, PartitionScan]]:
    """Group the partitions that are not read completely by the node that leads them."""
    found: dict[str, dict[Partition, PartitionScan]] = {}
    for topic in {topic for topic, _ in scans}:
        with suppress(EnvironmentNotReady):
            for number, leader in leaders(topic).items():
                scan = scans.get((topic, number))
                if leader and scan is not None and not scan.is_read:
                    found.setdefault(leader, {})[topic, number] = scan
    return found


def _fetch(
    ask: KafkaFailover,
    leader: str,
    scans: Mapping[Partition, PartitionScan],
    *,
    committed_only: bool,
) -> None:
    asked = {one: scan.offset for one, scan in scans.items()}
    answers = ask(lambda broker: broker.fetch(asked, committed_only=committed_only), only=leader)
    for one, answer in answers.items():
        if not answer.error_code:
            scans[one].take(answer, committed_only=committed_only)
