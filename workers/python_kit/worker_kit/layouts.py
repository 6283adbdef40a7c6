"""Byte layouts of payload header and capture rows as struct formats (docs/capture-format.md).

The same bytes as harness/records.py, which a worker cannot import because it needs NumPy. All
little-endian. tests/unit/test_worker_layouts.py compares every offset.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

FORMAT_VERSION: Final = 1
HEADER_MAGIC: Final = b"BS"
SEGMENT_MAGIC: Final = b"BSTORM1\0"
TRAILER_BYTES: Final = 4

# kinds of messages
PROBE, WARM_UP, LOAD = 0, 1, 2
# outcomes; NONE = the client never answered
NONE, OK, FAIL, INFO, ABORTED = 0, 1, 2, 3, 4
# payload checks
CHECK_OK, CORRUPT, FOREIGN, OTHER_RUN = 0, 1, 2, 3
# events of a consumer's journal
DELIVER, ACK_CALLED, ACK_CONFIRMED, NACK, COMMIT, COMMIT_CALLED = 1, 2, 3, 4, 5, 6
ROLLBACK_BEGIN, ROLLBACK_END, RECOVER, ASSIGN, REVOKE, SEEK = 7, 8, 9, 10, 11, 12
# tables
SENDS, LOG, DELIVERIES, TRANSACTIONS = 1, 2, 3, 4
TABLE_NAMES: Final = {SENDS: "sends", LOG: "log", DELIVERIES: "deliveries", TRANSACTIONS: "transactions"}
# what was asked for to end a transaction
COMMIT_ASKED, ABORT_ASKED = 1, 2

#: magic, version, kind, run_tag, instance, lane, seq, t_intended_ns, key, attempt, source partition, length,
#: source offset
HEADER: Final = Struct("<2sBBIIIQqIHHII")
#: magic, table, row_bytes, owner, index, capacity, run_tag, subscription, zeros
SEGMENT_HEADER: Final = Struct("<8sHHIIIII32x")
#: lane, attempt, kind, seq, t_intended_ns, t_start_ns, state (= 1; its upper half: the transaction)
SENDS_OPEN: Final = Struct("<IHBxQqqQ")
#: t_done_ns, position, ledger, client_seq, stream, batch, client_name, error, outcome
SENDS_DONE: Final = Struct("<qqqqiiiiB")
#: The same for a client that says no more than t_done_ns, position, stream and outcome: zeros elsewhere.
SENDS_DONE_PLAIN: Final = Struct("<qq16xi12xB")
#: position, ledger, client_seq, broker_time_ms, stream, batch, client_name, txn, check, header, state (= 1)
LOG_ROW: Final = Struct("<qqqqiiiBBxx48sB")
#: t_ns, position, ledger, txn_id, stream, batch, epoch, redelivery, header, check, kind
DELIVERIES_ROW: Final = Struct("<qqqqiiIi48sBB")
#: number, id, t_begin_ns, state (= 1)
TRANSACTIONS_BEGUN: Final = Struct("<IIqB")
#: t_asked_ns, asked
TRANSACTIONS_ASKED: Final = Struct("<qB")
#: t_done_ns, error, outcome
TRANSACTIONS_DONE: Final = Struct("<qiB")

HEADER_BYTES: Final = HEADER.size
MIN_PAYLOAD_BYTES: Final = HEADER_BYTES + TRAILER_BYTES
SEGMENT_HEADER_BYTES: Final = SEGMENT_HEADER.size
ROW_BYTES: Final = {SENDS: 96, LOG: 104, DELIVERIES: 104, TRANSACTIONS: 64}

#: The completion part within a sends row, and the outcome bytes counted from the start of that part.
SENDS_DONE_OFFSET: Final = 40
OUTCOME_IN_DONE: Final = 48
LATE_OUTCOME_IN_DONE: Final = 49
#: Within a transactions row.
TRANSACTIONS_ASKED_OFFSET: Final = 24
TRANSACTIONS_DONE_OFFSET: Final = 40
