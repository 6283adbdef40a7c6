"""Cuts a log to its beginning, its end and the lines around some moments.

Lines without a time of their own (the frames of a stack) belong to the line before them. What is
left out leaves a line that says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Final

from harness.log_stamp import Stamp

#: Where versions and settings are printed.
FIRST_LINES: Final = 150
LAST_LINES: Final = 50
#: Seconds kept on either side of a moment.
AROUND_S: Final = 10.0


def around(
    text: str, stamps: Sequence[Stamp], moments_s: Sequence[float], within_s: float = AROUND_S
) -> str:
    """The log cut to its ends and the lines within ``within_s`` of a moment.

    Args:
        stamps: how its lines begin (`harness.logs.LogFile`); without any, only the ends are kept.
        moments_s: since 1970.
    """
    lines = text.splitlines(keepends=True)
    kept = _kept(lines, stamps, moments_s, within_s)
    made: list[str] = []
    for keep, run in groupby(zip(lines, kept, strict=True), key=lambda pair: pair[1]):
        own = [line for line, _ in run]
        made += own if keep else [f"--- {len(own):,} lines left out of the bundle ---\n"]
    return "".join(made)


def _kept(
    lines: Sequence[str], stamps: Sequence[Stamp], moments_s: Sequence[float], within_s: float
) -> list[bool]:
    kept, is_near = [], False
    for number, line in enumerate(lines):
        written_s = _written_s(line, stamps)
        if written_s is not None:
            is_near = any(abs(written_s - moment) <= within_s for moment in moments_s)
        kept.append(is_near or number < FIRST_LINES or number >= len(lines) - LAST_LINES)
    return kept


def _written_s(line: str, stamps: Sequence[Stamp]) -> float | None:
    """Seconds since 1970."""
    data = line.encode("utf-8", "surrogateescape")
    found = next((told for stamp in stamps if (told := stamp.read(data))), None)
    return found.wall_ns / 1e9 if found else None


def utc_s(iso: str) -> float | None:
    """``2026-11-22T16:08:23.6+00:00`` as seconds since 1970; None for what is not a time."""
    try:
        told = datetime.fromisoformat(iso)
    except ValueError:
        return None
    return (told if told.tzinfo else told.replace(tzinfo=UTC)).timestamp()
