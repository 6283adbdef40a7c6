"""Attribution: known answers, chance, and the slow obvious count beside the fast one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.capture.context import SETTLE_NS
from analysis.verdict.attribution import (
    LEAD_NS,
    SHIFTS,
    RunSpan,
    attribute,
    inside,
    nearest,
    windows,
)
from harness.faultlog import FaultRecord

S = 1_000_000_000


def kill(at_s: float, until_s: float, number: int = 1, kind: str = "kill") -> FaultRecord:
    return FaultRecord(
        number, kind, inject_ns=round(at_s * S), end_ns=round(until_s * S), effective=True
    )


def test_windows_reach_from_the_lead_to_the_settled_and_merge() -> None:
    span = RunSpan(0, 100 * S)
    found = windows([kill(50, 51), kill(10, 12), kill(14, 15)], span)
    assert found == [(10 * S - LEAD_NS, 15 * S + SETTLE_NS), (50 * S - LEAD_NS, 51 * S + SETTLE_NS)]


def test_windows_are_cut_at_the_ends_of_the_run() -> None:
    assert windows([kill(0.2, 1)], RunSpan(0, 3 * S)) == [(0, 3 * S)]
    assert windows([kill(50, 51)], RunSpan(0, 3 * S)) == []


def test_what_one_fault_met_is_told_and_not_attributable() -> None:
    """Ten episodes in a window of 4 s out of 100: turned by up to 3 s it holds all ten."""
    times = [round((30 + i / 10) * S) for i in range(10)]
    (row,) = attribute(times, [kill(30, 31)], RunSpan(0, 100 * S), seed=7)
    assert (row.kind, row.inside, row.episodes) == ("kill", 10, 10)
    assert (row.not_attributable, row.why_not, row.p_value) == (True, "it fired once", None)
    assert row.chance_share == pytest.approx(0.04, abs=0.02)


def test_faults_of_one_kind_are_told_apart_by_what_they_hit() -> None:
    brokers = [replace(kill(at, at + 1, at), selector="kafka-1") for at in (20, 60)]
    clients = [replace(kill(at, at + 1, at), selector="client:shop") for at in (40, 80)]
    times = [round((start + 0.5) * S) for start in (20, 60)]
    rows = attribute(times, [*brokers, *clients], RunSpan(0, 100 * S), seed=7)
    assert [(row.kind, row.inside) for row in rows] == [
        ("", 2),
        ("kill of client:shop", 0),
        ("kill of kafka-1", 2),
    ]
    assert [row.kind for row in attribute(times, brokers, RunSpan(0, 100 * S), seed=7)] == ["kill"]


def test_many_faults_with_an_episode_each_are_far_from_chance() -> None:
    faults = [kill(at, at + 0.1, n) for n, at in enumerate((3, 31, 47, 72, 110, 151, 180))]
    times = [round((f.start_ns / S + 0.5) * S) for f in faults]
    (row,) = attribute(times, faults, RunSpan(0, 200 * S), seed=1)
    assert row.inside == 7
    assert row.p_value is not None
    assert row.p_value <= 0.03  # turned by less than a window, out of 200 s, it still holds them


def test_evenly_spread_episodes_look_like_chance() -> None:
    times = [round(t * S) for t in np.linspace(0, 199, 200)]
    (row,) = attribute(times, [kill(20, 22), kill(120, 122, 2)], RunSpan(0, 200 * S), seed=3)
    assert row.p_value is not None
    assert row.p_value > 0.2
    assert row.inside / row.episodes == pytest.approx(row.chance_share, abs=0.02)


def test_windows_over_half_the_run_are_not_attributable() -> None:
    (row,) = attribute([5 * S], [kill(1, 60)], RunSpan(0, 100 * S), seed=1)
    assert row.not_attributable
    assert row.why_not == "its windows cover more than half of the run"
    assert row.p_value is None
    assert row.inside == 1


def test_each_kind_has_its_own_row_and_nothing_gives_none() -> None:
    faults = [kill(10, 11), kill(60, 61, 2, "pause")]
    kinds = [row.kind for row in attribute([10 * S], faults, RunSpan(0, 100 * S), seed=1)]
    assert kinds == ["", "kill", "pause"]
    assert attribute([], faults, RunSpan(0, 100 * S), seed=1) == ()
    assert attribute([10 * S], [], RunSpan(0, 100 * S), seed=1) == ()


def test_the_same_seed_gives_the_same_p_value() -> None:
    times = [round(t * S) for t in (4, 31, 77)]
    faults = [kill(30, 31), kill(60, 61, 2)]
    once, again = (attribute(times, faults, RunSpan(0, 100 * S), seed=9) for _ in range(2))
    assert once == again
    assert once[0].p_value is not None
    assert 1 / SHIFTS <= once[0].p_value <= 1


@settings(deadline=None)
@given(
    times=st.lists(st.integers(0, 99), min_size=1, max_size=20),
    borders=st.lists(st.integers(0, 100), unique=True, max_size=8),
    shifts=st.lists(st.integers(0, 99), min_size=1, max_size=5),
)
def test_inside_agrees_with_turning_each_window_by_hand(
    times: list[int], borders: list[int], shifts: list[int]
) -> None:
    edges = sorted(borders)[: len(borders) // 2 * 2]
    intervals = list(zip(edges[::2], edges[1::2], strict=True))
    slow = [
        sum(any(a <= (t - shift) % 100 < b for a, b in intervals) for t in times)
        for shift in shifts
    ]
    offset = 1_000  # a span need not start at 0
    fast = inside(
        np.array(times, np.int64) + offset,
        [(a + offset, b + offset) for a, b in intervals],
        RunSpan(offset, offset + 100),
        np.array(shifts, np.int64),
    )
    assert fast.tolist() == slow


def test_nearest_prefers_the_fault_that_was_applied() -> None:
    """At 19 s the kill of 5..20 s is on; a leader move 1 s later cannot have been the cause."""
    faults = [kill(5, 20), kill(20.5, 20.6, 2, "leader-move")]
    near = nearest(19 * S, faults)
    assert near is not None
    assert (near.fault, near.after_s) == (1, 14.0)


def test_nearest_before_the_first_fault_is_negative() -> None:
    near = nearest(4_800_000_000, [kill(5, 20)])
    assert near is not None
    assert near.after_s == -0.2
    assert nearest(0, []) is None


def test_all_faults_are_asked_together_and_each_kind_pays_for_the_others() -> None:
    """Seven episodes, each at some fault of three kinds: together no chance; of a kind alone less
    is sure."""
    kinds = ("kill", "pause", "kill", "pause", "restart", "kill", "restart")
    at = (3, 31, 47, 72, 110, 151, 180)
    faults = [kill(t, t + 0.1, n, kind) for n, (t, kind) in enumerate(zip(at, kinds, strict=True))]
    times = [round((f.start_ns / S + 0.5) * S) for f in faults]
    together, *each = attribute(times, faults, RunSpan(0, 200 * S), seed=1)
    assert (together.kind, together.inside, together.p_adjusted) == ("", 7, None)
    assert together.p_value is not None
    assert together.p_value <= 0.03
    assert [row.kind for row in each] == ["kill", "pause", "restart"]
    for row in each:
        assert row.p_value is not None
        assert row.p_adjusted is not None
        assert row.p_adjusted > together.p_value
        assert row.p_adjusted >= row.p_value
