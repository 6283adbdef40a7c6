"""Draws the charts of the page, as Bokeh figures with a sentence each that says the same in words.

Fault windows are bands in every timeline and bars, a lane a kind, in the chart above them. All
timelines share one x axis and one cursor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from bokeh.models import (
    ColumnDataSource,
    FixedTicker,
    HoverTool,
    LabelSet,
    LinearAxis,
    NumeralTickFormatter,
    Range1d,
    Span,
)
from bokeh.plotting import figure

from analysis.findings import ApplicationFlow, ApplicationResult, Result, TimeSeries
from analysis.report import words
from analysis.report.chart_findings import (
    counts_chart,
    counts_range,
    finding_charts,
    labels_of,
    lanes_plot,
    timed,
)
from analysis.report.chart_frame import (
    MAX_WINDOWS,
    Chart,
    TimeAxis,
    fired_kinds,
    legend_above,
    roomy,
    styled,
)
from analysis.report.chart_usage import usage_charts
from analysis.report.looks import BLUE, GREEN, GREY, INK, VERMILLION
from analysis.report.windows import Windows, condensed

#: Rows of the table below a chart.
TABLE_ROWS = 60
CHART_HEIGHT = 230
#: A rate of more than so many times the intended one cuts the scale, at so many times.
CUT_FROM, CUT_AT = 3.0, 2.0
#: Share of the axis that the number at a peak takes; a lower peak that is nearer has none.
PEAK_ROOM = 0.24


def charts(result: Result) -> list[Chart]:
    """Every chart of a run's page, in order."""
    axis = TimeAxis(result, labels_of(result))
    # Bokeh never returns from a chart without a single value, and without a window there is no time
    # axis.
    made = finding_charts(axis) if axis.windows.times else []
    if fired_kinds(result) and not made:
        made.append(fault_lanes(axis))
    if axis.windows.times:
        made.append(throughput(axis))
    if any(axis.windows.fail) or any(axis.windows.info):
        made.append(not_acknowledged(axis))
    if any(value is not None for value in axis.windows.p99_ms):
        made.append(latency(axis))
    for number, application in enumerate(result.applications):
        if axis.windows.times and application.flow and any(application.flow.p99_ms):
            made.append(application_chart(axis, application, application.flow, number))
    made += usage_charts(axis) if axis.windows.times else []
    if any(q < 1 and math.isfinite(ms) for q, ms in result.percentiles):
        made.append(percentile_curve(result.percentiles))
    return made


def side_by_side(results: Sequence[Result]) -> list[list[Chart]]:
    """Throughput and the gravest class of each result, all on the same scales."""
    axes = [TimeAxis(result) for result in results]
    timed_axes = [axis for axis in axes if axis.windows.times]
    if not timed_axes:
        return [[] for _ in results]
    start, end = min(a.range.start for a in timed_axes), max(a.range.end for a in timed_axes)
    axes = [TimeAxis(result, range=Range1d(start, end, bounds=(start, end))) for result in results]
    rates = RateScale.from_windows([axis.windows for axis in timed_axes])
    gravest = [next(iter(timed(result)), None) for result in results]
    counted = [finding for finding in gravest if finding is not None]
    counts = counts_range(counted) if counted else None
    made = []
    for number, (axis, finding) in enumerate(zip(axes, gravest, strict=True)):
        own = [throughput(axis, rates)] if axis.windows.times else []
        if finding is not None:
            own.append(counts_chart(axis, finding, counts))
        made.append([replace(chart, key=f"{chart.key}-{number}") for chart in own])
    return made


def fault_lanes(axis: TimeAxis) -> Chart:
    """Draw the faults of a run, one lane for each kind."""
    fired = sum(not fault.skipped for fault in axis.result.faults)
    text = f"{words.plural(fired, 'fault')} fired. The table of faults below has every time."
    return Chart("lanes", "Faults", lanes_plot(axis), text)


