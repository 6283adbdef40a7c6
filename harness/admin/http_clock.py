"""Compares a clock with ours by the header `Date` of HTTP answers, which has whole seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import Final

#: A second passes within it, and some.
_LOOK_S: Final = 1.5
_PAUSE_S: Final = 0.005


def clock_apart(ask: Callable[[], str]) -> tuple[float, float] | None:
    """How far it is ahead, and within what, both in seconds: it is asked until its second changes.

    Args:
        ask: sends a request; returns the header of the answer.

    Returns:
        None when no change was seen: no header, or no answer for a second.
    """
    before: tuple[float, float] | None = None  # its second, and when we asked for it
    deadline = time.monotonic() + _LOOK_S
    while time.monotonic() < deadline:
        asked_s = time.time()
        told_s = _seconds(ask())
        answered_s = time.time()
        if told_s is None:
            return None
        if before and told_s > before[0]:
            # That second began after the last request went out, and before this answer came.
            return told_s - (before[1] + answered_s) / 2, (answered_s - before[1]) / 2
        before = (told_s, asked_s)
        time.sleep(_PAUSE_S)
    return None


def _seconds(header: str) -> float | None:
    try:
        return parsedate_to_datetime(header).timestamp()
    except ValueError:
        return None
