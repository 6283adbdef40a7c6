"""`compare`: every row of both runs, and what makes them hard to compare."""

from __future__ import annotations

import io
from dataclasses import replace

from analysis.report.compare import (
    Comparison,
    ComparisonRow,
    change_text,
    compare,
    compare_campaigns,
)
from analysis.report.terminal import console
from analysis.report.terminal_lookups import print_comparison
from tests.report_samples import campaign, failing, lost_finding, passing


def row(comparison: Comparison, section: str, name: str) -> ComparisonRow:
    return next(r for r in comparison.rows if (r.section, r.name) == (section, name))


def test_a_run_against_itself_differs_in_nothing() -> None:
    comparison = compare(failing(), failing())
    assert comparison.cautions == ()
    assert [r for r in comparison.rows if r.differs] == []


def test_a_class_that_one_run_lacks_counts_zero_there() -> None:
    lost = row(compare(failing(), passing()), "classes", "acked-lost (violation)")
    assert (lost.a, lost.b, lost.change) == (1486, 0, -1486)


def test_classes_found_zero_times_in_both_are_left_out() -> None:
    none = failing(findings=[replace(lost_finding(), count=0)])
    assert not [r for r in compare(none, none).rows if r.section == "classes"]


def test_change_of_a_latency_has_its_share() -> None:
    slower = failing(latency_ms={**failing().latency_ms, "p50": 26.0})
    assert change_text(row(compare(failing(), slower), "latency", "p50")) == "+13 ms (+100%)"


def test_missing_numbers_have_no_change() -> None:
    bare = failing(latency_ms={}, faults=[], rate={})
    comparison = compare(failing(), bare)
    assert row(comparison, "latency", "p99").b is None
    assert row(comparison, "latency", "p99").change is None
    assert row(comparison, "faults", "longest outage").b is None


def test_cautions_name_what_besides_chance_could_explain_it() -> None:
    other = passing(seed=8, environment={**passing().environment, "kafka": "3.6.2"})
    cautions = compare(failing(), other).cautions
    assert "variant differs: unsafe and safe" in cautions
    assert "seed differs: 7 and 8" in cautions
    assert "kafka differs: 4.1.2 and 3.6.2" in cautions


def test_campaigns_are_compared_variant_by_variant_over_their_rounds() -> None:
    one, other = campaign(), campaign(met=False)
    unsafe = other.variants[0]
    twice = replace(unsafe, runs=[*unsafe.runs, *one.variants[0].runs], rounds=2)
    comparison = compare_campaigns(one, replace(other, seed=8, variants=[twice]))
    assert comparison.cautions == (
        "seed differs: 7 and 8",
        "rounds of unsafe differs: 1 and 2",
        "rounds of safe differs: 1 and 0",
    )
    lost = row(comparison, "unsafe", "acked-lost")
    assert (lost.a, lost.b) == (1486, 1486)
    assert (row(comparison, "unsafe", "ok").a, row(comparison, "unsafe", "ok").b) == (
        1_749_580,
        3_499_580,
    )
    assert row(comparison, "unsafe", "p99").b == 3911.0
    result = row(comparison, "unsafe", "result")
    assert (result.a, result.b) == ("as expected", "not as expected")
    assert {r.b for r in comparison.rows if r.section == "safe"} == {None}


def test_ids_of_campaigns_stand_whole_beside_each_other() -> None:
    out = io.StringIO()
    print_comparison(console(out, color=False), compare_campaigns(campaign(), campaign(met=False)))
    times, names = out.getvalue().splitlines()[:2]
    assert times.split()[:2] == ["20261120-204400"] * 2
    assert names.split()[:2] == ["kafka-acks1"] * 2
