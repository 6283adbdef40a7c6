"""Draws CPU and memory of nodes and clients over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from bokeh.models import ColumnDataSource, HoverTool, NumeralTickFormatter, Range1d

from analysis.findings import Usage
from analysis.report import words
from analysis.report.chart_frame import Chart, TimeAxis, legend_above
from analysis.report.looks import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILLION

_COLOURS = (BLUE, GREEN, VERMILLION, PURPLE, SKY, ORANGE)
#: Nodes are drawn whole, clients broken.
_DASHES = {"node": "solid", "client": "dashed"}
MAX_LEGEND = 10
HEIGHT = 210
_MIB = 2**20
#: A pause between samples this many times the usual one is a gap: a node that was down.
_GAP = 2.5


def usage_charts(axis: TimeAxis) -> list[Chart]:
    """CPU and memory, or nothing where neither was measured."""
    usage = [seen for one in axis.result.usage if (seen := _within(one, axis)).t_s]
    made = []
    if any(value is not None for one in usage for value in one.cpu):
        made.append(
            _chart(axis, usage, "cpu", "CPU", "cores", lambda one: one.cpu, _cpu_text(usage))
        )
    if any(one.rss_bytes for one in usage):
        memory = _chart(axis, usage, "memory", "Memory", "MiB", _memory, _memory_text(usage))
        made.append(memory)
    return made


def _within(one: Usage, axis: TimeAxis) -> Usage:
    """The samples between the ends of the time axis: the audit, for one, comes after it."""
    kept = [i for i, t in enumerate(one.t_s) if axis.range.start <= t <= axis.range.end]
    return replace(
        one,
        t_s=[one.t_s[i] for i in kept],
        cpu=[one.cpu[i] for i in kept],
        rss_bytes=[one.rss_bytes[i] for i in kept],
    )


def _memory(one: Usage) -> list[float | None]:
    return [value / _MIB for value in one.rss_bytes]


def _cpu_text(usage: Sequence[Usage]) -> str:
    return _most(usage, lambda one: one.cpu, lambda value: f"{value:.2f} cores")


def _memory_text(usage: Sequence[Usage]) -> str:
    return _most(usage, _memory, lambda value: f"{words.count(value)} MiB")


def _most(
    usage: Sequence[Usage],
    values: Callable[[Usage], list[float | None]],
    text: Callable[[float], str],
) -> str:
    """The most that any node and any client used, and when."""
    parts = []
    for role in _DASHES:
        known = [
            (value, t, one.name)
            for one in usage
            if one.role == role
            for value, t in zip(values(one), one.t_s, strict=True)
            if value is not None
        ]
        if known:
            value, t, name = max(known)
            parts.append(f"{role}s: at most {text(value)}, {words.plain(name)} at {words.clock(t)}")
    told = "; ".join(parts)
    return f"{told[:1].upper()}{told[1:]}."


def _chart(
    axis: TimeAxis,
    usage: Sequence[Usage],
    key: str,
    title: str,
    unit: str,
    values: Callable[[Usage], list[float | None]],
    text: str,
) -> Chart:
    drawn = [value for one in usage for value in values(one) if value is not None]
    scale = Range1d(0, max([*drawn, 0.0]) * 1.08 or 1.0)
    plot = axis.figure(HEIGHT, y_range=scale, y_axis_label=unit)
    axis.bands_behind(plot)
    for number, one in enumerate(usage):
        times, shown = _with_gaps(one.t_s, values(one))
        source = ColumnDataSource(
            {"t": times, "value": shown, "at": [words.clock(t) for t in times]}
        )
        look: dict[str, Any] = {"line_dash": _DASHES.get(one.role, "dotted"), "line_width": 1.8}
        if len(usage) <= MAX_LEGEND:
            look["legend_label"] = words.plain(one.name)
        line = plot.line(
            x="t", y="value", source=source, color=_COLOURS[number % len(_COLOURS)], **look
        )
        tips = [
            ("", words.plain(one.name).replace("@", "")),
            ("at", "@at"),
            (unit, "@value{0,0.[00]}"),
        ]
        plot.add_tools(HoverTool(renderers=[line], tooltips=tips))
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0.[00]")
    if plot.legend:
        legend_above(plot)
    lines = "Nodes are solid lines, clients dashed."
    if not any(one.role == "node" for one in usage):  # of a cluster that somebody else started
        lines = "No figures of nodes were captured."
    return Chart(key, title, plot, f"{text} {lines}", *_table(usage, values, unit))


def _with_gaps(
    times: Sequence[float], values: Sequence[float | None]
) -> tuple[list[float], list[float]]:
    """Samples with a NaN where there was none for long."""
    steps = sorted(b - a for a, b in pairwise(times))
    usual = steps[len(steps) // 2] if steps else 1.0
    out: tuple[list[float], list[float]] = ([], [])
    for t, value in zip(times, values, strict=True):
        if out[0] and t - out[0][-1] > _GAP * usual:
            out[0].append(out[0][-1] + usual)
            out[1].append(float("nan"))
        out[0].append(t)
        out[1].append(float("nan") if value is None else value)
    return out


def _table(
    usage: Sequence[Usage], values: Callable[[Usage], list[float | None]], unit: str
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    rows = []
    for one in usage:
        known = [value for value in values(one) if value is not None]
        if known:
            mean, most = sum(known) / len(known), max(known)
            rows.append((words.plain(one.name), one.role, f"{mean:,.2f}", f"{most:,.2f}"))
    return ("process", "role", f"mean {unit}", f"most {unit}"), tuple(rows)
