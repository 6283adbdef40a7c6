"""The live view on a terminal: a few lines, four times per second, notes and faults scrolling above
them.

kafka-quick · unsafe · seed 7     load 00:12 of 00:35 ━━━━━━━━━━╸━━━━━━━━━━━━━━━━━━━
rate     49,980/s of 50,000   delay 3 ms
minute   ▇▇▇▇▇▇▇▇▁▁▁▁▁▇▇▇▇▇
sends    ok 599,760   info 37   fail 0   open 812
consume  49,731/s   delivered 597,001   behind 2,759
errors   37 info, 0 fail, the first at 00:11
waiting  producer-1 hangs: 50 sends open, the oldest since 00:07.2 (31.2 s, deadline 30 s), last ...
faults   ▁▁▁▁▁▁███▁▁▁▁▁▁▁   ● #1 kill kafka-1 for 4 s
next     in 3 s leader-move orders all partitions   in 9 s kill leader-of:orders for 4 s
Ctrl-C stops the load, undoes faults, drains and still gives a verdict
"""

from __future__ import annotations

import contextlib
import math
import time
from typing import IO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from harness.progress.view import (
    HISTORY_S,
    BaseProgress,
    RunView,
    clock,
    fault_text,
    load_figures,
    one_line,
)

REFRESH_PER_S = 4
LABEL_WIDTH = 9
STRIP_CELLS = 40
BAR_WIDTH = 30
LOAD_PHASES = ("warm-up", "load")
#: Phases in which the totals still grow; later ones would show a rate that has stopped.
FIGURE_PHASES = (*LOAD_PHASES, "recovery", "drain")
HINT = "Ctrl-C stops the load, undoes faults, drains and still gives a verdict"
#: Of `repro`, `suite` and others, whose rounds count only when they are whole.
HINT_WITHOUT_VERDICT = "Ctrl-C stops the load, undoes faults and keeps the captured data"
LEVELS = "▁▂▃▄▅▆▇█"
#: Faults to come that are named.
NEXT_SHOWN = 2
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class LiveProgress(BaseProgress):
    """Redrawn by a thread of rich's; feeding it costs a lock and a few dictionary writes."""

    def __init__(self, stream: IO[str], *, color: bool = True) -> None:
        super().__init__()
        self._console = Console(
            file=stream,
            force_terminal=True,
            color_system="auto" if color else None,
            highlight=False,
            markup=False,
            emoji=False,
        )
        self._live = Live(
            console=self._console,
            get_renderable=self._draw,
            refresh_per_second=REFRESH_PER_S,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._closed = False
        self._live.start()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            with contextlib.suppress(OSError):  # the terminal went away: nothing left to tidy
                self._live.stop()

    def _print(self, text: str) -> None:
        style = (
            "bold red"
            if " hangs: " in text or " stalls: " in text
            else "yellow"
            if "NOT" in text or "NO EFFECT" in text
            else ""
        )
        self._console.print(Text(f"{time.strftime('%H:%M:%S')} {one_line(text)}", style=style))

    def _draw(self) -> RenderableType:
        with self._lock:
            return render(self.view, self._console.width)


def render(view: RunView, width: int) -> RenderableType:
    """The view's lines, each cut to the width of the terminal so that redrawing never scrolls."""
    lines: list[RenderableType] = [_head(view, width)]
    if view.download is not None:
        lines.append(_download(*view.download))
    if view.numbers and view.phase in FIGURE_PHASES:
        lines += [_cut(line) for line in _figures(view, width)]
    if view.phase in LOAD_PHASES:
        lines.append(_cut(Text(HINT if view.judges_cut else HINT_WITHOUT_VERDICT, style="dim")))
    return Group(*lines)


def _cut(line: Text) -> Text:
    line.no_wrap = True
    line.overflow = "ellipsis"
    return line


def _labelled(label: str, text: str, style: str = "") -> Text:
    return Text(label.ljust(LABEL_WIDTH), style="dim").append(one_line(text), style=style)


def _head(view: RunView, width: int) -> RenderableType:
    grid = Table.grid(padding=(0, 1))
    title = _cut(Text(one_line(view.title) or "brokerstorm", style="bold"))
    if view.phase in LOAD_PHASES and view.load_s:
        into_s, total_s = view.elapsed_s + view.warm_up_s, view.warm_up_s + view.load_s
        bar = ProgressBar(
            total=total_s,
            completed=min(max(into_s, 0.0), total_s),
            width=min(BAR_WIDTH, width // 4),
        )
        grid.add_row(
            title, Text(f"{view.phase} {clock(view.elapsed_s)} of {clock(view.load_s)}"), bar
        )
        return grid
    since_s = time.monotonic() - view.phase_start
    frame = SPINNER[math.floor(since_s * REFRESH_PER_S) % len(SPINNER)]
    note = f" · {one_line(view.note)}" if view.note else ""
    audited = view.numbers.get("audited", 0)
    rows = f" · {audited:,} rows" if view.phase == "audit" and audited else ""
    grid.add_row(title, _cut(Text(f"{frame} {view.phase} {since_s:.0f} s{note}{rows}")))
    return grid


def _download(text: str, fraction: float | None) -> RenderableType:
    grid = Table.grid(padding=(0, 1))
    share = "" if fraction is None else f"{fraction:.0%}"
    bar = ProgressBar(total=1.0, completed=fraction or 0.0, width=BAR_WIDTH, pulse=fraction is None)
    grid.add_row(_cut(Text(one_line(text))), bar, Text(share))
    return grid


def _figures(view: RunView, width: int) -> list[Text]:
    numbers = view.numbers
    rate, *outcomes, delay = load_figures(view)
    lines = [_labelled("rate", f"{rate}   {delay}")]
    if view.history:
        lines.append(_sparkline(view, width - LABEL_WIDTH))
    lines.append(_labelled("sends", "   ".join(outcomes)))
    if numbers.get("delivered"):
        behind = max(0, numbers.get("ok", 0) - numbers["delivered"])
        rate = f"{view.per_second('delivered'):,.0f}/s"
        lines.append(
            _labelled("consume", f"{rate}   delivered {numbers['delivered']:,}   behind {behind:,}")
        )
    fail, info = numbers.get("fail", 0), numbers.get("info", 0)
    if fail or info:
        first = f", the first at {clock(view.first_problem_s or 0.0)}"
        lines.append(_labelled("errors", f"{info:,} info, {fail:,} fail{first}", "yellow"))
    lines += [
        _labelled("waiting", f"{worker} {text}", "bold red")
        for worker, text in view.waiting.items()
    ]
    if view.faults.records:
        lines.append(_fault_line(view))
    if coming := view.coming():
        soon = (f"in {left_s:.0f} s {one_line(text)}" for left_s, text in coming[:NEXT_SHOWN])
        lines.append(_labelled("next", "   ".join(soon)))
    return lines


def _sparkline(view: RunView, room: int) -> Text:
    """Acknowledged messages per second of the last minute, a cell a second, with the target (or the
    most there was); red while a fault was applied. A narrow terminal has a cell for several
    seconds."""
    line = Text("minute".ljust(LABEL_WIDTH), style="dim")
    step = math.ceil(HISTORY_S / max(room, 1))
    seconds = list(view.history)
    most = view.rate_per_s or max(second.ok_per_s for second in seconds) or 1.0
    for begin in range(len(seconds) % step, len(seconds), step):
        cell = seconds[begin : begin + step]
        share = sum(second.ok_per_s for second in cell) / len(cell) / most
        level = min(len(LEVELS) - 1, max(0, math.floor(share * len(LEVELS))))
        line.append(
            LEVELS[level], style="red" if any(second.in_fault for second in cell) else "not dim"
        )
    return line


def _fault_line(view: RunView) -> Text:
    line = Text("faults".ljust(LABEL_WIDTH), style="dim").append(strip(view), style="red")
    now_ns = time.monotonic_ns()
    for record in view.active():
        since_s = (now_ns - (record.inject_ns or now_ns)) / 1e9
        line.append(
            f"   ● #{record.id} {one_line(fault_text(record))} for {since_s:.0f} s",
            style="bold red",
        )
    return line


def strip(view: RunView) -> str:
    """The load as a row of cells, high where a fault was applied; blank where it has not come to
    yet."""
    total_s = view.load_s or max(view.elapsed_s, 1.0)
    cells = []
    now_ns = time.monotonic_ns()
    for cell in range(STRIP_CELLS):
        start_s, end_s = total_s * cell / STRIP_CELLS, total_s * (cell + 1) / STRIP_CELLS
        if start_s > view.elapsed_s:
            break
        spans = (
            (f.inject_ns - view.epoch_ns, (f.end_ns or now_ns) - view.epoch_ns)
            for f in view.faults.records
            if f.inject_ns is not None
        )
        hit = any(start < end_s * 1e9 and end >= start_s * 1e9 for start, end in spans)
        cells.append("█" if hit else "▁")
    return "".join(cells)
