"""A search on live brokers: a frozen leader and acks=1 are needed, and little else."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.live.run_rig import brokerstorm

pytestmark = [pytest.mark.live, pytest.mark.slow]
SCENARIO = """
name: lossy
topics:
  orders: {partitions: 3}
  clicks: {partitions: 3}
load:
  rate: 3000
  duration: 20s
  warm_up: 2s
  producers:
    shop:
      options: {acks: 1, linger.ms: 5}
  consumers:
    billing: {group: billing}
faults:
  - {fault: client-freeze, target: "client:consumer", at: 2s, for: 1s}
  - {fault: pause, target: "leader-of:orders", at: 6s, for: 5s}
require: {delivery: durable, rate_ratio: 0}
variants:
  unsafe: {expect: acked-lost}
"""


def test_what_acks_1_needs_to_lose_a_message(tmp_path: Path) -> None:
    file, out = tmp_path / "lossy.yaml", tmp_path / "smallest.yaml"
    file.write_text(SCENARIO)
    said = brokerstorm(
        *("--json", "--run-dir", str(tmp_path / "runs"), "shrink", str(file)),
        *("--seed", "7", "--budget", "20m", "--runtime", "process", "--out", str(out)),
    )
    assert said.code == 0, said.err
    found = said.document
    assert (found["class"], found["shown"]) == ("acked-lost", True)
    smallest = yaml.safe_load(out.read_text())
    assert [step["fault"] for step in smallest["faults"]] == ["pause"]
    assert smallest["load"]["producers"]["shop"]["options"]["acks"] == 1
    assert "consumers" not in smallest["load"]
    assert smallest["variants"] == {"smallest": {"expect": "acked-lost"}}
