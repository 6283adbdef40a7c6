"""Bucket files: columns in, one Parquet file a (table, bucket) out, whole or not at all.

A file grows as ``part-0.parquet.part`` and becomes ``part-0.parquet`` by fsync and rename, so a
reader never sees half of one. Encodings come from `harness.records`: DELTA_BINARY_PACKED for what
grows or differs little from row to row, dictionaries for columns of few values. Columns of long
runs are written as they are. All are compressed with zstd.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from harness.contracts.seal import SealedFile
from harness.records import SEALED, Column

PART_SUFFIX: Final = ".part"
#: Rows of a row group at most: the larger, the longer the runs that a reader decodes at once.
ROW_GROUP_ROWS: Final = 1 << 20
#: Fast mode: a fifth less CPU than level 1 on columns that are packed already, for up to 20 % more
#: bytes.
_ZSTD_LEVEL: Final = -3
#: Rows of a run of one value at least, on average, in a column of few values without a dictionary.
_ROWS_A_RUN: Final = 4
#: A page a column of a row group, written in long strides: 10 % less CPU than the defaults.
_PAGE_BYTES: Final = 8 << 20
_WRITE_BATCH_ROWS: Final = 1 << 18
#: PyArrow 22 and later cut pages at 20,000 rows otherwise. Each page has a decompressor of its own:
#: reading then takes up to twice the CPU time.
_PAGE_ROWS: Final = (
    {"max_rows_per_page": ROW_GROUP_ROWS}
    if "max_rows_per_page" in inspect.signature(pq.ParquetWriter).parameters
    else {}
)

Columns = Mapping[str, npt.NDArray[Any]]


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """Arrow schema of a sealed table; no column is ever null."""
    return pa.schema(
        [pa.field(c.name, pa.from_numpy_dtype(np.dtype(c.dtype)), nullable=False) for c in columns]
    )


def _encoding(column: Column, values: npt.NDArray[Any]) -> str:
    """The encoding of a column in a file, by its values in the first row group of the file.

    The compressor packs long runs of one value tighter and in a third of the time that a dictionary
    or deltas take, and they are read as fast.
    """
    changes = np.count_nonzero(values[1:] != values[:-1])
    most = len(values) // _ROWS_A_RUN if column.encoding == "dictionary" else 0
    return "PLAIN" if changes <= most else column.encoding


def sha256_of(file: BinaryIO) -> str:
    """Checksum from the current position of the file to its end."""
    return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]


class BucketFile:
    """A sealed file being written. `commit` makes it appear, `abort` leaves nothing."""

    def __init__(self, path: Path, table: str) -> None:
        self.path = path
        self.rows = 0
        self._columns = SEALED[table]
        self._schema = arrow_schema(self._columns)
        self._part = path.with_name(path.name + PART_SUFFIX)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: pa.NativeFile | None = None
        self._writer: pq.ParquetWriter | None = None

    def _opened(self, columns: Columns) -> pq.ParquetWriter:
        """The writer of the file, with encodings that fit its first row group."""
        encodings = {c.name: _encoding(c, columns[c.name]) for c in self._columns}
        self._file = pa.OSFile(str(self._part), "wb")
        return pq.ParquetWriter(
            self._file,
            self._schema,
            compression="zstd",
            compression_level=_ZSTD_LEVEL,
            use_dictionary=[name for name, how in encodings.items() if how == "dictionary"],
            column_encoding={name: how for name, how in encodings.items() if how != "dictionary"},
            data_page_size=_PAGE_BYTES,
            write_batch_size=_WRITE_BATCH_ROWS,
            store_schema=False,
            **_PAGE_ROWS,
        )

    def write(self, columns: Columns) -> None:
        """Append one row group. Arrays have the sealed dtypes and one length."""
        arrays = [pa.array(columns[c.name]) for c in self._columns]
        if self._writer is None:
            self._writer = self._opened(columns)
        self._writer.write_table(
            pa.table(arrays, schema=self._schema), row_group_size=ROW_GROUP_ROWS
        )
        self.rows += len(arrays[0])

    def commit(self) -> SealedFile:
        """Close, fsync, rename, fsync the folder; the file as it is now on disk."""
        assert self._writer is not None, "a file begins with its first row group"
        assert self._file is not None
        self._writer.close()
        self._file.close()
        with self._part.open("rb") as file:
            os.fsync(file.fileno())
            sealed = SealedFile(self.rows, os.fstat(file.fileno()).st_size, sha256_of(file))
        os.replace(self._part, self.path)
        sync_folder(self.path.parent)
        return sealed

    def abort(self) -> None:
        """Give up: close what is open and remove the unfinished file."""
        # a full disk: the footer cannot be written, nor is it wanted
        if self._writer is not None:
            with contextlib.suppress(OSError):
                self._writer.close()
        # the writer keeps it open after a failure, and a removed file that is open fills the disk
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
        self._part.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make a rename in ``folder`` survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
