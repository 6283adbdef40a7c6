"""The times at which a consuming application pauses, resumes and seeks back: while the load
lasts."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from .protocol import Control


class Interruptions:
    """``pauses`` and ``seeks`` of a consumer's part of the spec; neither: nothing is ever due."""

    def __init__(self, part: Mapping[str, Any], control: Control) -> None:
        pauses, seeks = part.get("pauses"), part.get("seeks")
        self._control = control
        self._pause_every_ns = int(pauses["every_s"] * 1e9) if pauses else 0
        self._pause_for_ns = int(pauses["for_s"] * 1e9) if pauses else 0
        self._seek_every_ns = int(seeks["every_s"] * 1e9) if seeks else 0
        self._back: int = seeks["back"] if seeks else 0
        self._seeks_done = 0

    def is_paused(self) -> bool:
        """Whether the application reads nothing at this moment."""
        into_ns = self._into_load_ns()
        if not self._pause_every_ns or into_ns < self._pause_every_ns:
            return False
        return into_ns % self._pause_every_ns < self._pause_for_ns

    def messages_back(self) -> int:
        """How many messages of each partition to repeat now; 0 = none. Each seek is due once."""
        if not self._seek_every_ns:
            return 0
        passed = self._into_load_ns() // self._seek_every_ns
        if passed <= self._seeks_done:
            return 0
        self._seeks_done = passed
        return self._back

    def _into_load_ns(self) -> int:
        """Since the start of the load; 0 before it and after its end."""
        control = self._control
        if not control.t0_ns or control.stop_load:
            return 0
        return max(time.monotonic_ns() - control.t0_ns, 0)
