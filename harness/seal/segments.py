"""Raw segments of a run: which there are, which of their rows are whole, and what is damaged.

A segment is a 64-byte header and room for ``capacity`` rows; workers fill it from the start and
write a row's last field last. So a killed worker leaves a prefix of whole rows, at most one row
begun and zeros after it. Anything else (a file cut short, a hole, a header that is not ours) is
counted, never guessed at.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from harness.contracts.seal import Damage
from harness.records import (
    RAW,
    SEGMENT_HEADER,
    SEGMENT_HEADER_BYTES,
    SEGMENT_MAGIC,
    VALID_FIELD,
    TableId,
)
from harness.rundir import RunDir
from harness.segments import Rows, mapped

SEGMENT_SUFFIX: Final = ".seg"
#: Rows handled at a time: about 800 KiB, read from memory once and then found in the cache.
CHUNK_ROWS: Final = 1 << 13
#: FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
_PUNCH_HOLE: Final = 0x03
#: Rows after the last whole one that are searched for a row that was begun.
_TORN_REACH: Final = 64


Counts = dict[str, Counter[str]]


@dataclass(frozen=True, slots=True)
class Segment:
    """A readable segment. ``room``: whole rows the file can hold as it is now."""

    path: Path
    worker: str
    table: TableId
    owner: int
    index: int
    subscription: int
    room: int

    @property
    def bytes(self) -> int:
        """The size of its rows, whether they are written or not."""
        return self.room * RAW[self.table].itemsize


def find_segments(
    run: RunDir, run_tag: int, damage: Counts, taken: Callable[[Segment], int] = lambda segment: 0
) -> list[Segment]:
    """Every readable segment of the run, in sealing order: table, owner, index.

    Args:
        taken: how many segments of its worker, table and owner, from 0 on, need not be there any
            more.
    """
    found: list[Segment] = []
    for folder in worker_folders(run):
        counts = damage.setdefault(folder.name, Counter())
        for path in sorted(folder.glob("*" + SEGMENT_SUFFIX)):
            segment = _open(path, folder.name, run_tag, counts)
            if segment is not None:
                found.append(segment)
    found.sort(key=lambda s: (s.table, s.owner, s.index, s.worker))
    _count_missing(found, damage, taken)
    return found


def worker_folders(run: RunDir) -> list[Path]:
    """Folders of raw/, by name."""
    if not run.raw.is_dir():
        return []
    return sorted(path for path in run.raw.iterdir() if path.is_dir())


def _open(path: Path, worker: str, run_tag: int, counts: Counter[str]) -> Segment | None:
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(SEGMENT_HEADER_BYTES)
    except OSError:
        counts[Damage.UNREADABLE] += 1
        return None
    if not start.strip(b"\0"):
        if size:  # created, and the worker was killed before it wrote the header: nothing is in it
            counts[Damage.SHORT_FILES] += size < SEGMENT_HEADER_BYTES
        return None
    if len(start) < SEGMENT_HEADER_BYTES:
        counts[Damage.SHORT_FILES] += 1
        return None
    header = np.frombuffer(start, SEGMENT_HEADER)[0]
    number = int(header["table"])
    known = number in set(TableId) and int(header["row_bytes"]) == RAW[TableId(number)].itemsize
    if start[:8] != SEGMENT_MAGIC or not known:
        counts[Damage.BAD_MAGIC] += 1
        return None
    if int(header["run_tag"]) != run_tag:
        counts[Damage.FOREIGN_RUN] += 1
        return None
    table = TableId(number)
    room = (size - SEGMENT_HEADER_BYTES) // RAW[table].itemsize
    if room < int(header["capacity"]):
        counts[Damage.SHORT_FILES] += 1
    return Segment(
        path=path,
        worker=worker,
        table=table,
        owner=int(header["owner"]),
        index=int(header["index"]),
        subscription=int(header["subscription"]),
        room=room,
    )


def _count_missing(
    segments: Iterable[Segment], damage: Counts, taken: Callable[[Segment], int]
) -> None:
    indexes: dict[tuple[str, TableId, int], list[int]] = {}
    for s in segments:
        have = indexes.setdefault((s.worker, s.table, s.owner), [*range(taken(s))])
        have.append(s.index)
    for (worker, _, _), have in indexes.items():
        missing = max(have) + 1 - len(set(have))
        if missing > 0:
            damage[worker][Damage.MISSING_SEGMENTS] += missing


def whole_rows(segment: Segment, counts: Counter[str]) -> Iterator[Rows]:
    """The rows that were written to the end, in order, `CHUNK_ROWS` at most at a time.

    Views of the mapped file where nothing is torn. What is torn is known, and counted, after the
    last one.
    """
    if segment.room == 0:
        return
    every = mapped(segment.path, segment.table)
    field = VALID_FIELD[segment.table]
    end = whole = 0  # end: after the last whole row
    for start in range(0, segment.room, CHUNK_ROWS):
        rows = every[start : start + CHUNK_ROWS]
        written = rows[field] != 0
        count = int(np.count_nonzero(written))
        if count == 0:
            continue
        whole += count
        if written[:count].all():
            end = start + count
            yield rows[:count]
        else:
            end = start + int(np.flatnonzero(written)[-1]) + 1
            yield rows[written]
    counts[Damage.TORN_ROWS] += (end - whole) + _begun(every[end : end + _TORN_REACH])


def is_finished(segment: Segment, before_ns: int) -> bool:
    """Whether every row is written and none will change any more: sends were answered before this
    time."""
    every = mapped(segment.path, segment.table)
    if not len(every) or not every[VALID_FIELD[segment.table]].all():
        return False
    if segment.table is not TableId.SENDS:
        return True
    return bool(every["outcome"].all()) and int(every["t_done_ns"].max()) < before_ns


def remove_segment(segment: Segment) -> None:
    """Remove a segment whose rows are elsewhere. If a worker still has it mapped, its blocks and
    memory are given back at once where the file system can do that; else when the worker unmaps
    it."""
    handle = os.open(segment.path, os.O_RDWR)
    try:
        size = os.fstat(handle).st_size
        with contextlib.suppress(AttributeError):  # no Linux
            libc = ctypes.CDLL(None, use_errno=True)
            libc.fallocate(handle, _PUNCH_HOLE, ctypes.c_int64(0), ctypes.c_int64(size))
    finally:
        os.close(handle)
    segment.path.unlink()


def _begun(rows: npt.NDArray[Any]) -> int:
    """Rows without their last field that are not all zero."""
    as_bytes = np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), rows.itemsize)
    return int(as_bytes.any(axis=1).sum())
