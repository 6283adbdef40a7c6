"""The hours of a long run as cells of the history: cut from what the run was judged to be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis.findings import Result, StreamCount, TimeSeries, ValidityCheck
from experiments.history.hours import rounds_with_hours
from experiments.history.report import report_of
from experiments.history.rounds import Round
from tests.report_samples.findings import fault_rows, lost_finding
from tests.report_samples.results import failing, passing
from tests.unit.test_history_rounds import LABELS, finished_run

HOURS = 2.5
STEP_S = 600.0


def night(result: Result) -> Result:
    """Two and a half hours at 10/s."""
    steps = round(HOURS * 6)
    rate = [6000] * steps
    series = TimeSeries(start_s=-STEP_S, step_s=STEP_S, intended=[9, *rate], ok=[9, *rate])
    faults = [
        replace(fault, t_s=3600.0 * n + 5, outage_s=n + 0.5)
        for n, fault in enumerate(fault_rows()[:2])
    ]
    return replace(result, timeline=series, faults=faults)


def lost_at(*windows: tuple[int, int], count: int = 0) -> Any:
    """So many lost in windows; ``count``: in all, if some have no time."""
    (witness, *_) = lost_finding().witnesses
    return replace(
        lost_finding(),
        count=count or sum(n for _, n in windows),
        by_stream=(StreamCount(stream="orders-0", count=9, windows=list(windows)),),
        witnesses=(replace(witness, t_s=4000.0),),
    )


def rows(folder: Path, result: Result) -> list[Round]:
    return rounds_with_hours(
        finished_run(folder, result=night(result), load_s=HOURS * 3600), LABELS
    )


def test_an_hour_says_what_was_found_sent_and_hit_in_it(tmp_path: Path) -> None:
    found = [lost_at((3700, 2), (4000, 5), (7300, 1))]
    run, *hours = rows(tmp_path / "r1", failing(run_id="r1", findings=found))
    assert [each.cell for each in hours] == [f"{run.cell}/hour {n}" for n in (1, 2, 3)]
    assert [each.verdict for each in hours] == ["pass", "fail", "fail"]
    assert [[(f.cls, f.count, bool(f.message)) for f in each.found] for each in hours] == [
        [], [("acked-lost", 7, True)], [("acked-lost", 1, False)],
    ]  # fmt: skip
    assert [each.sends["ok"] for each in hours] == [36_000, 36_000, 18_000]
    assert [each.rate_held_per_s for each in hours] == [10.0, 10.0, 10.0]
    assert [each.outages_s for each in hours] == [[0.5], [1.5], []]
    report = report_of("nightly", LABELS.night, [run, *hours], {})
    assert {cell.cell.rpartition("/")[2]: cell.word for cell in report.cells if "/hour" in cell.cell} == {
        "hour 1": "pass", "hour 2": "fail", "hour 3": "fail",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"findings": [lost_at((3700, 2), count=3)]}, ["unknown", "fail", "unknown"]),
        (
            {"findings": [], "coverage": [ValidityCheck("audit", False, "cut short")]},
            ["unknown"] * 3,
        ),
    ],
)
def test_an_hour_is_no_better_than_what_is_known(
    tmp_path: Path, changes: dict[str, Any], words: list[str]
) -> None:
    _, *hours = rows(tmp_path / "r1", failing(run_id="r1", **changes))
    assert [each.verdict for each in hours] == words
    assert all(each.reasons for each in hours)


def test_a_shorter_run_has_no_hours(tmp_path: Path) -> None:
    assert (
        len(rounds_with_hours(finished_run(tmp_path / "r1", result=passing(run_id="r1")), LABELS))
        == 1
    )
