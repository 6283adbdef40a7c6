"""Seals what is finished of a run during the load, so that neither the raw form nor the end of it
grows."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from harness.contracts.plan import Plan
from harness.errors import BrokerstormError
from harness.run.periodic import PeriodicThread
from harness.rundir import RunDir
from harness.seal.seal import seal_finished

#: Between two parts: a thirtieth of the load, within these.
PERIOD_S: Final = (10.0, 60.0)
#: Of raw rows, before there is a part: many small files cost judging more than they save.
LEAST_BYTES: Final = 16 << 20
#: Added to the nice value of the thread: the load goes first.
NICE: Final = 10


class Sealing(PeriodicThread):
    """From `start` to `stop`. What cannot be sealed stays as it is, and is sealed at the end.

    Args:
        tell: gets a sentence for people, once, when it does not work.
    """

    def __init__(self, plan: Plan, run: RunDir, tell: Callable[[str], None]) -> None:
        self._plan = plan
        self._run = run
        self._tell = tell
        self._has_told = False
        period_s = min(max(plan.load_s / 30, PERIOD_S[0]), PERIOD_S[1])
        super().__init__("sealing", self.seal_now, period_s=period_s)

    def seal_now(self) -> None:
        """Seal what is finished, in the thread that calls."""
        give_way()
        try:
            while seal_finished(self._run, self._plan, least_bytes=LEAST_BYTES) > 4 * LEAST_BYTES:
                if self.is_stopped:
                    break  # the rest is sealed by more threads, which have normal priority
                # else it took so long that there is more
        except BrokerstormError as error:
            if not self._has_told:
                self._tell(f"captured data is not sealed during the run: {error}")
            self._has_told = True
        _give_back()


def _give_back() -> None:
    """Memory that is free goes back to the system: what a pass took is not needed until the next
    one."""
    with suppress(AttributeError, OSError):  # another libc
        ctypes.CDLL(None).malloc_trim(0)


def give_way() -> None:
    """Lower the priority of this thread, and of those that it starts."""
    if sys.platform == "linux":  # elsewhere the nice value applies to the whole process
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
