"""Runs a role on an asyncio event loop in the main thread; SIGQUIT shows its tasks too.

The commands of the harness come in on a thread of their own and the stats line goes out on another
(`protocol`), so both continue whatever the loop does.
"""

from __future__ import annotations

import asyncio
import faulthandler
import signal
import sys
import time
from collections.abc import Coroutine, Iterable, Iterator
from types import FrameType
from typing import Any, TextIO

from .protocol import Control

#: How long tasks that are still there at the end get to take their cancellation.
END_S = 1.0
#: Between two looks at the commands of the harness.
LOOK_S = 0.01


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a role to its end on a new event loop.

    Unlike `asyncio.run` it does not wait for a task that ignores its cancellation: a client that
    hangs must not keep the process.
    """
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    # First the stacks of the threads, by a handler in C that needs no interpreter; then the
    # tasks, by one in Python, which runs when the loop waits or runs Python code.
    faulthandler.unregister(signal.SIGQUIT)
    signal.signal(signal.SIGQUIT, lambda *_: write_tasks(sys.stderr, asyncio.all_tasks(loop)))
    faulthandler.register(signal.SIGQUIT, all_threads=True, chain=True)
    try:
        loop.run_until_complete(main)
    finally:
        if left := asyncio.all_tasks(loop):
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.wait(left, timeout=END_S))


async def until(control: Control, tasks: Iterable[asyncio.Task[None]]) -> None:
    """Wait until these tasks are done, or the harness will not wait for them any longer.

    Raises:
        what a task raised, as soon as one did
    """
    left = set(tasks)
    while left and not over(control):
        done, left = await asyncio.wait(left, timeout=LOOK_S, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()


def over(control: Control) -> bool:
    """Whether the harness said `stop`, or the deadline of the drain is past."""
    return control.stopped or time.monotonic_ns() > control.deadline_ns


def write_tasks(out: TextIO, tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Write each task and where it waits, innermost call first, in the form of `faulthandler`."""
    for task in tasks:
        lines = [
            f'  File "{file}", line {line} in {name}'
            for file, line, name in _calls(task.get_coro())
        ]
        head = f'Task "{task.get_name()}" (most recent call first):'
        out.write("\n".join(["", head, *reversed(lines), ""]))
    out.write("\n")
    out.flush()


def _calls(awaited: Any) -> Iterator[tuple[str, int, str]]:
    """File, line and function of a suspended coroutine and of what it awaits, outermost first."""
    while awaited is not None:
        frame: FrameType | None = None
        for kind, inner in (("cr", "cr_await"), ("gi", "gi_yieldfrom"), ("ag", "ag_await")):
            if hasattr(awaited, f"{kind}_frame"):
                frame, after = getattr(awaited, f"{kind}_frame"), getattr(awaited, inner)
                break
        if frame is None:
            return
        yield frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name
        awaited = after
