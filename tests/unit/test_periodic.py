"""A task that is called at a fixed period, in a thread."""

from __future__ import annotations

import threading

import pytest

from harness.run.periodic import PeriodicThread


def test_calls_until_it_is_stopped() -> None:
    calls: list[int] = []
    twice = threading.Event()

    def task() -> None:
        calls.append(1)
        if len(calls) > 1:
            twice.set()

    periodic = PeriodicThread("task", task, period_s=0.001)
    periodic.start()
    assert twice.wait(20)
    periodic.stop()
    periodic.stop()
    seen = len(calls)
    assert not threading.Event().wait(0.02)
    assert len(calls) == seen


def test_a_call_that_fails_is_logged_and_is_not_the_last(caplog: pytest.LogCaptureFixture) -> None:
    errors = [RuntimeError("torn"), OSError("full"), KeyError("x")]
    all_failed = threading.Event()

    def task() -> None:
        if not errors:
            all_failed.set()
            return
        raise errors.pop(0)

    periodic = PeriodicThread("task", task, period_s=0.001)
    periodic.start()
    assert all_failed.wait(20)
    periodic.stop()
    assert [(r.getMessage(), r.exc_info is not None) for r in caplog.records] == [
        ("task failed", True),
        ("task: full", False),
        ("task failed", True),
    ]
