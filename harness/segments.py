"""Follows the raw segments of a worker while it writes them: each row once, as soon as it is final.

A worker's memory-mapped rows are its capture; reading them costs it nothing, and they are there
after it was killed. docs/capture-format.md says when a row counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from harness.records import RAW, SEGMENT_HEADER_BYTES, TABLE_NAMES, VALID_FIELD, TableId

Rows = npt.NDArray[np.void]
#: The field that is not 0 when nothing of a row will change any more; of other tables a written row
#: is final.
_FINAL_FIELD: Final = {TableId.SENDS: "outcome", TableId.TRANSACTIONS: "outcome"}


class SegmentRows:
    """The rows of one table of a worker. `new_rows` from one thread."""

    def __init__(self, folder: Path, table: TableId) -> None:
        self._folder = folder
        self._table = table
        self._followed: dict[str, _Segment | None] = {}  # None = every row of it was handed out

    def new_rows(self) -> Iterator[Rows]:
        """Copies of the rows that became final since the last call. A file may go once all of its
        are."""
        there = {
            path.name: path
            for path in sorted(self._folder.glob(f"{TABLE_NAMES[self._table]}-*.seg"))
        }
        for name in there.keys() - self._followed.keys():
            with suppress(FileNotFoundError):
                self._followed[name] = _Segment(mapped(there[name], self._table), self._table)
        for name, segment in sorted(self._followed.items()):
            if segment is not None:
                yield segment.new_rows()
                if segment.is_exhausted:
                    self._followed[name] = segment = None
            if segment is None and name not in there:
                del self._followed[name]

    def unanswered(self) -> Rows:
        """Copies of the rows that were written and are not final."""
        found = [segment.unanswered() for segment in self._followed.values() if segment is not None]
        return np.concatenate(found) if found else np.empty(0, RAW[self._table])


class _Segment:
    """One file. Rows before ``_next`` were seen; the ones in ``_open`` were not final yet."""

    def __init__(self, rows: Rows, table: TableId) -> None:
        self._rows = rows
        self._written = VALID_FIELD[table]
        self._final = _FINAL_FIELD.get(table, self._written)
        self._next = 0
        self._open = np.empty(0, np.int64)

    @property
    def is_exhausted(self) -> bool:
        """Whether every row was written and answered, so that nothing in it changes any more."""
        return self._next == len(self._rows) and not len(self._open)

    def new_rows(self) -> Rows:
        """Copies. The field that says so is read before the rest: a worker writes it last."""
        written = self._rows[self._written][self._next :] != 0
        count = len(written) if written.all() else int(np.argmin(written))
        numbers = np.concatenate([self._open, np.arange(self._next, self._next + count)])
        self._next += count
        is_final = self._rows[self._final][numbers] != 0
        self._open = numbers[~is_final]
        rows: Rows = self._rows.take(numbers[is_final])
        return rows

    def unanswered(self) -> Rows:
        """Return copies of the sends that have no outcome yet."""
        found: Rows = self._rows.take(self._open)
        is_open = (found[self._written] != 0) & (found[self._final] == 0)  # some were taken back
        return found.compress(is_open)


def mapped(path: Path, table: TableId) -> Rows:
    """The rows that a segment has room for, as a plain array over the file: memmap's own
    __getitem__ costs a microsecond a slice. None while it is shorter than a header and a row."""
    room = (path.stat().st_size - SEGMENT_HEADER_BYTES) // RAW[table].itemsize
    if room <= 0:
        return np.empty(0, RAW[table])
    return np.asarray(np.memmap(path, RAW[table], "r", SEGMENT_HEADER_BYTES, (room,)))
