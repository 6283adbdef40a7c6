"""The frame that all charts of a page share: time axis with fault bands, margins, legends.

Every series differs from the others by its colour and by a dash pattern, a hatch or a marker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bokeh.models import ColumnDataSource, CrosshairTool, Range1d, Span
from bokeh.plotting import figure

from analysis.findings import FaultRow, Result
from analysis.report import words
from analysis.report.looks import GREY, look_of
from analysis.report.windows import Windows, condensed

#: Windows drawn of a series at most; longer runs are condensed to this.
MAX_WINDOWS = 1000
#: An instant fault is drawn this share of the axis wide, so that it can be seen.
MIN_BAND_SHARE = 0.003

LABEL_CHAR_PX = 6.6


@dataclass(frozen=True, slots=True)
class Chart:
    """A figure, with its contents as text and numbers for readers who cannot see it or point at
    it."""

    key: str
    title: str
    plot: Any
    summary: str
    header: tuple[str, ...] = ()
    table: tuple[tuple[str, ...], ...] = ()


@dataclass(slots=True)
class TimeAxis:
    """The parts that the timelines of a page share: range, crosshair, fault bands, left margin.

    ``labels``: names next to a chart; every chart leaves room for them, so that all line up.
    """

    result: Result
    labels: Sequence[str] = ()
    range: Any = None  # None = from the first window to the last
    windows: Windows = field(init=False)
    cursor: Any = field(init=False)
    bands: Any = field(init=False)
    margin_px: int = field(init=False)

    def __post_init__(self) -> None:
        self.windows = condensed(self.result.timeline, MAX_WINDOWS)
        times = self.windows.times
        start = times[0] if times else 0.0
        end = times[-1] + self.windows.step_s if times else 1.0
        if self.range is None:
            self.range = Range1d(start, end, bounds=(start, end))
        self.cursor = Span(dimension="height", line_color=GREY, line_dash="dotted", line_width=1)
        self.bands = band_source(self.result.faults, (end - start) * MIN_BAND_SHARE)
        longest = max((len(name) for name in self.labels), default=0)
        self.margin_px = round(max(70, longest * LABEL_CHAR_PX + 24))

    def figure(self, height: int, **options: Any) -> Any:
        """An empty timeline with its fault bands as the background."""
        options = {"x_axis_label": "seconds since the start of the load", **options}
        plot = styled(
            figure(height=height, x_range=self.range, tools="xpan,xbox_zoom,reset", **options)
        )
        plot.min_border_left = self.margin_px
        plot.add_tools(CrosshairTool(overlay=self.cursor, dimensions="height"))
        return plot

    def bands_behind(self, plot: Any) -> None:
        """Draw the time of each fault as a band below the curves."""
        plot.vstrip(
            x0="start",
            x1="end",
            source=self.bands,
            fill_color="colour",
            fill_alpha=0.16,
            line_color="colour",
            line_alpha=0.5,
            hatch_pattern="hatch",
            hatch_color="colour",
            hatch_alpha=0.25,
            level="underlay",
        )


def fired_kinds(result: Result) -> list[str]:
    """Kinds of the faults that fired, in order of their first time."""
    return list(dict.fromkeys(fault.kind for fault in result.faults if not fault.skipped))


def band_source(faults: Sequence[FaultRow], min_width_s: float) -> Any:
    """One row a fault that fired."""
    fired = [fault for fault in faults if not fault.skipped]
    looks = [look_of(fault.kind) for fault in fired]
    ends = [fault.until_s if fault.until_s is not None else fault.t_s for fault in fired]
    return ColumnDataSource(
        {
            "start": [fault.t_s for fault in fired],
            "end": [
                max(end, fault.t_s + min_width_s) for end, fault in zip(ends, fired, strict=True)
            ],
            "kind": [fault.kind for fault in fired],
            "colour": [look.colour for look in looks],
            "hatch": [look.hatch for look in looks],
            "fill": [0.55 if fault.effective else 0.0 for fault in fired],
            "what": [words.plain(f"#{fault.id} {fault.kind} {fault.target}") for fault in fired],
            "when": [
                f"{words.clock(fault.t_s)} to {words.clock(end)}"
                for fault, end in zip(fired, ends, strict=True)
            ],
            "proof": [
                words.plain(
                    fault.evidence if fault.effective else f"had no effect: {fault.evidence}"
                )
                for fault in fired
            ],
        }
    )


def roomy(plot: Any, points: Sequence[tuple[float, float]], room: float) -> set[float]:
    """Times of the highest (time, value) that leave ``room``, a share of the axis, between their
    labels."""
    chosen: list[float] = []
    for t, _ in sorted(points, key=lambda point: -point[1]):
        if all(
            abs(t - other) >= room * (plot.x_range.end - plot.x_range.start) for other in chosen
        ):
            chosen.append(t)
    return set(chosen)


def styled(plot: Any) -> Any:
    """The look of every figure: no box, no logo, the page's own background."""
    plot.sizing_mode = "stretch_width"
    plot.toolbar.logo = None
    plot.toolbar.autohide = True
    plot.background_fill_color = None
    plot.border_fill_color = None
    plot.outline_line_color = None
    plot.grid.grid_line_color = GREY
    plot.grid.grid_line_alpha = 0.25
    plot.axis.axis_label_text_font_style = "normal"
    return plot


def legend_above(plot: Any) -> None:
    """Above the plot, where it hides nothing; a click mutes a series."""
    legend = plot.legend[0]
    plot.add_layout(legend, "above")
    legend.orientation = "horizontal"
    legend.click_policy = "hide"
    legend.background_fill_alpha = 0
    legend.border_line_alpha = 0
    legend.padding = 0
    legend.margin = 0