@dataclass(frozen=True, slots=True)
class RateScale:
    """The scale of a throughput chart. ``cut_per_s``: higher rates are drawn at this one and
    marked; 0 = none is cut."""

    cut_per_s: float
    range: Any

    @classmethod
    def from_windows(cls, all_windows: Sequence[Windows]) -> RateScale:
        """A scale for all of them, cut where a backlog that is sent at once would squash everything
        else."""
        drawn, usual = [0.0], [0.0]
        for windows in all_windows:
            wanted, ok = windows.rate(windows.intended), windows.rate(windows.ok)
            drawn += [*wanted, *ok, *windows.rate(windows.delivered)]
            usual += wanted  # of a profile its highest: a requested burst is not a backlog
        most, level = max(drawn), max(usual)
        if not level or most <= CUT_FROM * level:
            return cls(0.0, from_zero(drawn))
        return cls(CUT_AT * level, Range1d(0, CUT_AT * level * 1.2))

    def clipped(self, rates: Sequence[float]) -> list[float]:
        """Return the rates, those above the cut lowered to it."""
        return [min(rate, self.cut_per_s) for rate in rates] if self.cut_per_s else list(rates)

    def peaks(self, windows: Windows) -> list[tuple[float, float]]:
        """(time, rate) of the highest window of each stretch of *ok* above the cut."""
        found: list[tuple[float, float]] = []
        above = False
        for t, rate in zip(windows.times, windows.rate(windows.ok), strict=True):
            if not self.cut_per_s or rate <= self.cut_per_s:
                above = False
                continue
            if not above:
                found.append((t, rate))
            elif rate > found[-1][1]:
                found[-1] = (t, rate)
            above = True
        return found


def throughput(axis: TimeAxis, scale: RateScale | None = None) -> Chart:
    """Intended, acknowledged and delivered; ``scale``: one shared with other charts."""
    windows = axis.windows
    scale = scale or RateScale.from_windows([windows])
    rates = {name: windows.rate(getattr(windows, name)) for name in ("intended", "ok", "delivered")}
    drawn = {name: f"{name}_drawn" if scale.cut_per_s else name for name in rates}
    source = ColumnDataSource(
        {
            "t": windows.times,
            "at": [words.clock(t) for t in windows.times],
            **rates,
            **{drawn[name]: scale.clipped(values) for name, values in rates.items()},
            "fail": windows.fail,
            "info": windows.info,
        }
    )
    plot = axis.figure(CHART_HEIGHT + 40, y_range=scale.range, y_axis_label="messages / s")
    axis.bands_behind(plot)
    plot.varea_step(
        x="t",
        y1=0,
        y2=drawn["ok"],
        source=source,
        fill_color=BLUE,
        fill_alpha=0.18,
        step_mode="after",
    )
    shared: dict[str, Any] = {"x": "t", "source": source, "mode": "after"}
    plot.step(
        y=drawn["intended"],
        color=GREY,
        line_dash="dashed",
        line_width=2,
        legend_label="intended",
        **shared,
    )
    line = plot.step(y=drawn["ok"], color=BLUE, line_width=2, legend_label="ok", **shared)
    if any(windows.delivered):
        look = {"color": GREEN, "line_dash": "dotdash", "line_width": 1.6}
        plot.step(y=drawn["delivered"], legend_label="delivered", **look, **shared)
    tips = [
        ("at", "@at"),
        ("intended", "@intended{0,0}/s"),
        ("ok", "@ok{0,0}/s"),
        ("delivered", "@delivered{0,0}/s"),
    ]
    plot.add_tools(
        HoverTool(
            renderers=[line], tooltips=[*tips, ("fail", "@fail"), ("info", "@info")], mode="vline"
        )
    )
    peaks = scale.peaks(windows)
    _mark_peaks(plot, peaks, scale.cut_per_s)
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0")
    legend_above(plot)
    header = ("from", "intended/s", "ok/s", "fail", "info", "delivered/s")
    text = _throughput_text(axis.result, windows) + _cut_text(
        peaks, scale.cut_per_s, windows.step_s
    )
    return Chart(
        "throughput", "Throughput", plot, text, header, _throughput_table(axis.result.timeline)
    )


