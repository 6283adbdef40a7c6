"""Network faults on real brokers: what they do, that they are proved, and that nothing of them
stays."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import faults
from faults.engine.ledger import Ledger
from faults.engine.prover import Prover
from faults.kit.round_trips import measure
from harness.clusters.cluster import BrokerCluster, open_cluster
from harness.errors import ScenarioError
from harness.protocols.cluster import TopicSettings
from harness.protocols.network import CLIENT_DETOURS, CLIENTS, PEER_DETOURS
from harness.rundir import RunDir
from harness.systems import SYSTEMS
from tests.live.cluster_rig import ORDERS, FaultRig, fire, new_run_id, up, wait_until

pytestmark = pytest.mark.live
ROOT = Path(__file__).resolve().parents[2]
NEEDS = frozenset({CLIENT_DETOURS, PEER_DETOURS})


def topic_of(system: str) -> TopicSettings:
    return ORDERS if system == "kafka" else TopicSettings("orders", 1, 1)


def cut(
    cluster: BrokerCluster[Any], run: RunDir, step: dict[str, Any]
) -> dict[str, dict[str, Any]]:
    """One fault that takes effect and of which nothing stays; the last row of each event."""
    rows = fire(cluster, run, [topic_of(cluster.system)], step)
    assert rows["effect"]["effective"], rows
    assert Ledger(run).entries() == []
    wires = cluster.runtime.detours.wires()
    assert None not in measure(cluster.request, wires, timeout_s=5).values()
    return rows


@pytest.mark.extended
def test_latency_for_clients(kafka: BrokerCluster[Any], tmp_path: Path) -> None:
    step = {"fault": "latency", "target": "kafka-1", "delay": "300ms", "for": "1s"}
    rows = cut(kafka, RunDir(tmp_path / "run").create(), step)
    assert "before (clients -> kafka-1)" in rows["effect"]["evidence"]


def test_a_leader_cut_off_from_its_peers(
    kafka: BrokerCluster[Any],
    begin: Callable[..., FaultRig],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The others elect leaders while clients still reach the old one."""
    looks, look = [], Prover._look
    monkeypatch.setattr(Prover, "_look", lambda self: (look(self), looks.append(1))[0])
    rig = begin(
        {"fault": "partition", "target": "leader-of:orders", "link": "peers", "at": 0, "for": "5m"}
    )
    (target,) = rig.wait_for("inject")["targets"]
    assert "no answer on 4 of 4 wires" in rig.wait_for("effect")["evidence"]
    wait_until("leaders elsewhere", lambda: target not in kafka.admin.leaders("orders").values())
    assert kafka.admin.answers(target)
    seen = len(looks)  # one may be under way, and have read the leaders of before
    wait_until("a whole look after that", lambda: len(looks) >= seen + 2)
    rig.finish(now=True)
    assert rig.rows("effect")[-1]["details"]["leaders_moved"] >= 1


@pytest.mark.extended
def test_a_fault_that_a_killed_process_left(kafka: BrokerCluster[Any], tmp_path: Path) -> None:
    """It is in the ledger before it is applied, and another process heals it."""
    run = RunDir(tmp_path / "run").create()
    code = (
        "import os, sys, faults; from harness.clusters import attach_cluster; from pathlib import Path;"
        "from harness.rundir import RunDir;"
        "row = faults.inject_once('blackhole', {'target': 'kafka-2'}, attach_cluster(Path(sys.argv[1])),"
        " RunDir(Path(sys.argv[2])), None); assert row.effective, row; os.kill(os.getpid(), 9)"
    )
    command = [sys.executable, "-c", code, str(kafka.runtime.folder), str(run.root)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == -9, done.stderr
    wires = [
        wire
        for wire in kafka.runtime.detours.wires()
        if (wire.source, wire.target) == (CLIENTS, "kafka-2")
    ]
    assert measure(SYSTEMS["kafka"].request, wires) == {"clients -> kafka-2": None}
    assert faults.heal_from_ledger(kafka, run) == []
    assert None not in measure(SYSTEMS["kafka"].request, wires, timeout_s=5).values()
    assert Ledger(run).entries() == []


def test_a_cluster_without_detours_refuses(tmp_path: Path) -> None:
    cluster = open_cluster("kafka", run_id=new_run_id(), folder=tmp_path / "cluster")
    try:
        nodes = {node.name: node.roles for node in cluster.runtime.nodes}
        timeline = faults.compile(
            [{"fault": "latency", "at": 0}],
            faults.inventory_of(topics=[topic_of("kafka")], nodes=nodes),
            seed=1,
            load_s=60,
        )
        with pytest.raises(
            ScenarioError, match="latency needs a cluster that can impair"
        ) as caught:
            faults.refuse_unsupported(timeline, cluster)
        assert "--needs client-detours" in caught.value.hint
    finally:
        cluster.down()


KAFKA = [
    {"fault": "bandwidth", "target": "kafka-1", "rate": 200, "for": "2s"},
    {"fault": "blackhole", "target": "all", "for": "2s"},
    {"fault": "connection-reset", "target": "kafka-3", "for": "1s"},
    {"fault": "partition", "target": "kafka-1", "way": "out", "for": "2s"},
    {"fault": "partition", "shape": "ring", "link": "peers", "for": "6s"},
    {"fault": "partition", "shape": "bridge", "link": "peers", "target": "kafka-2", "for": "6s"},
    {"fault": "packet-loss", "target": "kafka-1", "share": 0.3, "link": "all", "for": "5s"},
    {"fault": "name-change", "target": "kafka-2", "for": "40s"},
]


@pytest.mark.slow
@pytest.mark.parametrize("step", KAFKA, ids=lambda step: "-".join(str(v) for v in step.values()))
def test_kafka(kafka: BrokerCluster[Any], tmp_path: Path, step: dict[str, Any]) -> None:
    cut(kafka, RunDir(tmp_path / "run").create(), step)


OTHERS = {
    ("pulsar", "bookies-3"): [
        {"fault": "partition", "target": "broker-1", "for": "3s"},
        {"fault": "latency", "target": "all", "delay": "300ms", "together": True, "for": "2s"},
        {"fault": "partition", "target": "role:bookie", "link": "peers", "for": "4s"},
    ],
    ("qpid", "group"): [
        {"fault": "partition", "target": "leader-of:orders", "for": "3s"},
        {"fault": "latency", "target": "qpid-2", "delay": "300ms", "for": "2s"},
        {"fault": "partition", "target": "leader-of:orders", "link": "peers", "for": "9s"},
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize(("system", "topology"), OTHERS)
def test_other_systems(system: str, topology: str, tmp_path: Path) -> None:
    with up(system, tmp_path, topic_of(system), topology=topology, needs=NEEDS) as cluster:
        for number, step in enumerate(OTHERS[system, topology]):
            cut(cluster, RunDir(tmp_path / f"run-{number}").create(), step)
            cluster.admin.wait_ready(["orders"], timeout_s=60, run_tag=1)
