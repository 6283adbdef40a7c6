"""Resource faults on real brokers: what the kernel and the cluster show, and that nothing of it stays."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import faults
from harness.clusters.cluster import BrokerCluster
from harness.clusters.limits import node_limits
from harness.clusters.limits.groups import groups_left
from harness.clusters.limits.volumes import volumes_below
from harness.protocols.cluster import TopicSettings
from harness.rundir import RunDir, read_jsonl
from tests.live.cluster_rig import sending, up

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(bool(node_limits.why_not("data-volume")), reason=node_limits.why_not("data-volume")),
    pytest.mark.skipif(bool(node_limits.why_not("slow-volume")), reason=node_limits.why_not("slow-volume")),
    pytest.mark.skipif(bool(node_limits.why_not("memory-group")), reason=node_limits.why_not("memory-group")),
]
ORDERS = TopicSettings("orders", 6, 3, {"min.insync.replicas": "2"})
STEPS: list[dict[str, Any]] = [
    {"fault": "cpu-limit", "target": "kafka-1", "cores": 0.03, "at": 0, "for": 2},
    {"fault": "memory-limit", "target": "kafka-1", "headroom": "1MB", "at": 3, "for": 8, "wait": 30},
    # Longer than replica.lag.time.max.ms: a node that lives shows it only as a replica that falls behind.
    {"fault": "disk-full", "target": "kafka-2", "at": 12, "for": 8, "wait": 60},
    {"fault": "slow-disk", "target": "kafka-3", "at": 13, "for": 4, "rate": "200kB", "wait": 60},
]


@pytest.fixture
def timeline() -> faults.Timeline:
    nodes = ["kafka-1", "kafka-2", "kafka-3"]
    return faults.compile(STEPS, seed=7, load_s=300, topics=[ORDERS], nodes=nodes)


@pytest.fixture
def cluster(tmp_path: Path, timeline: faults.Timeline) -> Iterator[BrokerCluster[Any]]:
    with up("kafka", tmp_path, ORDERS, needs=faults.needs_of([timeline])) as found:
        yield found
    assert list(groups_left(found.runtime.run_id)) == []
    assert volumes_below(tmp_path) == []


def test_each_takes_effect_and_heals(
    cluster: BrokerCluster[Any], timeline: faults.Timeline, tmp_path: Path
) -> None:
    run = RunDir(tmp_path / "run").create()
    faults.refuse_unsupported(timeline, cluster)
    injector = faults.Injector(timeline, cluster, run)
    with sending(cluster, ORDERS):
        injector.start(time.monotonic_ns())
        injector.join(180)
        assert injector.heal_all(60) == []
    rows = read_jsonl(run.faults)
    said = {row["id"]: row for row in rows if row["event"] == "effect"}
    assert [said[number]["effective"] for number in (1, 2, 3, 4)] == [True] * 4, rows
    assert "kafka-1: held to 0.03 cores in" in said[1]["evidence"]
    assert "of memory" in said[2]["evidence"]
    assert "no space left on its data volume (a write got ENOSPC)" in said[3]["evidence"]
    assert "200 kB/s at most:" in said[4]["evidence"]
    assert [row["ok"] for row in rows if row["event"] == "healed"] == [True] * 4, rows
    assert cluster.runtime.cpu_use("kafka-1").cores is None
    assert cluster.runtime.memory_use("kafka-1").limit is None
    assert cluster.runtime.try_write("kafka-2", 65536)[0] == ""
    assert not cluster.runtime.is_slowed("kafka-3")
    assert all(cluster.runtime.is_running(node.name) for node in cluster.runtime.nodes)
