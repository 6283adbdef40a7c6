"""Mixed payload sizes: from what is written to what a worker is told."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from harness.plan.build import build_plan
from harness.plan.estimate import estimate
from harness.plan.model import Plan
from harness.run.worker_specs import Endpoints, producer_spec
from harness.rundir import RunDir
from harness.scenario.model import Scenario


def plan_of(payload: Any) -> Plan:
    load = {"payload": payload, "rate": 1000, "duration": "9s", "warm_up": "1s"}
    return build_plan(Scenario.model_validate({"name": "x", "load": load}), seed=1)


def test_a_log_normal_mix_has_its_quantiles() -> None:
    sizes = plan_of({"p50": 300, "p99": 4000}).payload_sizes
    assert sizes == sorted(sizes)
    assert sizes[len(sizes) // 2] == pytest.approx(300, rel=0.01)
    assert sizes[len(sizes) * 99 // 100] == pytest.approx(4000, rel=0.05)
    assert sizes[0] == 52  # a header and a checksum have to fit


def test_a_counted_mix_keeps_its_shares() -> None:
    plan = plan_of({"sizes": {10_000: "5%", 200: "70.5%", 1000: 0.245}})
    assert Counter(plan.payload_sizes) == {200: 705, 1000: 245, 10_000: 50}
    assert (plan.payload_bytes, plan.payload_max_bytes) == (200, 10_000)
    total = estimate([plan], lambda *_: "python")
    assert total.payload_bytes == 10_000 * (200 * 705 + 1000 * 245 + 10_000 * 50) // 1000


def test_workers_are_told_only_of_a_mix() -> None:
    def told(plan: Plan) -> Any:
        spec = producer_spec(plan, RunDir(Path()), plan.producers[0], Endpoints(""))
        return spec["producer"].get("payload_sizes")

    assert told(plan_of({"p50": 300, "p99": 4000})) == plan_of({"p50": 300, "p99": 4000}).payload_sizes
    assert [told(plan_of(each)) for each in (150, "100..200", {"sizes": {150: 1}})] == [None] * 3
