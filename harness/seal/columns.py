"""Raw rows to sealed columns: the rows of one bucket, from several workers, as arrays of
`harness.records`.

A raw row is about 100 bytes wide, so reading one field of many rows pulls all of them through the
cache. Rows are therefore converted in blocks that stay in the second-level cache, all fields of a
block at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from harness.clock_line import ClockLine
from harness.records import RAW, SEALED, TABLE_NAMES, Check, Column, Event, Outcome, TableId
from harness.seal.names import WorkerNames

Array = npt.NDArray[Any]
Rows = npt.NDArray[np.void]
#: 4096 rows x 104 bytes = 416 KiB of raw rows and about as much of columns.
_BLOCK_ROWS: Final = 4096
_MAX_SEQ: Final = np.uint64(np.iinfo(np.int64).max)
#: As NumPy scalars: an IntEnum would widen the column it is compared with to 64 bits.
_NO_OUTCOME: Final = np.uint8(Outcome.NONE)
_INTACT: Final = np.uint8(Check.OK)
_DELIVER, _OUTPUT = np.uint8(Event.DELIVER), np.uint8(Event.OUTPUT)
_IDENTITY: Final = ("instance", "lane", "seq", "attempt", "kind")
#: By producer instance, whether it is a pipeline's; the last entry, no, applies to all further
#: ones.
Pipelines = npt.NDArray[np.bool_]
NO_PIPELINES: Final[Pipelines] = np.zeros(1, np.bool_)
#: By producer instance, the clock of another machine that it sent from.
Clocks = Mapping[int, ClockLine]
ONE_CLOCK: Final[Clocks] = MappingProxyType({})
#: Completion part of a send: blank when the row was never completed.
_COMPLETION: Final = (
    "t_done_ns",
    "late_outcome",
    "error",
    "stream",
    "ledger",
    "batch",
    "client_name",
    "client_seq",
)
_NAMED: Final = {
    TableId.SENDS: ("stream", "error", "client_name"),
    TableId.LOG: ("stream", "client_name"),
    TableId.DELIVERIES: ("stream",),
}


_TIMES: Final = {
    TableId.SENDS: ("t_intended_ns", "t_start_ns", "t_done_ns"),
    TableId.LOG: (),
    TableId.DELIVERIES: ("t_ns",),
}


@dataclass(frozen=True, slots=True)
class RowSource:
    """Where rows came from: what is stored once a segment instead of once a row."""

    owner: int
    subscription: int
    names: WorkerNames
    #: Of another machine; None = times are on the run's line.
    clock: ClockLine | None = None


class RowGroup:
    """Raw rows of one bucket and, for stretches of them, their source.

    ``words``: the rows as 64-bit words, (room, words a row): NumPy gathers those nearly twice as
    fast as structured rows. with ``ordinals``, for deliveries.
    """

    def __init__(self, table: TableId, memory: npt.NDArray[np.int64]) -> None:
        width = RAW[table].itemsize // memory.itemsize
        self.table = table
        self.memory = memory
        self.room = len(memory) // width
        self.words = memory[: self.room * width].reshape(self.room, width)
        self.ordinals = np.empty(self.room if table is TableId.DELIVERIES else 0, np.int64)
        self.spans: list[tuple[int, RowSource]] = []
        self.used = 0

    @property
    def rows(self) -> Rows:
        return self.words[: self.used].view(RAW[self.table])[:, 0]

    def add_span(self, count: int, source: RowSource) -> None:
        """``count`` more rows were filled in, all from ``source``."""
        self.used += count
        if self.spans and self.spans[-1][1] is source:
            count += self.spans.pop()[0]
        self.spans.append((count, source))


class ColumnMemory:
    """Columns to convert into, used again for every row group: fresh pages cost more than the
    copy."""

    def __init__(self) -> None:
        self._arrays: dict[tuple[TableId, str], Array] = {}

    def columns_of(self, table: TableId, rows: int) -> dict[str, Array]:
        """Arrays of all sealed columns with room for ``rows``; the last ones of this table are
        void."""
        return {c.name: self._array(table, c, rows) for c in SEALED[TABLE_NAMES[table]]}

    def _array(self, table: TableId, column: Column, rows: int) -> Array:
        array = self._arrays.get((table, column.name))
        if array is None or len(array) < rows:
            array = self._arrays[table, column.name] = np.empty(rows, column.dtype)
        return array[:rows]


def sealed_columns(
    group: RowGroup,
    memory: ColumnMemory,
    pipelines: Pipelines = NO_PIPELINES,
    clocks: Clocks = ONE_CLOCK,
) -> dict[str, Array]:
    """The columns of a row group, in the sealed types.

    Rows whose payload is not ours have no identity; an unfinished send is INFO and has no
    completion; a row without a stream has position -1; one of no pipeline has no source.
    """
    out = memory.columns_of(group.table, group.used)
    rows = group.rows
    convert = {TableId.SENDS: _sends, TableId.LOG: _log, TableId.DELIVERIES: _deliveries}[
        group.table
    ]
    for start in range(0, group.used, _BLOCK_ROWS):
        end = min(start + _BLOCK_ROWS, group.used)
        block = {name: array[start:end] for name, array in out.items()}
        convert(rows[start:end], block)
        if group.table is TableId.LOG:
            _sources(rows[start:end]["header"], block, pipelines)
    _fill_sources(group, out)
    if group.table is TableId.LOG:
        for instance, clock in clocks.items():
            own = out["instance"] == instance
            times = out["t_intended_ns"][own]
            clock.put_here(times)
            out["t_intended_ns"][own] = times
    if group.table is TableId.DELIVERIES:
        out["ordinal"][:] = group.ordinals[: group.used]
    return out


def _sends(rows: Rows, out: dict[str, Array]) -> None:
    for name, array in out.items():
        if name not in ("instance", "seq"):
            array[...] = rows[name]
    np.minimum(rows["seq"], _MAX_SEQ, out=out["seq"], casting="unsafe")
    unfinished = out["outcome"] == _NO_OUTCOME
    if unfinished.any():
        for name in _COMPLETION:
            out[name][unfinished] = 0
        out["outcome"][unfinished] = Outcome.INFO
    _no_stream_no_position(out)


def _log(rows: Rows, out: dict[str, Array]) -> None:
    for name in ("stream", "position", "ledger", "batch", "broker_time_ms", "txn", "check"):
        out[name][...] = rows[name]
    for name in ("client_name", "client_seq"):
        out[name][...] = rows[name]
    _identity(rows["header"], out, nameless=out["check"] != _INTACT)
    out["t_intended_ns"][...] = rows["header"]["t_intended_ns"]
    out["t_intended_ns"][out["check"] != _INTACT] = 0
    out["txn_end"][...] = -1
    _no_stream_no_position(out)


def _sources(headers: Rows, out: dict[str, Array], pipelines: Pipelines) -> None:
    """Rows that are not ours have instance 0, which is not a pipeline's."""
    out["source_partition"][...], out["source_position"][...] = 0, -1
    if pipelines.any():
        made = np.take(pipelines, out["instance"], mode="clip")
        for name in ("source_partition", "source_position"):
            out[name][made] = headers[name][made]


