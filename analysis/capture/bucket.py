"""Reads one bucket of the sealed capture as NumPy columns: all that a judging task sees of the
run's rows.

Columns load when first asked for and can be dropped again, so a task holds the few it works on and
not the fifty of three tables. A column of one value (a Kafka run's ledger, a lone producer's
instance) is known from the file's statistics and takes no memory: it is a zero-stride view of a
single element.

The log comes in log order (stream, ledger, position, batch) and deliveries by (session, ordinal);
files that are not in that order are put into it. A message that a reader saw twice at one place is
there once.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from analysis.capture.capture import bucket_parts
from analysis.capture.context import Context
from harness.filesystems import filesystem_of
from harness.records import SEALED, Event

Array = npt.NDArray[Any]

#: Rows worked on at a time, so that temporaries stay in the processor's cache.
CHUNK_ROWS = 1 << 17
_FEW_STRETCHES = 4096
# when rows of more than a fourth of its row groups were asked for, a column is read whole
_FEW_GROUPS = 4
_LOG_KEYS = ("stream", "ledger", "position", "batch")
_MESSAGE = ("instance", "lane", "seq", "attempt", "kind", "check")
_DELIVERY_KEYS = ("session", "ordinal")
_OUTPUT_COLUMNS = ("session", "event", "stream", "position", "t_ns", *_MESSAGE)


def chunks(rows: int) -> Iterator[slice]:
    """Slices of at most `CHUNK_ROWS` that cover ``rows``."""
    for start in range(0, rows, CHUNK_ROWS):
        yield slice(start, min(start + CHUNK_ROWS, rows))


def piecewise(answer: Callable[..., Array], *columns: Array) -> Array:
    """Apply a function to the rows of columns, one chunk after the other."""
    found = [answer(*(column[part] for column in columns)) for part in chunks(len(columns[0]))]
    return np.concatenate(found) if found else answer(*columns)


def piecewise_each(answer: Callable[..., tuple[Array, ...]], *columns: Array) -> tuple[Array, ...]:
    """Apply a function that returns several values for each row; see `piecewise`."""
    found = [answer(*(column[part] for column in columns)) for part in chunks(len(columns[0]))]
    return tuple(map(np.concatenate, zip(*found, strict=True))) if found else answer(*columns)


def is_constant(column: Array) -> bool:
    """True for a zero-stride column: one value for every row."""
    return len(column) > 0 and column.strides[0] == 0


def as_constant(column: Array) -> Array:
    """The column as a view of a single element where all rows have one value: many a chunk does."""
    if (
        len(column)
        and not is_constant(column)
        and column[0] == column[-1]
        and (column == column[0]).all()
    ):
        return np.broadcast_to(column[:1], len(column))
    return column


def short(column: Array) -> Array:
    """One element where all rows have one value; in arithmetic it represents them all."""
    return column[:1] if is_constant(column := as_constant(column)) else column


def picked(column: Array, rows: npt.NDArray[Any]) -> Array:
    """Some rows of a column (-1: the last). Of rows that follow each other it is a view."""
    count = len(rows)
    if (
        count
        and rows[0] >= 0
        and rows[-1] - rows[0] == count - 1
        and (rows[1:] - rows[:-1] == 1).all()
    ):
        return column[int(rows[0]) : int(rows[0]) + count]
    return np.asarray(column[rows])


class Columns(Mapping[str, Array]):
    """A table: column by name, loaded on first use.

    ``load`` gives a whole column in file order; a lambda over a dict will do for small tables.
    ``files``: where it comes from, for those who need no whole column. ``rows_read``: rows in the
    files, before any were left out.
    """

    def __init__(
        self, table: str, rows: int, load: Callable[[str], Array], files: _TableFiles | None = None
    ) -> None:
        self.rows = self.rows_read = rows
        self._dtypes = {c.name: np.dtype(c.dtype) for c in SEALED[table]}
        self._load = load
        self._files = files
        self._held: dict[str, Array] = {}
        self._orders: list[Order] = []  # one after the other
        self._decoded: Counter[str] = Counter()  # row groups for `take`

    @classmethod
    def from_arrays(cls, table: str, arrays: Mapping[str, Array]) -> Columns:
        """A table in memory; a column left out is as in a capture without it."""
        rows = len(next(iter(arrays.values()), ()))
        missing = {c.name: c.missing for c in SEALED[table]}

        def load(name: str) -> Array:
            if name in arrays:
                return np.asarray(arrays[name])
            return np.broadcast_to(np.array([missing[name]], np.int64), (rows,))

        return cls(table, rows, load)

    def __getitem__(self, name: str) -> Array:
        if name not in self._held:
            dtype = self._dtypes[name]
            column = self._load(name) if self.rows else np.empty(0)
            column = column if is_constant(column) else column.astype(dtype, copy=False)
            for order in self._orders:
                column = _in_order(column, order)
            self._held[name] = column[: self.rows]
        return self._held[name]

    def __contains__(self, name: object) -> bool:
        return name in self._dtypes

    def __iter__(self) -> Iterator[str]:
        return iter(self._dtypes)

    def __len__(self) -> int:
        return len(self._dtypes)

    def in_turn(self, *names: str) -> Iterator[dict[str, Array]]:
        """Columns a chunk of rows at a time, of which none stays that is not held already."""
        if self._orders or self._files is None:
            parts: Iterator[tuple[slice, dict[str, Array]]] = (
                (part, {}) for part in chunks(self.rows)
            )
        else:
            parts = self._files.in_turn([name for name in names if name not in self._held])
        for part, read in parts:
            yield {name: read[name] if name in read else self[name][part] for name in names}

    def take(self, name: str, rows: npt.NDArray[Any]) -> Array:
        """A column at some rows (-1: the last). For few it decodes only the row groups that they
        are in."""
        if not len(rows):
            return np.empty(0, self._dtypes[name])
        if name in self._held or self._orders or self._files is None:
            return picked(self[name], rows)
        rows = np.where(rows < 0, rows + self.rows, rows)
        group = self._files.group_of(rows)
        wanted = np.flatnonzero(np.bincount(group))
        self._decoded[name] += len(wanted)
        if self._decoded[name] * _FEW_GROUPS > len(self._files.starts):
            return np.asarray(self[name][rows])
        found = np.empty(len(rows), self._dtypes[name])
        for number in wanted.tolist():
            own = np.flatnonzero(group == number)
            found[own] = self._files.read(number, [name])[name][
                rows[own] - self._files.starts[number]
            ]
        return found

    def drop(self, *names: str) -> None:
        """Free columns; a later use loads them again."""
        for name in names or tuple(self._held):
            self._held.pop(name, None)

    def sort(self, keys: Sequence[str]) -> None:
        """Put the rows into order of ``keys``; free when they are, which they normally are."""
        if self._sorted(keys):
            return
        # Mostly streams interleave and each is in order: a sort of the first key settles that.
        self._reorder(_by_first_key(self[keys[0]]))
        if not self._sorted(keys):
            self._reorder(np.lexsort([self[key] for key in reversed(keys)]))

    def drop_rows(self, rows: npt.NDArray[np.intp]) -> None:
        """Leave some rows out, by their present numbers."""
        if len(rows):
            order = _all_but(rows, self.rows)
            self.rows -= len(rows)
            self._reorder(order)

    def _reorder(self, order: Order) -> None:
        """Put held columns and all that will be loaded into this order."""
        self._orders.append(order)
        self._held = {n: _in_order(c, order)[: self.rows] for n, c in self._held.items()}

    def _sorted(self, keys: Sequence[str]) -> bool:
        columns = [self[key] for key in keys if not is_constant(self[key])]
        for part in chunks(max(self.rows - 1, 0)):
            # rows after which the keys looked at, the last ones, descend
            descents = np.empty(0, np.intp)
            for column in reversed(columns):
                here, after = column[part], column[part.start + 1 : part.stop + 1]
                tied = descents[here[descents] == after[descents]]
                descents = np.union1d(np.flatnonzero(here > after), tied)
            if len(descents):
                return False
        return True


#: Rows by number, or stretches of them, which are copied as they lie.
Order = npt.NDArray[np.intp] | list[slice]


def _in_order(column: Array, order: Order) -> Array:
    if is_constant(column):
        return column
    return (
        np.concatenate([column[part] for part in order])
        if isinstance(order, list)
        else column[order]
    )


def _all_but(rows: npt.NDArray[np.intp], count: int) -> Order:
    """All of so many rows but some, in ascending order."""
    inner = np.flatnonzero(np.diff(rows) != 1)
    if len(inner) > _FEW_STRETCHES:
        return np.delete(np.arange(count), rows)
    begin = [0, *(rows[inner] + 1).tolist(), int(rows[-1]) + 1]
    return list(map(slice, begin, [int(rows[0]), *rows[inner + 1].tolist(), count]))


def _by_first_key(column: Array) -> Order:
    inner = np.flatnonzero(column[1:] != column[:-1]) + 1
    if len(inner) > _FEW_STRETCHES:
        return np.argsort(narrow(column), kind="stable")
    begin = np.append(0, inner)
    parts = list(map(slice, begin.tolist(), [*inner.tolist(), len(column)]))
    return [parts[number] for number in np.argsort(column[begin], kind="stable")]


def narrow(column: Array) -> Array:
    """Return the column as uint16 if its values permit; NumPy sorts these by radix."""
    small = len(column) > 0 and int(column.min()) >= 0 and int(column.max()) < 1 << 16
    return column.astype(np.uint16) if small else column


@dataclass(frozen=True)
class Bucket:
    """All rows of the bucket's lanes, and the events of their streams.

    The tables may be given as plain mappings of the sealed column names to arrays. ``outputs``: the
    rows of deliveries that are outputs of applications; no consumer's, they are taken out of
    ``deliveries``.
    """

    number: int
    context: Context
    sends: Columns
    log: Columns
    deliveries: Columns
    outputs: Columns = field(init=False)

    def __post_init__(self) -> None:
        for table in SEALED:
            columns = getattr(self, table)
            if not isinstance(columns, Columns):
                object.__setattr__(self, table, Columns.from_arrays(table, columns))
        self.log.drop_rows(_truncated(self.log, self.context))
        self.log.drop_rows(_behind_ledgers(self.log, self.context))
        self.log.sort(_LOG_KEYS)
        self.log.drop_rows(_read_again(self.log))
        self.deliveries.sort(_DELIVERY_KEYS)
        object.__setattr__(self, "outputs", _without_outputs(self.deliveries, self.context))


def _without_outputs(deliveries: Columns, context: Context) -> Columns:
    """Take the outputs of applications out of the table of deliveries; the table of these."""
    rows = np.empty(0, np.intp)
    if context.applications and deliveries.rows:
        rows = np.flatnonzero(deliveries["event"] == Event.OUTPUT)
    found = {name: np.array(deliveries.take(name, rows)) for name in _OUTPUT_COLUMNS}
    deliveries.drop_rows(rows)
    deliveries.drop()
    return Columns.from_arrays("deliveries", found)


def contradicted(bucket: Bucket) -> dict[int, int]:
    """Streams whose log holds two different messages at one place: a row of the second, of the
    lowest place. Queues are left out: their places are unknown."""
    rows = _at_same_place(bucket.log)
    streams = bucket.log["stream"][rows]
    is_queue = bucket.context.is_queue
    first = {int(stream): int(row) for stream, row in zip(streams[::-1], rows[::-1], strict=True)}
    return {
        stream: row
        for stream, row in first.items()
        if not (stream < len(is_queue) and is_queue[stream])
    }


def _truncated(log: Columns, context: Context) -> npt.NDArray[np.intp]:
    """Rows of what the log no longer held when its reader went back, in the order of recording:
    rows at or after a place that comes again later, or after the end."""
    found = [np.empty(0, np.intp)]
    for stream, bounds in context.bounds.items():
        later = bounds.end
        for part in reversed(list(chunks(log.rows if bounds.again >= 0 else 0))):
            position, own = log["position"][part], log["stream"][part] == stream
            rows = None if own.all() else np.flatnonzero(own)
            position = position if rows is None else position[rows]
            if not len(position):
                continue
            if position[-1] >= later or (position[1:] <= position[:-1]).any():
                lowest = np.minimum.accumulate(np.append(position, later)[::-1])[::-1]
                gone = np.flatnonzero(position >= lowest[1:])
                found.append((gone if rows is None else rows[gone]) + part.start)
                later = int(lowest[0])
            else:  # mostly it goes up to what follows
                later = int(position[0])
    return np.sort(np.concatenate(found))


def _behind_ledgers(log: Columns, context: Context) -> npt.NDArray[np.intp]:
    """Rows of entries that a ledger was closed without: they were read while it was written."""
    closed = {
        term.term: term.entries
        for terms in context.terms.values()
        for term in terms
        if term.entries is not None
    }
    if not closed or not log.rows:
        return np.empty(0, np.intp)
    numbers = np.array(sorted(closed))
    entries = np.array([closed[number] for number in numbers.tolist()])
    found = []
    for part in chunks(log.rows):
        ledger = log["ledger"][part]
        at = np.minimum(np.searchsorted(numbers, ledger), len(numbers) - 1)
        behind = (numbers[at] == ledger) & (log["position"][part] >= entries[at])
        found.append(np.flatnonzero(behind) + part.start)
    return np.concatenate(found)


def _read_again(log: Columns) -> npt.NDArray[np.intp]:
    """Rows that repeat the row before them: one place, one message. A place cannot hold two copies,
    so the reader went back. Two *different* messages at one place stay: the record contradicts
    itself."""
    rows = _at_same_place(log)
    for name in _MESSAGE:
        if len(rows) and not is_constant(log[name]):
            rows = rows[log[name][rows] == log[name][rows - 1]]
    return rows


def _at_same_place(log: Columns) -> npt.NDArray[np.intp]:
    """Rows at the place of the row before them."""
    position = log["position"]  # alone it settles nearly all
    same = [
        np.flatnonzero(position[part] == position[part.start + 1 : part.stop + 1]) + part.start + 1
        for part in chunks(max(log.rows - 1, 0))
    ]
    rows = np.concatenate(same) if same else np.empty(0, np.intp)
    for name in _LOG_KEYS:
        if len(rows) and not is_constant(log[name]):
            rows = rows[log[name][rows] == log[name][rows - 1]]
    return rows


def load_bucket(root_uri: str, number: int, context: Context) -> Bucket:
    """Open bucket ``number`` of the run at ``root_uri``, a local path or a URI that pyarrow.fs
    knows.

    A table without files is empty.
    """
    return Bucket(number, context, **open_tables(root_uri, number))


def open_tables(root_uri: str, number: int) -> dict[str, Columns]:
    """The tables of a bucket, rows in the order of the files."""
    filesystem, root = filesystem_of(root_uri)
    return {t: _open(filesystem, bucket_parts(filesystem, root, t, number), t) for t in SEALED}


def _open(filesystem: Any, paths: Sequence[str], table: str) -> Columns:
    files = _TableFiles(filesystem, paths, table)
    return Columns(table, int(files.starts[-1]), files.whole, files)


class _TableFiles:
    """The files of one table as one: their rows and row groups are numbered through.

    Attributes:
        starts: first row of each row group, and the number of rows.
    """

    def __init__(self, filesystem: Any, paths: Sequence[str], table: str) -> None:
        self._files = [pq.ParquetFile(filesystem.open_input_file(path)) for path in paths]
        self._columns = {column.name: column for column in SEALED[table]}
        self._groups = [
            (f, g) for f, file in enumerate(self._files) for g in range(file.num_row_groups)
        ]
        self._metadata = [self._files[f].metadata.row_group(g) for f, g in self._groups]
        self._names = [
            {name: i for i, name in enumerate(f.schema_arrow.names)} for f in self._files
        ]
        self.starts = np.cumsum([0, *(each.num_rows for each in self._metadata)])
        self._known: dict[str, list[int | None]] = {}

    def whole(self, name: str) -> Array:
        """A column. Row groups of one value are not decoded."""
        dtype, known, starts = self._columns[name].dtype, self._values(name), self.starts
        if known and known[0] is not None and known.count(known[0]) == len(known):
            return np.broadcast_to(np.array([known[0]], dtype), (int(starts[-1]),))
        out = np.empty(int(starts[-1]), dtype)
        for (file, value), run in groupby(
            range(len(known)), lambda g: (self._groups[g][0], known[g])
        ):
            groups = list(run)
            filled = int(starts[groups[0]])
            if value is not None:
                out[filled : starts[groups[-1] + 1]] = value
                continue
            for part in self._decoded(file, [self._groups[g][1] for g in groups], [name])[
                name
            ].chunks:
                out[filled : filled + len(part)] = _numbers(part)
                filled += len(part)
        return out

    def in_turn(self, names: Sequence[str]) -> Iterator[tuple[slice, dict[str, Array]]]:
        """Columns of at most `CHUNK_ROWS` rows at a time, and which rows they are."""
        for group, (start, end) in enumerate(itertools.pairwise(self.starts.tolist())):
            read = self.read(group, names)
            for part in chunks(end - start):
                rows = slice(start + part.start, start + part.stop)
                yield rows, {name: column[part] for name, column in read.items()}

    def read(self, group: int, names: Sequence[str]) -> dict[str, Array]:
        """Columns of a row group; one of one value is a view of a single element."""
        rows = self._metadata[group].num_rows
        known = {name: self._values(name)[group] for name in names}
        asked = [name for name, value in known.items() if value is None]
        file, number = self._groups[group]
        decoded = self._decoded(file, [number], asked) if asked else {}
        found = {}
        for name, value in known.items():
            dtype = np.dtype(self._columns[name].dtype)
            if value is None:
                parts = [_numbers(part) for part in decoded[name].chunks]
                whole = parts[0] if len(parts) == 1 else np.concatenate(parts)
                found[name] = whole.astype(dtype, copy=False)
            else:
                found[name] = np.broadcast_to(np.array([value], dtype), (rows,))
        return found

    def group_of(self, rows: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
        """Row group of each row."""
        return np.searchsorted(self.starts, rows, side="right") - 1

    def _decoded(
        self, file: int, numbers: list[int], names: Sequence[str]
    ) -> dict[str, pa.ChunkedArray]:
        read = self._files[file].read_row_groups(numbers, columns=list(names), use_threads=False)
        return {name: read.column(name) for name in names}

    def _values(self, name: str) -> list[int | None]:
        """For each row group, its value when statistics say that there is just one; else None."""
        if name not in self._known:
            # where it was sealed before there was such a column
            missing = self._columns[name].missing
            found = []
            for (file, _), metadata in zip(self._groups, self._metadata, strict=True):
                index = self._names[file].get(name)
                found.append(
                    missing if index is None else _one_value(metadata.column(index).statistics)
                )
            self._known[name] = found
        return self._known[name]


def _one_value(statistics: Any) -> int | None:
    if statistics is None or not statistics.has_min_max or statistics.null_count:
        return None
    value: int = statistics.min
    return value if value == statistics.max else None


def _numbers(chunk: pa.Array) -> Array:
    """Arrow's numbers as they lie in memory. Its own conversion imports pandas, half a second a
    worker."""
    if chunk.null_count or not pa.types.is_integer(chunk.type):
        return np.asarray(chunk.to_numpy(zero_copy_only=False))
    numbers = np.frombuffer(chunk.buffers()[1], np.dtype(str(chunk.type)))
    return numbers[chunk.offset : chunk.offset + len(chunk)]
