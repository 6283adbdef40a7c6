"""The open-loop schedule and whose fault lateness is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.python_kit.worker_kit import sending
from workers.python_kit.worker_kit.schedule import Lateness, Schedule
from workers.python_kit.worker_kit.spec import lanes

rates = st.one_of(st.integers(1, 2_000_000).map(float), st.floats(0.5, 2e6))
MS = 1_000_000


@given(rates, st.floats(0, 20), st.floats(0.1, 20), st.integers(0, 60 * 10**9))
def test_due_count_agrees_with_due_ns(
    rate: float, warm_up: float, load: float, elapsed: int
) -> None:
    schedule = Schedule(10**15, rate, warm_up, load)
    now = schedule.t0_ns + elapsed
    count = schedule.due_count(now)
    assert 0 <= count <= schedule.total
    assert count == 0 or schedule.due_ns(count - 1) <= now
    assert count == schedule.total or schedule.due_ns(count) > now


@given(rates, st.floats(0, 20), st.floats(0.1, 20))
def test_warm_up_and_load_split_where_the_load_begins(
    rate: float, warm_up: float, load: float
) -> None:
    schedule = Schedule(0, rate, warm_up, load)
    first_load = schedule.warm_up_count
    assert first_load <= schedule.total
    assert first_load == 0 or schedule.due_ns(first_load - 1) <= schedule.load_ns
    assert schedule.due_ns(first_load) >= schedule.load_ns - 1  # float to whole ns
    assert schedule.total == 0 or schedule.due_ns(schedule.total - 1) <= schedule.end_ns


shares = st.one_of(st.just(0.0), st.just(1.0), st.floats(1e-3, 1))
profiles = st.lists(st.tuples(st.integers(1, 3 * 10**9), shares), min_size=2, max_size=12)


@given(st.floats(0.5, 2000), profiles, st.integers(0, 60 * 10**9))
def test_a_profile_is_followed_message_by_message(
    rate: float, profile: list[tuple[int, float]], elapsed: int
) -> None:
    """The reference adds the rate up over time and asks when the sum has come to each message."""
    schedule = Schedule(10**15, rate, profile[0][0] / 1e9, 1, profile)
    total = sum(rate * share * ns / 1e9 for ns, share in profile)
    assert schedule.total == pytest.approx(total, abs=1.001)
    assert schedule.warm_up_count == pytest.approx(
        rate * profile[0][1] * profile[0][0] / 1e9, abs=1.001
    )
    dues = [schedule.due_ns(i) - schedule.t0_ns for i in range(schedule.total)]
    assert dues == sorted(dues)
    for i, due in list(enumerate(dues))[:: max(1, len(dues) // 20)]:
        reached, begin = 0.0, 0
        for ns, share in profile:
            reached += rate * share * max(0, min(due - begin, ns)) / 1e9
            begin += ns
        assert reached == pytest.approx(i, abs=0.01)
    count = schedule.due_count(schedule.t0_ns + elapsed)
    assert count == sum(due <= elapsed for due in dues)
    first = min(elapsed % 1000, schedule.total)
    assert schedule.dues_ns(first, schedule.total).tolist() == [
        schedule.t0_ns + due for due in dues[first:]
    ]


def test_a_profile_of_the_whole_rate_is_the_rate() -> None:
    steady = Schedule(10**15, 16_667.0, 0.5, 1.5)
    profiled = Schedule(10**15, 16_667.0, 0.5, 1.5, [(500_000_000, 1.0), (1_500_000_000, 1.0)])
    assert (steady.warm_up_count, steady.total) == (profiled.warm_up_count, profiled.total)
    apart = [abs(steady.due_ns(i) - profiled.due_ns(i)) for i in range(steady.total)]
    assert max(apart) <= 1  # rounded to whole nanoseconds


def test_nothing_is_due_before_the_start() -> None:
    assert Schedule(1000, 50_000, 1, 1).due_count(999) == 0
    assert Schedule(1000, 50_000, 1, 1).due_count(1000) == 1


def test_exact_counts_at_50k() -> None:
    schedule = Schedule(0, 50_000, 5, 60)
    assert (schedule.warm_up_count, schedule.total) == (250_000, 3_250_000)


def test_a_generator_that_keeps_up_is_never_late() -> None:
    lateness = Lateness()
    for _ in range(1000):
        lateness.worked(own_ns=1 * MS, worth_ns=2 * MS)
    assert lateness.take_max_ns() == 0


def test_a_generator_that_is_too_slow_falls_behind_for_ever() -> None:
    lateness = Lateness()
    for _ in range(100):
        lateness.worked(own_ns=3 * MS, worth_ns=2 * MS)  # 100 messages at 50,000/s
    assert lateness.take_max_ns() == 100 * MS


def test_catching_up_after_a_block_is_not_the_generators_lateness() -> None:
    lateness = Lateness()
    # the call blocked for seconds, which is not own time
    lateness.worked(own_ns=0, worth_ns=20_000)
    for _ in range(300):
        # the backlog, ten times faster than it became due
        lateness.worked(own_ns=1 * MS, worth_ns=10 * MS)
    assert lateness.take_max_ns() == 0


def test_one_hiccup_is_seen_and_forgotten() -> None:
    lateness = Lateness()
    lateness.worked(own_ns=50 * MS, worth_ns=2 * MS)
    assert lateness.take_max_ns() == 48 * MS
    for _ in range(100):
        lateness.worked(own_ns=1 * MS, worth_ns=2 * MS)
    lateness.take_max_ns()
    lateness.worked(own_ns=1 * MS, worth_ns=2 * MS)
    assert lateness.take_max_ns() == 0


def test_oversleeping_is_the_generators_lateness() -> None:
    lateness = Lateness()
    lateness.caught_up(7 * MS)
    assert lateness.take_max_ns() == 7 * MS


@given(st.lists(st.tuples(st.integers(0, 10**8), st.integers(1, 500)), max_size=50))
def test_lateness_equals_a_queue_worked_out_message_by_message(
    batches: list[tuple[int, int]],
) -> None:
    lateness, late, largest = Lateness(), 0.0, 0.0
    for own, messages in batches:
        lateness.worked(own, messages * 20_000)
        largest = max(largest, late)
        late = max(0.0, late + own - messages * 20_000)
    assert lateness.take_max_ns() == int(max(largest, late))


def test_lanes_of_every_mode() -> None:
    groups = [
        {"topic": "a", "mode": "partition", "first": 0, "count": 2, "partitions": 2},
        {"topic": "b", "mode": "key", "first": 2, "count": 2, "partitions": 9},
        {"topic": "c", "mode": "routed", "first": 4, "count": 1, "partitions": 3},
    ]
    assert [tuple(lane) for lane in lanes(groups)] == [
        (0, "a", None, 0, 0),
        (1, "a", None, 1, 0),
        (2, "b", b"k000000", -1, 0),
        (3, "b", b"k000001", -1, 1),
        (4, "c", None, -1, 0),
    ]


@pytest.mark.parametrize("reading", [1, 2])
def test_a_freeze_while_the_clocks_are_read_is_not_the_generators(
    monkeypatch: pytest.MonkeyPatch, reading: int
) -> None:
    """The process is stopped exactly when its frozen time is read, at the begin of a span of work
    or at its end; the ticking thread has counted the freeze before that reading returns."""
    clock = {"now": 0, "frozen": 0, "readings": 0}

    class Freezes:
        def check(self) -> None:
            pass

        @property
        def frozen_ns(self) -> int:
            clock["readings"] += 1
            if clock["readings"] == reading:
                clock["now"] += 2000 * MS
                clock["frozen"] += 1950 * MS
            return clock["frozen"]

    monkeypatch.setattr(sending.time, "monotonic_ns", lambda: clock["now"])
    report = SimpleNamespace(freeze=Freezes())
    sender: Any = SimpleNamespace(blocked_ns=0, session=SimpleNamespace(report=report))
    span = sending.Sender.span(sender)
    clock["now"] += 3 * MS
    assert sending.Sender._own_ns(sender, span, since=span.begun) <= 3 * MS
