"""Turns the rows of a table's files into sealed columns, and refuses rows that contradict
themselves."""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from harness.errors import UsageError, did_you_mean
from harness.importing.columns import NONE, TABLES, Field
from harness.importing.readers import Batch, batches
from harness.importing.source import ImportSource, TableFile
from harness.importing.values import BatchColumn, ImportedNames, Ints
from harness.records import Check, Event, Outcome
from harness.systems import System, system_of

Flags = npt.NDArray[np.bool_]
#: Sealed columns by name, as int64; of one length.
Rows = dict[str, Ints]
_IDENTITY: Final = ("instance", "lane", "seq")


@dataclass(frozen=True, slots=True)
class Read:
    """Some rows of a table in sealed columns, the batch that they were, and which columns the file
    has."""

    batch: Batch
    rows: Rows
    present: frozenset[str]


@dataclass(frozen=True, slots=True)
class Range:
    """The part of a stream that was read."""

    begin: int
    end: int
    read_to: int


def fields_of(table: str, system: System) -> tuple[Field, ...]:
    """The columns of a table for a system: a ledger is needed to find a place where entries are
    numbered by ledger, and a queue has no positions."""
    fields = TABLES[table]
    if table not in ("log", "deliveries"):
        return fields
    if system.is_queue:
        return tuple(replace(f, needed=False) if f.name == "position" else f for f in fields)
    if not system.has_offsets:
        return tuple(replace(f, needed=True) if f.name == "ledger" else f for f in fields)
    return fields


class TableReader:
    """Reads one table. ``present``: columns that its files have, known after the first file."""

    def __init__(self, source: ImportSource, table: str, names: ImportedNames) -> None:
        said = source.description
        self.table = table
        self.present: frozenset[str] | None = None
        self._source = source
        self._names = names
        self._system = system_of(said.system)
        self._fields = fields_of(table, self._system)
        if table == "deliveries" and len(said.groups) != 1:
            self._fields = tuple(
                replace(f, needed=f.needed or f.name == "subscription") for f in self._fields
            )
        self._theirs: Mapping[str, str] = getattr(said.columns, table)
        self._ignored = frozenset(getattr(said.ignore, table))
        self._unit_ns = said.unit_ns if said.times else None
        self._first_file = ""
        self._count = 0

    def read(self) -> Iterator[Read]:
        """All rows, file by file.

        Raises:
            UsageError: a file, a column, a row or a value that is not allowed.
        """
        for file in self._source.files[self.table]:
            seen: set[str] = set()
            for batch in batches(self._source, file):
                seen.update(batch.columns)
                self._refuse_strange(batch)
                if not file.is_json:
                    self._check_columns(file, frozenset(seen))
                if batch.rows:
                    yield Read(batch, self._sealed(batch), self._ours(seen))
            if file.is_json and seen:
                self._check_columns(file, frozenset(seen))

    # -- columns

    def _theirs_of(self, field: Field) -> list[str]:
        """Columns of theirs that the field is made of."""
        name = self._theirs.get(field.name, field.name)
        return (
            [part for _, part, _, _ in string.Formatter().parse(name) if part]
            if "{" in name
            else [name]
        )

    def _ours(self, columns: set[str] | frozenset[str]) -> frozenset[str]:
        return frozenset(f.name for f in self._fields if columns.issuperset(self._theirs_of(f)))

    def _refuse_strange(self, batch: Batch) -> None:
        used = {name for field in self._fields for name in self._theirs_of(field)}
        for name in batch.columns:
            if name not in used and name not in self._ignored:
                near = did_you_mean(name, [field.name for field in self._fields], label="columns")
                raise UsageError(
                    f"{batch.file}: no column {name!r} is known; {near}",
                    hint=f"in import.yaml, columns: {{{self.table}: {{OURS: {name}}}}} or "
                    f"ignore: {{{self.table}: [{name}]}}",
                )

    def _check_columns(self, file: TableFile, columns: frozenset[str]) -> None:
        ours = self._ours(columns)
        for field in self._fields:
            if field.needed and field.name not in ours:
                theirs = self._theirs.get(field.name, field.name)
                raise UsageError(
                    f"{file.name}: column {theirs!r} is missing; found {', '.join(sorted(columns))}",
                    hint=f"{field.name}: {field.doc}" if field.doc else "",
                )
        if self.present is None:
            self.present, self._first_file = ours, file.name
        if other := sorted(self.present ^ ours):
            has, lacks = (
                (file.name, self._first_file) if other[0] in ours else (self._first_file, file.name)
            )
            raise UsageError(f"{lacks}: column {other[0]!r} is missing, which {has} has")

    # -- rows

    def _sealed(self, batch: Batch) -> Rows:
        rows = {field.name: self._column(field, batch) for field in self._fields}
        checks = {"sends": self._sends, "log": self._log, "deliveries": self._deliveries}
        if self.table in checks:
            checks[self.table](batch, rows)
        return rows

    def _column(self, field: Field, batch: Batch) -> Ints:
        parts = self._theirs_of(field)
        if not all(part in batch.columns for part in parts):
            if field.empty is None:
                self._refuse(batch, np.ones(batch.rows, np.bool_), f"{field.name} has no value")
            return np.full(batch.rows, field.empty, np.int64)
        theirs = self._theirs.get(field.name, field.name)
        array = _put_together(theirs, batch) if "{" in theirs else batch.columns[parts[0]]
        return BatchColumn(field, batch, theirs, self._names, self._unit_ns).numbers(array)

    def _sends(self, batch: Batch, rows: Rows) -> None:
        start, done = rows["t_start_ns"], rows["t_done_ns"]
        answered = rows["outcome"] != Outcome.INFO
        self._refuse(
            batch, answered & (done == 0), "t_done_ns is empty, but the client gave an outcome"
        )
        self._refuse(batch, (done > 0) & (done < start), "t_done_ns is before t_start_ns")
        due = rows["t_intended_ns"]
        due[due == 0] = start[due == 0]
        self._refuse(batch, due > start, "t_intended_ns is after t_start_ns")
        self._placed(batch, rows)

    def _log(self, batch: Batch, rows: Rows) -> None:
        intact = rows["check"] == Check.OK
        self._named(batch, rows, intact, "check is ok")
        rows["t_intended_ns"][~intact] = 0
        if not self._system.is_queue:
            self._refuse(batch, rows["position"] < 0, "position has no value")
        elif (rows["position"] < 0).all():  # a queue has none, so that two copies need one each
            rows["position"] = np.arange(self._count, self._count + batch.rows, dtype=np.int64)
            self._count += batch.rows
        else:
            self._refuse(batch, rows["position"] < 0, "position has no value, and others have one")

    def _deliveries(self, batch: Batch, rows: Rows) -> None:
        given = rows["event"] == Event.DELIVER
        self._named(batch, rows, given & (rows["check"] == Check.OK), "a message was delivered")
        self._refuse(
            batch, given & (rows["stream"] == 0), "stream has no value, but a message was delivered"
        )
        if not self._system.is_queue:
            wrong = given & (rows["position"] < 0)
            self._refuse(batch, wrong, "position has no value, but a message was delivered")
        rows["check"][~given] = Check.OK
        self._placed(batch, rows)
        self._grouped(batch, rows)

    def _named(self, batch: Batch, rows: Rows, named: Flags, why: str) -> None:
        """Rows that must name a message do; the others name none."""
        for name in _IDENTITY:
            self._refuse(batch, named & (rows[name] == NONE), f"{name} has no value, but {why}")
        self._refuse(batch, named & (rows["instance"] == 0), "instance is 0; they count from 1")
        for name in (*_IDENTITY, "attempt", "kind"):
            rows[name][~named] = 0

    def _placed(self, batch: Batch, rows: Rows) -> None:
        nowhere = rows["stream"] == 0
        self._refuse(
            batch, nowhere & (rows["position"] >= 0), "position has a value, but stream has none"
        )
        rows["position"][nowhere] = -1

    def _grouped(self, batch: Batch, rows: Rows) -> None:
        """Every session is one of a group that import.yaml describes."""
        groups = self._source.description.groups
        if len(groups) == 1:
            only = self._names.number("subscription", next(iter(groups))) or 0
            rows["subscription"][rows["subscription"] == 0] = only
        self._refuse(batch, rows["subscription"] == 0, "subscription has no value")
        for number in np.unique(rows["subscription"]).tolist():
            text = self._names.text(number)
            if text not in groups:
                near = did_you_mean(text, groups, label="groups of import.yaml")
                wrong = rows["subscription"] == number
                self._refuse(
                    batch,
                    wrong,
                    f"subscription is {text!r}, which import.yaml does not have; {near}",
                )

    def _refuse(self, batch: Batch, wrong: Flags, problem: str) -> None:
        if wrong.any():
            refuse_row(batch, int(np.argmax(wrong)), problem)


