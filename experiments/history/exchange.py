"""Takes old runs into a history, and writes a history as one Parquet file that any query engine
reads."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from experiments.history.hours import rounds_with_hours
from experiments.history.rounds import Round, derived_labels
from experiments.history.store import History
from harness.errors import EnvironmentNotReady, UsageError
from harness.rundir import Document, RunDir

_FOUND = pa.struct(
    [
        ("class", pa.string()),
        ("status", pa.string()),
        ("count", pa.int64()),
        ("message", pa.string()),
        ("said", pa.string()),
    ]
)
_COUNTS = pa.map_(pa.string(), pa.int64())
_TEXTS = pa.map_(pa.string(), pa.string())
#: Fields of `Round` that a file has as they are.
_PLAIN: dict[str, pa.DataType] = {
    **dict.fromkeys(
        ("key", "night", "suite", "cell", "scenario", "variant", "expect"), pa.string()
    ),
    **dict.fromkeys(
        ("client", "client_version", "system", "broker_version", "runtime"), pa.string()
    ),
    **dict.fromkeys(("round", "seed"), pa.int64()),
    **dict.fromkeys(("is_sticky", "is_control"), pa.bool_()),
    **dict.fromkeys(("folder", "started", "ended"), pa.string()),
    "duration_s": pa.float64(),
    "verdict": pa.string(),
    "exit_code": pa.int64(),
    "reasons": pa.list_(pa.string()),
    **dict.fromkeys(("untested", "versions"), _TEXTS),
    **dict.fromkeys(("sends", "exposure"), _COUNTS),
    **dict.fromkeys(("rate_asked_per_s", "rate_held_per_s"), pa.float64()),
    **dict.fromkeys(("outages_s", "recoveries_s"), pa.list_(pa.float64())),
    "longest_outage_s": pa.float64(),
    **dict.fromkeys(("faults_fired", "faults_effective"), pa.int64()),
    **dict.fromkeys(("cpu_clients_s", "cpu_brokers_s"), pa.float64()),
    **dict.fromkeys(("machine", "command"), pa.string()),
}
_LATENCIES = ("p50", "p90", "p99", "p999", "max", "send_delay_p99")
SCHEMA = pa.schema(
    [
        *_PLAIN.items(),
        ("settings", _TEXTS),
        *((f"{name}_ms", pa.float64()) for name in _LATENCIES),
        ("findings", pa.list_(_FOUND)),
    ]
)


def import_run(history: History, run: RunDir) -> tuple[int, int]:
    """Add the rounds of a run folder that no suite kept; (added, already there).

    Raises:
        UsageError: the run is not judged, or its files are damaged.
    """
    labels = derived_labels(run)
    rounds = history.rounds(labels.suite, since=labels.night, until=labels.night)
    before = [row for row in rounds if row.cell.partition("/")[0] == labels.cell]
    labels = replace(labels, round=1 + max((row.round for row in before), default=0))
    rows = rounds_with_hours(run, labels)
    added = sum(history.add(row, replace=False) for row in rows)
    return added, len(rows) - added


def export_parquet(history: History, path: Path) -> int:
    """Write every round as one row; how many there are. The file appears whole or not at all.

    Raises:
        UsageError: it is a folder, is not named as Parquet, or the history holds no round.
        EnvironmentNotReady: it cannot be written.
    """
    if path.is_dir():
        raise UsageError(
            f"cannot write {path}: it is a folder", hint="name a file, such as history.parquet"
        )
    if path.suffix != ".parquet":
        raise UsageError(
            f"cannot write {path}: the export is Parquet, and other tools go by the name of a file",
            hint=f"name it {path.with_suffix('.parquet')}",
        )
    rows = [_row(row) for row in history.every_round()]
    if not rows:
        raise UsageError(
            f"the history {history.path} holds no round: there is nothing to export",
            hint="`brokerstorm history import RUN` fills it",
        )
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as sink:  # a name such as a:b would be taken for an address
            pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), sink, compression="zstd")
        os.replace(part, path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise EnvironmentNotReady(f"cannot write {path}: {error.strerror or error}") from error
    return len(rows)


def _row(row: Round) -> Document:
    found = [
        {
            "class": each.cls,
            "status": each.status,
            "count": each.count,
            "message": each.message,
            "said": each.said,
        }
        for each in row.found
    ]
    return {
        **{name: getattr(row, name) for name in _PLAIN},
        "settings": {name: str(value) for name, value in row.settings.items()},
        **{f"{name}_ms": row.latency_ms.get(name) for name in _LATENCIES},
        "findings": found,
    }
