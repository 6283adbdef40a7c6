"""Scales and colours of the charts: what they cut they say, what they set side by side they measure
alike."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from analysis.findings import FaultCount, StreamCount, TimeSeries, Usage
from analysis.report import chart_findings
from analysis.report.chart_findings import counts_range, shown_streams
from analysis.report.charts import RateScale, charts, side_by_side
from analysis.report.looks import LOOKS, look_of
from analysis.report.story import story
from analysis.report.windows import condensed
from faults.kinds import KINDS
from tests.report_samples import failing, fault_rows, lost_finding, passing

#: 100 a second, two seconds of nothing, and what waited at once.
BURST = TimeSeries(start_s=0, step_s=1, intended=[100] * 8, ok=[100, 100, 0, 0, 450, 150, 100, 100])


def test_a_backlog_sent_at_once_cuts_the_scale_and_the_chart_says_so() -> None:
    windows = condensed(BURST, 100)
    scale = RateScale.from_windows([windows])
    assert (scale.cut_per_s, scale.range.end) == (200, pytest.approx(240))
    assert scale.clipped(windows.rate(windows.ok)) == [100, 100, 0, 0, 200, 150, 100, 100]
    assert scale.peaks(windows) == [(4, 450)]
    (chart,) = [c for c in charts(failing(timeline=BURST)) if c.key == "throughput"]
    assert (
        "The scale is cut at 200/s; arrows mark what lies above it, up to 450/s for 1 s"
        in chart.summary
    )


def test_a_burst_that_was_asked_for_is_no_backlog() -> None:
    asked = replace(BURST, intended=[10, 10, 10, 10, 450, 10, 10, 10])
    assert RateScale.from_windows([condensed(asked, 100)]).cut_per_s == 0


def test_a_scale_that_fits_everything_is_not_cut() -> None:
    calm = replace(BURST, ok=[100, 100, 0, 0, 290, 100, 100, 100])
    scale = RateScale.from_windows([condensed(calm, 100)])
    assert (scale.cut_per_s, scale.range.end) == (0, pytest.approx(290 * 1.06))
    assert scale.peaks(condensed(calm, 100)) == []


def test_charts_side_by_side_share_both_scales() -> None:
    (unsafe, counts), (safe,) = side_by_side([failing(timeline=BURST), passing()])
    for name in ("start", "end"):
        assert getattr(unsafe.plot.y_range, name) == getattr(safe.plot.y_range, name)
        assert getattr(unsafe.plot.x_range, name) == getattr(safe.plot.x_range, name)
    assert counts.plot.x_range.end == safe.plot.x_range.end


def test_no_two_kinds_of_fault_look_the_same() -> None:
    assert set(LOOKS) <= set(KINDS), "names of kinds that are gone"
    assert len({look_of(kind) for kind in LOOKS}) == len(LOOKS)
    assert look_of("of-another-tool") == look_of("of-another-tool")


def test_a_fault_has_its_colour_in_whatever_order_faults_fire() -> None:
    def colours(result: Any) -> dict[str, str]:
        (chart,) = [c for c in charts(result) if c.key == "lanes"]
        data = chart.plot.renderers[0].data_source.data
        return dict(zip(data["kind"], data["colour"], strict=True))

    rows = fault_rows()
    assert colours(passing()) == colours(passing(faults=rows[::-1]))
    assert colours(passing(faults=rows[1:])).items() < colours(passing()).items()


def test_few_messages_beside_many_stand_on_a_logarithmic_scale() -> None:
    even = replace(
        lost_finding(), by_stream=(StreamCount(stream="a", count=5, windows=[(1, 3), (4, 2)]),)
    )
    assert counts_range([lost_finding()]).start == 0.5
    assert counts_range([even]).start == 0


def test_the_number_above_the_highest_bar_of_a_logarithmic_scale_has_room() -> None:
    counts = StreamCount(stream="a", count=37_831, windows=[(9, 36_455), (14, 1_376)])
    many = replace(lost_finding(), by_stream=(counts,))
    decades = math.log10(counts_range([many]).end / counts_range([many]).start)
    assert math.log10(counts_range([many]).end / 36_455) > 0.15 * decades


def test_partitions_beyond_the_rows_of_a_chart_stand_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chart_findings, "MAX_ROWS", 2)
    first, others = shown_streams(lost_finding())
    assert first.stream == "orders-3"
    assert (others.stream, others.streams, others.count) == ("", 3, 286)
    assert others.windows == [(8, 284), (9, 2)]


def test_many_faults_are_told_by_their_kind() -> None:
    faults = [replace(fault_rows()[0], id=number) for number in range(1, 6)]
    met = tuple(
        FaultCount(fault=number, count=10, episodes=1, first_s=float(number), last_s=float(number))
        for number in range(6)
    )
    told = story(replace(lost_finding(), by_fault=met), faults).near
    assert [(one.text, one.count) for one in told] == [("kill (5 faults)", 50), ("no fault", 10)]


def test_processes_that_ran_only_after_the_load_are_not_drawn_beside_it() -> None:
    auditor = Usage(
        name="audit-1", role="client", t_s=[900.0, 901.0], cpu=[None, 3.0], rss_bytes=[1, 2]
    )
    (cpu,) = [c for c in charts(passing(usage=[*passing().usage, auditor])) if c.key == "cpu"]
    assert [row[:2] for row in cpu.table] == [
        ("kafka-1", "node"), ("kafka-2", "node"), ("producer-1", "client")]  # fmt: skip
    assert "clients: at most 0.46 cores, producer-1" in cpu.summary


def test_nodes_that_somebody_else_started_are_said_to_have_no_figures() -> None:
    clients = [one for one in passing().usage if one.role == "client"]
    (cpu,) = [c for c in charts(passing(usage=clients)) if c.key == "cpu"]
    assert cpu.summary.endswith("No figures of nodes were captured.")
