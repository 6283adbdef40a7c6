"""power-loss on real brokers: what was not synced is gone from their disks, and they come back
without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.clusters.limits.volumes import is_mounted
from harness.clusters.power import disks
from harness.rundir import RunDir
from tests.live.cluster_rig import IMPATIENT, ORDERS, ClusterPool, FaultRig, sending, wait_until

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(bool(disks.why_not(disks.DISK)), reason=disks.why_not(disks.DISK)),
]


@pytest.mark.extended
def test_all_brokers_lose_what_they_acknowledged(pool: ClusterPool, tmp_path: Path) -> None:
    kafka = pool.get("kafka", needs=disks.GIVES, broker_config=IMPATIENT)
    kafka.admin.create_topics([ORDERS])
    assert all(is_mounted(node.folder / "data") for node in kafka.runtime.nodes)
    with sending(kafka, ORDERS):
        wait_until("messages", lambda: min(kafka.admin.end_offsets(["orders"]).values()) > 100)
    before = kafka.admin.end_offsets(["orders"])
    step = {
        "fault": "power-loss",
        "nodes": "all",
        "at": 0,
        "for": 1,
        "tail": "torn",
        "directories": "lost",
    }
    rig = FaultRig(kafka, RunDir(tmp_path / "run").create(), step)
    rig.finish()
    effect = rig.rows("effect")[-1]
    assert sorted(effect["details"]["dropped"]) == ["kafka-1", "kafka-2", "kafka-3"]
    assert set(effect["details"]["unkept"]) == {f"orders-{p}" for p in range(ORDERS.partitions)}
    after = kafka.admin.end_offsets(["orders"])
    assert all(after[stream] < end for stream, end in before.items()), (before, after)
