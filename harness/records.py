"""The capture tables: message header, raw rows and sealed columns, defined once for every language.

Three layouts, all little-endian:

* **header** (48 bytes) opens every payload, a CRC-32 (4 bytes) of everything before it closes it;
* **raw rows** lie in memory-mapped segments, a 64-byte segment header and then fixed-width rows. A
  row is valid when its last field (``state``, or ``kind`` of a delivery) is not zero; workers write
  that field last, so a killed worker leaves a whole row or none;
* **sealed columns** are the Parquet form (`harness.seal.seal`), the only one that analysis reads.

Ids of names (streams, errors, client names, subscriptions) are local to a worker in the raw form,
start at 1, 0 means none, and are global in the sealed form (``names.jsonl``). Times are
CLOCK_MONOTONIC nanoseconds, 0 meaning "never"; one machine clock serves every process of a run.

docs/capture-format.md describes the same bytes for authors of workers in other languages; golden
files in harness/contract/golden hold it and the workers to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Final

import numpy as np
import numpy.typing as npt

FORMAT_VERSION: Final = 1
HEADER_MAGIC: Final = b"BS"
SEGMENT_MAGIC: Final = b"BSTORM1\0"
HEADER_BYTES: Final = 48
TRAILER_BYTES: Final = 4
MIN_PAYLOAD_BYTES: Final = HEADER_BYTES + TRAILER_BYTES
SEGMENT_HEADER_BYTES: Final = 64


class Kind(IntEnum):
    """Why a message was sent. Probes are never judged."""

    PROBE = 0
    WARM_UP = 1
    LOAD = 2


class Outcome(IntEnum):
    """The client's answer to a send. NONE in a raw row (never completed) is sealed as INFO."""

    NONE = 0
    OK = 1
    FAIL = 2  # certainly not stored
    INFO = 3  # unknown
    ABORTED = 4  # in a transaction that the application aborted: no reader may see it


class Check(IntEnum):
    """The result of a reader's check of a payload."""

    OK = 0
    CORRUPT = 1  # our header, but length or CRC wrong
    FOREIGN = 2  # no header of ours
    OTHER_RUN = 3  # our header with another run's tag


class Txn(IntEnum):
    """Transaction state of a log row."""

    NONE = 0
    COMMITTED = 1
    ABORTED = 2
    OPEN = 3
    UNKNOWN = 4  # its end was not read


class Asked(IntFlag):
    """The application's choice for the end of a transaction."""

    NOTHING = 0
    COMMIT = 1
    ABORT = 2  # with COMMIT: after a commit that the client refused


class Event(IntEnum):
    """Kind of a row in a consumer session's journal."""

    DELIVER = 1
    ACK_CALLED = 2
    ACK_CONFIRMED = 3
    NACK = 4
    COMMIT = 5  # confirmed; position = the next position the group would read
    COMMIT_CALLED = 6
    ROLLBACK_BEGIN = 7
    ROLLBACK_END = 8
    RECOVER = 9
    ASSIGN = 10  # position = where reading starts, -1 unknown
    REVOKE = 11
    SEEK = 12  # position = the new position
    OUTPUT = 13  # no consumer's: an application under test made this of the message that it names


class TableId(IntEnum):
    """Table number in a segment header."""

    SENDS = 1
    LOG = 2
    DELIVERIES = 3
    TRANSACTIONS = 4


def _raw(fields: list[tuple[str, npt.DTypeLike, int]], row_bytes: int) -> np.dtype[np.void]:
    names, formats, offsets = zip(*fields, strict=True)
    return np.dtype(
        {
            "names": list(names),
            "formats": list(formats),
            "offsets": list(offsets),
            "itemsize": row_bytes,
        }
    )


#: Fields of the 48-byte payload header. ``length`` is the whole payload in bytes, trailer included.
HEADER: Final = _raw(
    [
        ("magic", "S2", 0),
        ("version", "u1", 2),
        ("kind", "u1", 3),
        ("run_tag", "<u4", 4),
        ("instance", "<u4", 8),
        ("lane", "<u4", 12),
        ("seq", "<u8", 16),
        ("t_intended_ns", "<i8", 24),
        ("key", "<u4", 32),
        ("attempt", "<u2", 36),
        ("source_partition", "<u2", 38),  # of a pipeline's output: where its input is; else 0
        ("length", "<u4", 40),
        ("source_position", "<u4", 44),
    ],
    HEADER_BYTES,
)
#: The same for Python's struct (a worker may import only the standard library).
HEADER_STRUCT: Final = "<2sBBIIIQqIHHII"

