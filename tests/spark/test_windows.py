"""A run judged while it goes on, on a real session: what is told, when, and what ends the load."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from experiments.windows import FOLDER, WindowJudge, WindowRequest
from harness.records import TableId
from harness.rundir import RunDir, read_jsonl
from tests.planted.raw import raw_rows
from tests.unit.seal_rows import log_columns, plan_of, put, sends

if TYPE_CHECKING:
    from pyspark import SparkContext

pytestmark = pytest.mark.spark


def captured(root: Path) -> RunDir:
    """Two sends that the log has, the second twice, and one that it lacks though it was read
    there."""
    run, plan = RunDir(root).create(), plan_of()
    run.plan.write_text(plan.model_dump_json())
    run.manifest.write_text('{"run_id": "r", "status": "running", "epoch_ns": 1000000000000}')
    columns = sends(3, lanes=1)
    columns["position"][:] = [0, 1, 3]
    put(run, "producer-1", TableId.SENDS, 1, raw_rows(TableId.SENDS, columns))
    log = log_columns(4)
    log["seq"][:] = [0, 1, 1, 7]
    log["kind"][3] = 0  # a probe
    put(run, "audit-1", TableId.LOG, 1, raw_rows(TableId.LOG, log))
    return run


def test_findings_are_told_once_and_end_the_load(spark: SparkContext, tmp_path: Path) -> None:
    run, told, enough = captured(tmp_path / "run"), list[str](), threading.Event()
    session: Any = SimpleNamespace(get=lambda: spark, start=lambda: None)
    asked = WindowRequest(window_s=1.0, fail_fast=True)
    windows = WindowJudge(plan_of(), run, session, asked, tell=told.append, enough=enough)
    windows.start()
    assert enough.wait(60)
    windows.stop()
    found = [line.split(": ")[1] for line in told if line.startswith("so far")]
    assert found == [
        "write-duplicate 1, unless the log is cut later",
        "acked-lost 1, open until the end",
    ]
    assert [row["kind"] for row in read_jsonl(run.events)] == ["found-so-far"] * 2
    assert not (run.root / FOLDER).exists()
    assert not [*run.raw.glob("*/*.seg")], "what was judged is sealed"
