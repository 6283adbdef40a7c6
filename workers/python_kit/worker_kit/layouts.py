"""Byte layouts of payload header and capture rows as struct formats (docs/capture-format.md).

Workers cannot import harness/records.py because it needs NumPy. All little-endian.

Made from harness/records.py by `make docs`; do not edit.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

HEADER_BYTES: Final = 48
TRAILER_BYTES: Final = 4
MIN_PAYLOAD_BYTES: Final = 52
SEGMENT_HEADER_BYTES: Final = 64
FORMAT_VERSION: Final = 1
HEADER_MAGIC: Final = b"BS"
SEGMENT_MAGIC: Final = b"BSTORM1\0"

# Kinds of messages.
PROBE = 0
WARM_UP = 1
LOAD = 2
# Outcomes of a send: exactly one each. 0: the client never answered.
NONE = 0
OK = 1
FAIL = 2
INFO = 3
ABORTED = 4
# What a reader found a payload to be.
CHECK_OK = 0
CORRUPT = 1
FOREIGN = 2
OTHER_RUN = 3
# Events of a consumer's journal.
DELIVER = 1
ACK_CALLED = 2
ACK_CONFIRMED = 3
NACK = 4
COMMIT = 5
COMMIT_CALLED = 6
ROLLBACK_BEGIN = 7
ROLLBACK_END = 8
RECOVER = 9
ASSIGN = 10
REVOKE = 11
SEEK = 12
# Transactions of what lies in a log.
NO_TXN = 0
COMMITTED_TXN = 1
# What was asked for to end a transaction.
COMMIT_ASKED = 1
ABORT_ASKED = 2
# Tables.
SENDS = 1
LOG = 2
DELIVERIES = 3
TRANSACTIONS = 4
TABLE_NAMES: Final = {
    SENDS: "sends",
    LOG: "log",
    DELIVERIES: "deliveries",
    TRANSACTIONS: "transactions",
}
ROW_BYTES: Final = {SENDS: 96, LOG: 104, DELIVERIES: 104, TRANSACTIONS: 64}

#: magic, version, kind, run_tag, instance, lane, seq, t_intended_ns, key, attempt,
#: source_partition, length, source_position
HEADER: Final = Struct("<2sBBIIIQqIHHII")
#: magic, table, row_bytes, owner, index, capacity, run_tag, subscription
SEGMENT_HEADER: Final = Struct("<8sHHIIIII32x")
#: lane, attempt, kind, seq, t_intended_ns, t_start_ns, state, transaction
SENDS_OPEN: Final = Struct("<IHBxQqqQ")
#: t_done_ns, position, ledger, client_seq, stream, batch, client_name, error, outcome
SENDS_DONE: Final = Struct("<qqqqiiiiB")
#: t_done_ns, position, stream, outcome
SENDS_DONE_PLAIN: Final = Struct("<qq16xi12xB")
#: position, ledger, client_seq, broker_time_ms, stream, batch, client_name, txn, check, header,
#: state
LOG_ROW: Final = Struct("<qqqqiiiBBxx48sB")
#: t_ns, position, ledger, txn_id, stream, batch, epoch, redelivery, header, check, kind
DELIVERIES_ROW: Final = Struct("<qqqqiiIi48sBB")
#: number, id, t_begin_ns, state
TRANSACTIONS_BEGUN: Final = Struct("<IIqB")
#: t_asked_ns, asked
TRANSACTIONS_ASKED: Final = Struct("<qB")
#: t_done_ns, error, outcome
TRANSACTIONS_DONE: Final = Struct("<qiB")

#: Where the completion part of a sends row begins; the outcome bytes, counted from there.
SENDS_DONE_OFFSET: Final = 40
OUTCOME_IN_DONE: Final = 48
LATE_OUTCOME_IN_DONE: Final = 49
#: Within a transactions row.
TRANSACTIONS_ASKED_OFFSET: Final = 24
TRANSACTIONS_DONE_OFFSET: Final = 40