def _deliveries(rows: Rows, out: dict[str, Array]) -> None:
    for name in (
        "t_ns",
        "epoch",
        "stream",
        "position",
        "ledger",
        "batch",
        "redelivery",
        "txn_id",
        "check",
    ):
        out[name][...] = rows[name]
    out["event"][...] = rows["kind"]
    has_payload = (out["event"] == _DELIVER) | (out["event"] == _OUTPUT)
    _identity(rows["header"], out, nameless=~has_payload | (out["check"] != _INTACT))
    _no_stream_no_position(out)


def _identity(headers: Rows, out: dict[str, Array], *, nameless: npt.NDArray[np.bool_]) -> None:
    for name in ("instance", "lane", "attempt", "kind"):
        out[name][...] = headers[name]
    np.minimum(headers["seq"], _MAX_SEQ, out=out["seq"], casting="unsafe")
    if nameless.any():
        for name in _IDENTITY:
            out[name][nameless] = 0


def _no_stream_no_position(out: dict[str, Array]) -> None:
    """Position -1 where no stream is known, so that offset 0 never means "none"."""
    nowhere = out["stream"] <= 0
    if nowhere.any():
        out["stream"][nowhere] = 0
        out["position"][nowhere] = -1


def _fill_sources(group: RowGroup, out: dict[str, Array]) -> None:
    """Owner, subscription and global name ids, stretch by stretch."""
    start = 0
    for count, source in group.spans:
        here = slice(start, start + count)
        if group.table is TableId.SENDS:
            out["instance"][here] = source.owner
        if group.table is TableId.DELIVERIES:
            out["session"][here] = source.owner
            out["subscription"][here] = source.subscription
        for name in _NAMED[group.table]:
            local = out[name][here]
            known = source.names.to_global(local)
            if known is not local:
                out[name][here] = known
        if source.clock is not None:
            for name in _TIMES[group.table]:
                source.clock.put_here(out[name][here])
        start += count