def _mark_peaks(plot: Any, peaks: Sequence[tuple[float, float]], cut_per_s: float) -> None:
    """An arrow at the cut for each peak above it; the highest with their height in words."""
    if not peaks:
        return
    named = roomy(plot, peaks, PEAK_ROOM)
    source = ColumnDataSource(
        {
            "t": [t for t, _ in peaks],
            "y": [cut_per_s] * len(peaks),
            "text": [words.per_second(rate) if t in named else "" for t, rate in peaks],
            "peak": [words.per_second(rate) for _, rate in peaks],
        }
    )
    arrows = plot.scatter(
        x="t", y="y", marker="triangle", size=9, color=BLUE, line_color=INK, source=source
    )
    plot.add_tools(HoverTool(renderers=[arrows], tooltips=[("ok, above the scale", "@peak")]))
    plot.add_layout(
        Span(location=cut_per_s, dimension="width", line_color=GREY, line_dash="dotted")
    )
    plot.add_layout(
        LabelSet(
            x="t", y="y", text="text", source=source, y_offset=6, text_font_size="11px", x_offset=4
        )
    )


def _cut_text(peaks: Sequence[tuple[float, float]], cut_per_s: float, step_s: float) -> str:
    if not peaks:
        return ""
    at, most = max(peaks, key=lambda peak: peak[1])
    return (
        f" The scale is cut at {words.per_second(cut_per_s)}; arrows mark what lies above it, up to"
        f" {words.per_second(most)} for {step_s:g} s at {words.clock(at)}."
    )


def _throughput_table(timeline: TimeSeries) -> tuple[tuple[str, ...], ...]:
    small = condensed(timeline, TABLE_ROWS)
    rates = [small.rate(counts) for counts in (small.intended, small.ok, small.delivered)]
    columns = (rates[0], rates[1], small.fail, small.info, rates[2])
    return tuple(
        (words.clock(t), *(words.count(value) for value in values))
        for t, *values in zip(small.times, *columns, strict=True)
    )


def _throughput_text(result: Result, windows: Windows) -> str:
    rate = result.rate
    achieved = words.per_second(rate.get("achieved_per_s", 0.0))
    text = f"{achieved} acknowledged"
    text += f" of {words.target(rate)}." if rate.get("target_per_s") else "."
    return f"{text} {silence_text(result, windows)}"


def silence_text(result: Result, windows: Windows) -> str:
    """How long a single partition was out, and how long all of them at once."""
    start, length = windows.longest_silence()
    outage_s = max(result.rate.get("longest_outage_s", 0.0), length)
    if not outage_s:
        return "No partition was without an acknowledgement for long."
    text = (
        f"A single partition was without an acknowledgement for up to {words.seconds(outage_s)}, "
    )
    if not length:
        return f"{text}never all at once."
    return f"{text}all at once for {words.seconds(length)} from {words.clock(start)}."


def not_acknowledged(axis: TimeAxis) -> Chart:
    """Fails and unknowns on their own scale: next to 50,000 per second a single one would be
    invisible."""
    windows = axis.windows
    source = ColumnDataSource(
        {
            "t": [t + windows.step_s / 2 for t in windows.times],
            "at": [words.clock(t) for t in windows.times],
            "fail": windows.fail,
            "info": windows.info,
        }
    )
    stacked = [sum(pair) for pair in zip(windows.fail, windows.info, strict=True)]
    plot = axis.figure(CHART_HEIGHT - 45, y_range=from_zero(stacked), y_axis_label="messages")
    axis.bands_behind(plot)
    bars = plot.vbar_stack(
        ["fail", "info"],
        x="t",
        width=windows.step_s * 0.9,
        source=source,
        color=[VERMILLION, GREY],
        hatch_pattern=["cross", "right_diagonal_line"],
        hatch_alpha=0.5,
        legend_label=["fail: certainly not stored", "info: outcome unknown"],
    )
    plot.add_tools(
        HoverTool(
            renderers=[bars[-1]], tooltips=[("at", "@at"), ("fail", "@fail"), ("info", "@info")]
        )
    )
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0")
    legend_above(plot)
    text = f"{words.count(sum(windows.fail))} fail and {words.count(sum(windows.info))} info."
    return Chart("errors", "Not acknowledged", plot, text)


