"""Reading the transactions of a log: of batches as brokers send them."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

from kafka.record.default_records import DefaultRecordBatchBuilder

from harness.contracts.rows import LogSpan, StaleWrite
from harness.systems.kafka.transactions import PartitionScan

COMMIT, ABORT = 1, 0
_ATTRIBUTES, _CONTROL = 21, 1 << 5


def batch(
    first: int, count: int, producer: int, *, epoch: int = 0, transactional: bool = True
) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=transactional, producer_id=producer,
        producer_epoch=epoch, base_sequence=0, batch_size=1 << 20,
    )  # fmt: skip
    for number in range(count):
        builder.append(number, timestamp=1, key=None, value=b"value", headers=[])
    data = bytearray(builder.build())
    struct.pack_into(">q", data, 0, first)
    return bytes(data)


def marker(at: int, producer: int, kind: int, *, epoch: int = 0) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=True, producer_id=producer, producer_epoch=epoch,
        base_sequence=-1, batch_size=1 << 20,
    )  # fmt: skip
    key = struct.pack(">hh", 0, kind)
    builder.append(0, timestamp=1, key=key, value=b"\0" * 6, headers=[])
    data = bytearray(builder.build())
    struct.pack_into(">q", data, 0, at)
    data[_ATTRIBUTES + 1] |= _CONTROL
    return bytes(data)


def answer(
    *batches: bytes, end: int, stable: int | None = None, aborted: tuple[tuple[int, int], ...] = ()
) -> Any:
    listed = [
        SimpleNamespace(producer_id=producer, first_offset=first) for producer, first in aborted
    ]
    return SimpleNamespace(
        high_watermark=end,
        last_stable_offset=end if stable is None else stable,
        aborted_transactions=listed,
        records=b"".join(batches),
    )


def scanned(*answers: Any, committed_only: bool = True) -> PartitionScan:
    scan = PartitionScan()
    for each in answers:
        scan.take(each, committed_only=committed_only)
    return scan


def test_producers_take_turns_and_each_marker_ends_its_own() -> None:
    batches = (
        batch(0, 2, 7),
        batch(2, 1, 8),
        batch(3, 1, 7),
        marker(4, 7, COMMIT),
        marker(5, 8, ABORT),
    )
    told = scanned(answer(*batches, end=6, aborted=((8, 2),))).stream_transactions("orders-0")
    assert told.spans == [
        LogSpan(7, 0, 0, 1, 4, "committed", 0),
        LogSpan(8, 0, 2, 2, 5, "aborted", 0),
        LogSpan(7, 0, 3, 3, 4, "committed", 0),
    ]
    assert (told.read_to, told.stable, told.disagree) == (6, 6, 0)


def test_what_no_marker_ends_is_open_and_what_is_not_transactional_is_in_no_span() -> None:
    scan = scanned(answer(batch(0, 3, -1, transactional=False), batch(3, 2, 7), end=5, stable=3))
    assert scan.is_read
    assert scan.stream_transactions("orders-0").spans == [LogSpan(7, 0, 3, 4)]


def test_an_epoch_never_goes_back() -> None:
    """In the order of the log, batches and markers; the epochs of other producers are their own."""
    whole = (
        batch(0, 2, 7, epoch=3),
        marker(2, 7, COMMIT, epoch=4),  # KIP-890: the end of a transaction has the next epoch
        batch(3, 1, 8, epoch=1),
        batch(4, 2, 7, epoch=3),
        batch(6, 1, 7, epoch=4),
        marker(7, 7, ABORT, epoch=3),
    )
    told = scanned(answer(*whole, end=8, aborted=((7, 4),))).stream_transactions("orders-0")
    assert told.stale == [StaleWrite(4, 5, 7, 3, 4), StaleWrite(7, 7, 7, 3, 4, is_marker=True)]
    assert [span.end_epoch for span in told.spans] == [4, -1, 3, 3]


def test_a_batch_that_comes_twice_or_is_cut_off_counts_once() -> None:
    whole, later = batch(0, 4, 7), marker(4, 7, COMMIT)
    scan = scanned(answer(whole, later[:20], end=5), answer(whole, later, end=5))
    assert scan.stream_transactions("orders-0").spans == [LogSpan(7, 0, 0, 3, 4, "committed", 0)]
    assert scan.offset == 5


def test_readers_go_by_the_list_and_a_marker_that_says_otherwise_is_noted() -> None:
    told = scanned(answer(batch(0, 2, 7), marker(2, 7, ABORT), end=3)).stream_transactions(
        "orders-0"
    )
    assert [span.state for span in told.spans] == ["committed"]
    assert told.disagree == 1
    behind = scanned(answer(batch(0, 2, 7), marker(2, 7, ABORT), end=3), committed_only=False)
    assert [span.state for span in behind.stream_transactions("orders-0").spans] == ["aborted"]
    assert behind.stream_transactions("orders-0").disagree == 0
