"""Progress as plain lines, for logs and pipes; or only problems, when quiet."""

from __future__ import annotations

import time
from typing import IO

from harness.progress.view import BaseProgress, figures, one_line

PLAIN_EVERY_S = 10.0


#: Plain downloads say so at each of these shares.
DOWNLOAD_STEP = 0.25


class QuietProgress(BaseProgress):
    """Notes only: a run that goes well says nothing."""

    def __init__(self, stream: IO[str]) -> None:
        super().__init__()
        self._stream = stream

    def _print(self, text: str) -> None:
        self._stream.write(f"{one_line(text)}\n")
        self._stream.flush()

    def _print_fault(self, text: str) -> None:
        if "NOT HEALED" in text:
            self._print(text)


class PlainProgress(BaseProgress):
    """One line an event, each with the time of day; figures every ``every_s``. For logs and
    pipes."""

    def __init__(self, stream: IO[str], *, every_s: float = PLAIN_EVERY_S) -> None:
        super().__init__()
        self._stream = stream
        self._every_s = every_s
        self._next = time.monotonic() + every_s
        self._downloaded: tuple[str, float] = ("", -1.0)
        self._counted: tuple[str, float] = ("", 0.0)

    def _print(self, text: str) -> None:
        self._stream.write(f"{time.strftime('%H:%M:%S')} {one_line(text)}\n")
        self._stream.flush()

    def _print_phase(self) -> None:
        title = f"{self.view.title}: " if self.view.title else ""
        note = f" ({self.view.note})" if self.view.note else ""
        self._print(f"{title}{self.view.phase}{note}")
        self._next = time.monotonic() + self._every_s

    def _print_numbers(self) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self._every_s
        self._print("   ".join(figures(self.view)))

    def _is_counted_already(self, text: str) -> bool:
        """Whether the package of a text such as ``PACKAGE: 12 jars, a.jar`` had a line a short
        while ago."""
        package, colon, _ = text.partition(": ")
        last, at = self._counted
        if not colon or (package == last and time.monotonic() < at + self._every_s):
            return bool(colon)
        self._counted = (package, time.monotonic())
        return False

    def _print_download(self, text: str, fraction: float | None) -> None:
        if fraction is None and self._is_counted_already(text):
            return
        last_text, last = self._downloaded
        share = -1.0 if fraction is None else fraction
        if text == last_text and share < min(1.0, last + DOWNLOAD_STEP):
            return
        if text == last_text and share <= last:
            return
        self._downloaded = (text, share)
        self._print(text if fraction is None else f"{text} {fraction:.0%}")
