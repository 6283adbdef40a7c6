"""Hangs while they happen: noticed in a thread of their own, told at once, kept with the stack that waits.

The run's main thread may be busy healing or asking brokers for minutes; a hang is shown all the same. Judging
of the sealed capture comes to the same result from the same rows later (analysis/kernels/hang.py).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from harness.progress.view import clock
from harness.run.liveness import (
    LOOK_EVERY_S,
    Hang,
    Silence,
)
from harness.run.stacks import shown, waiting
from harness.run.worker_process import WorkerProcess
from harness.rundir import RunDir

_LOG = logging.getLogger(__name__)


class HangWatch:
    """Calls ``look`` every `LOOK_EVERY_S` in a thread of its own, from `start` to `stop`."""

    def __init__(self, look: Callable[[], None]) -> None:
        self._look = look
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="hangs", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Look no more; a look under way ends first. Idempotent."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(LOOK_EVERY_S):
            try:
                self._look()
            except OSError:
                pass  # a worker that ended while it was looked at
            except Exception:  # noqa: BLE001 - the next look may do; what is not seen now is judged later
                _LOG.exception("a look at the workers broke")


def sentence(hang: Hang, epoch_ns: int) -> str:
    """Since when, how many, and when the client last answered; times from the start of load."""
    since = _time((hang.since_ns - epoch_ns) / 1e9)
    calls = "1 send" if hang.count == 1 else f"{hang.count:,} sends"
    last = hang.last_progress_ns
    progress = f"last answer at {_time((last - epoch_ns) / 1e9)}" if last else "no answer ever"
    oldest = f"the oldest since {since} ({hang.open_s:.1f} s, deadline {hang.deadline_s:g} s)"
    return f"{calls} open, {oldest}, {progress}"


def stall_sentence(silence: Silence, waiting: int, epoch_ns: int) -> str:
    """Since when, what it had been handed until then, and what waits; times from the start of load."""
    since = _time((silence.since_ns - epoch_ns) / 1e9)
    messages = "1 message waits" if waiting == 1 else f"{waiting:,} messages wait"
    quiet = f"handed nothing since {since} ({silence.quiet_s:.1f} s, limit {silence.limit_s:g} s)"
    return f"{quiet}, {silence.delivered:,} delivered until then, {messages} for it"


def _time(seconds: float) -> str:
    """``00:07.1``, from the start of load."""
    return f"{clock(seconds)}.{int(abs(seconds) * 10) % 10}"


def take_stacks(worker: WorkerProcess, run: RunDir) -> dict[str, Any]:
    """Keep the stacks of a worker that lives; what an event row says of them.

    Returns:
        ``stacks``: the file in the run's folder; ``where``, ``thread`` and ``stack``: the call that waits.
        Empty when the process is gone or gave no dump in time.
    """
    target = run.stacks / f"{worker.name}.txt"
    worker.dump_stack(target)
    if not target.exists() or not target.stat().st_size:
        return {}
    found: dict[str, Any] = {"stacks": str(target.relative_to(run.root))}
    if (stack := waiting(target.read_text(errors="replace"))) is not None:
        found |= {"where": stack.where, "thread": stack.title, "stack": shown(stack)}
    return found