def latency(axis: TimeAxis) -> Chart:
    """Draw the latency of sends over time, by percentile."""
    windows = axis.windows
    source = ColumnDataSource(
        {
            "t": windows.times,
            "at": [words.clock(t) for t in windows.times],
            "p50": _gaps(windows.p50_ms),
            "p99": _gaps(windows.p99_ms),
            "delay": _gaps(windows.delay_p99_ms),
        }
    )
    plot = axis.figure(CHART_HEIGHT, y_axis_type="log", y_axis_label="ms")
    axis.bands_behind(plot)
    shared: dict[str, Any] = {"x": "t", "source": source, "mode": "after"}
    plot.step(
        y="delay",
        color=GREEN,
        line_dash="dotted",
        line_width=2,
        legend_label="send delay p99",
        **shared,
    )
    plot.step(y="p50", color=BLUE, line_width=2, legend_label="p50", **shared)
    line = plot.step(
        y="p99", color=VERMILLION, line_dash="dashed", line_width=2, legend_label="p99", **shared
    )
    tips = [
        ("at", "@at"),
        ("p50", "@p50{0.0} ms"),
        ("p99", "@p99{0.0} ms"),
        ("send delay p99", "@delay{0.0} ms"),
    ]
    plot.add_tools(HoverTool(renderers=[line], tooltips=tips, mode="vline"))
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0.[0]")
    legend_above(plot)
    known = [
        (value, t)
        for value, t in zip(windows.p99_ms, windows.times, strict=True)
        if value is not None
    ]
    since = words.latency_from(axis.result.no_intended_times)
    text = f"{since.capitalize()}."
    if not axis.result.no_intended_times:
        text = f"{since.capitalize()}, so that a stalled client is charged for every message it held back."
    if known:
        worst, at = max(known)
        text += f" The worst window has p99 {words.millis(worst)}, at {words.clock(at)}."
    small = condensed(axis.result.timeline, TABLE_ROWS)
    columns = (small.p50_ms, small.p99_ms, small.delay_p99_ms)
    table = tuple(
        (words.clock(t), *(words.millis(value) for value in values))
        for t, *values in zip(small.times, *columns, strict=True)
    )
    return Chart("latency", "Latency", plot, text, ("from", "p50", "p99", "send delay p99"), table)


