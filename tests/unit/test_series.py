"""Series: every figure against a slow oracle, and merged buckets against one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.histogram import BINS, Histogram, bin_middle_ns, bin_of
from analysis.series import (
    MAX_STEPS,
    MAX_TICKS_A_STEP,
    OUTAGE_NS,
    Grid,
    Outage,
    Series,
    empty,
    series_of,
)
from harness.records import DELIVERIES, SENDS, Event, Kind, Outcome

ZERO = 50_000_000_000
S = 1_000_000_000
MS = 1_000_000
GRID = Grid.over(ZERO - 2 * S, ZERO + 18 * S, ZERO)
LANES = {0: 1, 1: 2}  # lanes 0 and 1 are partitions, lane 2 is routed by the client


def table(columns: Any, rows: list[dict[str, int]]) -> dict[str, Any]:
    return {c.name: np.array([row.get(c.name, 0) for row in rows], c.dtype) for c in columns}


def send(
    due_ms: float, took_ms: float | None = 1, outcome: Outcome = Outcome.OK, *, lane: int = 0,
    late_ms: float = 0, stream: int | None = None, kind: Kind | None = None,
) -> dict[str, int]:  # fmt: skip
    """A send due ``due_ms`` after the start of load, done ``took_ms`` after that; None = never."""
    due = ZERO + round(due_ms * MS)
    return {
        "lane": lane,
        "kind": kind if kind is not None else (Kind.LOAD if due >= ZERO else Kind.WARM_UP),
        "t_intended_ns": due,
        "t_start_ns": due + round(late_ms * MS),
        "t_done_ns": 0 if took_ms is None else due + round(took_ms * MS),
        "outcome": outcome,
        "stream": LANES.get(lane, 3) if stream is None else stream,
    }


def series(rows: list[dict[str, int]], delivered: list[dict[str, int]] | None = None) -> Series:
    return series_of([table(SENDS, rows)], table(DELIVERIES, delivered or []), GRID, LANES)


def test_what_pipelines_make_is_in_no_rate_latency_or_outage() -> None:
    own = [send(k, 10) for k in range(0, 5000, 100)]
    piped = [
        send(100, 5000, lane=2), send(200, 1, Outcome.ABORTED, lane=2), send(300, 1, Outcome.FAIL, lane=2),
        send(9000, None, Outcome.INFO, lane=2),
    ]  # fmt: skip
    alone = series(own)
    both = series_of([table(SENDS, [*own, *piped])], table(DELIVERIES, []), GRID, LANES, piped=[2])
    counted = {"attempted": 4, "ok": 1, "fail": 1, "info": 1, "aborted": 1, "open": 1}
    assert both.totals == {
        name: value + counted.get(name, 0) for name, value in alone.totals.items()
    }
    assert both.outages == alone.outages
    assert both.latency.total == alone.latency.total
    assert both.due.tolist() == alone.due.tolist()


@settings(deadline=None)
@given(st.integers(-(2**40), 2**30), st.integers(1, 2**42), st.integers(0, 10**6))
def test_a_grid_covers_its_span_in_few_steps_with_a_border_at_zero(
    lead: int, span: int, after: int
) -> None:
    zero = 2**45
    first = zero + min(lead, 0)
    grid = Grid.over(first, first + span + after, zero)
    assert grid.steps <= MAX_STEPS
    assert grid.ticks <= MAX_STEPS * MAX_TICKS_A_STEP
    assert grid.tick_ns * grid.ticks_a_step == grid.step_ns
    assert grid.start_ns <= first
    assert grid.end_ns > first + span + after
    assert (zero - grid.start_ns) % grid.step_ns == 0


@settings(deadline=None)
@given(st.integers(2**10, 2**40 - 1))
def test_a_bin_stands_for_its_values_within_a_percent(value: int) -> None:
    middle = float(bin_middle_ns(bin_of(np.array([value])).astype(np.int64))[0])
    assert abs(middle - value) <= 0.009 * value


def test_bins_are_clipped_at_both_ends() -> None:
    assert bin_of(np.array([-5, 0, 1, 1023, 2**41, 2**62])).tolist() == [
        0,
        0,
        0,
        0,
        BINS - 1,
        BINS - 1,
    ]


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(2**10, 2**36)), min_size=1, max_size=60),
    st.sampled_from([0.0, 0.5, 0.9, 0.99, 0.999, 1.0]),
)
def test_quantiles_are_the_ranked_values(rows: list[tuple[int, int]], q: float) -> None:
    steps, values = (np.array(x, np.int64) for x in zip(*rows, strict=True))
    hist = Histogram.from_values(steps, values, 4)
    exact = sorted(values.tolist())[max(math.ceil(q * len(values) - 1e-9), 1) - 1]
    assert hist.quantiles([q])[0] == pytest.approx(exact, rel=0.017)
    (per_step,) = hist.quantiles_per_step([q], 4)
    for step in range(4):
        mine = sorted(v for s, v in rows if s == step)
        if not mine:
            assert per_step[step] is None
        elif q < 1:
            assert per_step[step] == pytest.approx(
                mine[max(math.ceil(q * len(mine) - 1e-9), 1) - 1], rel=0.017
            )


SENDS_ROWS = st.lists(
    st.builds(
        send,
        st.integers(-2000, 17_000),
        st.none() | st.integers(0, 900),
        st.sampled_from([Outcome.OK, Outcome.FAIL, Outcome.INFO]),
        lane=st.integers(0, 2),
        late_ms=st.integers(0, 500),
        kind=st.sampled_from([None, None, Kind.PROBE]),
    ).map(lambda r: r | ({"outcome": Outcome.INFO} if r["t_done_ns"] == 0 else {})),
    max_size=40,
)


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(SENDS_ROWS)
def test_counts_agree_with_counting_by_hand(rows: list[dict[str, int]]) -> None:
    found = series(rows)
    judged = [r for r in rows if r["kind"] != Kind.PROBE]

    def by_hand(outcome: Outcome | None) -> list[int]:
        counts = [0] * GRID.steps
        for row in judged:
            if outcome is None:
                t = row["t_intended_ns"]
            elif row["outcome"] != outcome:
                continue
            else:
                t = row["t_done_ns"] or row["t_start_ns"]
            counts[min((t - GRID.start_ns) // GRID.step_ns, GRID.steps - 1)] += 1
        return counts

    assert found.due.tolist() == by_hand(None)
    assert found.ok.tolist() == by_hand(Outcome.OK)
    assert found.fail.tolist() == by_hand(Outcome.FAIL)
    assert found.info.tolist() == by_hand(Outcome.INFO)
    load_ok = [r for r in judged if r["kind"] == Kind.LOAD and r["outcome"] == Outcome.OK]
    assert found.latency.total == len(load_ok)
    assert found.latency.max_ns == max(
        (r["t_done_ns"] - r["t_intended_ns"] for r in load_ok), default=0
    )
    if judged:
        assert found.totals["attempted"] == len(judged)
        assert found.totals["open"] == sum(r["t_done_ns"] == 0 for r in judged)


@pytest.mark.long
@settings(max_examples=40, deadline=None)
@given(SENDS_ROWS, st.lists(st.integers(0, 2), min_size=40, max_size=40))
def test_merged_buckets_are_the_whole(rows: list[dict[str, int]], bucket: list[int]) -> None:
    """Lanes go to buckets whole, as sealing sends them."""
    parts = [series([r for r in rows if bucket[r["lane"]] == b]) for b in range(3)]
    whole, merged = series(rows), Series.merged(parts, GRID)
    for name in ("due", "ok", "fail", "info", "delivered"):
        assert getattr(merged, name).tolist() == getattr(whole, name).tolist()
    for name in ("latency", "delay"):
        one, other = getattr(merged, name), getattr(whole, name)
        assert (one.cells.tolist(), one.counts.tolist(), one.max_ns) == (
            other.cells.tolist(),
            other.counts.tolist(),
            other.max_ns,
        )
    assert set(merged.outages) == set(whole.outages)
    assert merged.totals == (whole.totals if rows and whole.totals else merged.totals)


def test_deliveries_are_counted_and_acknowledgements_are_not() -> None:
    rows = [
        {"event": Event.DELIVER, "t_ns": ZERO + 5, "kind": Kind.LOAD},
        {"event": Event.DELIVER, "t_ns": ZERO + 6, "kind": Kind.PROBE},
        {"event": Event.COMMIT, "t_ns": ZERO + 7, "kind": Kind.PROBE},
    ]
    assert series([], rows).delivered.sum() == 1


def steady(
    until_ms: int, *, every_ms: int = 10, lane: int = 0, start_ms: int = 0
) -> list[dict[str, int]]:
    return [send(t, 5, lane=lane) for t in range(start_ms, until_ms, every_ms)]


def close_to(outage: Outage, stream: int, start_ms: float, end_ms: float) -> bool:
    slack = 2 * GRID.tick_ns + 10 * MS
    return (
        outage.stream == stream
        and abs(outage.start_ns - ZERO - start_ms * MS) <= slack
        and abs(outage.end_ns - ZERO - end_ms * MS) <= slack
    )


def test_a_healthy_stream_has_no_outage() -> None:
    assert series(steady(10_000)).outages == ()


def test_an_outage_lasts_from_the_first_message_offered_to_the_next_ok() -> None:
    """Messages go on being due from 3 s; all of them are acknowledged at 6 s."""
    blocked = [send(t, 6000 - t) for t in range(3000, 6000, 10)]
    found = series(steady(3000) + blocked + steady(9000, start_ms=6000)).outages
    assert len(found) == 1
    assert close_to(found[0], 1, 3000, 6000)
    assert not found[0].open


def test_a_client_that_is_behind_is_waiting_all_the_time() -> None:
    """No message is offered in the gap, but those acknowledged after it had been offered before
    it."""
    behind = [send(t, 5000) for t in range(0, 3000, 10)]  # acknowledged at 5 .. 8 s
    # due before 4 s, acknowledged from 11 s
    pause = [send(3000 + t, 8000) for t in range(0, 1000, 10)]
    (first, second) = series(behind + pause).outages
    assert close_to(first, 1, 0, 5000)
    assert close_to(second, 1, 8000, 11_000)


def test_a_generator_that_is_late_is_no_outage() -> None:
    """Nothing was offered between 3 and 6 s; what was due then was offered late and acknowledged at
    once."""
    late = [send(t, 6005 - t, late_ms=6000 - t) for t in range(3000, 6000, 10)]
    assert series(steady(3000) + late + steady(9000, start_ms=6010)).outages == ()


def test_messages_that_failed_meanwhile_were_offered_too() -> None:
    failed = [send(t, 100, Outcome.INFO) for t in range(3000, 6000, 10)]
    found = series(steady(3000) + failed + steady(9000, start_ms=6000)).outages
    assert len(found) == 1
    assert close_to(found[0], 1, 3000, 6000)


def test_a_pause_without_messages_is_no_outage() -> None:
    assert series(steady(3000) + steady(9000, start_ms=6000)).outages == ()


def test_a_slow_trickle_is_no_outage() -> None:
    assert series([send(t, 5) for t in range(0, 15_000, 3000)]).outages == ()


def test_an_outage_that_never_ends_is_open() -> None:
    lost = [send(t, None, Outcome.INFO) for t in range(3000, 6000, 10)]
    (found,) = series(steady(3000) + lost).outages
    assert found.open
    assert close_to(found, 1, 3000, (GRID.end_ns - ZERO) / MS)


def test_each_stream_is_judged_for_itself() -> None:
    blocked = [send(t, 5000 - t, lane=1) for t in range(4000, 5000, 10)]
    found = series(
        steady(9000) + steady(4000, lane=1) + blocked + steady(9000, lane=1, start_ms=5000)
    ).outages
    assert [o.stream for o in found] == [2]


def test_a_routed_message_without_outcome_counts_for_every_stream_of_its_lane() -> None:
    rows = steady(3000, lane=2) + steady(9000, lane=2, start_ms=6000)
    unknown = [send(t, None, Outcome.INFO, lane=2, stream=0) for t in range(3000, 6000, 10)]
    (found,) = series(rows + unknown).outages
    assert close_to(found, 3, 3000, 6000)


def test_a_gap_just_below_the_threshold_is_none() -> None:
    short = OUTAGE_NS / MS - 50
    blocked = [send(3000 + t, short - t) for t in range(0, int(short), 10)]
    assert series(steady(3000) + blocked + steady(6000, start_ms=3000 + int(short))).outages == ()


def test_nothing_at_all_merges_to_nothing() -> None:
    assert Series.merged([], GRID).due.sum() == 0
    assert empty(GRID).latency.quantiles([0.5]) == []
    assert empty(GRID).latency.quantiles_per_step([0.5, 1.0], 2) == [[None, None], [None, None]]
