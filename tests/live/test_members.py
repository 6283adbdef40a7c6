"""Brokers and controllers that join a cluster under load and leave it; and the other way round."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.protocols.members import DYNAMIC_QUORUM, FOURTH_BROKER, SPARE_BROKER, SPARE_CONTROLLER
from harness.rundir import RunDir
from harness.systems.kafka.assembly import KafkaCluster
from tests.live.cluster_rig import IMPATIENT, ORDERS, ClusterPool, FaultRig, make_whole, sending

pytestmark = pytest.mark.live
FOURTH = "kafka-4"


def of(pool: ClusterPool, *needs: str) -> KafkaCluster:
    kafka: KafkaCluster = pool.get("kafka", needs=frozenset(needs), broker_config=IMPATIENT)
    if ORDERS.name not in kafka.admin.topics():
        kafka.admin.create_topics([ORDERS])
    make_whole(kafka, ORDERS.name)
    return kafka


def kept(kafka: KafkaCluster) -> dict[int, list[str]]:
    return {p: nodes for p, nodes in kafka.admin.replicas(ORDERS.name).items() if FOURTH in nodes}


@pytest.mark.extended
def test_a_broker_joins_takes_replicas_and_leaves(pool: ClusterPool, tmp_path: Path) -> None:
    kafka = of(pool, SPARE_BROKER)
    assert FOURTH not in kafka.admin.registered()
    step = {"fault": "add-broker", "partitions": 2, "at": 0, "for": 60}
    with sending(kafka, ORDERS):
        rig = FaultRig(kafka, RunDir(tmp_path / "joins").create(), step)
        rig.wait_for("effect")
        assert (FOURTH in kafka.admin.registered(), len(kept(kafka))) == (True, 2)
        rig.finish(now=True)
    assert (FOURTH in kafka.admin.registered(), kept(kafka)) == (False, {})
    assert not kafka.runtime.is_running(FOURTH)


@pytest.mark.extended
def test_a_broker_is_drained_leaves_and_joins_again(pool: ClusterPool, tmp_path: Path) -> None:
    kafka = of(pool, FOURTH_BROKER)
    before = kept(kafka)
    assert before
    step = {"fault": "remove-broker", "at": 0, "for": 60}
    with sending(kafka, ORDERS):
        rig = FaultRig(kafka, RunDir(tmp_path / "leaves").create(), step)
        rig.wait_for("effect")
        assert (FOURTH in kafka.admin.registered(), kept(kafka)) == (False, {})
        rig.finish(now=True)
    assert kept(kafka) == before


@pytest.mark.extended
def test_a_controller_gets_a_vote_and_the_active_one_loses_its_own(
    pool: ClusterPool, tmp_path: Path
) -> None:
    kafka = of(pool, DYNAMIC_QUORUM, SPARE_CONTROLLER)
    three = {"kafka-1", "kafka-2", "kafka-3"}
    assert set(kafka.admin.quorum().voters) == three
    with sending(kafka, ORDERS):
        step = {"fault": "add-controller", "at": 0, "for": 60}
        rig = FaultRig(kafka, RunDir(tmp_path / "four").create(), step)
        rig.wait_for("effect")
        assert set(kafka.admin.quorum().voters) == {*three, "kafka-5"}
        rig.finish(now=True)
        assert set(kafka.admin.quorum().voters) == three
        assert not kafka.runtime.is_running("kafka-5")
        before = kafka.admin.quorum()
        step = {"fault": "remove-controller", "at": 0, "for": 60}
        rig = FaultRig(kafka, RunDir(tmp_path / "two").create(), step)
        rig.wait_for("effect")
        now = kafka.admin.quorum()
        assert set(now.voters) == three - {before.leader}
        assert now.leader in now.voters
        assert now.epoch > before.epoch
        rig.finish(now=True)
    assert set(kafka.admin.quorum().voters) == three
