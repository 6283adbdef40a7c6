"""The hits of one class as numbers in columns, compressed for the way from a task to the driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from analysis.capture.bucket import Array

#: Columns of a hit, with the values of one that is about no message and no place.
NO_MESSAGE: Final[Mapping[str, int]] = {
    "instance": 0, "lane": -1, "seq": -1, "attempt": -1, "t_ns": 0, "stream": 0, "position": -1, "ledger": 0,
    "batch": 0, "session": 0, "split": 0, "unmet": 0, "source_stream": 0, "source_position": -1,
}  # fmt: skip
COLUMNS: Final = tuple(NO_MESSAGE)
_SCHEMA: Final = pa.schema([pa.field(name, pa.int64()) for name in COLUMNS])


@dataclass(frozen=True, slots=True)
class ClassHits:
    """Hits of one class. ``splits``: the texts that column ``split`` counts. ``data``: an Arrow
    stream."""

    cls: str
    splits: tuple[str, ...]
    data: bytes

    @classmethod
    def from_columns(
        cls, name: str, splits: Sequence[str], columns: Mapping[str, Array]
    ) -> ClassHits:
        """``columns``: columns of `COLUMNS`, all of one length; a missing one has its `NO_MESSAGE`
        value."""
        rows = len(columns["t_ns"])
        whole = {each: np.full(rows, value) for each, value in NO_MESSAGE.items()} | dict(columns)
        arrays = [pa.array(np.asarray(whole[each], np.int64)) for each in COLUMNS]
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(
            sink, _SCHEMA, options=pa.ipc.IpcWriteOptions(compression="zstd")
        ) as writer:
            writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA))
        return cls(name, tuple(splits), sink.getvalue().to_pybytes())

    def columns(self) -> dict[str, Array]:
        """Return the columns of the hits, by name."""
        with pa.ipc.open_stream(self.data) as reader:
            table = reader.read_all()
        return {name: table.column(name).to_numpy() for name in COLUMNS}
