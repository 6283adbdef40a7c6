"""Draws the charts of the page, as Bokeh figures with a sentence each that says the same in words.

Fault windows are bands in every timeline and bars, a lane a kind, in the chart above them; witnesses
stand in the same lanes. All timelines share one x axis and one cursor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from bokeh.models import ColumnDataSource, FixedTicker, HoverTool, NumeralTickFormatter, Range1d
from bokeh.plotting import figure

from analysis.findings import Result, Timeline
from analysis.report import words
from analysis.report.chart_frame import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    VERMILLION,
    Chart,
    TimeAxis,
    lanes,
    legend_above,
    marked,
    styled,
)
from analysis.report.windows import Windows, condensed

#: Rows of the table below a chart.
TABLE_ROWS = 60
CHART_HEIGHT, LANE_HEIGHT = 230, 26


def charts(result: Result) -> list[Chart]:
    """Every chart of a run's page, in order."""
    axis = TimeAxis(result)
    made = []
    if lanes(result):
        made.append(fault_lanes(axis))
    if axis.windows.times:  # Bokeh never comes back from a chart without a single value
        made.append(throughput(axis))
    if any(axis.windows.fail) or any(axis.windows.info):
        made.append(not_acknowledged(axis))
    if any(value is not None for value in axis.windows.p99_ms):
        made.append(latency(axis))
    if any(q < 1 and math.isfinite(ms) for q, ms in result.percentiles):
        made.append(percentile_curve(result.percentiles))
    return made


def fault_lanes(axis: TimeAxis) -> Chart:
    result = axis.result
    names = lanes(result)
    plot = axis.figure(56 + LANE_HEIGHT * len(names), y_range=list(reversed(names)), x_axis_location="above")
    plot.ygrid.visible = False
    bars = plot.hbar(
        y="kind",
        left="start",
        right="end",
        height=0.62,
        source=axis.bands,
        fill_color="colour",
        fill_alpha="fill",
        line_color="colour",
        line_width=1.5,
        hatch_pattern="hatch",
        hatch_color=INK,
        hatch_alpha=0.35,
    )
    plot.add_tools(
        HoverTool(renderers=[bars], tooltips=[("fault", "@what"), ("window", "@when"), ("proof", "@proof")])
    )
    for finding in marked(result):
        dots = plot.scatter(
            x="t",
            y="lane",
            marker="inverted_triangle",
            size=11,
            color=VERMILLION,
            line_color=INK,
            source=ColumnDataSource(
                {
                    "t": [witness.t_s for witness in finding.witnesses],
                    "lane": [finding.cls] * len(finding.witnesses),
                    "message": [witness.message for witness in finding.witnesses],
                    "what": [words.plain(witness.sentence) for witness in finding.witnesses],
                }
            ),
        )
        plot.add_tools(HoverTool(renderers=[dots], tooltips=[("message", "@message"), ("", "@what")]))
    fired = sum(not fault.skipped for fault in result.faults)
    text = f"{words.plural(fired, 'fault')} fired" + "".join(
        f"; {finding.cls}: first shown witness at {words.clock(min(w.t_s for w in finding.witnesses))}"
        for finding in marked(result)
    )
    return Chart("lanes", "Faults and witnesses", plot, text + ". The table of faults below has every time.")


def throughput(axis: TimeAxis) -> Chart:
    windows = axis.windows
    source = ColumnDataSource(
        {
            "t": windows.times,
            "at": [words.clock(t) for t in windows.times],
            "intended": windows.rate(windows.intended),
            "ok": windows.rate(windows.ok),
            "delivered": windows.rate(windows.delivered),
            "fail": windows.fail,
            "info": windows.info,
        }
    )
    drawn = [value for key in ("intended", "ok", "delivered") for value in source.data[key]]
    plot = axis.figure(CHART_HEIGHT + 40, y_range=_from_zero(drawn), y_axis_label="messages / s")
    axis.bands_behind(plot)
    plot.varea_step(x="t", y1=0, y2="ok", source=source, fill_color=BLUE, fill_alpha=0.18, step_mode="after")
    shared: dict[str, Any] = {"x": "t", "source": source, "mode": "after"}
    plot.step(y="intended", color=GREY, line_dash="dashed", line_width=2, legend_label="intended", **shared)
    line = plot.step(y="ok", color=BLUE, line_width=2, legend_label="ok", **shared)
    if any(windows.delivered):
        plot.step(
            y="delivered",
            color=GREEN,
            line_dash="dotdash",
            line_width=1.6,
            legend_label="delivered",
            **shared,
        )
    tips = [
        ("at", "@at"),
        ("intended", "@intended{0,0}/s"),
        ("ok", "@ok{0,0}/s"),
        ("delivered", "@delivered{0,0}/s"),
    ]
    plot.add_tools(
        HoverTool(renderers=[line], tooltips=[*tips, ("fail", "@fail"), ("info", "@info")], mode="vline")
    )
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0")
    legend_above(plot)
    header = ("from", "intended/s", "ok/s", "fail", "info", "delivered/s")
    text = _throughput_text(axis.result, windows)
    return Chart("throughput", "Throughput", plot, text, header, _throughput_table(axis.result.timeline))


