"""Consumers that join during the load, so that their group rebalances."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import ScenarioError
from harness.plan.build import build_plans
from harness.scenario.file import load_scenario

TEXT = """
name: x
load:
  duration: 20s
  consumers:
    first: {client: confluent-kafka}
    second: {client: confluent-kafka, count: 2, joins_after: 5s}
"""


def test_the_plan_says_when_each_joins(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(TEXT)
    (plan,) = build_plans(load_scenario(file), seed=1)
    assert [(c.name, c.joins_s) for c in plan.consumers] == [
        ("consumer-first", 0.0),
        ("consumer-second-1", 5.0),
        ("consumer-second-2", 5.0),
    ]


def test_nobody_joins_after_the_load(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(TEXT.replace("5s", "20s"))
    with pytest.raises(
        ScenarioError, match=r"second.joins_after: must be less than load.duration \(20 s\)"
    ):
        load_scenario(file)
