"""Skewed keys and topics with shares: the table of turns, and workers that follow it with dense
sequences."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.contracts.plan import Plan
from harness.errors import ScenarioError
from harness.plan.build import build_plan
from harness.plan.turns import TURNS, turns_of
from harness.scenario.checks import problems
from harness.scenario.model import Scenario
from workers.python_kit.worker_kit.spec import Lane, Turns


def plan_of(producer: dict[str, Any], topics: Any = None, seed: int = 1) -> Plan:
    keys = {"name": "x", "load": {"producers": {"p": producer}}, "topics": topics or {"orders": {}}}
    return build_plan(Scenario.model_validate(keys), seed=seed)


def table(plan: Plan) -> list[int]:
    return turns_of(plan, plan.producers[0])


def test_without_skew_and_shares_there_is_no_table() -> None:
    assert table(plan_of({"lanes": "key"})) == []


def test_keys_come_by_zipfs_law_and_each_of_them_comes() -> None:
    plan = plan_of({"lanes": "key", "keys": 1000, "skew": 1.0})
    turns = Counter(table(plan))
    assert (turns.total(), len(turns)) == (TURNS, 1000)
    assert turns[0] / turns[9] == pytest.approx(10, rel=0.05)
    assert min(turns.values()) >= 1
    assert table(plan) == table(plan)
    assert table(plan) != table(plan_of({"lanes": "key", "keys": 1000, "skew": 1.0}, seed=2))


def test_topics_share_the_messages() -> None:
    topics = {"orders": {"partitions": 3, "share": 3}, "refunds": {"count": 2, "partitions": 1}}
    turns = Counter(table(plan_of({}, topics)))
    assert turns[0] + turns[1] + turns[2] == pytest.approx(TURNS * 0.75, abs=3)
    assert turns[3] == pytest.approx(turns[4], abs=1)


def test_more_lanes_than_turns_are_refused() -> None:
    with pytest.raises(ScenarioError, match="9,000 lanes: with skew or topic shares at most 8,192"):
        table(plan_of({"lanes": "key", "keys": 9000, "skew": 1.0}))


def test_skew_is_of_keys() -> None:
    scenario = Scenario.model_validate({"name": "x", "load": {"producers": {"p": {"skew": 1.0}}}})
    assert list(problems(scenario)) == [(("load", "producers", "p", "skew"), "needs lanes: key")]


@given(
    st.integers(1, 6).flatmap(
        lambda n: st.tuples(
            st.just(n), st.lists(st.integers(0, n - 1), max_size=20), st.integers(1, n)
        )
    ),
    st.integers(0, 200),
)
def test_every_lane_is_dense_whatever_the_turns(
    drawn: tuple[int, list[int], int], count: int
) -> None:
    lanes, order, threads = drawn
    order = order and [*range(lanes), *order]  # each has a turn, as in every table
    every = [Lane(100 + k, "t", None, k, 0) for k in range(lanes)]
    shares = [Turns(every, order, thread, threads) for thread in range(threads)]
    assert sum(each.share for each in shares) == pytest.approx(1)
    for each in shares:
        seen: Counter[int] = Counter()
        for i in range(count):
            lane = each.lanes[i % len(each.lanes)].lane
            assert each.seq(i) == seen[lane]
            seen[lane] += 1
        assert each.seqs(3, 9).tolist() == [each.seq(i) for i in range(3, 9)]
