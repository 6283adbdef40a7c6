"""A load that claims no rate: what it says of the load, and that each message is judged all the
same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from analysis.findings import Result, Status, Verdict
from analysis.report import words
from analysis.report.compare import compare
from analysis.report.junit import run_xml
from analysis.report.result_words import rate_line
from analysis.series import empty
from analysis.verdict.coverage import RunFacts, coverage
from analysis.verdict.rate import rate_of
from harness.contracts.plan import RateChoice
from tests.report_samples.results import passing
from tests.unit.test_verdict import GRID, LOAD_END, OUT, RATE, facts, finding, traffic, verdict_of

CHOICE = {"at_most_per_s": 5000, "at_least_per_s": 100, "steps": []}
LATE = {"p-1": 2_600_000_000}


def measured(*, choice: dict[str, Any] = CHOICE, **changes: Any) -> RunFacts:
    """A run at 1,000/s, what the machine was measured to keep."""
    series = changes.pop("series", None) or traffic(ok_share=changes.pop("ok_share", 1.0))
    rate = rate_of(series, GRID, LOAD_END, RATE, choice=RateChoice(**choice))
    return facts(series, rate=rate, **changes)


def text(run: RunFacts, name: str) -> str:
    (check,) = [check for check in coverage(run) if check.name == name]
    return check.text


def test_less_than_the_most_is_no_gap() -> None:
    run = measured()
    assert verdict_of(run) == (Verdict.PASS, [])
    assert text(run, "rate") == (
        "1,000/s acknowledged outside outages of 1,000/s, what this machine was measured to keep; "
        "5,000/s was asked for at most"
    )
    assert text(measured(choice={**CHOICE, "at_most_per_s": 1000}), "rate") == (
        "1,000/s acknowledged outside outages of the 1,000/s asked for"
    )


def test_a_load_that_falls_short_of_what_was_measured_says_so_and_stays_a_pass() -> None:
    run = measured(ok_share=0.6, lateness_ns=LATE)
    assert verdict_of(run) == (Verdict.PASS, [])
    assert "600/s acknowledged outside outages of 1,000/s" in text(run, "rate")
    assert "the load fell short, and what happened to each message was judged" in text(run, "rate")
    assert "saturated: p-1 was 2.6 s late" in text(run, "generator")
    assert "latencies are measured on this machine" in text(run, "generator")


def test_a_violation_in_a_load_that_fell_short_is_a_fail() -> None:
    run = measured(ok_share=0.6, lateness_ns=LATE, findings=[finding(Status.VIOLATION)])
    assert verdict_of(run)[0] is Verdict.FAIL


def test_too_little_for_faults_to_meet_is_unknown() -> None:
    run = measured(ok_share=0.05, lateness_ns=LATE)
    verdict, reasons = verdict_of(run)
    assert verdict is Verdict.UNKNOWN
    assert (
        reasons[0]
        == "too little load for faults to meet: 50/s acknowledged outside outages, 100/s required"
    )
    assert "saturated" in reasons[1]  # the excuse of a late generator is a load that is enough


def test_a_load_with_hardly_a_calm_moment_counts_what_was_acknowledged_in_all() -> None:
    enough, little = (
        measured(series=traffic(ok_share=share, outages=(OUT,))) for share in (0.5, 0.05)
    )
    assert verdict_of(enough) == (Verdict.PASS, [])
    assert verdict_of(little)[0] is Verdict.UNKNOWN
    assert "500/s acknowledged, outages included" in text(enough, "rate")


def test_nothing_sent_is_still_unknown() -> None:
    assert verdict_of(measured(series=empty(GRID)))[0] is Verdict.UNKNOWN


def limited(result: Result, target: float, most: float) -> Result:
    rate = {**result.rate, "target_per_s": target, "at_most_per_s": most, "at_least_per_s": 1000.0}
    return replace(result, rate=rate)


def test_every_output_says_what_the_machine_keeps() -> None:
    result = limited(passing(), 31_000.0, 50_000.0)
    said = "31,000/s, what this machine keeps of 50,000/s"
    assert said in rate_line(result.rate)
    assert said in run_xml(result)
    assert words.target({"target_per_s": 50_000.0, "at_most_per_s": 50_000.0}) == "50,000/s"
    short = {"target_per_s": 9000.0, "at_most_per_s": 9000.0, "ratio_outside_outages": 0.8}
    assert words.target(short) == "9,000/s; the load fell short"


def test_a_comparison_of_two_rates_says_so() -> None:
    result = passing()
    a, b = limited(result, 31_000.0, 50_000.0), limited(result, 50_000.0, 50_000.0)
    assert "target rate differs: 31,000/s and 50,000/s" in compare(a, b).cautions
    assert not [text for text in compare(a, a).cautions if "rate" in text]
