"""Polling with a time limit: when it asks, when it ends, what it gives back."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from harness.waiting import wait_until, wait_while


def answers(*given: object) -> Callable[[], object]:
    left = list(given)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


def test_ends_with_the_answer_that_it_waited_for() -> None:
    assert wait_until(answers(0, None, "leader"), 10, every_s=0) == "leader"
    assert wait_while(answers(["a", "b"], ["b"], []), 10, every_s=0) == []


def test_gives_the_last_answer_when_the_time_is_up() -> None:
    assert wait_until(answers(None, ""), 0.01, every_s=0.001) == ""
    assert wait_while(answers("2 left", "1 left"), 0.01, every_s=0.001) == "1 left"


def test_asks_once_when_there_is_no_time_at_all() -> None:
    assert wait_until(answers(0, 1), -1) == 0


def test_asks_a_last_time_when_the_time_is_up() -> None:
    assert wait_until(answers(0, 1), 0.01, every_s=60) == 1


def test_ends_early_when_told_to_stop() -> None:
    stop = threading.Event()
    stop.set()
    assert wait_while(answers("missing"), 60, every_s=60, stop=stop) == "missing"


def test_passes_on_what_the_question_raises() -> None:
    with pytest.raises(ZeroDivisionError):
        wait_until(lambda: 1 // 0, 10)
