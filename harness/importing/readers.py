"""Reads the files of a table in pieces, as Arrow arrays: Parquet, CSV and JSON Lines, plain or
gzipped.

Nothing is guessed: a CSV field is text, a JSON value has the type it is written with, and what it
may be is decided by `harness.importing.values`. A row has a number that its file shows: rows count
from 1, in JSON Lines the lines do.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from harness.errors import BrokerstormError, UsageError
from harness.importing.source import ImportSource, TableFile
from harness.rundir import Document

#: Rows, and bytes of text, that are held at a time.
BATCH_ROWS: Final = 1 << 16
_BLOCK_BYTES: Final = 8 << 20
MAX_LINE_BYTES: Final = 1 << 20
#: Types of a JSON value that a column of its own kind can be made of.
_JSON_WORDS: Final = {
    int: "a whole number",
    str: "a text",
    float: "a decimal number",
    bool: "true or false",
}
_JSON_TYPES: Final = {int: pa.int64(), str: pa.string(), float: pa.float64(), bool: pa.bool_()}


@dataclass(frozen=True, slots=True)
class Batch:
    """Some rows of a file. ``first``: number of the first one in its file."""

    file: str
    first: int
    columns: dict[str, pa.Array]
    rows: int

    def place(self, index: int) -> str:
        """``sends/a.csv, row 17``."""
        return f"{self.file}, row {self.first + index}"


def batches(source: ImportSource, file: TableFile) -> Iterator[Batch]:
    """The rows of a file in order; at least one batch, which may be without rows, so its columns
    are known.

    Raises:
        UsageError: it cannot be read, or is not of the format that its name says.
    """
    read = {".csv": _csv, ".jsonl": _json_lines, ".parquet": _parquet}[
        file.suffix.removesuffix(".gz")
    ]
    try:
        with source.stream(file) as stream:
            plain = gzip.GzipFile(fileobj=stream) if file.suffix.endswith(".gz") else stream
            yield from read(file.name, plain)
    except BrokerstormError:
        raise
    except Exception as error:  # a damaged file makes its decoder raise anything
        raise UsageError(
            f"{file.name}: cannot be read as {file.suffix[1:]}: {_said(error)}"
        ) from error


def _said(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return _printable(lines[0] if lines else type(error).__name__)[:200]


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _parquet(name: str, stream: Any) -> Iterator[Batch]:
    file = pq.ParquetFile(stream)
    _refuse_doubles(name, file.schema_arrow.names)
    first = 1
    for batch in file.iter_batches(BATCH_ROWS, use_threads=False):
        batch.validate(full=True)
        yield Batch(
            name, first, dict(zip(batch.schema.names, batch.columns, strict=True)), batch.num_rows
        )
        first += batch.num_rows
    if first == 1:
        empty = file.schema_arrow.empty_table()
        yield Batch(
            name, 1, {n: pa.array([], empty.schema.field(n).type) for n in empty.schema.names}, 0
        )


def _csv(name: str, stream: Any) -> Iterator[Batch]:
    buffered = io.BufferedReader(stream, _BLOCK_BYTES)
    line = buffered.readline(MAX_LINE_BYTES)
    if not line.strip():
        raise UsageError(f"{name}: the first line must name the columns")
    header = [str(column) for column in pacsv.read_csv(io.BytesIO(line)).column_names]
    _refuse_doubles(name, header)
    first = 1
    for batch in _csv_rows(buffered, header):
        yield Batch(name, first, dict(zip(header, batch.columns, strict=True)), batch.num_rows)
        first += batch.num_rows
    if first == 1:
        yield Batch(name, 1, {column: pa.array([], pa.string()) for column in header}, 0)


def _csv_rows(stream: io.BufferedReader[Any], header: list[str]) -> Iterator[pa.RecordBatch]:
    if not stream.peek(1):
        return
    types = dict.fromkeys(header, pa.string())
    yield from pacsv.open_csv(
        stream,
        read_options=pacsv.ReadOptions(
            use_threads=False, block_size=_BLOCK_BYTES, column_names=header
        ),
        convert_options=pacsv.ConvertOptions(
            column_types=types, null_values=[""], strings_can_be_null=True
        ),
    )


def _refuse_doubles(name: str, columns: list[str]) -> None:
    for column in columns:
        if not column.isprintable():
            raise UsageError(f"{name}: the name of a column is not printable: {column!r}")
        if columns.count(column) > 1:
            raise UsageError(f"{name}: column {column!r} is there twice")


def _json_lines(name: str, stream: Any) -> Iterator[Batch]:
    buffered = io.BufferedReader(stream, _BLOCK_BYTES)
    rows: list[Document | None] = []
    columns: dict[str, None] = {}
    first = number = 1
    while line := buffered.readline(MAX_LINE_BYTES + 1):
        row = _json_row(name, number, line)
        number += 1
        rows.append(row)
        if not row.keys() <= columns.keys():
            columns.update(dict.fromkeys(row))
            _refuse_doubles(name, list(columns))
        if len(rows) == BATCH_ROWS:
            yield _json_batch(name, first, rows, columns)
            rows, first = [], number
    if rows or first == 1:
        yield _json_batch(name, first, rows, columns)


def _json_row(name: str, number: int, line: bytes) -> Document:
    where = f"{name}, row {number}"
    if len(line) > MAX_LINE_BYTES:
        raise UsageError(f"{where}: longer than {MAX_LINE_BYTES} bytes")
    try:
        row = json.loads(line, object_pairs_hook=_once, parse_constant=_no_constant)
    except _Twice as error:
        raise UsageError(f"{where}: {error}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}: not JSON: {_said(error)}") from error
    if not isinstance(row, dict):
        raise UsageError(f'{where}: a row is an object, as {{"seq": 0, ...}}')
    return row


class _Twice(Exception):
    pass


def _once(pairs: list[tuple[str, Any]]) -> Document:
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [key for key, _ in pairs]
        raise _Twice(f"{next(n for n in names if names.count(n) > 1)!r} is there twice")
    return row


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is not a number")


def _json_batch(name: str, first: int, rows: list[Any], columns: dict[str, None]) -> Batch:
    made = {}
    for column in columns:
        values = [row.get(column) for row in rows]
        made[column] = _json_column(name, first, column, values)
    return Batch(name, first, made, len(rows))


def _json_column(name: str, first: int, column: str, values: list[Any]) -> pa.Array:
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) > 1:
        kind = type(next(value for value in values if value is not None))
        at = next(
            i for i, value in enumerate(values) if value is not None and type(value) is not kind
        )
        raise UsageError(
            f"{name}, row {first + at}: {column} is {json.dumps(values[at])[:60]}, "
            f"and {_JSON_WORDS.get(kind, 'no value of a table')} in the rows before"
        )
    for kind in kinds:
        if kind not in _JSON_TYPES:
            raise UsageError(
                f"{name}, row {first}: {column} is a list or an object: no value of a table"
            )
        try:
            return pa.array(values, _JSON_TYPES[kind])
        except (pa.ArrowException, OverflowError):
            at = next(
                i for i, v in enumerate(values) if v is not None and not -(2**63) <= v < 2**63
            )
            raise UsageError(
                f"{name}, row {first + at}: {column} is {values[at]}: too large"
            ) from None
    return pa.nulls(len(values))