def application_chart(
    axis: TimeAxis, application: ApplicationResult, flow: ApplicationFlow, number: int
) -> Chart:
    """Draw the backlog of an application and the delay of its outputs over time."""
    name = words.plain(application.name)
    size = max(1, -(-len(flow.p99_ms) // MAX_WINDOWS))
    starts = range(0, len(flow.p99_ms), size)
    times = [start * flow.step_s for start in starts]
    parts = [[v for v in flow.p99_ms[i : i + size] if v is not None] for i in starts]
    delays = [max(part, default=None) for part in parts]
    waiting = [max(flow.backlog[i : i + size], default=0) for i in starts]
    source = ColumnDataSource(
        {
            "t": times,
            "at": [words.clock(t) for t in times],
            "delay": _gaps(delays),
            "waiting": waiting,
        }
    )
    plot = axis.figure(CHART_HEIGHT, y_axis_type="log", y_axis_label="ms")
    axis.bands_behind(plot)
    shared: dict[str, Any] = {"x": "t", "source": source, "mode": "after"}
    line = plot.step(y="delay", color=VERMILLION, line_width=2, legend_label="delay p99", **shared)
    tips = [("at", "@at"), ("delay p99", "@delay{0,0.0} ms")]
    if flow.backlog:
        plot.extra_y_ranges = {"waiting": from_zero(waiting)}
        plot.add_layout(LinearAxis(y_range_name="waiting", axis_label="inputs"), "right")
        plot.step(
            y="waiting",
            y_range_name="waiting",
            color=BLUE,
            line_dash="dashed",
            line_width=2,
            legend_label="backlog",
            **shared,
        )
        tips.append(("backlog", "@waiting{0,0}"))
    plot.add_tools(HoverTool(renderers=[line], tooltips=tips, mode="vline"))
    plot.yaxis[0].formatter = NumeralTickFormatter(format="0,0.[0]")
    legend_above(plot)
    text = "The delay is from when an input was due until its first output was stored."
    if flow.backlog:
        text += f" At most {words.plural(max(flow.backlog), 'acknowledged input')} waited for one."
    if recovery := words.slowest_recovery(application):
        text += f" {recovery[:1].upper()}{recovery[1:]}."
    chosen = range(0, len(times), max(1, -(-len(times) // TABLE_ROWS)))
    table = tuple(
        (
            words.clock(times[i]),
            words.millis(delays[i]),
            words.count(waiting[i]) if flow.backlog else "–",
        )
        for i in chosen
    )
    header = ("from", "delay p99", "backlog")
    return Chart(f"application-{number}", f"Application {name}", plot, text, header, table)


def percentile_curve(percentiles: Sequence[tuple[float, float]]) -> Chart:
    """Latency against 1/(1-q) on a log axis, as HdrHistogram draws it."""
    points = [(1 / (1 - q), ms, q) for q, ms in percentiles if q < 1 and math.isfinite(ms)]
    ticks = {
        2.0: "50 %",
        10.0: "90 %",
        100.0: "99 %",
        1e3: "99.9 %",
        1e4: "99.99 %",
        1e5: "99.999 %",
        1e6: "99.9999 %",
    }
    source = ColumnDataSource(
        {
            "x": [x for x, _, _ in points],
            "ms": [ms for _, ms, _ in points],
            "q": [words.quantile(q) for _, _, q in points],
        }
    )
    plot = styled(
        figure(
            height=CHART_HEIGHT + 20,
            x_axis_type="log",
            y_axis_type="log" if all(ms > 0 for _, ms, _ in points) else "linear",
            x_axis_label="share of the messages",
            y_axis_label="ms",
            tools="pan,box_zoom,reset",
        )
    )
    line = plot.line(x="x", y="ms", source=source, color=BLUE, line_width=2.5)
    plot.scatter(x="x", y="ms", source=source, color=BLUE, size=6)
    plot.add_tools(
        HoverTool(
            renderers=[line], tooltips=[("", "@q"), ("latency", "@ms{0,0.0} ms")], mode="vline"
        )
    )
    plot.xaxis.ticker = FixedTicker(ticks=list(ticks))
    plot.xaxis.major_label_overrides = ticks
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0.[0]")
    shown = [(q, ms) for q, ms in percentiles if q in (0.5, 0.9, 0.99, 0.999, 0.9999, 1.0)]
    text = ", ".join(
        f"{words.quantile(q) if q < 1 else 'max'} {words.millis(ms)}" for q, ms in shown
    )
    table = tuple((words.quantile(q), words.millis(ms)) for q, ms in percentiles)
    return Chart(
        "percentiles", "Latency by percentile", plot, f"{text}.", ("percentile", "latency"), table
    )


def from_zero(values: Sequence[float]) -> Any:
    """From 0 to a little above the highest."""
    return Range1d(0, max([*values, 0.0]) * 1.06 or 1.0)


def _gaps(values: Sequence[float | None]) -> list[float]:
    """Replace None by NaN, which Bokeh draws as a gap; a logarithmic axis cannot show 0."""
    return [float("nan") if value is None else max(value, 0.01) for value in values]
