"""`compare`: every row of both runs, and what makes them hard to compare."""

from __future__ import annotations

from dataclasses import replace

from analysis.report.compare import Comparison, Row, change_text, compare
from tests.report_samples import failing, lost_finding, passing


def row(comparison: Comparison, section: str, name: str) -> Row:
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
    bare = failing(latency_ms={}, faults=[])
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
