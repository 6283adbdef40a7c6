"""Which runs can be resumed, and with how much of what is left; the rest takes live brokers."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from experiments.player import RoundOptions
from experiments.resume import resume, why_no_load
from experiments.windows import WindowRequest
from harness.contracts import read_document, typed
from harness.contracts.plan import Plan
from harness.contracts.rows import Manifest
from harness.errors import UsageError
from harness.rundir import RunDir, write_json
from tests.lent import settings
from tests.planted.plans import build_plan

OPTIONS = RoundOptions("process", offline=True)


def cut(folder: Path, **manifest: Any) -> RunDir:
    run = RunDir(folder).create()
    write_json(run.plan, build_plan(topics={"orders": 1}).model_dump())
    document = {"run_id": run.run_id, "status": "running", "command": "brokerstorm run x", "epoch_ns": 1}
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
        resume(settings(tmp_path), run, OPTIONS, WindowRequest())


def test_of_several_runs_none_is_resumed(tmp_path: Path) -> None:
    run = cut(tmp_path / "r1")
    write_json(run.campaign, {"runs": ["a-1"]})
    with pytest.raises(UsageError, match="r1 holds several runs"):
        resume(settings(tmp_path), run, OPTIONS, WindowRequest())


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
    document = {"epoch_ns": time.monotonic_ns() - ago_s * 10**9, "phases": [{"name": phase, "start_ns": 1}]}
    assert why_no_load(plan, typed({**document, **more}, Manifest, "test")) == says
