"""The one reader of faults.jsonl: when a fault is over, and what a damaged file says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analysis.verdict.fault_rows import fault_row
from harness.contracts import typed
from harness.contracts.rows import FaultEvent
from harness.errors import UsageError
from harness.faultlog import FaultLog, closed, read_faults
from harness.progress.view import RunView
from harness.rundir import append_jsonl

S = 1_000_000_000
INJECT = {
    "event": "inject",
    "t_ns": 0,
    "kind": "kill",
    "target": "leader-of:orders",
    "targets": ["kafka-1"],
}
UNDONE = {"event": "heal", "t_ns": 10 * S}
RUN_END_NS = 300 * S


def log(*rows: dict[str, Any]) -> FaultLog:
    return FaultLog(typed({"id": 1, **row}, FaultEvent, "") for row in rows)


def end_s(*rows: dict[str, Any]) -> float | None:
    """When every reader says that the fault ended; None: not within the run."""
    (record,) = log(*rows).records
    (window,) = closed([record], RUN_END_NS)
    shown = fault_row(record, [], 0)
    view = RunView()
    for row in rows:
        view.record_fault(typed({"id": 1, **row}, FaultEvent, ""))
    said = None if record.is_applied else (record.end_ns or 0) / S
    assert shown.until_s == said
    assert window.end_ns == (RUN_END_NS if said is None else said * S)
    assert bool(view.active()) == (said is None)
    return said


def test_a_fault_is_over_when_nothing_of_it_is_applied_and_nobody_waits_for_the_cluster_any_more() -> (
    None
):
    slow = {"event": "healed", "t_ns": 130 * S, "ok": False, "undone": True}
    whole = {"event": "healed", "t_ns": 17 * S, "ok": True, "undone": True}
    stuck = {"event": "healed", "t_ns": 130 * S, "ok": False, "undone": False}
    later = {"event": "healed", "t_ns": 200 * S, "ok": True, "undone": True}
    assert end_s(INJECT) is None
    assert end_s(INJECT, UNDONE) is None
    assert end_s(INJECT, UNDONE, whole) == 17
    assert end_s(INJECT, UNDONE, slow) == 130
    assert end_s(INJECT, UNDONE, stuck) is None
    assert end_s(INJECT, UNDONE, stuck, UNDONE, later) == 200


def test_a_slow_recovery_is_no_recovery() -> None:
    slow = {"event": "healed", "t_ns": 130 * S, "ok": False, "undone": True}
    (record,) = log(INJECT, UNDONE, slow).records
    row = fault_row(record, [], 0)
    assert (row.until_s, row.healed) == (130.0, False)


def test_captures_from_before_undone_was_written_are_taken_for_the_worse() -> None:
    assert end_s(INJECT, UNDONE, {"event": "healed", "t_ns": 130 * S, "ok": False}) is None


@pytest.mark.parametrize(
    ("row", "wrong"),
    [
        ('{"event": "heal", "t_ns": 5}', "id: Field required"),
        ('{"id": 1, "event": "inject", "t_ns": 5}', "inject without kind"),
        ('{"id": 1, "event": "heal"}', "heal without t_ns"),
        ('{"id": 1, "event": "heal", "t_ns": "soon"}', "t_ns: .* valid integer"),
        ('{"id": 1, "event": "heal", "t_ns": 1e999}', "t_ns: .* finite"),
    ],
)
def test_a_row_that_is_none_of_a_fault_is_named(tmp_path: Path, row: str, wrong: str) -> None:
    path = tmp_path / "faults.jsonl"
    append_jsonl(path, {"id": 1, **INJECT})
    with path.open("a") as file:
        file.write(row + "\n")
    with pytest.raises(UsageError, match=f"line 2 .*{wrong}"):
        read_faults(path)


def test_events_of_a_later_version_change_nothing() -> None:
    assert log(INJECT, {"event": "explained", "t_ns": 5}).records == log(INJECT).records
