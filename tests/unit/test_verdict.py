"""The verdict matrix: every reason for unknown on its own, and what outranks what."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from analysis.findings import FaultRow, Finding, Status, Verdict
from analysis.histogram import Histogram
from analysis.series import Grid, Outage, Series, empty
from analysis.verdict.coverage import RunFacts, coverage
from analysis.verdict.fault_rows import fault_row
from analysis.verdict.rate import rate_of
from analysis.verdict.verdict import EXIT, decide
from harness.contracts import typed
from harness.contracts.plan import Plan
from harness.contracts.rows import EVERY_REPLICA, Bounds, FaultEvent, Manifest, ReplicaRow
from harness.errors import Exit
from harness.faultlog import FaultLog, FaultRecord
from tests.planted.plans import build_plan
from tests.planted.tiny_applications import applied

S = 1_000_000_000
ZERO = 100 * S
GRID = Grid.over(ZERO, ZERO + 12 * S, ZERO)
LOAD_END = ZERO + 10 * S
RATE = 1000.0


def traffic(
    *, rate: float = RATE, ok_share: float = 1.0, outages: tuple[Outage, ...] = ()
) -> Series:
    """Ten seconds of load, due evenly, acknowledged 1 ms later."""
    due = ZERO + (np.arange(int(rate * 10)) * S / rate).astype(np.int64)
    ok = due[: int(len(due) * ok_share)]
    steps = GRID.step(due)
    latency = Histogram.from_values(GRID.step(ok), np.full(len(ok), 1_000_000), GRID.steps)
    return replace(
        empty(GRID),
        due=np.bincount(steps, minlength=GRID.steps),
        latency=latency,
        outages=outages,
        totals={
            "attempted": len(due),
            "ok": len(ok),
            "load_ok": len(ok),
            "load_attempted": len(due),
        },
    )


FAULT = FaultRecord(
    1,
    "kill",
    "kafka-1",
    inject_ns=ZERO + 3 * S,
    end_ns=ZERO + 6 * S,
    recovered=True,
    effective=True,
)
MANIFEST: dict[str, Any] = {
    "status": "complete",
    "workers": [{"name": "p-1", "done": True, "exit_code": 0}],
    "readiness_restored": True,
    "drained": True,
    "problems": [],
}
BOUND = {
    "stream": "orders-0",
    "stream_id": 1,
    "begin": 0,
    "end": 10_000,
    "read_to": 10_000,
    "why": "end",
}


def facts(series: Series | None = None, **changes: Any) -> RunFacts:
    series = series or traffic()
    fields: dict[str, Any] = {
        "manifest": MANIFEST,
        "plan": {"faults": [{"fault": "kill"}], "rate_ratio": 0.99},
        "faults": [FAULT],
        "bounds": [BOUND],
        "streams": ["orders-0"],
        "series": series,
        "grid": GRID,
        "rate": rate_of(series, GRID, LOAD_END, RATE),
    }
    fields |= changes
    fields["manifest"] = typed(fields["manifest"], Manifest, "manifest")
    fields["bounds"] = [typed(row, Bounds, "bounds") for row in fields["bounds"]]
    return RunFacts(**fields | {"plan": plan_with(**fields["plan"])})


def plan_with(**changes: Any) -> Plan:
    """A plan, with fields as a file has them."""
    whole = {**build_plan(topics={"orders": 1}).model_dump(mode="json"), **changes}
    return typed(whole, Plan, "plan")


def finding(status: Status, cls: str = "acked-lost", count: int = 3) -> Finding:
    return Finding(cls=cls, status=status, count=count, sentence="s", promise="p", evidence="e")


def verdict_of(run: RunFacts) -> tuple[Verdict, list[str]]:
    return decide(run.findings, coverage(run))


def test_a_clean_covered_run_passes_without_reasons() -> None:
    assert verdict_of(facts()) == (Verdict.PASS, [])
    assert all(check.ok and check.text for check in coverage(facts()))


def manifest(**changes: Any) -> dict[str, Any]:
    return {**MANIFEST, **changes}


VACUOUS = replace(FAULT, effective=False)
SKIPPED = replace(FAULT, inject_ns=None, end_ns=None, effective=False, skipped="no candidate")
AFTERWARDS = replace(FAULT, inject_ns=GRID.end_ns + S, end_ns=GRID.end_ns + 2 * S)
IN_TRANSACTIONS = {
    "faults": [{"fault": "kill"}],
    "rate_ratio": 0.99,
    "producers": [
        producer.model_dump(mode="json") | {"transactions": {"messages": 5}}
        for producer in build_plan(topics={"orders": 1}).producers
    ],
}
OUT = Outage(1, ZERO, ZERO + 95 * S // 10)

MACHINE = {"number": 0, "host": "a", "bound_ns": 3_000_000}

REPLICA = ReplicaRow("orders-0", "kafka-2", leads=False, in_sync=True, begin=0, end=9, read_to=9)
ALL_READ = {"faults": [{"fault": "kill"}], "rate_ratio": 0.99, "audit": EVERY_REPLICA}

APPLIED = {
    "faults": [{"fault": "kill"}],
    "rate_ratio": 0.99,
    "applications": [plan.model_dump() for plan in applied().plan.applications],
}
UNKNOWN: dict[str, tuple[Callable[[], RunFacts], str]] = {
    "application not finished": (
        lambda: facts(plan=APPLIED, manifest=manifest(outputs_read=["billing"])),
        "input was not processed to its end: billing",
    ),
    "outputs of no input": (
        lambda: facts(
            plan=APPLIED,
            manifest=manifest(
                applications=[{"name": "b", "application": "billing", "drained": True}],
                outputs_read=["billing"],
                problems=[{"kind": "outputs", "text": "3 of 9 outputs of billing name no input"}],
            ),
        ),
        "outputs are not known: 3 of 9 outputs of billing name no input",
    ),
    "application without an output": (
        lambda: facts(
            plan=APPLIED,
            manifest=manifest(
                applications=[{"name": "b", "application": "billing", "drained": True}],
                outputs_read=["billing"],
            ),
        ),
        "no output was found, so nothing is known about inputs: billing",
    ),
    "kernel raised": (
        lambda: facts(errors=["bucket 3: ValueError: x"]),
        "judging failed: bucket 3",
    ),
    "replicas not read": (lambda: facts(plan=ALL_READ), "replicas were not read: orders-0"),
    "replica out of sync": (
        lambda: facts(plan=ALL_READ, replicas=[replace(REPLICA, in_sync=False)]),
        "replicas out of sync: orders-0 on kafka-2",
    ),
    "replica read in part": (
        lambda: facts(plan=ALL_READ, replicas=[replace(REPLICA, read_to=4)]),
        "replicas not read to the end: orders-0 on kafka-2 at 4 of 9",
    ),
    "interrupted": (
        lambda: facts(manifest=manifest(status="interrupted", phases=[])),
        "interrupted before its audit",
    ),
    "load cut short": (
        lambda: facts(
            plan={"faults": [{"fault": "kill"}], "rate_ratio": 0.99, "load_s": 10},
            manifest=manifest(
                status="interrupted",
                epoch_ns=2 * S,
                phases=[
                    {"name": "load", "end_ns": 55 * S // 10},
                    {"name": "audit", "end_ns": 9 * S},
                ],
            ),
        ),
        "the load was stopped after 3.5 s of 10.0 s; the rest was not tested",
    ),
    "harness killed": (
        lambda: facts(manifest=manifest(status="running")),
        "its harness was killed",
    ),
    "rows missing": (
        lambda: facts(missing=["5 of 10 log rows"]),
        "records are missing: 5 of 10 log rows",
    ),
    "worker died": (
        lambda: facts(manifest=manifest(workers=[{"name": "p-1", "done": False, "exit_code": -9}])),
        "worker died before it was done: p-1 (exit code -9)",
    ),
    "worker killed by the run": (
        lambda: facts(
            manifest=manifest(
                workers=[{"name": "c-1", "done": False, "stuck": True, "exit_code": -9}]
            )
        ),
        "c-1 did not end when asked to, and was killed by the run",
    ),
    "machine lost": (
        lambda: facts(
            manifest=manifest(executors=[MACHINE, {**MACHINE, "lost": "task 1 on b is gone"}])
        ),
        "task 1 on b is gone: what ran there was cut short",
    ),
    "share left behind": (
        lambda: facts(manifest=manifest(executors=[{**MACHINE, "left": "/tmp/x: no space"}])),
        "captured and not in the run: task 0 on a: /tmp/x: no space",
    ),
    "clock not measured": (
        lambda: facts(manifest=manifest(executors=[{**MACHINE, "bound_ns": 0}])),
        "the clock was never measured: a",
    ),
    "nothing sent": (lambda: facts(empty(GRID)), "no message was sent"),
    "nothing acknowledged": (
        lambda: facts(traffic(ok_share=0)),
        "none of 10,000 sends was acknowledged",
    ),
    "no fault took effect": (
        lambda: facts(faults=[VACUOUS]),
        "none of 1 injected faults had an effect",
    ),
    "all faults skipped": (
        lambda: facts(faults=[SKIPPED]),
        "no planned fault was injected: no candidate",
    ),
    "no fault rows": (lambda: facts(faults=[]), "no planned fault was injected"),
    "fault after traffic": (lambda: facts(faults=[AFTERWARDS]), "met a message in flight"),
    "rate": (
        lambda: facts(traffic(ok_share=0.97)),
        "rate not reached: 970/s outside outages, 97.0% of",
    ),
    "rate beside another run": (
        lambda: facts(
            traffic(ok_share=0.5),
            manifest=manifest(problems=[{"kind": "beside", "text": "run r-2 was on this machine"}]),
        ),
        "run r-2 was on this machine",
    ),
    "out all the time": (
        lambda: facts(traffic(ok_share=0.5, outages=(OUT,))),
        "the rate cannot be judged",
    ),
    "saturated": (
        lambda: facts(
            manifest=manifest(problems=[{"kind": "saturated", "text": "p-1 late 900 ms"}])
        ),
        "saturated: p-1 late 900 ms",
    ),
    "late": (
        lambda: facts(lateness_ns={"p-1": 2_600_000_000, "p-2": 900_000_000}),
        "saturated: p-1 was 2.6 s late",
    ),
    "not ready": (
        lambda: facts(
            manifest=manifest(
                readiness_restored=False,
                problems=[{"kind": "recovery", "text": "kafka-2 not in sync"}],
            )
        ),
        "did not recover: kafka-2 not in sync",
    ),
    "not drained": (lambda: facts(manifest=manifest(drained=False)), "drain incomplete"),
    "drain unsaid": (
        lambda: facts(manifest={k: v for k, v in MANIFEST.items() if k != "drained"}),
        "drain incomplete",
    ),
    "no audit": (
        lambda: facts(bounds=[], acked_unread=1_200),
        "no audit: none of 1 streams was read to its end; 1,200 acknowledged messages not read",
    ),
    "stream unread": (
        lambda: facts(bounds=[{**BOUND, "stream": "other-0"}]),
        "audit incomplete: orders-0 not read",
    ),
    "audit stalled": (
        lambda: facts(bounds=[{**BOUND, "read_to": 7, "why": "stall"}]),
        "orders-0 at 7 of 10000 (stall)",
    ),
    "markers unread": (
        lambda: facts(plan=IN_TRANSACTIONS),
        "markers of transactions were not read to the end: orders-0",
    ),
    "transactions of an import undecided": (
        lambda: facts(acked_undecided=3),
        "the ends of transactions of acknowledged messages were not read: 3",
    ),
    "markers disagree": (
        lambda: facts(plan=IN_TRANSACTIONS, bounds=[{**BOUND, "marked": 10_000, "disagree": 1}]),
        "markers and the brokers' list of aborted transactions disagree: orders-0",
    ),
    "suspect": (lambda: facts(findings=[finding(Status.SUSPECT)]), "3 acked-lost"),
}


def test_a_partition_that_a_topic_was_not_given_is_read_to_its_end() -> None:
    """Of a topic that may grow, and did not: no reader stands at its begin."""
    absent = {**BOUND, "stream": "orders-1", "begin": 0, "end": 0, "read_to": -1}
    assert verdict_of(facts(bounds=[BOUND, absent])) == (Verdict.PASS, [])


@pytest.mark.parametrize("name", UNKNOWN)
def test_each_gap_alone_makes_the_run_unknown_with_one_sentence(name: str) -> None:
    make, text = UNKNOWN[name]
    verdict, reasons = verdict_of(make())
    assert verdict is Verdict.UNKNOWN
    assert any(text in reason for reason in reasons), reasons
    # these imply others
    if name not in ("nothing sent", "nothing acknowledged", "fault after traffic"):
        assert len(reasons) == 1, reasons


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_violation_outranks_every_gap_and_keeps_it_in_the_reasons(name: str) -> None:
    make, text = UNKNOWN[name]
    run = make()
    verdict, reasons = verdict_of(replace(run, findings=[*run.findings, finding(Status.VIOLATION)]))
    assert verdict is Verdict.FAIL
    assert reasons[0] == "3 acked-lost: s"
    assert any(text in reason for reason in reasons[1:])


@pytest.mark.parametrize("status", [Status.PERMITTED, Status.APPLICATION_ERROR, Status.INFO])
def test_what_breaks_no_promise_changes_nothing(status: Status) -> None:
    assert verdict_of(facts(findings=[finding(status)])) == (Verdict.PASS, [])


def test_a_finding_of_nothing_is_no_violation() -> None:
    assert verdict_of(facts(findings=[finding(Status.VIOLATION, count=0)]))[0] is Verdict.PASS


def test_of_two_readers_of_a_stream_the_one_that_got_furthest_counts() -> None:
    """One that ended early said so, and another has read the stream whole."""
    early = {**BOUND, "end": 50, "read_to": 0, "why": "deadline", "reader": "audit-1"}
    assert verdict_of(facts(bounds=[BOUND, early])) == (Verdict.PASS, [])


def test_a_run_without_planned_faults_needs_none() -> None:
    assert verdict_of(facts(faults=[], plan={"faults": [], "rate_ratio": 0.99}))[0] is Verdict.PASS


def test_one_vacuous_fault_beside_an_effective_one_is_only_named() -> None:
    run = facts(faults=[FAULT, replace(VACUOUS, id=2)])
    assert verdict_of(run)[0] is Verdict.PASS
    assert any("without effect: kill #2" in check.text for check in coverage(run))


def test_a_load_from_several_machines_says_how_far_their_times_can_be_compared() -> None:
    """Two times that are the same may each be wrong by the bound of its machine."""
    machines = [{**MACHINE, "bound_ns": bound_ns} for bound_ns in (1_000_000, 4_000_000, 2_000_000)]
    run = facts(manifest=manifest(executors=machines))
    assert verdict_of(run) == (Verdict.PASS, [])
    assert any(
        "from 3 tasks, their times within 6 ms of each other" in each.text for each in coverage(run)
    )


def test_where_the_rows_of_a_machine_are_is_said_when_there_are_no_others() -> None:
    kept = manifest(executors=[{**MACHINE, "left": "/tmp/x: no space"}])
    _, reasons = verdict_of(facts(empty(GRID), manifest=kept, missing=["rows of p-1"]))
    assert reasons == [
        "records are missing: rows of p-1",
        "captured and not in the run: task 0 on a: /tmp/x: no space",
    ]


def test_exit_codes() -> None:
    assert (EXIT[Verdict.PASS], EXIT[Verdict.FAIL], EXIT[Verdict.UNKNOWN]) == (0, 1, 3)
    assert EXIT[Verdict.UNKNOWN] is Exit.UNKNOWN


def test_hiccups_of_the_generator_are_no_saturation() -> None:
    assert verdict_of(facts(lateness_ns={"p-1": 400_000_000}))[0] is Verdict.PASS


# -- rate


def test_messages_due_in_an_outage_do_not_count_against_the_rate() -> None:
    """Those due in 3..6 s were refused; outside them everything was acknowledged."""
    due = ZERO + np.arange(10_000) * (S // 1000)
    ok = due[(due < ZERO + 3 * S) | (due >= ZERO + 6 * S)]
    series = replace(
        traffic(outages=(Outage(1, ZERO + 3 * S, ZERO + 6 * S),)),
        latency=Histogram.from_values(GRID.step(ok), np.full(len(ok), 1_000_000), GRID.steps),
    )
    rate = rate_of(series, GRID, LOAD_END, RATE)
    assert rate.ratio == pytest.approx(1.0)
    assert rate.calm_s == pytest.approx(7.0)
    assert rate.longest_outage_s == pytest.approx(3.0)


def test_messages_never_offered_are_missing_from_the_rate() -> None:
    """The generator managed 800/s of 1000/s: it ended with the messages of 8 s offered."""
    rate = rate_of(traffic(ok_share=0.8), GRID, LOAD_END, RATE)
    assert rate.ratio == pytest.approx(0.8)


def test_of_many_streams_some_one_is_always_out() -> None:
    """Each of twenty streams is out for half a second, in turn: together nearly the whole load."""
    turns = [ZERO + turn * S // 2 for turn in range(20)]
    outages = tuple(Outage(n, t, t + S // 2) for n, t in enumerate(turns, start=1))
    for ok_share, verdict in ((0.96, Verdict.PASS), (0.9, Verdict.UNKNOWN)):
        series = traffic(outages=outages, ok_share=ok_share)
        rate = rate_of(series, GRID, LOAD_END, RATE, streams=20)
        assert rate.calm_s == 0.0
        assert rate.up_share == pytest.approx(0.95)
        assert rate.up_ratio == pytest.approx(min(ok_share / 0.95, 1.0))
        assert verdict_of(facts(series, rate=rate))[0] is verdict


def test_a_rate_held_through_outages_needs_no_calm() -> None:
    """The stream was out nearly all the time, and in the end everything that was due was
    acknowledged."""
    series = traffic(outages=(Outage(1, ZERO, ZERO + 99 * S // 10),))
    run = facts(series, rate=rate_of(series, GRID, LOAD_END, RATE))
    assert verdict_of(run)[0] is Verdict.PASS
    assert any("outages included" in check.text for check in coverage(run))


def test_an_unlimited_load_has_no_ratio_and_needs_none() -> None:
    series = traffic()
    run = facts(series, rate=rate_of(series, GRID, LOAD_END, 0.0))
    assert run.rate.ratio is None
    assert verdict_of(run)[0] is Verdict.PASS


# -- faults


def rows(*, effective: bool = True, ok: bool = True) -> list[dict[str, Any]]:
    inject = {
        "kind": "kill",
        "target": "leader-of:orders",
        "targets": ["kafka-1"],
        "planned_s": 3.0,
    }
    return [
        {"id": 1, "event": "inject", "t_ns": ZERO + 3 * S, **inject},
        {"id": 1, "event": "effect", "t_ns": ZERO + 4 * S, "effective": effective, "evidence": "gone"},
        {"id": 1, "event": "heal", "t_ns": ZERO + 5 * S},
        {"id": 1, "event": "healed", "t_ns": ZERO + 6 * S, "ok": ok},
        {"id": 2, "event": "skipped", "kind": "pause", "target": "all", "planned_s": 4.0,
         "reason": "overlaps fault 1", "t_ns": ZERO + 4 * S},
    ]  # fmt: skip


def folded(rows: list[dict[str, Any]]) -> list[FaultRecord]:
    return FaultLog(typed(row, FaultEvent, "") for row in rows).records


def shown(rows: list[dict[str, Any]], outages: list[Outage]) -> list[FaultRow]:
    return [fault_row(record, outages, ZERO) for record in folded(rows)]


def test_fault_rows_fold_into_one_row_each_with_outage_and_recovery() -> None:
    outages = [Outage(1, ZERO + 3 * S, ZERO + 7 * S), Outage(2, ZERO + 3 * S, ZERO + 5 * S)]
    kill, pause = shown(rows(), outages)
    assert (kill.kind, kill.target, kill.t_s, kill.until_s) == (
        "kill", "kafka-1 (leader-of:orders)", 3.0, 6.0)  # fmt: skip
    assert (kill.effective, kill.healed, kill.evidence) == (True, True, "gone")
    assert (kill.outage_s, kill.recovery_s) == (4.0, 1.0)
    assert (pause.skipped, pause.t_s, pause.effective, pause.outage_s) == (
        "overlaps fault 1", 4.0, False, None)  # fmt: skip


def test_many_targets_are_counted_not_listed() -> None:
    targets = [f"orders-{n}" for n in range(12)]
    (fact,) = folded([{**rows()[0], "target": "orders", "targets": targets}])
    assert fact.target == "orders (12 targets)"


def test_streams_that_are_back_before_the_heal_recover_in_no_time() -> None:
    (kill, _) = shown(rows(), [Outage(1, ZERO + 3 * S, ZERO + 5 * S)])
    assert (kill.outage_s, kill.recovery_s) == (2.0, 0.0)


def test_a_stream_that_never_comes_back_has_no_recovery_time() -> None:
    (kill, _) = shown(rows(), [Outage(1, ZERO + 3 * S, GRID.end_ns, open=True)])
    assert kill.recovery_s is None


def test_a_fault_without_effect_has_no_outage() -> None:
    (kill, _) = shown(rows(effective=False), [Outage(1, ZERO + 3 * S, ZERO + 5 * S)])
    assert (kill.outage_s, kill.recovery_s) == (None, None)


def test_a_rate_that_is_not_required_cannot_be_missed() -> None:
    always_out = traffic(ok_share=0.5, outages=(OUT,))
    plan = {"faults": [{"fault": "kill"}], "rate_ratio": 0}
    assert verdict_of(facts(always_out))[0] is Verdict.UNKNOWN
    assert verdict_of(facts(always_out, plan=plan))[0] is Verdict.PASS
