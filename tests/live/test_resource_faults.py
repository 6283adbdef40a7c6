"""Resource faults on real brokers: what the kernel and the cluster show, and that nothing of it
stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harness.clusters.limits import node_limits
from harness.systems.kafka.assembly import KafkaCluster
from tests.live.cluster_rig import ORDERS, FaultRig, sending

pytestmark = pytest.mark.live
Begin = Callable[..., FaultRig]


def needing(need: str) -> pytest.MarkDecorator:
    """Skip where the machine cannot give it."""
    return pytest.mark.skipif(bool(node_limits.why_not(need)), reason=node_limits.why_not(need))


def struck(begin: Begin, step: dict[str, Any]) -> str:
    """The evidence of a fault that takes effect and is healed, while messages are written to every
    broker."""
    rig = begin({"at": 0, "for": "5m", **step})
    with sending(rig.cluster, ORDERS):
        effect = rig.wait_for("effect")
        rig.finish(now=True)
    return str(effect["evidence"])


@needing("cpu-quota")
def test_a_node_is_held_to_less_cpu(kafka: KafkaCluster, begin: Begin) -> None:
    said = struck(begin, {"fault": "cpu-limit", "target": "kafka-1", "cores": 0.03})
    assert "kafka-1: held to 0.03 cores in" in said
    assert kafka.runtime.cpu_use("kafka-1").cores is None


@pytest.mark.extended
@needing("memory-group")
def test_a_node_is_held_to_less_memory(kafka: KafkaCluster, begin: Begin) -> None:
    assert "of memory" in struck(
        begin, {"fault": "memory-limit", "target": "kafka-1", "headroom": "1MB"}
    )
    assert kafka.runtime.memory_use("kafka-1").limit is None


@needing("data-volume")
def test_a_node_finds_its_disk_full(kafka: KafkaCluster, begin: Begin) -> None:
    said = struck(begin, {"fault": "disk-full", "target": "kafka-2"})
    assert "no space left on its data volume (a write got ENOSPC)" in said
    assert kafka.runtime.try_write("kafka-2", 65536)[0] == ""


@pytest.mark.extended
@needing("slow-volume")
def test_a_node_has_a_slow_disk(kafka: KafkaCluster, begin: Begin) -> None:
    said = struck(begin, {"fault": "slow-disk", "target": "kafka-3", "rate": "200kB"})
    assert "200 kB/s at most:" in said
    assert not kafka.runtime.is_slowed("kafka-3")
