"""Rate profiles: what is written, the table, what workers follow, what the rate is held against."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.findings import Verdict
from analysis.histogram import Histogram
from analysis.report import words
from analysis.series import Outage, Series
from analysis.verdict.coverage import coverage
from analysis.verdict.intended import Intended
from analysis.verdict.rate import rate_of
from commands.plan_text import show_plans
from experiments.resolved import Resolved
from harness.contracts.plan import Plan, RateChoice
from harness.errors import ScenarioError
from harness.plan.build import build_plan
from harness.plan.estimate import messages
from harness.plan.profile import mean_rate_per_s, share_at, shares_over, spans_ns
from harness.progress.view import RunView, load_figures
from harness.scenario.file import load_scenario
from harness.scenario.model import Scenario
from tests.unit.test_verdict import GRID, LOAD_END, ZERO, S, facts, traffic, verdict_of
from workers.python_kit.worker_kit.schedule import Schedule

SHAPES: dict[str, tuple[dict[str, Any], float]] = {
    "ramp": ({"ramp": {"from": "20%", "over": "5s"}}, 0.8),
    "steps": ({"steps": ["25%", 0.5, 1]}, 1.75 / 3),
    "burst": ({"burst": {"base": 0.1, "every": "2s", "lasts": "500ms"}}, 0.325),
    "sine": (
        {"sine": {"low": 0.2, "period": "4s"}},
        0.6 - 0.4 * np.sin(2 * np.pi * 2.5) / (2 * np.pi * 2.5),
    ),
}


def plan_of(profile: Any, **load: Any) -> Plan:
    keys = {"rate": 1000, "duration": "10s", "warm_up": "2s", "profile": profile, **load}
    return build_plan(Scenario.model_validate({"name": "x", "load": keys}), seed=1)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_table_covers_the_load_and_asks_for_what_its_shape_does(shape: str) -> None:
    profile, mean = SHAPES[shape]
    plan = plan_of(profile)
    assert sum(seconds for seconds, _ in plan.profile) == pytest.approx(10)
    assert mean_rate_per_s(plan) == pytest.approx(1000 * mean, rel=1e-3)
    assert messages(plan) == pytest.approx(12_000 * mean, rel=1e-3)
    assert min(share for _, share in plan.profile) >= 0
    assert max(share for _, share in plan.profile) <= 1


def test_a_ramp_climbs_and_stays() -> None:
    plan = plan_of({"ramp": {"from": 0, "to": "50%", "over": "4s"}})
    assert [share_at(plan.profile, t) for t in (0, 2.01, 4.1, 99)] == [
        pytest.approx(0.00625), pytest.approx(0.25625), 0.5, 0.5
    ]  # fmt: skip
    assert share_at(plan.profile, -1) == pytest.approx(0.4)  # the warm-up goes at the mean
    assert shares_over(plan.profile, 5) == [
        pytest.approx(each) for each in (0.125, 0.375, 0.5, 0.5, 0.5)
    ]


def write_csv(folder: Path, text: str) -> Path:
    (folder / "rates.csv").write_text(text)
    path = folder / "mine.yaml"
    path.write_text("name: x\nload: {duration: 10s, profile: {csv: rates.csv}}\n")
    return path


def test_a_csv_is_a_shape_in_any_unit(tmp_path: Path) -> None:
    scenario = load_scenario(write_csv(tmp_path, "seconds,rate\n0,300\n4,1200\n9.5,0\n"))
    assert scenario.profile_table() == [(4.0, 0.25), (5.5, 1.0), (0.5, 0.0)]


BAD_CSV = {
    "": "must begin with a line for second 0",
    "1,5": "must begin with a line for second 0",
    "0,5\n3,7\n3,8\n": "rates.csv: second 3 comes after 3, got .*; lines go forward in time",
    "0,5\n10,7\n": "continues at second 10, after the end of a load of 10 s",
    "0,5\n1,-7\n": "rates.csv, line 2: must be seconds,rate, two numbers from 0",
    "0,5,6\n": "rates.csv, line 1: must be seconds,rate",
    "0,0\n": "asks for no message at all",
}


@pytest.mark.parametrize("text", BAD_CSV)
def test_a_csv_that_cannot_be_used_is_one_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(ScenarioError, match=BAD_CSV[text]) as caught:
        load_scenario(write_csv(tmp_path, text))
    assert "mine.yaml:2: load.profile: " in str(caught.value)


@pytest.mark.parametrize("shape", SHAPES)
def test_workers_are_asked_for_as_much_as_the_load_is_judged_by(shape: str) -> None:
    """What a worker sends by its spans is what `Intended` says, to a message, at every moment."""
    plan = plan_of(SHAPES[shape][0])
    spans = [(int(ns), share) for ns, share in spans_ns(plan, plan.producers[0])]
    assert sum(ns for ns, _ in spans) == 12 * S
    schedule = Schedule(ZERO - 2 * S, plan.rate_per_s, plan.warm_up_s, plan.load_s, spans)
    wanted = Intended(
        plan.rate_per_s, plan.profile, zero_ns=ZERO, end_ns=LOAD_END, warm_up_s=plan.warm_up_s
    )
    moments = np.arange(ZERO - 2 * S, LOAD_END, 37_000_000)
    due = [schedule.due_count(int(t)) for t in moments]
    assert np.abs(wanted.due_by(moments) - due).max() <= 1.01


PROFILE = [(4.0, 0.25), (6.0, 1.0)]  # 700/s on average


def profiled(*, lost_from_s: float = 10, outages: tuple[Outage, ...] = ()) -> Series:
    """1,000/s with `PROFILE`; nothing is acknowledged from a second of the load on."""
    due = [ZERO + i * 4_000_000 for i in range(1000)] + [
        ZERO + 4 * S + i * 1_000_000 for i in range(6000)
    ]
    times = np.array(due)
    ok = times[times < ZERO + lost_from_s * S]
    took = np.full(len(ok), 1_000_000)
    totals = {"attempted": 7000, "ok": len(ok), "load_ok": len(ok), "load_attempted": 7000}
    latency = Histogram.from_values(GRID.step(ok), took, GRID.steps)
    return replace(traffic(outages=outages), latency=latency, totals=totals)


def rated(series: Series, **more: Any) -> Any:
    return rate_of(series, GRID, LOAD_END, 1000.0, profile=PROFILE, **more)


def test_the_rate_is_held_against_what_was_due_then() -> None:
    """Half of the load is an outage: what is left is less than the mean, and all of what was
    due."""
    outage = Outage(1, ZERO + 5 * S, ZERO + 10 * S)
    series = profiled(lost_from_s=5, outages=(outage,))
    rate = rated(series)
    assert (rate.target_per_s, rate.peak_per_s) == (pytest.approx(700), 1000)
    assert rate.ratio == pytest.approx(1.0)
    run = facts(series, rate=rate)
    assert verdict_of(run)[0] is Verdict.PASS
    (text,) = [check.text for check in coverage(run) if check.name == "rate"]
    assert text == "400/s outside outages, 100.0% of 400/s that was due then"
    assert (
        verdict_of(facts(series, rate=rate_of(series, GRID, LOAD_END, 1000.0)))[0]
        is Verdict.UNKNOWN
    )


def test_less_than_was_due_is_a_rate_that_was_not_reached() -> None:
    series = profiled(lost_from_s=9.5)
    verdict, reasons = verdict_of(facts(series, rate=rated(series)))
    assert verdict is Verdict.UNKNOWN
    assert "rate not reached: 650/s outside outages, 92.9% of 700/s that was due then" in reasons[0]


def test_of_a_rate_that_was_measured_the_limits_are_those_of_the_profile() -> None:
    choice = RateChoice(at_most_per_s=2000, at_least_per_s=100)
    rate = rated(profiled(), choice=choice)
    assert (rate.at_most_per_s, rate.at_least_per_s) == (pytest.approx(1400), pytest.approx(70))
    outage = Outage(1, ZERO + 5 * S, ZERO + 10 * S)
    series = profiled(lost_from_s=5, outages=(outage,))
    run = facts(series, rate=rated(series, choice=choice))
    (text,) = [check.text for check in coverage(run) if check.name == "rate"]
    assert text == (
        "400/s acknowledged outside outages of 400/s that was due then; this machine was measured "
        "to keep 50.0% of the rates asked for"
    )


def test_people_read_the_mean_and_the_highest_rate() -> None:
    assert words.target(rated(profiled()).document()) == "700/s on average, 1,000/s at most"
    view = RunView()
    view.begin("x", 1000, 2, 10, profile=PROFILE)
    for elapsed_s, asked in ((-1, "700"), (3, "250"), (5, "1,000")):
        view.elapsed_s = elapsed_s
        assert load_figures(view)[0] == f"0/s of {asked}"


def test_the_plan_draws_it_within_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    plan = plan_of({"steps": ["0%", "50%", "100%"]})
    show_plans([(plan, *Resolved(plans=[plan]).timelines)], draws_seed=False, commands=False)
    drawn = next(line for line in capsys.readouterr().out.splitlines() if "█" in line)
    assert drawn.strip() == "▅" * 20 + "█" * 20
    assert len(drawn) <= 80


def test_producers_with_profiles_of_their_own_ask_for_the_sum() -> None:
    export = {"share": 1, "profile": {"burst": {"base": 0, "every": "5s", "lasts": "1s"}}}
    plan = plan_of({"steps": ["50%", "100%"]}, producers={"shop": {"share": 3}, "export": export})
    assert plan.profile == [
        (pytest.approx(seconds), pytest.approx(share))
        for seconds, share in [(4, 0.375), (1, 0.625), (4, 0.75), (1, 1.0)]
    ]
    spans = [spans_ns(plan, producer) for producer in plan.producers]
    assert [[share for _, share in each] for each in spans] == [[0.75, 0.5, 1.0], [0.2, 0, 1, 0, 1]]
    asked = sum(
        producer.rate_per_s * sum(ns / 1e9 * share for ns, share in each)
        for producer, each in zip(plan.producers, spans, strict=True)
    )
    assert asked == pytest.approx(messages(plan), abs=1)  # the warm-up too


def test_one_profile_for_all_is_written_once() -> None:
    plan = plan_of({"steps": [1]}, producers={"a": {}, "b": {}})
    assert [producer.profile for producer in plan.producers] == [[], []]
