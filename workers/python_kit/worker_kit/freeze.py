"""Detects that this process did not run for a while (SIGSTOP, a paused container, a starved
machine)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

#: A gap this long in which the process also used no CPU is a freeze. Above what a busy machine's
#: scheduler does to a thread that sleeps TICK_S, far below the pauses that faults make.
FREEZE_NS = 250_000_000
TICK_S = 0.05


class FreezeDetector:
    """Adds up frozen time. `check` is called by a ticking thread and by anyone who sees a long
    gap."""

    def __init__(self, on_freeze: Callable[[int], None] = lambda _frozen_ns: None) -> None:
        self._on_freeze = on_freeze
        self._lock = threading.Lock()
        self._seen_ns = time.monotonic_ns()
        self._cpu_ns = time.process_time_ns()
        self.frozen_ns = 0

    def check(self) -> None:
        """Add a freeze that ended just now, if there was one, and tell of it."""
        with self._lock:
            now, cpu = time.monotonic_ns(), time.process_time_ns()
            gap, worked = now - self._seen_ns, cpu - self._cpu_ns
            self._seen_ns, self._cpu_ns = now, cpu
            # A long gap with CPU used is one thread holding the interpreter, not a freeze.
            if gap < FREEZE_NS or worked > gap // 4:
                return
            frozen = gap - int(TICK_S * 1e9)
            self.frozen_ns += frozen
        self._on_freeze(frozen)
