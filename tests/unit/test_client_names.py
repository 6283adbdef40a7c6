"""Clients have the names that the scenario gives them, each its own, and faults take those
names."""

from __future__ import annotations

import pytest

from faults.kit.clients import is_target
from harness.plan.build import build_plan
from harness.scenario.model import Scenario

PRODUCERS = ["producer-shop-1", "producer-shop-2", "producer-shopping"]
MEMBERS = ["pipeline-bill-1", "pipeline-bill-2"]


def test_names_come_from_the_scenario_and_no_two_are_alike() -> None:
    producers = {"shop": {"count": 2}, "shop-2": {}, "a.b": {}}
    load = {"rate": 1000, "duration": "20s", "producers": producers, "consumers": {"shop": {}}}
    plan = build_plan(Scenario.model_validate({"name": "x", "load": load}), seed=1)
    assert [producer.name for producer in plan.producers] == [
        "producer-shop-1", "producer-shop-2", "producer-shop-2-3", "producer-a_b",
    ]  # fmt: skip
    assert [consumer.name for consumer in plan.consumers] == ["consumer-shop"]


@pytest.mark.parametrize(
    ("target", "meant"),
    [
        ("client", [*PRODUCERS, "consumer-shop", *MEMBERS]),
        ("client:pipeline", MEMBERS),
        ("pipeline-bill", MEMBERS),
        ("client:bill-2", ["pipeline-bill-2"]),
        ("client:producer", PRODUCERS),
        ("client:shop", ["producer-shop-1", "producer-shop-2", "consumer-shop"]),
        ("client:producer-shop", ["producer-shop-1", "producer-shop-2"]),
        ("client:shop-2", ["producer-shop-2"]),
        ("client:consumer-shop", ["consumer-shop"]),
        ("client:nobody", []),
    ],
)
def test_a_target_is_a_role_a_name_or_one_of_several(target: str, meant: list[str]) -> None:
    every = [*PRODUCERS, "consumer-shop", *MEMBERS]
    assert [name for name in every if is_target(target, name)] == meant
