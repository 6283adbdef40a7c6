"""Transactions in the log of a topic: what its readers are not given, and why.

Readers of Pulsar are given what was committed, whatever they ask for, and nothing after the first
transaction that is open. But brokers give out any entry by its place (`GET .../ledger/L/entry/E`),
with the id of its transaction, the type of a marker, and two things that the topic's owner thinks
of it: that its transaction was aborted, and that it lies after the last position that readers are
given. So each entry of the log is one that the audit's reader was given, or it is read here: an
aborted message is not taken for a lost one.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final, Literal

from harness.contracts.rows import HiddenMessage, LogSpan, StreamTransactions
from harness.errors import BrokerstormError
from harness.records import Txn
from harness.rundir import Document
from harness.waiting import wait_until

#: Markers are written after a commit was acknowledged: waited for, as long as some are missing.
SETTLED_S: Final = 20.0
_PAUSE_S: Final = 0.2
_THREADS: Final = 8
_CHUNK: Final = 256
#: MarkerType of PulsarMarkers.proto.
_COMMIT, _ABORT = 21, 22
_PAYLOAD_SIZE: Final = 3  # field of SingleMessageMetadata (PulsarApi.proto)
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5

TxnId = tuple[int, int]
#: Ledger and number of an entry.
Place = tuple[int, int]
#: A stream and the place of an entry -> headers and body of the answer.
GetEntry = Callable[[str, int, int], tuple[Mapping[str, str], bytes]]


@dataclass(frozen=True, slots=True)
class TopicEntry:
    """An entry of a topic's log.

    Attributes:
        txn: id of its transaction, most and least significant half; None = it has none.
        marker: type of marker; 0 = it holds messages.
        is_aborted, is_behind: as the owner sees it: not given to readers.
        messages: index in the batch (-1 = no batch) and body of each.
    """

    ledger: int
    number: int
    txn: TxnId | None
    marker: int = 0
    is_aborted: bool = False
    is_behind: bool = False
    messages: tuple[tuple[int, bytes], ...] = ()

    @property
    def place(self) -> Place:
        """The ledger and the entry in which the topic has it."""
        return self.ledger, self.number


def entry_of(ledger: int, number: int, headers: Mapping[str, str], body: bytes) -> TopicEntry:
    """Parse a broker's answer about an entry.

    Raises:
        ValueError: its batch cannot be read.
    """
    most, least = headers.get("X-Pulsar-txnid-most-bits"), headers.get("X-Pulsar-txnid-least-bits")
    marker = int(headers.get("X-Pulsar-marker-type", 0))
    is_aborted = headers.get("X-Pulsar-txn-aborted") == "true"
    is_behind = headers.get("X-Pulsar-txn-uncommitted") == "true"
    batch = headers.get("X-Pulsar-num-batch-message")
    return TopicEntry(
        ledger,
        number,
        None if most is None or least is None else (int(most), int(least)),
        marker,
        is_aborted,
        is_behind,
        messages=tuple(_messages(body, None if batch is None else int(batch)))
        if not marker
        else (),
    )


def _messages(body: bytes, count: int | None) -> Iterator[tuple[int, bytes]]:
    """The payloads of an entry: in a batch each follows its SingleMessageMetadata and its size.

    pulsar-client has a reader of batches, private and in C++: one that is cut off ends the process.
    """
    if count is None:
        yield -1, body
        return
    at = 0
    for index in range(count):
        if at + 4 > len(body):
            raise ValueError(f"a batch of {count} ends after {index}")
        (size,) = struct.unpack_from(">I", body, at)
        end = at + 4 + size
        length = _number(body[at + 4 : end], _PAYLOAD_SIZE)
        yield index, body[end : end + length]
        at = end + length


def _number(data: bytes, wanted: int) -> int:
    """The value of a varint field of a protobuf message.

    Raises:
        ValueError: it has none.
    """
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        field, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            if field == wanted:
                return value
        elif kind == _LENGTH:
            length, at = _varint(data, at)
            at += length
        elif kind in (_FIXED64, _FIXED32):
            at += 8 if kind == _FIXED64 else 4
        else:
            break
    raise ValueError("a message of a batch does not tell its size")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data):
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise ValueError("a number is cut off")


_STATES: Final[Mapping[Txn, Literal["committed", "aborted", "open"]]] = {
    Txn.COMMITTED: "committed",
    Txn.ABORTED: "aborted",
    Txn.OPEN: "open",
}


class Listing:
    """The messages of one stream, collected entry by entry in the order of the log.

    Args:
        last: place of the last entry that the audit's reader was given.
    """

    def __init__(self, stream: str, last: Place) -> None:
        self._stream = stream
        self._last = last
        self._entries: list[TopicEntry] = []
        self._ends: dict[TxnId, tuple[int, int]] = {}

    def add(self, entry: TopicEntry) -> bool:
        """Whether it can be told: the owner of a topic that is still being loaded does not know yet
        what it gave out before."""
        if entry.txn and entry.marker in (_COMMIT, _ABORT):
            self._ends[entry.txn] = entry.marker, entry.number
        self._entries.append(entry)
        return not (entry.is_behind and entry.place <= self._last)

    def stream_transactions(self, unread: int, log_end: int) -> StreamTransactions:
        """All of it; ``unread`` of the ``log_end`` entries of the log are missing."""
        spans: list[LogSpan] = []
        hidden: list[HiddenMessage] = []
        for entry in self._entries:
            marker, end = self._ends.get(entry.txn, (0, -1)) if entry.txn else (0, -1)
            txn = self._state(entry, marker)
            if txn is None:
                continue
            if entry.txn is not None:
                at, state = entry.number, _STATES[txn]
                _add(spans, LogSpan(*entry.txn, at, at, end, state, ledger=entry.ledger))
            hidden += [
                HiddenMessage(entry.ledger, entry.number, index, int(txn), data)
                for index, data in entry.messages
            ]
        behind = sum(entry.is_behind for entry in self._entries)
        return StreamTransactions(
            self._stream, log_end - unread, log_end - behind, spans, log_end=log_end, hidden=hidden
        )

    def _state(self, entry: TopicEntry, marker: int) -> Txn | None:
        """The state of its transaction; None = there is nothing to report.

        What the reader went past is aborted, or readers miss it: then it stays missing. Behind that
        the reader was not let, and the marker says what readers will see.
        """
        if entry.marker:
            return None
        if entry.is_aborted:
            return Txn.ABORTED
        if entry.place <= self._last:
            return None
        if entry.txn is None:
            return Txn.NONE
        if marker:
            return Txn.ABORTED if marker == _ABORT else Txn.COMMITTED
        return Txn.OPEN if entry.is_behind else Txn.COMMITTED


def _add(spans: list[LogSpan], one: LogSpan) -> None:
    last = spans[-1] if spans else None
    if last and replace(last, first=one.first, last=one.last) == one and last.last + 1 == one.first:
        spans[-1] = replace(last, last=one.last)
    else:
        spans.append(one)


def entries_of(internal: Document) -> dict[int, int]:
    """Ledger -> how many entries it has, as ``internalStats`` of a topic says."""
    last_ledger, _, last_entry = str(internal.get("lastConfirmedEntry", "-1:-1")).partition(":")
    found = {
        int(row["ledgerId"]): int(row.get("entries") or 0) for row in internal.get("ledgers") or ()
    }
    if int(last_ledger) in found:
        found[int(last_ledger)] = max(found[int(last_ledger)], int(last_entry) + 1)
    return dict(sorted(found.items()))


def scan(
    get: GetEntry,
    stream: str,
    internal: Document,
    given: Collection[Place],
    *,
    pool: ThreadPoolExecutor,
    deadline: float,
) -> StreamTransactions:
    """Read the entries of a stream that the audit's reader was not ``given``, until the deadline
    (time.monotonic) or one that is not available."""
    ledgers = entries_of(internal)
    asked = [
        (ledger, number)
        for ledger, count in ledgers.items()
        for number in range(count)
        if (ledger, number) not in given
    ]
    listing = Listing(stream, max(given, default=(-1, -1)))
    read = 0

    def one(place: Place) -> TopicEntry | None:
        try:
            return entry_of(*place, *get(stream, *place))
        except (BrokerstormError, ValueError):
            return None

    for at in range(0, len(asked), _CHUNK):
        if time.monotonic() >= deadline:
            break
        for entry in pool.map(one, asked[at : at + _CHUNK]):
            if entry is None or not listing.add(entry):
                return listing.stream_transactions(len(asked) - read, sum(ledgers.values()))
            read += 1
    return listing.stream_transactions(len(asked) - read, sum(ledgers.values()))


def wait_settled(ongoing: Callable[[], Iterable[int | None]], *, within_s: float) -> bool:
    """Wait until no topic has an open transaction, as far as their owners say; whether that
    came."""

    def is_settled() -> bool:
        try:
            return all(count == 0 for count in ongoing())
        except BrokerstormError:
            return False

    return bool(wait_until(is_settled, min(within_s, SETTLED_S), every_s=_PAUSE_S))
