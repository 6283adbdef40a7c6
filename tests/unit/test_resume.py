"""Which runs can be resumed, with how much of what is left, and by whom; the rest takes live
brokers."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path
from typing import Any

import pytest

from experiments.resolved import RoundOptions
from experiments.resume import resume, why_no_load
from harness.contracts import read_document, typed
from harness.contracts.plan import Plan
from harness.contracts.rows import Manifest
from harness.contracts.worker import AuditPart, SpecPart
from harness.errors import UsageError
from harness.progress.plain import PlainProgress
from harness.run.manifest import ManifestFile
from harness.run.place import RunPlace
from harness.run.worker_pool import WorkerPool
from harness.run.worker_specs import Endpoints
from harness.rundir import RunDir, write_json
from tests.lent import settings
from tests.planted.plans import build_plan
from tests.specs import reading, sending, worker_spec
from tests.unit.seal_rows import plan_of

OPTIONS = RoundOptions(runtime="process", offline=True)


def cut(folder: Path, **manifest: Any) -> RunDir:
    run = RunDir(folder).create()
    write_json(run.plan, build_plan(topics={"orders": 1}).model_dump())
    document = {
        "run_id": run.run_id,
        "status": "running",
        "command": "brokerstorm run x",
        "epoch_ns": 1,
    }
    write_json(run.manifest, document | manifest)
    return run


@pytest.mark.parametrize(
    ("manifest", "says"),
    [
        ({"status": "complete"}, "was not killed while it captured: it is complete"),
        ({"epoch_ns": 0}, "was killed before its load began"),
    ],
)
def test_what_cannot_be_resumed_is_told_in_a_line(tmp_path: Path, manifest: Any, says: str) -> None:
    run = cut(tmp_path / "r1", **manifest)
    with pytest.raises(UsageError, match=says):
        resume(settings(tmp_path), run, OPTIONS)


def test_of_several_runs_none_is_resumed(tmp_path: Path) -> None:
    run = cut(tmp_path / "r1")
    write_json(run.campaign, {"runs": ["a-1"]})
    with pytest.raises(UsageError, match="r1 holds several runs"):
        resume(settings(tmp_path), run, OPTIONS)


@pytest.mark.parametrize(
    ("phase", "ago_s", "more", "says"),
    [
        ("load", 10, {}, ""),
        ("warm-up", -1, {}, ""),
        ("drain", 10, {}, "all of it was offered"),
        ("load", 95, {}, "5 s of 100 s are left"),
        ("load", 999, {}, "0 s of 100 s are left"),
        ("load", 10, {"executors": [{"number": 0, "host": "far"}]}, "it came from other machines"),
    ],
)
def test_load_goes_on_where_clients_can_begin_again(
    tmp_path: Path, phase: str, ago_s: int, more: dict[str, Any], says: str
) -> None:
    plan = read_document(cut(tmp_path / "r1").plan, Plan).model_copy(update={"load_s": 100.0})
    document = {
        "epoch_ns": time.monotonic_ns() - ago_s * 10**9,
        "phases": [{"name": phase, "start_ns": 1}],
    }
    assert why_no_load(plan, typed({**document, **more}, Manifest, "test")) == says


def left_worker(run: RunDir, name: str, part: SpecPart, *said: dict[str, Any]) -> None:
    """The folder of one that ended with its harness, the last line cut."""
    folder = run.worker(name)
    folder.mkdir(parents=True)
    write_json(folder / "spec.json", worker_spec(name, "confluent-kafka", part).document())
    lines = [json.dumps(line) for line in said] + ['{"type": "sta']
    (folder / "stdout.jsonl").write_text("\n".join(lines))


def test_every_life_of_every_worker_is_taken_over_as_it_was(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "run").create()
    stats = {"type": "stats", "t_ns": 5, "positions": {"orders-0": 7}}
    left_worker(run, "p-1", sending(instance=1), {"type": "ready", "client_version": "2.1"})
    left_worker(run, "p-1.2", sending(instance=9), {"type": "done", "t_ns": 9})
    left_worker(run, "p-2", sending(instance=2))
    left_worker(run, "c-1", reading(1), stats)
    audit = AuditPart(reader=1, streams=[], isolation="read_uncommitted", stall_s=1.0, follow=True)
    left_worker(run, "audit-1", audit)
    left_worker(run, "again-audit-1", audit.model_copy(update={"reader": 3}))
    pool = WorkerPool(
        RunPlace(
            plan_of(),
            run,
            Endpoints("", ""),
            ManifestFile(run, command="x", versions={}),
            PlainProgress(io.StringIO()),
            "x",
            offline=True,
        )
    )
    pool.take_over()
    assert [worker.name for worker in pool.scheduled] == ["p-1.2", "p-2"]
    assert [(w.name, w.stats.positions, w.t_start_ns > 0) for w in pool.readers] == [
        ("c-1", {"orders-0": 7}, True), ("c-2", {}, False),  # it never began
    ]  # fmt: skip
    assert [worker.name for worker in pool.auditors] == ["again-audit-1"]
    rows = {row.name: row for row in map(pool._row, pool.all_workers)}
    assert {name for name, row in rows.items() if row.killed} == {*rows} - {"p-1.2", "c-2"}
    assert (rows["p-1.2"].life_of, rows["p-1.2"].done, rows["p-1"].client_version) == (
        "p-1",
        True,
        "2.1",
    )
    assert not any(worker.is_alive for worker in pool.all_workers)
