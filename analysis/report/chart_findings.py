"""Draws when and where the messages of a class were: fault lanes, counts by second, counts by
partition."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from bokeh.layouts import column
from bokeh.models import ColumnDataSource, HoverTool, LabelSet, NumeralTickFormatter, Range1d

from analysis.findings import Finding, Result, StreamCount
from analysis.report import words
from analysis.report.chart_frame import MIN_BAND_SHARE, Chart, TimeAxis, fired_kinds, roomy
from analysis.report.looks import INK, VERMILLION
from analysis.report.story import grave

#: Classes with charts of their own, and partitions with a row of their own in one.
MAX_CHARTS, MAX_ROWS = 3, 12
LANE_HEIGHT, ROW_HEIGHT, BAR_HEIGHT, AXIS_HEIGHT = 22, 15, 112, 54
#: Room above the highest bar for its number, as a share of the bar's height.
NUMBER_SHARE = 0.25
#: Where a logarithmic scale begins, so that a bar of one message can be seen.
LEAST_COUNT = 0.5
#: From this ratio of the fullest to the emptiest window on, counts have a logarithmic scale.
LOG_FROM = 20
#: Share of the axis that the number above a bar takes; a lower bar that is nearer has none.
NUMBER_ROOM = 0.15
#: Rows of the table below a chart.
TABLE_ROWS = 60
MAX_LABEL = 34


def timed(result: Result) -> list[Finding]:
    """Findings that have charts of their own: the gravest whose messages have a time."""
    return [f for f in grave(result) if any(row.windows for row in f.by_stream)][:MAX_CHARTS]


def labels_of(result: Result) -> list[str]:
    """Every label next to a chart of this module."""
    return [*fired_kinds(result), *(_label(row) for f in timed(result) for row in shown_streams(f))]


def finding_charts(axis: TimeAxis) -> list[Chart]:
    """One chart a class, the gravest first; the first with the lanes of the faults above it."""
    return [_chart(axis, finding, first=i == 0) for i, finding in enumerate(timed(axis.result))]


def _chart(axis: TimeAxis, finding: Finding, *, first: bool) -> Chart:
    lanes = [lanes_plot(axis)] if first and fired_kinds(axis.result) else []
    counts = _Counts.from_finding(finding)
    plots = [
        *lanes,
        counts_plot(axis, finding, counts_range([finding])),
        _streams_plot(axis, finding),
    ]
    each = "second" if finding.window_s == 1 else f"{finding.window_s} s"
    text = f"{words.count(sum(counts.all))} messages by {each}"
    text += ", on a logarithmic scale" if is_logarithmic([finding]) else ""
    text += f": most at {words.clock(counts.peak)} ({words.count(max(counts.all))})."
    text += f" Below: by {_what(finding)}, the fuller the colour, the more."
    return Chart(
        f"when-{finding.cls}",
        f"{finding.cls}: when and where",
        column(plots, sizing_mode="stretch_width", spacing=0),
        text,
        ("from", "messages", "where"),
        _table(finding, counts),
    )


def counts_chart(axis: TimeAxis, finding: Finding, scale: Any) -> Chart:
    """The counts alone, on a scale that other charts share."""
    plot = counts_plot(axis, finding, scale)
    plot.xaxis.visible = True
    text = f"{words.count(finding.count)} in all" + (
        ", on a logarithmic scale." if scale.start else "."
    )
    return Chart(f"counts-{finding.cls}", f"{finding.cls} by second", plot, text)


def _what(finding: Finding) -> str:
    return "partition, topic or queue" if len(finding.by_stream) > 1 else "place"


# -- faults


def lanes_plot(axis: TimeAxis) -> Any:
    """A row for each kind of fault, with a bar until the fault was undone. A hollow bar had no
    effect."""
    names = fired_kinds(axis.result)
    plot = axis.figure(
        30 + LANE_HEIGHT * len(names),
        y_range=list(reversed(names)),
        x_axis_location="above",
        x_axis_label="",
    )
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
        HoverTool(
            renderers=[bars],
            tooltips=[("fault", "@what"), ("window", "@when"), ("proof", "@proof")],
        )
    )
    return plot


# -- by second


@dataclass(frozen=True, slots=True)
class _Counts:
    """Windows with any message, over all streams: start (s) and messages, in order of time."""

    starts: list[int]
    all: list[int]

    @classmethod
    def from_finding(cls, finding: Finding) -> _Counts:
        """Return the messages of a finding by window, over all streams."""
        total: Counter[int] = Counter()
        for row in finding.by_stream:
            for start, number in row.windows:
                total[start] += number
        starts = sorted(total)
        return cls(starts, [total[start] for start in starts])

    @property
    def peak(self) -> int:
        """The start of the window with the most messages."""
        return self.starts[self.all.index(max(self.all))]


def is_logarithmic(findings: Sequence[Finding]) -> bool:
    """Whether the fewest messages of a window would be too small to see next to the most."""
    counted = [number for finding in findings for number in _Counts.from_finding(finding).all]
    return max(counted) >= LOG_FROM * min(counted)


def counts_range(findings: Sequence[Finding]) -> Any:
    """The scale of counts that all these findings fit."""
    most = max(number for finding in findings for number in _Counts.from_finding(finding).all)
    if not is_logarithmic(findings):
        return Range1d(0, most * (1 + NUMBER_SHARE))
    return Range1d(LEAST_COUNT, most * (most / LEAST_COUNT) ** NUMBER_SHARE)


def counts_plot(axis: TimeAxis, finding: Finding, scale: Any) -> Any:
    """Messages of a class by window, over the bands of the faults; ``scale``: of `counts_range`."""
    counts, width = _Counts.from_finding(finding), finding.window_s
    logarithmic = scale.start > 0
    plot = axis.figure(
        BAR_HEIGHT,
        y_range=scale,
        y_axis_type="log" if logarithmic else "linear",
        y_axis_label="messages" if width > 1 else "messages / s",
    )
    axis.bands_behind(plot)
    numbered = roomy(plot, list(zip(counts.starts, counts.all, strict=True)), NUMBER_ROOM)
    source = ColumnDataSource(
        {
            "t": [start + width / 2 for start in counts.starts],
            "at": [words.clock(start) for start in counts.starts],
            "count": counts.all,
            "number": [words.count(number) for number in counts.all],
            "label": [
                words.count(number) if start in numbered else ""
                for start, number in zip(counts.starts, counts.all, strict=True)
            ],
        }
    )
    bars = plot.vbar(
        x="t",
        top="count",
        bottom=scale.start,
        width=_drawn_width(axis, width),
        source=source,
        color=VERMILLION,
    )
    plot.add_tools(
        HoverTool(renderers=[bars], tooltips=[("from", "@at"), (finding.cls, "@number")])
    )
    shared: dict[str, Any] = {"text_font_size": "11px", "text_align": "center", "y_offset": 2}
    plot.add_layout(LabelSet(x="t", y="count", text="label", source=source, **shared))
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0")
    plot.yaxis.ticker.desired_num_ticks = 4
    plot.yaxis.minor_tick_line_color = None
    plot.xaxis.visible = False
    return plot


def _drawn_width(axis: TimeAxis, width_s: int) -> float:
    """Return the drawn width of a window in seconds. In a long run it is drawn wider than it is, so
    that it can be seen.
    """
    least: float = MIN_BAND_SHARE * (axis.range.end - axis.range.start)
    return max(width_s * 0.9, least)


# -- by partition


def shown_streams(finding: Finding) -> list[StreamCount]:
    """At most `MAX_ROWS` rows, the last for all that have none of their own."""
    rows = list(finding.by_stream)
    if len(rows) <= MAX_ROWS:
        return rows
    own, rest = rows[: MAX_ROWS - 1], rows[MAX_ROWS - 1 :]
    windows = sum((Counter(dict(row.windows)) for row in rest), Counter[int]())
    others = StreamCount(
        stream="",
        count=sum(row.count for row in rest),
        windows=sorted(windows.items()),
        streams=sum(row.streams for row in rest),
    )
    return [*own, others]


def _label(row: StreamCount) -> str:
    name = words.plain(row.stream) or f"{words.count(row.streams)} others"
    if len(name) > MAX_LABEL:
        name = f"…{name[1 - MAX_LABEL :]}"
    return f"{name} · {words.count(row.count)}"


def _streams_plot(axis: TimeAxis, finding: Finding) -> Any:
    rows, width = shown_streams(finding), finding.window_s
    labels = list(dict.fromkeys(map(_label, rows)))
    cells = [(_label(row), start, number) for row in rows for start, number in row.windows]
    most = max(number for _, _, number in cells)
    plot = axis.figure(
        AXIS_HEIGHT + ROW_HEIGHT * len(labels),
        y_range=list(reversed(labels)),
    )
    axis.bands_behind(plot)
    plot.ygrid.visible = False
    source = ColumnDataSource(
        {
            "label": [label for label, _, _ in cells],
            "t": [start + width / 2 for _, start, _ in cells],
            "at": [words.clock(start) for _, start, _ in cells],
            "number": [words.count(number) for _, _, number in cells],
            "alpha": [
                round(0.25 + 0.75 * math.log(1 + n) / math.log(1 + most), 2) for _, _, n in cells
            ],
        }
    )
    squares = plot.rect(
        x="t",
        y="label",
        width=_drawn_width(axis, width),
        height=0.82,
        source=source,
        fill_color=VERMILLION,
        fill_alpha="alpha",
        line_color=VERMILLION,
    )
    plot.add_tools(
        HoverTool(
            renderers=[squares],
            tooltips=[("", "@label"), ("from", "@at"), (finding.cls, "@number")],
        )
    )
    _mark_witnesses(plot, finding, {row.stream: _label(row) for row in rows})
    return plot


def _mark_witnesses(plot: Any, finding: Finding, labels: dict[str, str]) -> None:
    shown = [
        replace(w, where=labels[w.where]) for w in finding.witnesses if w.t_s and w.where in labels
    ]
    if not shown:
        return
    source = ColumnDataSource(
        {
            "t": [witness.t_s for witness in shown],
            "label": [witness.where for witness in shown],
            "message": [witness.message for witness in shown],
            "what": [words.plain(witness.sentence) for witness in shown],
        }
    )
    shape: dict[str, Any] = {
        "marker": "inverted_triangle",
        "size": 8,
        "color": "#ffffff",
        "line_color": INK,
    }
    marks = plot.scatter(x="t", y="label", source=source, **shape)
    plot.add_tools(HoverTool(renderers=[marks], tooltips=[("example", "@message"), ("", "@what")]))


def _table(finding: Finding, counts: _Counts) -> tuple[tuple[str, ...], ...]:
    """The windows with the most messages, in order of time, and where those were."""
    most = sorted(zip(counts.all, counts.starts, strict=True), reverse=True)[:TABLE_ROWS]
    rows = []
    for start, number in sorted((start, number) for number, start in most):
        here = [(dict(row.windows).get(start, 0), row) for row in finding.by_stream]
        named = sorted(((n, row) for n, row in here if n), key=lambda pair: -pair[0])
        texts = [f"{words.plain(row.stream) or 'others'} {words.count(n)}" for n, row in named[:3]]
        more = f" and {len(named) - 3} more" if len(named) > 3 else ""
        rows.append((words.clock(start), words.count(number), ", ".join(texts) + more))
    return tuple(rows)
