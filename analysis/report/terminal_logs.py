"""Prints what else saw a traced message: the stacks of clients that hung, and the lines of the
logs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from analysis.findings import HangRow
from analysis.report import words
from analysis.report.result_words import left_out, notes
from harness.logs import LogLine, LogLines

#: Frames of a stack that are shown folded: the innermost.
FRAMES = 8
#: Characters that are shown of a folded line: two lines of a usual terminal.
FOLDED_CHARS = 150
_FOLDERS = re.compile(r"(?<![\w/:])(?:/[\w.-]+){2,}/(?=[\w.-])")
_CLOCK_WIDTH = 11
_STYLES = {"leader": "bold", "warning": "yellow"}


def hang_parts(hangs: Sequence[HangRow], *, folded: bool) -> list[RenderableType]:
    """The call that a client of the message was seen waiting in, with its stack."""
    parts: list[RenderableType] = []
    for hang in hangs:
        head = Text(
            f"\n{words.plain(hang.worker)} {hang.kind} at {words.clock(hang.t_s)}", style="bold"
        )
        head.append(f": {words.plain(hang.text)}", style="not bold")
        parts.append(head)
        if hang.where:
            parts.append(
                Text(f"  it waits in {words.plain(hang.where)}, {words.plain(hang.thread)}")
            )
        shown = hang.stack[:FRAMES] if folded else hang.stack
        parts += [Text(f"    {words.frame(line)}", style="dim", overflow="fold") for line in shown]
        rest = (
            [f"{words.plural(len(hang.stack) - len(shown), 'more frame')}"]
            if hang.stack[FRAMES:]
            else []
        )
        rest += [f"every stack: {hang.stacks}"] if hang.stacks else []
        if rest and (folded or hang.stacks):
            parts.append(Text(f"    {'; '.join(rest if folded else rest[-1:])}", style="dim"))
    return parts


def log_parts(logs: LogLines, *, folded: bool, more_with: str) -> list[RenderableType]:
    """Lines of the logs; folded: their beginnings. ``more_with``: the command that shows all of
    them."""
    parts: list[RenderableType] = []
    if logs.lines:
        parts += [Text("\nin the logs", style="bold"), _lines(logs.lines, folded=folded)]
    if rest := left_out(logs.left_out):
        parts.append(Text(f"  {rest}: {more_with}", style="dim", overflow="fold"))
    parts += [Text(f"  {note}", style="dim") for note in notes(logs)]
    return parts


def fold(line: LogLine) -> str:
    """The beginning of a line, folders left out of paths, and how many lines belong to it."""
    text = _FOLDERS.sub("…/", line.said)
    cut = f"{text[: FOLDED_CHARS - 1]}…" if len(text) > FOLDED_CHARS else text
    more = len(line.more) + line.more_left
    return f"{cut} (+{words.plural(more, 'line')})" if more else cut


def _lines(lines: Sequence[LogLine], *, folded: bool) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    for width in (_CLOCK_WIDTH, max(len(line.source) for line in lines)):
        grid.add_column(no_wrap=True, min_width=width)
    grid.add_column(overflow="fold")
    for line in lines:
        said = Text(fold(line) if folded else line.said)
        said.stylize(_STYLES.get(line.why, ""))
        grid.add_row(Text(f"  {words.clock(line.t_s)}", style="dim"), Text(line.source), said)
        if not folded:
            for text in line.more:
                grid.add_row("", "", Text(text, style="dim"))
            if line.more_left:
                grid.add_row("", "", Text(words.plural(line.more_left, "more line"), style="dim"))
    return grid
