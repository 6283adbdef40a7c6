"""Small raw captures for the tests of sealing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from harness.contracts.plan import Plan
from harness.contracts.rows import LaneMode
from harness.records import SEALED, TABLE_NAMES, Kind, Outcome, TableId
from harness.rundir import RunDir
from tests.planted.plans import build_plan
from tests.planted.raw import segment_bytes, write_bytes

Columns = dict[str, npt.NDArray[Any]]
STREAMS = 3


def plan_of(mode: LaneMode = "partition", buckets: int = 2) -> Plan:
    return build_plan(
        topics={"orders": STREAMS}, mode=mode, keys=5, buckets=buckets, producers=2, sessions=2
    )


def new_run(root: Path) -> RunDir:
    return RunDir(root).create()


def blank(table: str, rows: int) -> Columns:
    return {c.name: np.zeros(rows, c.dtype) for c in SEALED[table]}


def sends(count: int, *, instance: int = 1, lanes: int = STREAMS) -> Columns:
    """``count`` ok sends, lanes in turn."""
    columns, number = blank("sends", count), np.arange(count)
    columns["instance"][:] = instance
    columns["lane"][:] = number % lanes
    columns["seq"][:] = number // lanes
    columns["kind"][:] = Kind.LOAD
    for offset, name in enumerate(("t_intended_ns", "t_start_ns", "t_done_ns"), start=1):
        columns[name][:] = 10**12 + number * 1000 + offset
    columns["outcome"][:] = Outcome.OK
    columns["stream"][:] = columns["lane"] % STREAMS + 1
    columns["position"][:] = columns["seq"]
    return columns


def put(run: RunDir, worker: str, table: TableId, owner: int, rows: Any, **options: Any) -> None:
    index = options.get("index", 0)
    content = segment_bytes(table, rows, owner=owner, **options)
    write_bytes(run.worker(worker) / f"{TABLE_NAMES[table]}-{owner}-{index}.seg", content)


def sealed(run: RunDir, table: str, buckets: int = 2) -> list[dict[str, list[Any]]]:
    """Columns of each bucket; an empty bucket has no file."""
    files = [run.bucket_file(table, b, 0) for b in range(buckets)]
    return [pq.read_table(f).to_pydict() if f.exists() else {} for f in files]


def all_rows(run: RunDir, table: str, buckets: int = 2) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for path in (run.bucket_file(table, b, 0) for b in range(buckets)):
        rows += pq.read_table(path).to_pylist() if path.exists() else []
    return rows


def log_columns(count: int, **values: int) -> Columns:
    columns = blank("log", count)
    columns["position"][:] = np.arange(count)
    columns["seq"][:] = np.arange(count)
    columns["stream"][:] = 1
    columns["instance"][:] = 1
    columns["kind"][:] = Kind.LOAD
    for name, value in values.items():
        columns[name][:] = value
    return columns
