"""Thresholds: held, missed or not known; from the scenario to the lines that people and CI systems
read."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from analysis.findings import Threshold, Verdict
from analysis.histogram import Histogram
from analysis.report.campaign_words import found
from analysis.report.html import run_page
from analysis.report.junit import run_xml
from analysis.report.terminal import console, print_result
from analysis.series import Outage, Series
from analysis.verdict.campaign import CLEAN, Expectation, RunSummary, VariantResult
from analysis.verdict.coverage import RunFacts, coverage
from analysis.verdict.thresholds import limit_words, thresholds
from analysis.verdict.verdict import decide
from harness.contracts.plan import ThresholdPlan
from harness.plan.build import build_plan
from harness.scenario.model import Scenario
from tests.oracles.judging import judged as judged_history
from tests.planted.queue_stories import rolled_back
from tests.planted.tiny import History
from tests.report_samples.results import passing
from tests.unit.test_verdict import (
    FAULT,
    GRID,
    LOAD_END,
    RATE,
    ZERO,
    S,
    facts,
    manifest,
    rate_of,
    traffic,
)

DURING_FAULT = Outage(1, ZERO + 4 * S, ZERO + 7 * S)
BEFORE_FAULT = Outage(1, ZERO + S, ZERO + S + 600_000_000)


def wanted(name: str, at_most: float, *, outside_faults: bool = False) -> dict[str, Any]:
    return {"name": name, "at_most": at_most, "outside_faults": outside_faults}


def judged(run: RunFacts, *asked: dict[str, Any]) -> list[Threshold]:
    run = replace(
        run,
        plan=run.plan.model_copy(update={"thresholds": [ThresholdPlan(**each) for each in asked]}),
    )
    return thresholds(run, {check.name: check.ok for check in coverage(run)})


def held(run: RunFacts, *asked: dict[str, Any]) -> list[bool | None]:
    return [each.held for each in judged(run, *asked)]


def slow_during_the_fault(*, outages: Sequence[Outage] = (DURING_FAULT,)) -> Series:
    """1,000/s for 10 s: 3 s where a fault is (3 s to 6 s), 1 ms elsewhere."""
    due = ZERO + np.arange(10_000) * (S // 1000)
    during = (due >= ZERO + 3 * S) & (due < ZERO + 6 * S)
    took = np.where(during, 3 * S, 1_000_000)
    return replace(
        traffic(outages=tuple(outages)),
        latency=Histogram.from_values(GRID.step(due), took, GRID.steps),
    )


def test_latency_is_judged_with_and_without_the_time_of_faults() -> None:
    run = facts(slow_during_the_fault())
    overall, outside = judged(
        run, wanted("latency_p99", 0.5), wanted("latency_p99", 0.5, outside_faults=True)
    )
    assert (overall.held, outside.held) == (False, True)
    assert overall.text == "latency_p99: 3 s, at most 500 ms required"
    assert outside.text == "latency_p99 outside faults: 1.004 ms, at most 500 ms required"
    assert outside.measured == pytest.approx(0.001, rel=0.01)


def test_the_time_of_a_fault_has_its_outage_and_the_backlog_in_it() -> None:
    """Slow from 8 s on, as messages wait for an outage that the fault began: until 9.5 s, and 2 s
    more."""
    due = ZERO + np.arange(10_000) * (S // 1000)
    took = np.where(due >= ZERO + 8 * S, S, 1_000_000)
    slow = Histogram.from_values(GRID.step(due), took, GRID.steps)
    begun_in_it = Outage(1, ZERO + 4 * S, ZERO + 8 * S)
    for outages, expected in (((begun_in_it,), True), ((), False)):
        run = facts(replace(traffic(outages=outages), latency=slow))
        assert held(run, wanted("latency_max", 0.5, outside_faults=True)) == [expected]


def test_outages_and_recoveries() -> None:
    run = facts(traffic(outages=(BEFORE_FAULT, DURING_FAULT)))
    outage, outside, recovery = judged(
        run, wanted("outage", 2), wanted("outage", 2, outside_faults=True), wanted("recovery", 1)
    )
    assert (outage.held, outage.measured) == (False, 3.0)
    assert (outside.held, outside.measured) == (True, 0.6)
    assert (recovery.held, recovery.measured) == (True, 1.0)


def test_a_stream_that_never_came_back_was_out_at_least_as_long() -> None:
    run = facts(traffic(outages=(replace(DURING_FAULT, open=True),)))
    missed, unsure = judged(run, wanted("recovery", 0.9), wanted("recovery", 1.5))
    assert (missed.held, unsure.held) == (False, None)
    assert missed.text == "recovery: at least 1 s, at most 900 ms required"
    assert "it was not over when the capture ended" in unsure.text


def test_errors_are_sends_without_an_acknowledgement() -> None:
    run = facts(traffic(ok_share=0.995))
    (missed,) = judged(run, wanted("error_ratio", 0.001))
    assert (missed.held, missed.text) == (False, "error_ratio: 0.5 %, at most 0.1 % required")
    assert held(run, wanted("error_ratio", 0.005)) == [True]


NOT_MEASURED = {
    "no fault took effect": (facts(faults=[]), wanted("recovery", 5)),
    "kill #1 did not end": (facts(faults=[replace(FAULT, end_ns=None)]), wanted("recovery", 5)),
    "the whole load is the time of faults": (
        facts(faults=[replace(FAULT, inject_ns=ZERO, end_ns=LOAD_END)]),
        wanted("outage", 5, outside_faults=True),
    ),
    "90 messages were acknowledged, 100 needed": (
        facts(traffic(rate=9)), wanted("latency_p99", 5)
    ),
    "no message was sent": (
        facts(traffic(rate=0.01), faults=[]), wanted("error_ratio", 0.1)
    ),
}  # fmt: skip


@pytest.mark.parametrize("why", NOT_MEASURED)
def test_what_was_not_measured_is_unknown(why: str) -> None:
    run, asked = NOT_MEASURED[why]
    (found,) = judged(run, asked)
    assert (found.held, found.measured) == (None, None)
    assert f"not measured: {why}" in found.text


@pytest.mark.parametrize("outage", [(), (DURING_FAULT,)])
def test_with_records_missing_nothing_is_held_or_missed(outage: tuple[Outage, ...]) -> None:
    run = facts(traffic(outages=outage), missing=["5 of 10 log rows"])
    assert held(run, wanted("outage", 1), wanted("latency_p99", 0.0001)) == [None, None]


def test_what_an_interrupted_run_shows_to_be_too_long_stays_missed() -> None:
    run = facts(traffic(outages=(DURING_FAULT,)), manifest=manifest(status="interrupted"))
    asked = (
        wanted("outage", 1),
        wanted("outage", 9),
        wanted("latency_p99", 0.0001),
        wanted("error_ratio", 0.1),
    )
    assert held(run, *asked) == [False, None, None, None]


def test_a_load_that_was_not_the_one_asked_for_holds_nothing() -> None:
    short = traffic(ok_share=0.9)
    run = facts(short, rate=rate_of(short, GRID, LOAD_END, RATE))
    assert held(run, wanted("latency_p99", 1), wanted("error_ratio", 0.01)) == [None, False]


@pytest.mark.parametrize("at_most_per_s", [0.0, RATE * 2], ids=["claimed", "measured"])
def test_on_a_machine_too_busy_for_the_rate_nothing_that_takes_time_is_missed(
    at_most_per_s: float,
) -> None:
    series = replace(slow_during_the_fault(), latency=traffic(ok_share=0.9).latency)
    series = replace(series, totals=traffic(ok_share=0.9).totals)
    rate = replace(rate_of(series, GRID, LOAD_END, RATE), at_most_per_s=at_most_per_s)
    found = judged(
        facts(series, rate=rate),
        wanted("latency_max", 0.0001),
        wanted("outage", 1),
        wanted("recovery", 0.5),
    )
    assert [each.held for each in found] == [None, None, None]
    why = "the load fell short of what" if at_most_per_s else "the check of the rate does not hold"
    assert all(why in each.text for each in found)


def test_as_much_as_the_generator_was_late_makes_no_latency_missed() -> None:
    """600 ms late is no saturation, and yet more than what 3 s are above the limit."""
    run = facts(slow_during_the_fault(outages=()), lateness_ns={"p-1": 600_000_000})
    late, sure = judged(run, wanted("latency_p99", 2.6), wanted("latency_p99", 2))
    assert (late.held, sure.held) == (None, False)
    assert "the generator itself was late, by 600 ms" in late.text


def test_an_outage_too_short_to_be_seen_is_not_ruled_out() -> None:
    assert held(facts(), wanted("outage", 0.1), wanted("outage", 0.4)) == [None, True]


def test_a_missed_one_is_a_fail_and_one_that_was_not_measured_is_unknown() -> None:
    missed, unsure = judged(facts(), wanted("latency_max", 0.0001), wanted("outage", 0.1))
    assert decide([], [], [missed, unsure]) == (Verdict.FAIL, [missed.text, unsure.text])
    assert decide([], [], [unsure]) == (Verdict.UNKNOWN, [unsure.text])


# -- as people write and read them


def test_the_plan_has_them_in_seconds_and_shares() -> None:
    require = {"latency_p99": {"overall": "5s", "outside_faults": "250ms"}, "error_ratio": "0.1%"}
    plan = build_plan(Scenario.model_validate({"name": "x", "require": require}), seed=1)
    assert [each.model_dump() for each in plan.thresholds] == [
        wanted("latency_p99", 5.0),
        wanted("latency_p99", 0.25, outside_faults=True),
        wanted("error_ratio", 0.001),
    ]
    assert (
        limit_words("latency_p99", 0.25, outside_faults=True)
        == "latency_p99 outside faults: at most 250 ms"
    )


def three() -> list[Threshold]:
    """Held, missed, unknown."""
    run = facts(slow_during_the_fault(), faults=[])
    asked = (wanted("error_ratio", 0.1), wanted("latency_p99", 0.5), wanted("recovery", 5))
    return judged(run, *asked)


def test_each_is_a_line_of_the_summary_and_of_the_page_and_a_test_case() -> None:
    result = passing(verdict=Verdict.FAIL, exit_code=1, thresholds=three())
    out = io.StringIO()
    print_result(console(out), result)
    assert "required   ✓ error_ratio: 0 %, at most 10 % required" in out.getvalue()
    assert "✗ latency_p99: 3 s, at most 500 ms required" in out.getvalue()
    assert "? recovery: not measured: no fault took effect; 5 s at most required" in out.getvalue()
    page = run_page(result)
    assert all(each.text.removeprefix(f"{each.title}: ") in page for each in result.thresholds)
    root = ET.fromstring(run_xml(result))
    cases = {case.get("name"): [child.tag for child in case] for case in root.iter("testcase")}
    assert cases["require error_ratio"] == ["system-out"]
    assert cases["require latency_p99"] == ["failure"]
    assert cases["require recovery"] == ["error"]


def test_a_variant_that_misses_one_is_not_clean() -> None:
    result = passing(verdict=Verdict.FAIL, exit_code=1, thresholds=three())
    variant = VariantResult.from_runs(
        "safe", CLEAN, [RunSummary.from_result(result, path="safe-1", round_number=1)]
    )
    assert variant.outcome is Expectation.NOT_MET
    assert found(variant) == "latency_p99 missed"


def test_redeliveries_are_those_of_the_message_that_came_most_often() -> None:
    run = facts(redelivered={"billing": 2, "audit": 0})
    missed, kept = judged(run, wanted("redeliveries", 1), wanted("redeliveries", 2))
    assert (missed.held, missed.text) == (False, "redeliveries: 2, at most 1 required")
    assert (kept.held, kept.measured, kept.unit) == (True, 2.0, "count")
    [unread] = judged(facts(), wanted("redeliveries", 1))
    assert (unread.held, unread.text) == (
        None,
        "redeliveries: not measured: no consumer read; 1 at most required",
    )


def test_redeliveries_are_counted_for_each_message() -> None:
    log = History().sent(4).log(0, 1, 2, 2, 3).assign(0).deliver(0, 1, 1, 1, 2, 2, 3)
    queue = rolled_back((0, 1, 2), (0, 0, 1, 2, 3, 4, 5))
    assert [set(judged_history(each).redelivered.values()) for each in (log, queue)] == [{2}, {2}]


def test_moved_partitions_need_every_group_to_journal_its_assignments() -> None:
    run = facts(moved={"group": 2})
    missed, kept = judged(run, wanted("moved_partitions", 1), wanted("moved_partitions", 2))
    assert (missed.held, missed.text) == (False, "moved_partitions: 2, at most 1 required")
    assert (kept.held, kept.unit) == (True, "count")
    [unseen] = judged(facts(), wanted("moved_partitions", 0))
    assert unseen.held is None
    assert "not measured: group group journals no assignments of partitions" in unseen.text


def test_a_partition_moves_if_another_member_is_assigned_it_during_the_load() -> None:
    """A member that comes back is the same one; a group that comes together before the load moves
    nothing."""
    h = History(partitions=2, sessions=3).sent(4).log(0, 1, 2, 3)
    h.workers["c-3"] = {"life_of": "c-1"}
    h.assign(0, 1, session=1, at_ms=-500)
    h.assign(1, session=2, at_ms=-400)
    h.assign(0, session=1, at_ms=100).deliver(0, 1, session=1)
    h.assign(0, session=3, at_ms=200).deliver(2, 3, session=3)
    assert judged_history(h).moved == {"group": 0}
    h.assign(0, session=2, at_ms=300)
    assert judged_history(h).moved == {"group": 1}
