"""Writes every hit of a judged run as one Parquet file: `analyze --hits`,
docs/capture-format.md."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from analysis.capture.bucket import Array
from analysis.capture.context import Context
from analysis.kernels.class_hits import ClassHits
from analysis.kernels.hits import unmet_names
from analysis.kernels.partial import Episode
from analysis.verdict.attribution import attributed
from analysis.verdict.merge import judged_status
from harness.contracts.message import MessageId
from harness.errors import UsageError

SUFFIX: Final = ".parquet"
_PART: Final = ".part"


@dataclass(frozen=True, slots=True)
class HitColumn:
    """A column of the file; docs/capture-format.md lists them."""

    name: str
    type: pa.DataType
    doc: str


_TEXT: Final = pa.string()
HIT_COLUMNS: Final = (
    HitColumn("class", _TEXT, "anomaly class"),
    HitColumn("split", _TEXT, "its sub-kind; null without one"),
    HitColumn("status", _TEXT, "violation, suspect, permitted, application-error or info"),
    HitColumn("missing", _TEXT, "names of the preconditions that are not shown; null if none"),
    HitColumn(
        "message",
        pa.string(),
        "as `trace` takes it; null: a window, or a row without a message of ours",
    ),
    HitColumn(
        "instance", pa.uint32(), "producer, as in the sealed tables; null if the hit concerns none"
    ),
    HitColumn("lane", pa.uint32(), "of the message, as in the sealed tables; null without one"),
    HitColumn("seq", pa.int64(), "the same"),
    HitColumn("attempt", pa.uint16(), "the same"),
    HitColumn("stream", _TEXT, "topic-partition; null unknown"),
    HitColumn(
        "position", pa.int64(), "in the log, of the delivery, or as acknowledged; null unknown"
    ),
    HitColumn("ledger", pa.int64(), "Pulsar ledger id, else 0"),
    HitColumn("batch", pa.int32(), "Pulsar batch index, else 0"),
    HitColumn("input", _TEXT, "place of the input that a pipeline made it of; null without one"),
    HitColumn("session", pa.uint32(), "consumer session; null: the class is about the log"),
    HitColumn("t_ns", pa.int64(), "when, on the clock of the tables; null unknown"),
    HitColumn("t_s", pa.float64(), "the same in seconds since the start of load"),
    HitColumn(
        "fault",
        pa.int32(),
        "id of the fault that it is near, as in the report; null: near no fault",
    ),
)
_SCHEMA: Final = pa.schema([pa.field(column.name, column.type) for column in HIT_COLUMNS])
#: Rows that differ in none of these have one status.
_STATUS_OF: Final = ("split", "unmet", "instance", "session")


def require_writable(path: Path) -> None:
    """Refuse a file that cannot be written before anything is judged.

    Raises:
        UsageError: not a Parquet file's name, or no such folder.
    """
    if path.suffix != SUFFIX:
        raise UsageError(f"--hits {path}: must end in {SUFFIX}")
    if path.is_dir():
        raise UsageError(f"--hits {path}: is a folder")
    if not path.absolute().parent.is_dir() or not os.access(path.absolute().parent, os.W_OK):
        raise UsageError(f"--hits {path}: cannot write to the folder {path.absolute().parent}")


def write_hits(path: Path, hits: Iterable[ClassHits], context: Context) -> int:
    """One row a hit; how many. The file appears whole or not at all.

    Raises:
        UsageError: it cannot be written.
    """
    part = path.with_name(path.name + _PART)
    rows = 0
    try:
        # a file of ours: a writer that fails keeps its own open
        with (
            pa.OSFile(str(part), "wb") as file,
            pq.ParquetWriter(file, _SCHEMA, compression="zstd") as writer,
        ):
            for each in hits:
                table = _table(each, context)
                writer.write_table(table)
                rows += table.num_rows
        os.replace(part, path)
    except OSError as error:
        raise UsageError(f"--hits {path}: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)
    return rows


def _table(hits: ClassHits, context: Context) -> pa.Table:
    columns = hits.columns()
    stream, t_ns, is_message = columns["stream"], columns["t_ns"], columns["seq"] >= 0
    found: dict[str, pa.Array] = {
        "class": _texts(np.zeros(len(stream), np.int64), [hits.cls]),
        "split": _texts(columns["split"], hits.splits),
        **_status(hits, columns, context),
        "message": _messages(columns, is_message),
        "stream": _texts(*_named(stream, context.stream_name)),
        "input": _inputs(columns, context),
        "t_s": pa.array((t_ns - context.epoch_ns) / 1e9, mask=t_ns <= 0),
        "fault": _faults(t_ns, context),
    }
    for name in ("lane", "seq", "attempt"):
        found[name] = pa.array(columns[name], mask=~is_message)
    for name, known in (("instance", 1), ("position", 0), ("session", 1), ("t_ns", 1)):
        found[name] = pa.array(columns[name], mask=columns[name] < known)
    found |= {name: pa.array(columns[name]) for name in ("ledger", "batch")}
    return pa.table(
        [found[column.name].cast(column.type) for column in HIT_COLUMNS], schema=_SCHEMA
    )


def _texts(index: Array, texts: Sequence[str]) -> pa.Array:
    """A text for each index; null for an empty one."""
    return pa.array([text or None for text in texts], pa.string()).take(pa.array(index))


def _named(numbers: Array, name_of: Any) -> tuple[Array, list[str]]:
    """Index into the texts for each number, and the texts."""
    distinct, index = np.unique(numbers, return_inverse=True)
    return index.ravel(), [name_of(int(number)) for number in distinct]


def _status(hits: ClassHits, columns: Mapping[str, Array], context: Context) -> dict[str, pa.Array]:
    """Status of each hit as the findings have it, and what is missing of its evidence."""
    keys = np.column_stack([columns[name] for name in _STATUS_OF])
    distinct, index = np.unique(keys, axis=0, return_inverse=True)
    statuses, missing = [], []
    for split, unmet, instance, session in distinct.tolist():
        episode = Episode(
            cls=hits.cls,
            split=hits.splits[split],
            unmet=unmet_names(unmet),
            instance=instance,
            lane=-1,
            stream=0,
            session=session,
            first_ns=0,
            last_ns=0,
            count=1,
        )
        status, lacks = judged_status(episode, context)
        statuses.append(str(status))
        missing.append(", ".join(lacks))
    return {"status": _texts(index.ravel(), statuses), "missing": _texts(index.ravel(), missing)}


def _messages(columns: Mapping[str, Array], is_message: Array) -> pa.Array:
    rows = zip(
        *(columns[name].tolist() for name in ("instance", "lane", "seq", "attempt")), strict=True
    )
    texts = [MessageId.witness(*row) for row in rows]
    return pa.array(texts, pa.string(), mask=~is_message)


def _inputs(columns: Mapping[str, Array], context: Context) -> pa.Array:
    places = zip(
        columns["source_stream"].tolist(), columns["source_position"].tolist(), strict=True
    )
    texts = [
        f"{context.stream_name(stream)}@{position}" if stream else None
        for stream, position in places
    ]
    return pa.array(texts, pa.string())


def _faults(t_ns: Array, context: Context) -> pa.Array:
    """The fault that each time is attributed to."""
    found = attributed(t_ns, [fault for fault in context.faults if fault.effective])
    found[t_ns <= 0] = 0
    return pa.array(found, mask=found == 0)
