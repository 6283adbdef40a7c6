"""power-loss on real brokers: what was not synced is gone from their disks, and they come back
without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.clusters.limits.volumes import is_mounted
from harness.clusters.power import disks
from harness.rundir import RunDir
from tests.live.cluster_rig import (
    IMPATIENT,
    ORDERS,
    ClusterPool,
    FaultRig,
    make_whole,
    sending,
    wait_until,
)

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


FLUSHED = {**IMPATIENT, "log.flush.interval.messages": "1"}


@pytest.mark.extended
def test_a_broker_whose_disk_fails_ends_and_is_back_when_it_works(
    pool: ClusterPool, tmp_path: Path
) -> None:
    kafka = pool.get("kafka", needs=disks.GIVES, broker_config=FLUSHED)
    if ORDERS.name not in kafka.admin.topics():
        kafka.admin.create_topics([ORDERS])
    make_whole(kafka, ORDERS.name)
    step = {"fault": "io-error", "target": "kafka-2", "operation": ["write"], "files": "log"}
    rig = FaultRig(kafka, RunDir(tmp_path / "run").create(), {"at": 0, "for": "5m", **step})
    with sending(kafka, ORDERS):
        wait_until("the end of the broker", lambda: not kafka.runtime.is_running("kafka-2"))
        wait_until("the effect", lambda: "died of it" in rig.wait_for("effect")["evidence"])
        rig.finish(now=True)
    effect = rig.rows("effect")[-1]
    assert "writes ended with EIO (orders-" in effect["evidence"]


@pytest.mark.extended
def test_brokers_that_sync_each_batch_lose_what_their_disks_only_said_to_have_synced(
    pool: ClusterPool, tmp_path: Path
) -> None:
    kafka = pool.get("kafka", needs=disks.GIVES, broker_config=FLUSHED)
    if ORDERS.name not in kafka.admin.topics():
        kafka.admin.create_topics([ORDERS])
    make_whole(kafka, ORDERS.name)
    lies = {"fault": "fsync-lies", "nodes": "all", "at": 0, "for": 20}
    rig = FaultRig(kafka, RunDir(tmp_path / "run").create(), lies)
    wait_until("lies", lambda: bool(rig.rows("inject")))
    before = kafka.admin.end_offsets(["orders"])
    with sending(kafka, ORDERS):
        wait_until(
            "messages",
            lambda: all(
                end > before[stream] + 100
                for stream, end in kafka.admin.end_offsets(["orders"]).items()
            ),
        )
    sent = kafka.admin.end_offsets(["orders"])
    loss = FaultRig(
        kafka,
        RunDir(tmp_path / "loss").create(),
        {"fault": "power-loss", "nodes": "all", "at": 0, "for": 1},
    )
    loss.finish()
    details = loss.rows("effect")[-1]["details"]
    assert set(details["lied"]) == {f"orders-{p}" for p in range(ORDERS.partitions)}
    after = kafka.admin.end_offsets(["orders"])
    assert all(after[stream] < end for stream, end in sent.items()), (sent, after)
    rig.finish(now=True)
