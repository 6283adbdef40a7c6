"""Encodings and pages of the columns of a sealed file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from harness.records import SEALED
from harness.seal.parquet import BucketFile

ROWS = 50_000


def test_long_runs_have_no_dictionary_and_a_row_group_is_one_page(tmp_path: Path) -> None:
    columns = {c.name: np.zeros(ROWS, c.dtype) for c in SEALED["log"]}
    columns["lane"] = np.repeat(np.arange(ROWS // 100), 100).astype("uint32")
    columns["instance"] = (np.arange(ROWS) * 7 % 13).astype("uint32")
    columns["position"] = np.arange(ROWS)
    path = tmp_path / "part-0.parquet"
    file = BucketFile(path, "log")
    file.write(columns)
    file.commit()
    group = pq.ParquetFile(path).metadata.row_group(0)
    chunks = {c.path_in_schema: c for c in map(group.column, range(group.num_columns))}
    assert "PLAIN" in chunks["lane"].encodings
    assert not chunks["lane"].has_dictionary_page
    assert not chunks["ledger"].has_dictionary_page  # constant, though its encoding is of deltas
    assert chunks["instance"].has_dictionary_page
    assert "DELTA_BINARY_PACKED" in chunks["position"].encodings
    read = pq.read_table(path)
    assert all((read.column(name).to_numpy() == values).all() for name, values in columns.items())
    # 8 bytes a row as they are, so that a page of 20,000 rows would be about 160 KB
    assert chunks["ledger"].total_uncompressed_size > 8 * ROWS
    assert chunks["ledger"].total_compressed_size < ROWS // 100
