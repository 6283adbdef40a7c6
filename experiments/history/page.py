"""Writes the morning's page: one offline HTML file, drawn without a script.

Strips and trends are inline SVG: a year of fifty cells takes less than a chart library alone would.
A night differs by its height as well as by its colour, a change by its glyph and its dashes.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Final
from urllib.parse import quote

from markupsafe import Markup

from analysis.report import words
from analysis.report.html import render, template_source
from experiments.history.changes import Change
from experiments.history.report import CellRow, SuiteReport, Trend, change_text, figure_text
from experiments.history.series import METRICS

#: Width of a night in a strip, and height of the strip, in pixels.
_NIGHT, _HIGH = 5, 16
#: (top, height) of a night's bar: the worse, the higher.
_BARS: Final = {
    "fail": (0, 16),
    "broken": (2, 12),
    "unknown": (5, 11),
    "pass": (11, 5),
    "not run": (14, 2),
}
_WIDE, _TALL = 190, 34


def run_pages(report: SuiteReport) -> dict[str, Path]:
    """Folder of a run -> its report, of all runs that the page names and whose report is there."""
    rounds = (each.folder for cell in report.cells for each in cell.rounds)
    folders = dict.fromkeys([*rounds, *(row.folder for row in report.findings)])
    pages = {folder: Path(folder, "report.html") for folder in folders if folder}
    return {folder: page for folder, page in pages.items() if page.exists()}


def suite_page(report: SuiteReport, folder: Path, pages: Mapping[str, Path]) -> str:
    """The page, to be written into ``folder``: links are relative to it.

    Args:
        pages: as of `run_pages`, or where they are published.
    """

    def link(run: str) -> str:
        return quote(os.path.relpath(pages[run], folder)) if run in pages else ""

    names = [metric.name for metric in METRICS]
    return render(
        "suite.html",
        r=report,
        own_style=template_source("suite.css"),
        chart_script="",
        link=link,
        sentence=change_text,
        figure=figure_text,
        clients=_clients,
        plural=words.plural,
        percent=words.percent,
        key=_key,
        strip=lambda cell: _strip(cell, report.strip_nights),
        figures=[change for change in report.fresh if change.kind == "figure"],
        told=report.changes[::-1],
        metrics=names,
        trends=_trends(report, names),
    )


def _clients(cell: CellRow) -> str:
    """Each client with its version, where there is one for each."""
    names, versions = cell.client.split(", "), (cell.client_version or "").split(", ")
    if len(names) != len(versions):
        return f"{cell.client} {cell.client_version or ''}".strip()
    return ", ".join(
        f"{name} {version}".strip() for name, version in zip(names, versions, strict=True)
    )


def _key(word: str) -> Markup:
    return (
        Markup(
            f'<svg class="strip" style="display:inline" width="6" height="{_HIGH}" aria-hidden="true">'
        )
        + _bar(word, 0)
        + Markup("</svg>")
    )


def _bar(word: str, at: int) -> Markup:
    top, height = _BARS[word]
    look = "none" if word == "not run" else word
    return Markup(
        f'<rect class="{look}" x="{at}" y="{top}" width="{_NIGHT - 1}" height="{height}"/>'
    )


def _strip(cell: CellRow, nights: Sequence[str]) -> Markup:
    """The last nights of a cell, one bar each; the same in words for those who cannot see it."""
    counts = {word: cell.strip.count(word) for word in _BARS}
    said = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    reds = [night for night, word in zip(nights, cell.strip, strict=True) if word == "fail"]
    last = f"; last fail {reds[-1]}" if reds else ""
    bars = Markup("").join(_bar(word, at * _NIGHT) for at, word in enumerate(cell.strip))
    label = escape(f"{said}{last}", quote=True)
    size = f'width="{len(nights) * _NIGHT}" height="{_HIGH}"'
    head = f'<svg class="strip" {size} role="img" aria-label="{label}">'
    return Markup(f"{head}<title>{label}</title>") + bars + Markup("</svg>")


def _trends(report: SuiteReport, metrics: Sequence[str]) -> list[tuple[str, list[Markup]]]:
    """By cell, one drawing a metric."""
    drawn = {(trend.cell, trend.metric): trend for trend in report.trends}
    changes: dict[tuple[str, str], list[Change]] = {}
    for change in report.changes:
        changes.setdefault((change.cell, change.subject), []).append(change)
    at = {night: number for number, night in enumerate(report.trend_nights)}
    made = []
    for cell in dict.fromkeys(trend.cell for trend in report.trends):
        known = [(drawn.get((cell, metric)), changes.get((cell, metric), [])) for metric in metrics]
        made.append(
            (cell, [_spark(trend, told, at) if trend else Markup("–") for trend, told in known])
        )
    return made


def _spark(trend: Trend, told: Sequence[Change], at: dict[str, int]) -> Markup:
    """A line from the lowest to the highest value, broken where a night has none, and its
    changes."""
    values = [value for value in trend.values if value is not None]
    low, high = min(values), max(values)
    least = {metric.name: metric.least for metric in METRICS}[trend.metric]
    # what does not matter is not drawn as a storm
    middle, room = (low + high) / 2, (least - 1) * high
    low, high = min(low, middle - room / 2), max(high, middle + room / 2)
    step = (_WIDE - 60) / max(1, len(trend.values) - 1)
    scale = (_TALL - 10) / ((high - low) or 1.0)

    def point(index: int, value: float) -> str:
        return f"{index * step:.4g},{_TALL - 2 - (value - low) * scale:.3g}"

    lines, points = [], []
    for index, value in enumerate([*trend.values, None]):
        if value is not None:
            points.append(point(index, value))
        elif points:
            # A night without neighbours is a dot: a line of one point would not be seen.
            drawn = [*points, *points] if len(points) == 1 else points
            lines.append(f'<polyline points="{" ".join(drawn)}"/>')
            points = []
    marks = [_mark(change, at[change.at] * step) for change in told if change.at in at]
    last = figure_text(trend.metric, values[-1])
    lowest, highest = (figure_text(trend.metric, each(values)) for each in (min, max))
    label = f"{trend.metric}: {last}, from {lowest} to {highest}; {words.plural(len(told), 'change')} told"
    text = f'<text x="{_WIDE - 55}" y="22" font-size="11" fill="currentColor">{last}</text>'
    size = f'width="{_WIDE}" height="{_TALL}"'
    head = f'<svg class="spark" {size} role="img" aria-label="{escape(label, quote=True)}">'
    return Markup(f"{head}{''.join(lines)}{''.join(marks)}{text}</svg>")


def _mark(change: Change, x: float) -> str:
    look = "machine" if change.machine else "worse" if change.is_worse else "better"
    shapes = {"worse": "0,8 4,0 8,8", "better": "0,0 4,8 8,0", "machine": "4,0 8,4 4,8 0,4"}
    points = " ".join(
        f"{x + float(a) - 4:.4g},{b}" for a, b in (pair.split(",") for pair in shapes[look].split())
    )
    told = escape(change_text(change), quote=True)
    line = f'<line x1="{x:.4g}" x2="{x:.4g}" y1="8" y2="{_TALL}"/>'
    return f'<g class="{look}"><title>{told}</title>{line}<polygon points="{points}"/></g>'


def write_suite_page(report: SuiteReport, path: Path, *, publish: bool = False) -> Path:
    """Write the page and return its path; to publish it, with the reports that it links in its
    folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pages = run_pages(report)
    if publish:
        pages = {folder: _copied(page, path.parent / "reports") for folder, page in pages.items()}
    path.write_text(suite_page(report, path.parent, pages), encoding="utf-8")
    return path


def _copied(page: Path, folder: Path) -> Path:
    """A run's report, which is one file, under a name that no other run has."""
    run = page.parent.resolve()
    target = folder / f"{run.name}-{sha256(str(run).encode()).hexdigest()[:8]}.html"
    folder.mkdir(exist_ok=True)
    shutil.copyfile(page, target)
    return target
