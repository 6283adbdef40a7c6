"""The bucket files of one table, filled side by side in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from harness.contracts.message import MessageId
from harness.contracts.seal import SealedFile
from harness.errors import UsageError
from harness.records import SEALED
from harness.seal.parquet import BucketFile

Columns = dict[str, npt.NDArray[Any]]
#: In the place of a bucket's number: a row of all of them.
EVERY: Final = -1
#: Rows held for all buckets together: about 100 bytes each.
_HELD_ROWS: Final = 1 << 20
_IDENTITY: Final = ("instance", "lane", "seq", "attempt")
_PLACE: Final = ("stream", "ledger", "position", "batch")


class BucketFiles:
    """Takes rows in any order of buckets; a bucket without rows gets no file."""

    def __init__(self, table: str, count: int, path_of: Callable[[int], Path]) -> None:
        self._table = table
        self._count = count
        self._path_of = path_of
        self._files: dict[int, BucketFile] = {}
        self._parts: dict[int, list[Columns]] = {}
        self._held: dict[int, int] = {}

    def add(self, columns: Columns, buckets: npt.NDArray[np.int64]) -> None:
        """Rows and the bucket of each."""
        is_every = buckets == EVERY
        wanted = range(self._count) if is_every.any() else np.unique(buckets).tolist()
        for bucket in wanted:
            chosen = np.flatnonzero((buckets == bucket) | is_every)
            if len(chosen):
                part = {c.name: columns[c.name][chosen] for c in SEALED[self._table]}
                self._parts.setdefault(bucket, []).append(part)
                self._held[bucket] = self._held.get(bucket, 0) + len(chosen)
        while sum(self._held.values()) > _HELD_ROWS:
            self._flush(max(self._held, key=lambda bucket: self._held[bucket]))

    def commit(self) -> dict[Path, SealedFile]:
        """Let the files appear."""
        for bucket in list(self._parts):
            self._flush(bucket)
        return {file.path: file.commit() for _, file in sorted(self._files.items())}

    def abort(self) -> None:
        """Remove what is unfinished."""
        for file in self._files.values():
            file.abort()

    def _flush(self, bucket: int) -> None:
        parts = self._parts.pop(bucket)
        self._held.pop(bucket)
        if bucket not in self._files:
            self._files[bucket] = BucketFile(self._path_of(bucket), self._table)
        names = [column.name for column in SEALED[self._table]]
        self._files[bucket].write(
            {name: np.concatenate([part[name] for part in parts]) for name in names}
        )


def refuse_two_sends(path: Path) -> None:
    """Every send has one row: a second one says that two messages share an identity.

    Raises:
        UsageError: the message.
    """
    columns = _columns(path, _IDENTITY)
    order, same = _equal_in(columns)
    if same.any():
        at = order[int(np.argmax(same))]
        instance, lane, seq, attempt = (int(column[at]) for column in columns)
        raise UsageError(
            f"sends: message {MessageId(instance, lane, seq)} has two rows of attempt {attempt}",
            hint="seq counts the messages of an (instance, lane); a re-send raises attempt",
        )


def refuse_two_messages(path: Path, streams: Sequence[str]) -> None:
    """Every place holds one message; the same one may have been read twice.

    Raises:
        UsageError: the place.
    """
    place, message = _columns(path, _PLACE), _columns(path, (*_IDENTITY, "kind", "check"))
    place[-1] = np.maximum(place[-1], 0)  # -1 and 0 mean no batch
    order, same = _equal_in(place)
    differs = np.zeros(len(same), np.bool_)
    for column in message:
        differs |= column[order][1:] != column[order][:-1]
    if (same & differs).any():
        at = int(np.argmax(same & differs))
        stream, ledger, position, _ = (int(column[order[at]]) for column in place)
        first, second = (
            "/".join(str(column[row]) for column in message[:3]) for row in order[at : at + 2]
        )
        where = f"{ledger}:{position}" if ledger else str(position)
        raise UsageError(
            f"log: {streams[stream - 1]} holds both {first} and {second} at position {where}",
            hint="check the columns of stream and position: a log has one message at a position "
            "(Pulsar: and index in the batch, column batch)",
        )


def _columns(path: Path, names: Sequence[str]) -> list[npt.NDArray[Any]]:
    table = pq.read_table(path, columns=list(names))
    return [table.column(name).to_numpy() for name in names]


def _equal_in(
    columns: Sequence[npt.NDArray[Any]],
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]:
    """Rows in order of the columns, and whether each of them is equal in all of them to the next
    one."""
    order = np.lexsort(columns[::-1])
    same = np.ones(max(len(order) - 1, 0), np.bool_)
    for column in columns:
        same &= column[order][1:] == column[order][:-1]
    return order, same
