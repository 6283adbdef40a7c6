"""Signals to this very process: what is raised, what is only noted, what a second one does."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from harness.errors import Exit, Interrupted
from harness.run.interrupts import Interrupts


@pytest.fixture
def interrupts() -> Iterator[Interrupts]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with Interrupts() as found:
        yield found
    assert {number: signal.getsignal(number) for number in before} == before


def send(number: int) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, Exit.INTERRUPTED), (signal.SIGTERM, Exit.TERMINATED)]
)
def test_the_first_is_raised_at_once(interrupts: Interrupts, number: int, code: Exit) -> None:
    with pytest.raises(Interrupted, match=signal.Signals(number).name) as caught:
        send(number)
    assert caught.value.exit_code is code
    assert interrupts.stop.is_set()
    assert not interrupts.hurry.is_set()


def test_while_it_heals_signals_are_noted_and_the_second_means_hurry(interrupts: Interrupts) -> None:
    with interrupts.deferred():
        send(signal.SIGTERM)
        assert (interrupts.stop.is_set(), interrupts.hurry.is_set()) == (True, False)
        send(signal.SIGINT)
        assert interrupts.hurry.is_set()
    with pytest.raises(Interrupted) as caught:
        interrupts.raise_if_stopped()
    assert caught.value.exit_code is Exit.TERMINATED, "the first signal decides"


def test_deferring_ends_with_the_outermost_block(interrupts: Interrupts) -> None:
    with interrupts.deferred():
        with interrupts.deferred():
            pass
        send(signal.SIGINT)
    with pytest.raises(Interrupted):
        send(signal.SIGINT)


def test_nothing_is_raised_without_a_signal(interrupts: Interrupts) -> None:
    interrupts.raise_if_stopped()
