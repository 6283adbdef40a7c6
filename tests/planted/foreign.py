"""A planted history as another tool would have it: texts for numbers, in CSV, JSON Lines or
Parquet."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from harness.records import Event, Outcome
from tests.planted.tiny import TOPIC, History

#: What a tool that knows none of the finer points would have.
COLUMNS = {
    "sends": ("instance", "lane", "seq", "t_intended_ns", "t_start_ns", "t_done_ns", "outcome", "stream",
              "position"),
    "log": ("stream", "position", "instance", "lane", "seq"),
    "deliveries": ("session", "subscription", "ordinal", "t_ns", "event", "stream", "position", "instance",
                   "lane", "seq"),
}  # fmt: skip
#: Everything that can be stated, so that nothing is left unknown.
KNOWN: dict[str, Any] = {
    "system": "kafka",
    "producers": {"acks": "all", "idempotence": True, "deadline": "130s", "results": "checked"},
    "groups": {"group": {"topics": [TOPIC], "from_start": True}},
    "evidence": dict.fromkeys(
        (
            "all_sends",
            "producers_ended",
            "cluster_recovered",
            "only_writer",
            "all_deliveries",
            "drained",
        ),
        True,
    ),
}
Rows = dict[str, list[dict[str, Any]]]


def rows_of(history: History, columns: Mapping[str, tuple[str, ...]] = COLUMNS) -> Rows:
    """Every table row by row, names instead of numbers, and None where nothing is known."""
    texts = {int(row["id"]): str(row["text"]) for row in history.texts}
    found: Rows = {}
    for table, own in columns.items():
        sealed = history.tables()[table]
        found[table] = [
            {name: _value(name, int(sealed[name][i]), texts) for name in own}
            for i in range(len(sealed["stream"]))
        ]
    found["log_bounds"] = [
        {name: row[name] for name in ("stream", "begin", "end", "read_to")}
        for row in history.log_bounds()
    ]
    return found


def _value(name: str, value: int, texts: Mapping[int, str]) -> Any:
    if name in ("stream", "subscription", "error", "client_name"):
        return texts.get(value)
    if name == "outcome":
        return Outcome(value).name.lower()
    if name == "event":
        return Event(value).name.lower().replace("_", "-")
    if name in ("t_done_ns", "t_intended_ns", "late_outcome") and value == 0:
        return None
    if name == "position" and value == -1:
        return None
    return value


def description(history: History, **changes: Any) -> dict[str, Any]:
    """import.yaml as data; a change to None removes a key."""
    said = KNOWN | {"topics": {t.name: t.partitions for t in history.plan.topics}} | changes
    return {key: value for key, value in said.items() if value is not None}


def write_import(folder: Path, rows: Rows, said: Mapping[str, Any], kind: str = "csv") -> Path:
    """``kind``: csv, csv.gz, jsonl, jsonl.gz or parquet; a table without rows gets no file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "import.yaml").write_text(yaml.safe_dump(dict(said), sort_keys=False))
    for table, own in rows.items():
        if own:
            write_table(folder / f"{table}.{kind}", own)
    return folder


def write_table(path: Path, rows: list[dict[str, Any]]) -> None:
    """One file; its format is that of its name."""
    name = path.name.removesuffix(".gz")
    if name.endswith(".jsonl"):
        raw = "".join(
            json.dumps({k: v for k, v in row.items() if v is not None}) + "\n" for row in rows
        ).encode()
    elif name.endswith(".csv"):
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
        raw = text.getvalue().encode()
    else:
        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_pylist(rows), sink)
        raw = sink.getvalue().to_pybytes()
    path.write_bytes(gzip.compress(raw) if path.name.endswith(".gz") else raw)