SEGMENT_HEADER: Final = _raw(
    [
        ("magic", "S8", 0),
        ("table", "<u2", 8),
        ("row_bytes", "<u2", 10),
        ("owner", "<u4", 12),  # producer instance, consumer session or audit reader
        ("index", "<u4", 16),  # 0, 1, 2 ... within (table, owner)
        ("capacity", "<u4", 20),  # rows the file has room for
        ("run_tag", "<u4", 24),
        ("subscription", "<u4", 28),  # name id, deliveries only
    ],
    SEGMENT_HEADER_BYTES,
)
SEGMENT_HEADER_STRUCT: Final = "<8sHHIIIII32x"

#: Open part (0-32) is written before the call, completion part (40-88) when the client answers.
RAW_SENDS: Final = _raw(
    [
        ("lane", "<u4", 0),
        ("attempt", "<u2", 4),
        ("kind", "u1", 6),
        ("seq", "<u8", 8),
        ("t_intended_ns", "<i8", 16),
        ("t_start_ns", "<i8", 24),
        ("state", "u1", 32),  # 1 = open part written
        ("transaction", "<u4", 36),  # number of its transaction, written with state; 0 none
        ("t_done_ns", "<i8", 40),
        ("position", "<i8", 48),
        ("ledger", "<i8", 56),
        ("client_seq", "<i8", 64),
        ("stream", "<i4", 72),
        ("batch", "<i4", 76),
        ("client_name", "<i4", 80),
        ("error", "<i4", 84),
        ("outcome", "u1", 88),  # Outcome; not 0 = completion part written
        ("late_outcome", "u1", 89),  # a second outcome after the first
    ],
    96,
)
SENDS_OPEN_STRUCT: Final = "<IHBxQqqQ"  # the last: state, and transaction in the upper half
SENDS_DONE_STRUCT: Final = "<qqqqiiiiB"
#: The same for a client that says no more than t_done_ns, position, stream and outcome.
SENDS_DONE_PLAIN_STRUCT: Final = "<qq16xi12xB"
SENDS_DONE_OFFSET: Final = 40

RAW_LOG: Final = _raw(
    [
        ("position", "<i8", 0),
        ("ledger", "<i8", 8),
        ("client_seq", "<i8", 16),
        ("broker_time_ms", "<i8", 24),
        ("stream", "<i4", 32),
        ("batch", "<i4", 36),
        ("client_name", "<i4", 40),
        ("txn", "u1", 44),
        ("check", "u1", 45),
        ("header", HEADER, 48),  # the payload's first 48 bytes as found
        ("state", "u1", 96),
    ],
    104,
)
LOG_STRUCT: Final = "<qqqqiiiBBxx48sB"

RAW_DELIVERIES: Final = _raw(
    [
        ("t_ns", "<i8", 0),
        ("position", "<i8", 8),
        ("ledger", "<i8", 16),
        ("txn_id", "<i8", 24),
        ("stream", "<i4", 32),
        ("batch", "<i4", 36),
        ("epoch", "<u4", 40),  # grows with every assign of the session
        ("redelivery", "<i4", 44),  # count or flag the client shows, -1 = it shows none
        ("header", HEADER, 48),
        ("check", "u1", 96),
        ("kind", "u1", 97),  # Event; not 0 = row written
    ],
    104,
)
DELIVERIES_STRUCT: Final = "<qqqqiiIi48sBB"

#: Begun (0-24) before `begin`, asked (32-44) before commit or abort, the rest when the client
#: answered.
RAW_TRANSACTIONS: Final = _raw(
    [
        ("number", "<u4", 0),  # from 1 in the instance
        ("id", "<u4", 4),  # which transactional id of the instance: 0, 1 ...
        ("t_begin_ns", "<i8", 8),
        ("state", "u1", 16),  # 1 = begun
        ("t_asked_ns", "<i8", 24),  # of the first of the calls
        ("asked", "u1", 32),  # Asked; not 0 = t_asked_ns is written
        ("t_done_ns", "<i8", 40),
        ("error", "<i4", 48),
        ("outcome", "u1", 52),  # Outcome; not 0 = t_done_ns and error are written
    ],
    64,
)
TRANSACTIONS_BEGUN_STRUCT: Final = "<IIqB"
TRANSACTIONS_ASKED_STRUCT: Final = "<qB"
TRANSACTIONS_DONE_STRUCT: Final = "<qiB"

RAW: Final[dict[TableId, np.dtype[np.void]]] = {
    TableId.SENDS: RAW_SENDS,
    TableId.LOG: RAW_LOG,
    TableId.DELIVERIES: RAW_DELIVERIES,
    TableId.TRANSACTIONS: RAW_TRANSACTIONS,
}
#: The field of each raw table that says "row written".
VALID_FIELD: Final = {
    TableId.SENDS: "state",
    TableId.LOG: "state",
    TableId.DELIVERIES: "kind",
    TableId.TRANSACTIONS: "state",
}


