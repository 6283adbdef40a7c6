"""Mixed payload sizes: from what is written to what a worker is told."""

from __future__ import annotations

import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from harness.contracts.plan import Plan
from harness.plan.build import build_plan
from harness.plan.estimate import estimate
from harness.run.worker_specs import Endpoints, client_spec
from harness.rundir import RunDir
from harness.scenario.model import Scenario
from workers.python_kit.worker_kit import payload


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
        spec = client_spec(plan, RunDir(Path()), plan.producers[0], Endpoints(""))
        return spec.producer.payload_sizes if spec.producer else None

    assert (
        told(plan_of({"p50": 300, "p99": 4000})) == plan_of({"p50": 300, "p99": 4000}).payload_sizes
    )
    assert [told(plan_of(each)) for each in (150, "100..200", {"sizes": {150: 1}})] == [None] * 3


@pytest.mark.parametrize("share", [0, 30, 60, 90])
def test_a_codec_saves_about_what_is_said(share: int) -> None:
    """Of a batch: it must not find the bytes of one message again in another one."""
    plan = plan_of({"bytes": 2000, "compressible": f"{share}%"})
    assert plan.payload_compressible == share * 10
    sizes = payload.Sizes(2000, 2000, 1, (), share * 10)
    batch = b"".join(
        payload.encode(1, 1, 0, seq, 10**9 * seq, length=2000, filling=sizes.filling(0, seq, 2000))
        for seq in range(400)
    )
    saved = 1 - len(zlib.compress(batch)) / len(batch)
    assert saved == pytest.approx(share / 100, abs=0.03)


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ({"bytes": 40, "compressible": "60%"}, "at least 52"),
        ({"bytes": 100, "compressible": "160%"}, "from 0 to 1"),
        ({"compressible": "60%"}, "must have p50"),
    ],
)
def test_what_cannot_be_compressible_is_refused(written: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        plan_of(written)
