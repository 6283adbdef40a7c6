"""Chooses the form of progress output: live on a terminal, plain lines elsewhere, or quiet."""

from __future__ import annotations

import os
import sys
from typing import IO, Literal

from harness.progress.plain import PlainProgress, QuietProgress
from harness.progress.view import BaseProgress

Mode = Literal["auto", "live", "plain", "quiet"]


def open_progress(
    mode: Mode = "auto", *, stream: IO[str] | None = None, color: bool = True
) -> BaseProgress:
    """The view for ``stream`` (stderr): live on a terminal, else plain lines."""
    target = stream if stream is not None else sys.stderr
    if mode == "auto":
        mode = "live" if target.isatty() and os.environ.get("TERM", "dumb") != "dumb" else "plain"
    if mode == "quiet":
        return QuietProgress(target)
    if mode == "plain":
        return PlainProgress(target)
    from harness.progress.live import LiveProgress  # rich's live display is not needed by a pipe

    return LiveProgress(target, color=color and not os.environ.get("NO_COLOR"))