@dataclass(frozen=True, slots=True)
class Column:
    """A sealed column. ``encoding`` is the Parquet encoding where values vary; "dictionary" for
    columns of few values.

    ``missing``: what every row has where it was sealed before there was such a column, or imported
    without.
    """

    name: str
    dtype: str
    encoding: str
    doc: str
    missing: int = 0


_DELTA, _DICT = "DELTA_BINARY_PACKED", "dictionary"

_IDENTITY: Final = (
    Column("instance", "uint32", _DICT, "producer instance; a restarted producer is a new one"),
    Column("lane", "uint32", _DICT, "intended unit of order, fixed before the send"),
    Column("seq", "int64", _DELTA, "dense from 0 in (instance, lane)"),
    Column("attempt", "uint16", _DICT, "0, or the number of the application's re-send"),
    Column("kind", "uint8", _DICT, "0 probe, 1 warm-up, 2 load"),
)
_PLACE: Final = (
    Column("stream", "int32", _DICT, "where it was found: name id of topic-partition; 0 unknown"),
    Column("position", "int64", _DELTA, "Kafka offset, Pulsar entry id; -1 unknown"),
    Column("ledger", "int64", _DELTA, "Pulsar ledger id, else 0"),
    Column("batch", "int32", _DICT, "Pulsar batch index, else 0"),
)
_CLIENT: Final = (
    Column("client_name", "int32", _DICT, "name id of the client's own producer name; 0 none"),
    Column("client_seq", "int64", _DELTA, "the client's own sequence id, valid with client_name"),
)

SENDS: Final = (
    *_IDENTITY,
    Column("t_intended_ns", "int64", _DELTA, "when the plan wanted it sent"),
    Column("t_start_ns", "int64", _DELTA, "just before the client was called"),
    Column("t_done_ns", "int64", _DELTA, "when the client gave the outcome; 0 never"),
    Column(
        "outcome",
        "uint8",
        _DICT,
        "1 ok, 2 fail (certainly not stored), 3 info (unknown), 4 aborted",
    ),
    Column("late_outcome", "uint8", _DICT, "a second outcome given later; 0 none"),
    Column("error", "int32", _DICT, "name id of the client's error; 0 none"),
    Column("transaction", "uint32", _DICT, "number of its transaction in the instance; 0 none"),
    *_PLACE,
    *_CLIENT,
)
LOG: Final = (
    *_PLACE,
    *_IDENTITY,
    Column("t_intended_ns", "int64", _DELTA, "from the header"),
    Column("broker_time_ms", "int64", _DELTA, "the broker's timestamp, wall clock ms; -1 none"),
    Column("txn", "uint8", _DICT, "0 none, 1 committed, 2 aborted, 3 open, 4 unknown"),
    Column(
        "txn_end", "int64", _DICT, "position of the marker that ended its transaction; -1 none", -1
    ),
    Column(
        "source_partition",
        "uint16",
        _DICT,
        "of a pipeline's output: partition of its input; else 0",
    ),
    Column(
        "source_position",
        "int64",
        _DELTA,
        "of a pipeline's output: offset of its input; else -1",
        -1,
    ),
    Column("check", "uint8", _DICT, "0 ok, 1 corrupt, 2 foreign, 3 another run's"),
    *_CLIENT,
)
DELIVERIES: Final = (
    Column("session", "uint32", _DICT, "consumer session; a restarted consumer is a new one"),
    Column("subscription", "int32", _DICT, "name id of the group or subscription"),
    Column("ordinal", "int64", _DELTA, "dense from 0 in the session"),
    Column("event", "uint8", _DICT, "1 deliver, 2 ack-called ... (harness.records.Event)"),
    Column("t_ns", "int64", _DELTA, "when the application saw it"),
    Column("epoch", "uint32", _DICT, "number of the assignment in the session"),
    *_PLACE,
    *_IDENTITY,
    Column("redelivery", "int32", _DICT, "redelivery count or flag; -1 the client shows none"),
    Column("txn_id", "int64", _DELTA, "consumer transaction; 0 none"),
    Column("check", "uint8", _DICT, "as in log"),
)
SEALED: Final[dict[str, tuple[Column, ...]]] = {
    "sends": SENDS,
    "log": LOG,
    "deliveries": DELIVERIES,
}
TABLE_NAMES: Final = {
    TableId.SENDS: "sends",
    TableId.LOG: "log",
    TableId.DELIVERIES: "deliveries",
    TableId.TRANSACTIONS: "transactions",
}
#: The tables that are sealed by bucket.
BUCKETED: Final = tuple(table for table in TableId if TABLE_NAMES[table] in SEALED)
