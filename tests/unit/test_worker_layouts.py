"""The struct formats of Python workers and the NumPy dtypes of the harness are the same bytes."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from harness import records
from harness.contract.running import GOLDEN, self_test
from harness.workers import known_workers
from harness.workers.environments import is_beside
from harness.workers.spec import WorkerSpec
from workers.python_kit.worker_kit import layouts as lay


def distinct(layout: struct.Struct) -> list[object]:
    """A value of its own for every field of a format."""
    values: list[object] = []
    for number, code in enumerate(c for c in layout.format if c.isalpha() and c != "x"):
        values.append(bytes(range(number + 1, 49)) if code == "s" else number + 1)
    return values


def unpack(dtype: np.dtype[np.void], raw: bytes) -> np.void:
    return np.frombuffer(raw, dtype)[0]


def test_header_fields_lie_where_the_harness_reads_them() -> None:
    raw = lay.HEADER.pack(b"BS", 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 10, 12)
    row = unpack(records.HEADER, raw)
    wanted = dict(
        magic=b"BS", version=1, kind=2, run_tag=3, instance=4, lane=5, seq=6, t_intended_ns=7, key=8,
        attempt=9, source_partition=11, length=10, source_position=12,
    )  # fmt: skip
    assert {name: row[name] for name in records.HEADER.names or ()} == wanted
    assert lay.HEADER.format == records.HEADER_STRUCT


def test_segment_header() -> None:
    row = unpack(
        records.SEGMENT_HEADER, lay.SEGMENT_HEADER.pack(lay.SEGMENT_MAGIC, 1, 2, 3, 4, 5, 6, 7)
    )
    assert bytes(row["magic"]) == records.SEGMENT_MAGIC.rstrip(b"\0")
    fields = ("table", "row_bytes", "owner", "index", "capacity", "run_tag", "subscription")
    assert [int(row[name]) for name in fields] == [1, 2, 3, 4, 5, 6, 7]


def test_sends_row_open_and_done() -> None:
    raw = bytearray(records.RAW_SENDS.itemsize)
    lay.SENDS_OPEN.pack_into(raw, 0, 1, 2, 3, 4, 5, 6, 7)
    lay.SENDS_DONE.pack_into(raw, lay.SENDS_DONE_OFFSET, 8, 9, 10, 11, 12, 13, 14, 15, 3)
    raw[lay.SENDS_DONE_OFFSET + lay.LATE_OUTCOME_IN_DONE] = 1
    row = unpack(records.RAW_SENDS, bytes(raw))
    wanted = dict(
        lane=1, attempt=2, kind=3, seq=4, t_intended_ns=5, t_start_ns=6, state=7, transaction=0, t_done_ns=8,
        position=9, ledger=10, client_seq=11, stream=12, batch=13, client_name=14, error=15, outcome=3,
        late_outcome=1,
    )  # fmt: skip
    assert {name: int(row[name]) for name in records.RAW_SENDS.names or ()} == wanted
    assert raw[lay.SENDS_DONE_OFFSET + lay.OUTCOME_IN_DONE] == 3
    assert lay.SENDS_DONE_OFFSET == records.SENDS_DONE_OFFSET
    assert (lay.SENDS_OPEN.format, lay.SENDS_DONE.format) == (
        records.SENDS_OPEN_STRUCT,
        records.SENDS_DONE_STRUCT,
    )


def test_transactions_row() -> None:
    raw = bytearray(records.RAW_TRANSACTIONS.itemsize)
    lay.TRANSACTIONS_BEGUN.pack_into(raw, 0, 1, 2, 3, 4)
    lay.TRANSACTIONS_ASKED.pack_into(raw, lay.TRANSACTIONS_ASKED_OFFSET, 5, 6)
    lay.TRANSACTIONS_DONE.pack_into(raw, lay.TRANSACTIONS_DONE_OFFSET, 7, 8, 9)
    row = unpack(records.RAW_TRANSACTIONS, bytes(raw))
    wanted = dict(
        number=1, id=2, t_begin_ns=3, state=4, t_asked_ns=5, asked=6, t_done_ns=7, error=8, outcome=9
    )  # fmt: skip
    assert {name: int(row[name]) for name in records.RAW_TRANSACTIONS.names or ()} == wanted
    assert lay.TRANSACTIONS_BEGUN.format == records.TRANSACTIONS_BEGUN_STRUCT
    assert lay.TRANSACTIONS_ASKED.format == records.TRANSACTIONS_ASKED_STRUCT
    assert lay.TRANSACTIONS_DONE.format == records.TRANSACTIONS_DONE_STRUCT


def test_the_short_completion_is_the_long_one_with_zeros() -> None:
    assert lay.SENDS_DONE_PLAIN.pack(8, 9, 12, 1) == lay.SENDS_DONE.pack(8, 9, 0, 0, 12, 0, 0, 0, 1)


@pytest.mark.parametrize(
    ("layout", "dtype", "text"),
    [
        (lay.LOG_ROW, records.RAW_LOG, records.LOG_STRUCT),
        (lay.DELIVERIES_ROW, records.RAW_DELIVERIES, records.DELIVERIES_STRUCT),
    ],
)
def test_log_and_delivery_rows(layout: struct.Struct, dtype: np.dtype[np.void], text: str) -> None:
    values = distinct(layout)
    row = unpack(dtype, layout.pack(*values).ljust(dtype.itemsize, b"\0"))
    found = [bytes(row[n].tobytes()) if n == "header" else int(row[n]) for n in dtype.names or ()]
    wanted = [v.ljust(48, b"\0") if isinstance(v, bytes) else v for v in values]
    assert found == wanted
    assert layout.format == text


def test_sizes_and_numbers() -> None:
    assert lay.HEADER_BYTES == records.HEADER_BYTES
    assert lay.SEGMENT_HEADER_BYTES == records.SEGMENT_HEADER_BYTES
    assert {records.TableId(t): b for t, b in lay.ROW_BYTES.items()} == {
        t: d.itemsize for t, d in records.RAW.items()
    }
    assert {records.TableId(t): n for t, n in lay.TABLE_NAMES.items()} == records.TABLE_NAMES
    assert list(records.Kind) == [lay.PROBE, lay.WARM_UP, lay.LOAD]
    assert list(records.Outcome) == [lay.NONE, lay.OK, lay.FAIL, lay.INFO, lay.ABORTED]
    assert list(records.Check) == [lay.CHECK_OK, lay.CORRUPT, lay.FOREIGN, lay.OTHER_RUN]
    for name in ("DELIVER", "COMMIT", "COMMIT_CALLED", "ASSIGN", "REVOKE"):
        assert getattr(lay, name) == records.Event[name]


@pytest.mark.parametrize(
    "worker",
    [
        w
        for w in known_workers().values()
        if w.language == "python" and is_beside(w, w.default_version)
    ],
    ids=lambda worker: worker.library,
)
def test_every_python_worker_that_needs_no_download_reproduces_the_golden_files(
    worker: WorkerSpec,
) -> None:
    self_test(worker)


def test_golden_segments_read_with_the_harness_dtypes() -> None:
    sends = np.fromfile(GOLDEN / "sends-7-000000.seg", records.RAW_SENDS, offset=64)
    assert sends["outcome"].tolist() == [1, 3, 0, 0]
    assert sends["state"].tolist() == [1, 1, 1, 0]
    assert sends["late_outcome"].tolist() == [0, 1, 0, 0]
    log = np.fromfile(GOLDEN / "log-1-000000.seg", records.RAW_LOG, offset=64)
    assert log["check"].tolist() == [
        records.Check.OK,
        records.Check.CORRUPT,
        records.Check.FOREIGN,
        0,
    ]
    assert log["header"]["seq"].tolist()[:2] == [42, 2**40 + 1]
    deliveries = np.fromfile(GOLDEN / "deliveries-2-000000.seg", records.RAW_DELIVERIES, offset=64)
    assert deliveries["kind"].tolist() == [10, 1, 5, 0]
