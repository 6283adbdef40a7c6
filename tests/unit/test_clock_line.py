"""Clocks of other machines: what a time is wrong by after it was put on the line is within what is
said."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.clock_line import Anchor, ClockLine, shortest

_HOUR_NS = 3600 * 10**9


@st.composite
def measured(draw: st.DrawFn) -> tuple[ClockLine, int, float]:
    """Another clock that began elsewhere and goes too fast or too slow, measured every ten seconds
    or so over ways of which one direction may take all of the time."""
    ahead_ns = draw(st.integers(-(10**17), 10**17))
    drift = draw(st.floats(-5e-4, 5e-4))
    anchors, here_ns = [], 10**12
    for _ in range(draw(st.integers(1, 6))):
        here_ns += draw(st.integers(10**9, 2 * 10**10))
        trips = []
        for out_ns, back_ns in draw(st.lists(st.tuples(ways, ways), min_size=1, max_size=5)):
            told_ns = there(here_ns + out_ns, ahead_ns, drift)
            trips.append(Anchor.of_trip(here_ns, told_ns, here_ns + out_ns + back_ns))
            here_ns += out_ns + back_ns
        anchors.append(shortest(trips))
    return ClockLine(tuple(anchors)), ahead_ns, drift


ways = st.integers(0, 30_000_000)


def there(here_ns: int, ahead_ns: int, drift: float) -> int:
    return here_ns - ahead_ns + round((here_ns - 10**12) * drift)


@given(measured(), st.floats(0.0, 1.0))
def test_a_time_within_what_was_measured_is_right_within_the_bound(
    found: tuple[ClockLine, int, float], share: float
) -> None:
    line, ahead_ns, drift = found
    first, last = line.anchors[0], line.anchors[-1]
    here_ns = round(first.t_ns + first.ahead_ns + share * (last.t_ns - first.t_ns))
    there_ns = there(here_ns, ahead_ns, drift)
    moved_ns = 5e-4 * line.bound_ns + 1  # while the answer was on its way
    assert abs(line.here(there_ns) - here_ns) <= line.bound_ns + moved_ns
    assert abs(line.there(line.here(there_ns)) - there_ns) <= line.bound_ns + moved_ns


def test_the_bound_is_half_the_shortest_trip_and_what_the_clocks_moved_apart() -> None:
    long, short = Anchor.of_trip(0, 5, 1000), Anchor.of_trip(2000, 7, 2100)
    assert shortest([long, short]) == Anchor(7, 2043, 50)
    assert ClockLine((short,)).bound_ns == 50
    assert ClockLine((short, Anchor(10_000, 2060, 40))).bound_ns == 50 + 17


def test_no_time_stays_no_time() -> None:
    times = np.array([0, 7, 10_000], np.int64)
    ClockLine((Anchor(7, 2043, 50), Anchor(10_007, 2063, 50))).put_here(times)
    assert times.tolist() == [0, 2050, 12_063]


def test_large_differences_are_exact() -> None:
    """A machine that has run for three years beside one that has just started."""
    line = ClockLine(
        (Anchor(10**17 + 1, -(10**17) + 3, 9), Anchor(10**17 + _HOUR_NS, -(10**17) + 3, 9))
    )
    assert line.here(10**17 + 1234) == 1237


def test_without_a_trip_nothing_is_known() -> None:
    with pytest.raises(ValueError, match="empty"):
        shortest([])
