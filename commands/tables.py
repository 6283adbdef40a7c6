"""Columns and paragraphs that fit the terminal: lines end between words, from 60 columns up."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from commands.console import write
from harness.invocation import for_terminal

if TYPE_CHECKING:
    from harness.need import Need

#: Columns of text narrower than these are ladders: the last cell of a row is then below the others.
LEAST_TEXT, LEAST_LAST = 24, 36
GAP = "  "


def width() -> int | None:
    """Columns of the terminal, or as COLUMNS says; None where lines may be as long as they are."""
    said = os.environ.get("COLUMNS", "")
    if said.isdecimal() and int(said):
        return int(said)
    return (
        os.get_terminal_size(sys.stdout.fileno()).columns or None if sys.stdout.isatty() else None
    )


def paragraph(text: str, *, indent: str = "", hanging: str = "") -> None:
    """A text after ``indent``; its further lines after that and ``hanging``."""
    for line in _lines(for_terminal(text), width(), indent, indent + hanging):
        write(line)


def table(rows: Sequence[Sequence[str]], *, indent: str = "") -> None:
    """Rows with this many cells. What does not fit continues in its column, or below in a line of
    its own."""
    if not rows:
        return
    room = width()
    natural = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    if room is None or len(indent) + sum(natural) + len(GAP) * (len(natural) - 1) <= room:
        widths = natural
    else:
        widths = _shared(rows, natural, room - len(indent) - len(GAP) * (len(natural) - 1))
    for row in rows:
        if widths:
            _write_row(row, widths, indent)
        else:
            first, *others = [cell for cell in row[:-1] if cell] or [""]
            if first:  # a row that continues the one above has no name
                paragraph(
                    GAP.join([first, " · ".join(others)]).rstrip(), indent=indent, hanging=GAP * 2
                )
            paragraph(row[-1], indent=indent + GAP * 2)


def show_checks(what: str, checks: Sequence[Need], warnings: Sequence[str]) -> None:
    """A line for each check, with the remedy where it failed, and a sum."""
    for check in checks:
        absent = "MISSING" if check.needed else "absent "
        mark = "ok     " if check.ok else absent
        paragraph(f"{mark}  {check.name}: {check.text}", hanging=" " * 9)
        if not check.ok:
            paragraph(check.remedy, indent=" " * 9)
    for warning in warnings:
        paragraph(f"warning  {warning}", hanging=" " * 9)
    needed = sum(check.needed for check in checks)
    missing = sum(check.needed and not check.ok for check in checks)
    write(f"{what}: {f'{missing} of {needed} missing' if missing else 'ready'}")


def _shared(rows: Sequence[Sequence[str]], natural: Sequence[int], room: int) -> list[int]:
    """Widths of columns that no longer fit, none below its longest word; [] if that makes a
    ladder."""
    least = [*[LEAST_TEXT] * (len(natural) - 1), LEAST_LAST]
    least[0] = natural[0]  # a name is in one line
    widths = [
        min(full, max(some, *(_longest_word(row[i]) for row in rows)))
        for i, (full, some) in enumerate(zip(natural, least, strict=True))
    ]
    for _ in range(room - sum(widths)):
        crowded = max(range(len(widths)), key=lambda i: natural[i] / max(1, widths[i]))
        widths[crowded] += 1
    return widths if sum(widths) <= room else []


def _longest_word(text: str) -> int:
    return max(map(len, text.split()), default=0)


def _write_row(row: Sequence[str], widths: Sequence[int], indent: str) -> None:
    cells = [_lines(cell, each) for cell, each in zip(row, widths, strict=True)]
    for parts in zip_longest(*cells, fillvalue=""):
        line = GAP.join(part.ljust(each) for part, each in zip(parts, widths, strict=True))
        write((indent + line).rstrip())


def _lines(text: str, room: int | None, indent: str = "", further: str = "") -> list[str]:
    """Lines of whole words; blanks that begin a text begin every line of it."""
    if room is None or len(indent) + len(text) <= room:
        return [indent + text]
    own = " " * (len(text) - len(text.lstrip()))
    return textwrap.wrap(
        text.strip(), room, initial_indent=indent + own, subsequent_indent=further + own,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def in_time(seconds: float) -> str:
    """Return a duration as ``2 h 05 min``, ``3 min 20 s`` or ``45 s``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
