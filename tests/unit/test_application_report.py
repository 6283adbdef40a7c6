"""The figures of an application in the result, and its outputs in the trace of an input."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.findings import ApplicationFlow, ApplicationResult, FaultRow
from analysis.kernels.applications import flow_grid
from analysis.report import words
from analysis.report.trace import trace
from analysis.verdict.applications import application_results
from harness.contracts.rows import ApplicationRow, Manifest
from tests.oracles.judging import context_from, judged
from tests.planted.tiny import History
from tests.planted.tiny_applications import applied, made
from tests.planted.tiny_pipelines import committed


def story() -> History:
    """Three inputs due at 0 ms; outputs of them, of the second one twice."""
    h = applied()
    for seq in range(3):
        h.send(seq, at_ms=0, due_ms=0)
    h.log(0, 1, 2)
    for at_ms, seq in ((10, 0), (20, 1), (30, 2), (500, 1)):
        made(h, seq, at_ms=at_ms)
    return committed(h, 3)


def test_figures_count_outputs_and_repeats_and_time_the_first_ones() -> None:
    h = story()
    partial = judged(h)
    lives = [
        ApplicationRow(name="a", application="billing", killed=True, drained=True),
        ApplicationRow(name="a.2", application="billing", ended_by_itself=True, drained=True),
    ]
    manifest = Manifest(applications=lives, nameless_outputs={"billing": 2})
    delays = {"billing": {"p50": 20.0, "p99": 30.0, "max": 30.0}}
    grid = flow_grid(context_from(h))
    plans = h.plan.applications
    (found,) = application_results(plans, manifest, [partial, partial], delays, grid, [])
    assert (found.outputs, found.outputs_again, found.nameless) == (8, 2, 2)
    assert (found.lives, found.killed, found.ended_by_itself, found.drained) == (2, 1, 1, True)
    quantiles = partial.output_delays["billing"].quantiles([0.5, 1.0])
    assert [round(ns / 1e6) for ns in quantiles] == [20, 30]
    assert words.applications([found]) == (
        "billing 8 outputs, 2 of them again, 2 that name no input, 99 % within 30 ms, 1 killed, "
        "1 ended by itself"
    )


def fault(number: int, t_s: float, *, effective: bool = True) -> FaultRow:
    return FaultRow(
        id=number,
        kind="kill",
        target="kafka-1",
        t_s=t_s,
        until_s=t_s + 1,
        effective=effective,
        healed=True,
        evidence="",
    )


def flowing(late_s: dict[int, float]) -> ApplicationFlow:
    """Two inputs a second for 60 s, each put out 50 ms later, or at the second that ``late_s`` has
    for the second of the input; faults at 20 s, 40 s and, without effect, at 50 s."""
    h = applied()
    h.planned(h.plan.model_copy(update={"load_s": 60.0}))
    for seq in range(120):
        due_ms = 500.0 * seq
        h.send(seq, at_ms=due_ms, due_ms=due_ms)
    h.log(*range(120))
    for seq in range(120):
        until_s = late_s.get(seq // 2, seq / 2 + 0.05)
        if until_s > 0:
            made(h, seq, at_ms=1000 * until_s)
    partial, grid = judged(h), flow_grid(context_from(h))
    faults = [fault(1, 20), fault(2, 40), fault(3, 50, effective=False)]
    (found,) = application_results(h.plan.applications, Manifest(), [partial], {}, grid, faults)
    assert found.flow is not None
    return found.flow


def recoveries(late_s: dict[int, float]) -> list[float | None]:
    return [each.recovery_s for each in flowing(late_s).recoveries]


def test_the_time_to_recover_is_from_the_fault_to_the_first_output_with_a_usual_delay() -> None:
    assert recoveries({}) == [0.0, 0.0]
    slow = dict.fromkeys(range(21, 25), 25.0)
    assert recoveries(slow) == [pytest.approx(5.2, abs=0.25), 0.0]


def test_a_recovery_that_was_not_seen_is_not_known() -> None:
    until_next = dict.fromkeys(range(30, 40), 39.9)
    assert recoveries(until_next) == [None, 0.0]
    nothing = dict.fromkeys(range(40, 60), 0.0)
    assert recoveries(nothing) == [0.0, None]
    assert recoveries(dict.fromkeys(range(20), 0.0)) == [None, None], "nothing shows what is usual"


def test_the_summary_has_the_slowest_recovery() -> None:
    def said(late_s: dict[int, float]) -> str:
        result = ApplicationResult(
            name="billing",
            source="orders",
            to="invoices",
            instances=1,
            promise="at-least-once",
            makes="one",
            flow=flowing(late_s),
        )
        return words.slowest_recovery(result)

    assert said(dict.fromkeys(range(21, 25), 25.0)).startswith("usual delay again within 5.")
    assert said(dict.fromkeys(range(40, 60), 0.0)) == (
        "usual delay again within 0.0 s of a fault, usual delay not seen again after 1 fault"
    )
    assert said(dict.fromkeys(range(20), 0.0)) == ""


def test_the_backlog_is_what_came_and_was_not_put_out() -> None:
    flow = flowing(dict.fromkeys(range(20, 30), 31.0))
    step = round(29 / flow.step_s)
    assert flow.backlog[step] == pytest.approx(18, abs=1)
    assert flow.backlog[round(35 / flow.step_s)] <= 1
    assert flow.backlog[-1] == 0


def test_the_trace_of_an_input_has_its_outputs(tmp_path: Path) -> None:
    (stored,) = trace(story().write(tmp_path / "run"), "1/0/1").log
    assert [(o.group, o.place, o.txn) for o in stored.made_into] == [
        ("billing", "invoices-0@1", "at 00:00.020"),
        ("billing", "invoices-0@3", "at 00:00.500"),
    ]
