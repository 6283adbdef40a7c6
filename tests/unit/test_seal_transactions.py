"""Transactions on their way into the sealed form."""

from __future__ import annotations

import numpy as np

from harness.contracts.rows import LogSpan, StreamTransactions
from harness.records import RAW_TRANSACTIONS, Asked, Outcome, Txn
from harness.seal.columns import RowSource
from harness.seal.names import NameTable, WorkerNames
from harness.seal.transactions import LogTransactions, sealed_transactions
from tests.planted.plans import build_plan


def test_rows_of_the_log_get_the_state_and_the_end_of_their_transaction() -> None:
    spans = [
        LogSpan(7, 0, 2, 3, 6, "committed"),
        LogSpan(8, 0, 4, 5, 7, "aborted"),
        LogSpan(7, 0, 8, 9),
    ]
    log = LogTransactions([StreamTransactions("orders-0", 10, 8, spans)], lambda stream: 1)
    position = np.arange(12)
    out = {
        "stream": np.full(12, 1),
        "position": position,
        "txn": position * 0,
        "txn_end": position * 0,
    }
    log.fill(out)
    none, done, gone, still, unknown = (
        Txn.NONE, Txn.COMMITTED, Txn.ABORTED, Txn.OPEN, Txn.UNKNOWN
    )  # fmt: skip
    ends = [none, none, done, done, gone, gone, none, none, still, still, unknown, unknown]
    assert out["txn"].tolist() == ends
    assert out["txn_end"].tolist() == [-1, -1, 6, 6, 7, 7, -1, -1, -1, -1, -1, -1]


def test_of_a_stream_that_nobody_read_nothing_is_known() -> None:
    log = LogTransactions([], lambda stream: 1)
    out = {"stream": np.array([1, 0]), "position": np.array([0, -1]), "txn": np.zeros(2, np.int64)}
    out["txn_end"] = np.zeros(2, np.int64)
    log.fill(out)
    assert out["txn"].tolist() == [Txn.UNKNOWN, Txn.UNKNOWN]


def test_a_transaction_that_was_never_answered_is_info() -> None:
    rows = np.zeros(2, RAW_TRANSACTIONS)
    rows["number"], rows["state"], rows["t_begin_ns"] = [1, 2], 1, [10, 20]
    rows["t_asked_ns"], rows["asked"] = [15, 25], [Asked.COMMIT, 0]
    rows["t_done_ns"], rows["outcome"], rows["error"] = [18, 28], [Outcome.OK, 0], [0, 9]
    names = WorkerNames("p-1", [], NameTable(build_plan(topics={"orders": 1})))
    whole, begun = sealed_transactions(rows, RowSource(3, 0, names))
    assert (whole.instance, whole.t_asked_ns, whole.outcome) == (3, 15, Outcome.OK)
    assert (begun.t_asked_ns, begun.t_done_ns, begun.error) == (0, 0, 0)
    assert begun.outcome == Outcome.INFO
