"""Raw segments as a worker would leave them, made from sealed columns: `harness.seal.seal`
undone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.records import (
    FORMAT_VERSION,
    HEADER_MAGIC,
    RAW,
    SEGMENT_HEADER,
    SEGMENT_MAGIC,
    TABLE_NAMES,
    Check,
    Event,
    TableId,
)
from harness.rundir import RunDir, write_jsonl
from tests.planted.plans import RUN_TAG

Columns = Mapping[str, npt.NDArray[Any]]
Rows = npt.NDArray[np.void]
PAYLOAD_BYTES = 150
#: Header fields that have the same name as a sealed column.
_HEADER_FIELDS = ("instance", "lane", "seq", "attempt", "kind")


def raw_rows(table: TableId, columns: Columns) -> Rows:
    """Raw rows that seal to ``columns``; a send with t_done 0 was never completed."""
    rows = np.zeros(len(columns["stream"]), RAW[table])
    for name in RAW[table].names or ():
        if name in columns:
            rows[name] = columns[name]
    if table is TableId.SENDS:
        rows["state"] = 1
        rows["outcome"][columns["t_done_ns"] == 0] = 0
        return rows
    if table is TableId.LOG:
        rows["state"] = 1
        has_header = columns["check"] != Check.FOREIGN
    else:
        rows["kind"] = columns["event"]
        has_header = (columns["event"] == Event.DELIVER) & (columns["check"] != Check.FOREIGN)
    rows["header"] = headers(columns)
    rows["header"][~has_header] = np.zeros((), rows["header"].dtype)
    return rows


def headers(columns: Columns) -> Rows:
    """Payload headers of this run (of another one where check says so)."""
    rows = np.zeros(len(columns["seq"]), RAW[TableId.LOG]["header"])
    rows["magic"] = HEADER_MAGIC
    rows["version"] = FORMAT_VERSION
    rows["run_tag"] = np.where(columns["check"] == Check.OTHER_RUN, RUN_TAG + 1, RUN_TAG)
    rows["length"] = PAYLOAD_BYTES
    for name in _HEADER_FIELDS:
        rows[name] = columns[name]
    if "source_position" in columns:
        rows["source_partition"] = columns["source_partition"]
        rows["source_position"] = np.maximum(columns["source_position"], 0)
    if "t_intended_ns" in columns:
        rows["t_intended_ns"] = columns["t_intended_ns"]
    return rows


def segment_bytes(
    table: TableId,
    rows: Rows,
    *,
    owner: int,
    index: int = 0,
    capacity: int | None = None,
    run_tag: int = RUN_TAG,
    subscription: int = 0,
) -> bytes:
    """One segment file with room for ``capacity`` rows (default: just these)."""
    room = len(rows) if capacity is None else capacity
    header = np.zeros((), SEGMENT_HEADER)
    header["magic"] = SEGMENT_MAGIC
    header["table"] = table
    header["row_bytes"] = rows.itemsize
    header["owner"] = owner
    header["index"] = index
    header["capacity"] = room
    header["run_tag"] = run_tag
    header["subscription"] = subscription
    return header.tobytes() + rows.tobytes() + bytes((room - len(rows)) * rows.itemsize)


class SegmentWriter:
    """Appends rows of one owner to segments of ``capacity`` rows in a worker's raw folder."""

    def __init__(
        self,
        run: RunDir,
        worker: str,
        table: TableId,
        owner: int,
        *,
        capacity: int = 1 << 18,
        subscription: int = 0,
    ) -> None:
        self._folder = run.worker(worker)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._table = table
        self._owner = owner
        self._capacity = capacity
        self._subscription = subscription
        self._rows: list[Rows] = []
        self._held = 0
        self._index = 0

    def append(self, rows: Rows) -> None:
        self._rows.append(rows)
        self._held += len(rows)
        while self._held >= self._capacity:
            self._cut(self._capacity)

    def close(self) -> None:
        if self._held or self._index == 0:
            self._cut(self._held)

    def _cut(self, count: int) -> None:
        held = join_rows(RAW[self._table], self._rows)
        path = self._folder / f"{TABLE_NAMES[self._table]}-{self._owner}-{self._index:05d}.seg"
        content = segment_bytes(
            self._table,
            held[:count],
            owner=self._owner,
            index=self._index,
            capacity=self._capacity,
            subscription=self._subscription,
        )
        path.write_bytes(content)
        self._rows = [held[count:]]
        self._held -= count
        self._index += 1


def join_rows(dtype: np.dtype[np.void], parts: Sequence[Rows]) -> Rows:
    """Rows one after the other; np.concatenate would drop the padding from the row layout."""
    opaque = f"V{dtype.itemsize}"
    return np.concatenate([np.zeros(0, opaque), *(part.view(opaque) for part in parts)]).view(dtype)


def write_worker_names(run: RunDir, worker: str, texts: Sequence[tuple[str, str]]) -> None:
    """names.jsonl of a worker: (kind, text) in order of local id, from 1."""
    rows = [{"id": i, "kind": kind, "text": text} for i, (kind, text) in enumerate(texts, start=1)]
    write_jsonl(run.worker(worker) / "names.jsonl", rows)


def write_bytes(path: Path, content: bytes) -> None:
    """A file and its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
