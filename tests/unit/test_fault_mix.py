"""A mix: what is drawn, what never is, and what a wrong one is told."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import faults
from faults.kinds import KINDS
from harness.errors import ScenarioError
from harness.protocols.cluster import TopicSettings

NODES = ["kafka-1", "kafka-2", "kafka-3"]
KILL, MOVE = {"fault": "kill", "for": 5}, {"fault": "leader-move"}


def compiled(*steps: Any, seed: int = 7, load_s: float = 60.0) -> faults.Timeline:
    return faults.compile(
        list(steps),
        faults.inventory_of(topics=[TopicSettings("orders", 12, 3)], nodes=NODES),
        seed=seed,
        load_s=load_s,
    )


def mix(*of: Any, every: Any = 4, **more: Any) -> dict[str, Any]:
    return {"mix": {"of": list(of), "every": every, **more}}


def test_weights_are_chances() -> None:
    step = mix({**MOVE, "weight": 3}, {"fault": "preferred-election"}, every=1, **{"from": 0})
    drawn = Counter(firing.kind for firing in compiled(step, load_s=4000).firings)
    assert drawn.total() == 4000
    assert 0.72 < drawn["leader-move"] / drawn.total() < 0.78


def test_the_seed_decides() -> None:
    step = mix(KILL, MOVE, jitter=2)
    assert compiled(step, seed=1) == compiled(step, seed=1)
    assert compiled(step, seed=1).firings != compiled(step, seed=2).firings


def test_another_step_changes_nothing_of_a_mix() -> None:
    step = mix(KILL, MOVE, jitter=2)
    alone = [(f.t_s, f.kind, f.draw) for f in compiled(step).firings]
    both = compiled(step, {"fault": "pause", "at": 3}).firings
    assert [(f.t_s, f.kind, f.draw) for f in both if f.step == 0] == alone


def test_quiet_periods_are_the_end_of_each_round() -> None:
    step = mix(MOVE, every=2, quiet={"every": "20s", "for": "5s"}, until="50s", **{"from": "4s"})
    timeline = compiled(step)
    assert timeline.quiet == ((19.0, 24.0), (39.0, 44.0))
    assert [f.t_s for f in timeline.firings] == [
        4, 6, 8, 10, 12, 14, 16, 18, 24, 26, 28, 30, 32, 34, 36, 38, 44, 46, 48, 50
    ]  # fmt: skip
    lines = faults.describe(timeline)
    assert "+19.0 s  quiet for 5 s: all faults undone, none is drawn" in lines
    assert lines == sorted(lines)


def test_a_quiet_period_ends_with_the_load() -> None:
    assert compiled(mix(MOVE, quiet={"every": 20, "for": 5}), load_s=21).quiet == ((19.0, 21.0),)


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    every=st.floats(0.5, 8),
    jitter=st.floats(0, 0.99),
    kill_s=st.floats(0.5, 6),
    quiet_s=st.floats(1, 12),
    wait=st.none() | st.floats(0, 30),
)
def test_nothing_is_applied_in_a_quiet_period_and_one_node_at_most_is_away(
    seed: int, every: float, jitter: float, kill_s: float, quiet_s: float, wait: float | None
) -> None:
    of = [{"fault": "kill", "for": kill_s}, {"fault": "pause", "for": 2}, MOVE]
    step = mix(
        *of, every=every, jitter=jitter * every, quiet={"every": 20, "for": quiet_s}, wait=wait
    )
    timeline = compiled(step, seed=seed)
    away_until_s = 0.0
    for firing in timeline.firings:
        until_s = firing.t_s + firing.wait_s + (firing.for_s or 0.0)
        assert until_s <= 60.0 + 1e-5
        for start_s, end_s in timeline.quiet:
            assert until_s <= start_s + 1e-5 or firing.t_s >= end_s
        if KINDS[firing.kind].takes_nodes:
            assert firing.t_s >= away_until_s
            away_until_s = firing.t_s + (firing.for_s or 0.0)


def test_a_draw_waits_for_the_next_one_but_not_into_the_quiet() -> None:
    step = mix(KILL, every=7, quiet={"every": 20, "for": 5}, **{"from": 0})
    assert [(f.t_s, f.wait_s) for f in compiled(step, load_s=20).firings] == [(0, 7), (7, 3)]


def test_beside_ordinary_steps_and_numbered_by_time() -> None:
    firings = compiled({"fault": "pause", "at": 9}, mix(MOVE, **{"from": 8})).firings
    assert [f.id for f in firings] == list(range(1, len(firings) + 1))
    assert [(f.t_s, f.kind, f.step) for f in firings[:2]] == [
        (8, "leader-move", 1),
        (9, "pause", 0),
    ]


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ({"mix": 3}, "faults[0].mix: must be a mapping such as"),
        ({**mix(KILL), "at": 3}, "faults[0].at: a mix has no other keys next to it"),
        ({"mix": {"of": [KILL]}}, "faults[0].mix.every: is missing"),
        ({"mix": {"every": 3}}, "faults[0].mix.of: is missing"),
        (mix(), "faults[0].mix.of: "),
        (mix(KILL, evry=2), "faults[0].mix.evry: unknown key"),
        (
            mix({"fault": "kil"}),
            "faults[0].mix.of[0].fault: unknown kind 'kil'; did you mean kill?",
        ),
        (mix(KILL, {"weight": 2}), "faults[0].mix.of[1].fault: is missing"),
        (
            mix({**KILL, "at": 3}),
            "faults[0].mix.of[0].at: not allowed here: the mix decides the times",
        ),
        (mix({**KILL, "weight": 0}), "faults[0].mix.of[0].weight: must be greater than 0, got 0"),
        (mix({**KILL, "wieght": 2}), "faults[0].mix.of[0].wieght: unknown key"),
        (mix({**KILL, "target": "kafka-9"}), "faults[0].mix.of[0].target: no node 'kafka-9'"),
        (
            mix({"fault": "rolling-restart"}),
            "faults[0].mix.of[0].fault: how long rolling-restart takes is not known",
        ),
        (mix(KILL, jitter=4), "faults[0].mix: jitter (4 s) must be shorter than every (4 s)"),
        (mix(KILL, until="2m"), "faults[0].mix.until: 120 s is after the end of load at 60 s"),
        (mix(KILL, every="90s"), "faults[0].mix.of[0]: can never be drawn"),
        (
            mix(MOVE, every="59.5s", jitter=50, until=59.6),
            "faults[0].mix.every: never draws anything",
        ),
        (mix(MOVE, every="1ms"), "faults[0].mix.every: more than 10000 draws"),
        (mix(KILL, quiet={"every": 9, "for": 9}), "faults[0].mix.quiet: for (9 s) must be shorter"),
        (mix(KILL, quiet={"every": 9}), "faults[0].mix.quiet.for: is missing"),
        (
            mix(MOVE, {**KILL, "for": 6}, quiet={"every": 9, "for": 4}),
            "faults[0].mix.of[1]: can never be drawn: it takes 6 s, and the longest time without quiet is",
        ),
    ],
)
def test_mistakes_name_the_place(step: Any, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        compiled(step)
    assert message in str(caught.value)
    assert "list faults" in caught.value.hint


def test_a_day_of_faults_is_laid_out_in_moments() -> None:
    """A plan of hours is made several times before anything starts."""
    began = time.process_time()
    step = mix(KILL, MOVE, every=2, jitter=1, quiet={"every": "30s", "for": "5s"})
    timeline = compiled(step, load_s=86400.0)
    assert time.process_time() - began < 5
    assert len(timeline.firings) > 20_000
    assert timeline.firings[-1].t_s > 86000
    assert all(
        not start_s <= f.t_s < end_s
        for f in timeline.firings[:500]
        for start_s, end_s in timeline.quiet[:99]
    )
