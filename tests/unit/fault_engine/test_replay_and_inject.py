"""The same faults again, and one fault by hand."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import faults
from faults.engine.ledger import Ledger
from harness.contracts.ledger import LedgerEntry
from harness.errors import HealError, ScenarioError, UsageError
from harness.rundir import RunDir, read_jsonl, write_json
from tests.planted.plans import build_plan
from tests.planted.tiny_applications import applied
from tests.unit.fault_cluster import NAMES, StateCluster
from tests.unit.fault_engine.rig import Rig, kill


@pytest.mark.long
def test_replay_hits_the_same_nodes_at_the_real_times(tmp_path: Path, run: RunDir) -> None:
    steps = [
        kill(0.1, 0.2, target="leader-of:orders"),
        {
            "fault": "leader-move",
            "partitions": 2,
            "every": 0.3,
            "jitter": 0.1,
            "from": 0.7,
            "until": 1.2,
        },
        kill(0.15, 0.2, target="kafka-1"),
    ]
    first = Rig(StateCluster(), run, *steps)
    first.injector.join(10)
    write_json(run.manifest, {"epoch_ns": first.epoch_ns})
    write_json(run.plan, build_plan(topics={"orders": 6}, seed=7).model_dump(mode="json"))

    timeline = faults.load_replay(run)
    injected = first.rows("inject")
    assert len(injected) >= 2
    assert [f.t_s for f in timeline.firings] == [
        (r["t_ns"] - first.epoch_ns) / 1e9 for r in injected
    ]
    assert [f.params.document().get("moves") or f.target for f in timeline.firings] == [
        r["params"].get("moves") or r["targets"][0] for r in injected
    ]
    again = RunDir(tmp_path / "again").create()
    injector = faults.Injector(timeline, StateCluster(), again)  # type: ignore[arg-type]
    injector.start(time.monotonic_ns())
    injector.join(10)
    repeated = [row for row in read_jsonl(again.faults) if row["event"] == "inject"]
    assert [row["targets"] for row in repeated] == [row["targets"] for row in injected]
    assert [row["params"] for row in repeated] == [row["params"] for row in injected]


def test_a_replay_knows_the_instances_and_the_system(tmp_path: Path, run: RunDir) -> None:
    """Without them, `scale` was skipped, and the promises of a power loss were Kafka's."""
    first = Rig(StateCluster(), run, kill(0.1, 0.2, target="kafka-1"))
    first.injector.join(10)
    write_json(run.manifest, {"epoch_ns": first.epoch_ns})
    plan = build_plan(topics={"orders": 6}, seed=7).model_dump(mode="json")
    billing = applied().plan.applications[0].model_dump(mode="json")
    write_json(run.plan, {**plan, "system": "nats", "applications": [billing]})
    inventory = faults.load_replay(run).inventory
    assert inventory.system == "nats"
    assert inventory.applications == {"billing": ["application-billing-1", "application-billing-2"]}


def test_nothing_to_replay(run: RunDir) -> None:
    with pytest.raises(UsageError, match="injected no fault"):
        faults.load_replay(run)


def test_inject_for_a_while(cluster: StateCluster, run: RunDir) -> None:
    result = faults.inject_once("kill", {"target": "leader-of:orders-2"}, cluster, run, 0.2)  # type: ignore[arg-type]
    assert result.targets == ("kafka-3",)
    assert (result.id, result.effective, result.recovered, result.is_applied) == (
        1,
        True,
        True,
        False,
    )
    result = faults.inject_once("leader-move", {"partitions": 1}, cluster, run, None)  # type: ignore[arg-type]
    assert (result.id, result.effective, result.is_applied) == (2, True, False)


def test_inject_and_leave(cluster: StateCluster, run: RunDir) -> None:
    result = faults.inject_once("pause", {"target": "kafka-1"}, cluster, run, None)  # type: ignore[arg-type]
    assert (result.effective, result.recovered, result.is_applied) == (True, False, True)
    assert cluster.runtime.paused == {"kafka-1"}
    cluster.runtime.kill("kafka-2")
    Ledger(run).write(LedgerEntry(id=9, kind="kill", targets=("kafka-2",), down=("kafka-2",)))
    assert faults.heal_from_ledger(cluster, run) == []  # type: ignore[arg-type]
    assert cluster.runtime.running == set(NAMES)
    assert Ledger(run).entries() == []


@pytest.mark.parametrize(
    ("kind", "params", "for_s", "message"),
    [
        ("kil", {}, None, "unknown kind 'kil'"),
        ("kill", {"target": "kafka-7"}, 1.0, "no node 'kafka-7'"),
        ("kill", {"tagret": "all"}, 1.0, "tagret: unknown key; did you mean target?"),
        ("leader-move", {"topic": "order"}, None, "no topic 'order'; did you mean orders?"),
        ("leader-move", {}, 3.0, "for: leader-move ends by itself"),
    ],
)
def test_inject_refuses(
    cluster: StateCluster,
    run: RunDir,
    kind: str,
    params: dict[str, Any],
    for_s: float | None,
    message: str,
) -> None:
    with pytest.raises(ScenarioError) as caught:
        faults.inject_once(kind, params, cluster, run, for_s)  # type: ignore[arg-type]
    assert message in str(caught.value)
    assert cluster.runtime.calls == []


def test_inject_that_cannot_be_healed(
    cluster: StateCluster, run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("faults.engine.injector.VERIFY_S", 0.2)
    cluster.runtime.start_fails = 10**9
    with pytest.raises(HealError, match="kafka-1 not running"):
        faults.inject_once("kill", {"target": "kafka-1"}, cluster, run, 0.1)  # type: ignore[arg-type]