def refuse_row(batch: Batch, index: int, problem: str) -> NoReturn:
    """Raise the error for one row."""
    raise UsageError(f"{batch.place(index)}: {problem}")


def ranges_of(source: ImportSource, names: ImportedNames) -> dict[int, Range]:
    """The table log_bounds, by stream; empty where there is none.

    Raises:
        UsageError: a row that contradicts itself, or a second one of a stream.
    """
    found: dict[int, Range] = {}
    for read in TableReader(source, "log_bounds", names).read():
        columns = (read.rows[name].tolist() for name in ("stream", "begin", "end", "read_to"))
        for index, (stream, begin, end, read_to) in enumerate(zip(*columns, strict=True)):
            if stream in found:
                refuse_row(read.batch, index, "there is another row of its stream")
            if not begin <= read_to <= end:
                refuse_row(
                    read.batch,
                    index,
                    f"begin {begin}, read_to {read_to}, end {end}: they must not fall",
                )
            found[stream] = Range(begin, end, read_to)
    return found


def _put_together(template: str, batch: Batch) -> pa.Array:
    """Texts of several columns, as ``{topic}-{partition}``; a row that lacks one of them has
    none."""
    parts: list[Any] = []
    for text, name, _, _ in string.Formatter().parse(template):
        parts += [pa.scalar(text)] if text else []
        if name:
            column = batch.columns[name]
            if not (pa.types.is_integer(column.type) or pa.types.is_string(column.type)):
                column = column.cast(pa.string()) if pa.types.is_null(column.type) else column
            if not (pa.types.is_integer(column.type) or pa.types.is_string(column.type)):
                raise UsageError(
                    f"{batch.file}: column {name} is of type {column.type}; allowed: text, whole "
                    "numbers"
                )
            parts.append(column.cast(pa.string()))
    return pc.binary_join_element_wise(*parts, "", null_handling="emit_null")