def _throughput_table(timeline: Timeline) -> tuple[tuple[str, ...], ...]:
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
    text += f" of {words.per_second(rate['target_per_s'])} intended." if rate.get("target_per_s") else "."
    start, length = windows.longest_silence()
    if length:
        text += (
            f" Longest silence: {words.seconds(length)} without an acknowledgement from {words.clock(start)}."
        )
    else:
        text += " No window without an acknowledgement."
    return text


def not_acknowledged(axis: TimeAxis) -> Chart:
    """Fails and unknowns on a scale of their own: beside 50,000 per second a single one would vanish."""
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
    plot = axis.figure(CHART_HEIGHT - 60, y_range=_from_zero(stacked), y_axis_label="messages")
    axis.bands_behind(plot)
    bars = plot.vbar_stack(
        ["fail", "info"],
        x="t",
        width=windows.step_s * 0.9,
        source=source,
        color=[VERMILLION, ORANGE],
        hatch_pattern=["cross", "right_diagonal_line"],
        hatch_alpha=0.5,
        legend_label=["fail: certainly not stored", "info: outcome unknown"],
    )
    plot.add_tools(
        HoverTool(renderers=[bars[-1]], tooltips=[("at", "@at"), ("fail", "@fail"), ("info", "@info")])
    )
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0")
    legend_above(plot)
    text = f"{words.count(sum(windows.fail))} fail and {words.count(sum(windows.info))} info."
    return Chart("errors", "Not acknowledged", plot, text)


def latency(axis: TimeAxis) -> Chart:
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
    plot = axis.figure(
        CHART_HEIGHT, y_axis_type="log", y_axis_label="ms", x_axis_label="seconds into the load"
    )
    axis.bands_behind(plot)
    shared: dict[str, Any] = {"x": "t", "source": source, "mode": "after"}
    plot.step(
        y="delay", color=ORANGE, line_dash="dotted", line_width=2, legend_label="send delay p99", **shared
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
    known = [(value, t) for value, t in zip(windows.p99_ms, windows.times, strict=True) if value is not None]
    text = "From the intended time, so that a stalled client is charged for every message it held back."
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
        HoverTool(renderers=[line], tooltips=[("", "@q"), ("latency", "@ms{0,0.0} ms")], mode="vline")
    )
    plot.xaxis.ticker = FixedTicker(ticks=list(ticks))
    plot.xaxis.major_label_overrides = ticks
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0.[0]")
    shown = [(q, ms) for q, ms in percentiles if q in (0.5, 0.9, 0.99, 0.999, 0.9999, 1.0)]
    text = ", ".join(f"{words.quantile(q) if q < 1 else 'max'} {words.millis(ms)}" for q, ms in shown)
    table = tuple((words.quantile(q), words.millis(ms)) for q, ms in percentiles)
    return Chart("percentiles", "Latency by percentile", plot, f"{text}.", ("percentile", "latency"), table)


def _from_zero(values: Sequence[float]) -> Any:
    """From 0 to a little above the highest."""
    return Range1d(0, max([*values, 0.0]) * 1.06 or 1.0)


def _gaps(values: Sequence[float | None]) -> list[float]:
    """None -> NaN, which Bokeh draws as a gap; a log axis has no room for 0."""
    return [float("nan") if value is None else max(value, 0.01) for value in values]
