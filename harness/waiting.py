"""Polls a condition until it holds or a time limit is reached."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

Answer = TypeVar("Answer")


def wait_until(
    ask: Callable[[], Answer],
    timeout_s: float,
    *,
    every_s: float = 0.1,
    stop: threading.Event | None = None,
) -> Answer:
    """Call ``ask`` until its answer is truthy, the time is up or ``stop`` is set; the last answer.

    It is called at least once, and a last time when the time is up. What it raises goes through.
    """
    end = time.monotonic() + timeout_s
    while True:
        answer = ask()
        left_s = end - time.monotonic()
        if answer or left_s <= 0:
            return answer
        pause_s = min(every_s, left_s)
        if stop is None:
            time.sleep(pause_s)
        elif stop.wait(pause_s):
            return answer


def wait_while(
    ask: Callable[[], Answer],
    timeout_s: float,
    *,
    every_s: float = 0.1,
    stop: threading.Event | None = None,
) -> Answer:
    """Wait until the answer is falsy; see `wait_until`. For questions about what is missing, wrong
    or left.

    An empty answer means that the condition holds; another one says what kept it from doing so.
    """
    last: list[Answer] = []

    def is_over() -> bool:
        last[:] = [ask()]
        return not last[0]

    wait_until(is_over, timeout_s, every_s=every_s, stop=stop)
    return last[0]
