"""A broker or a controller that joins as one container more and leaves with its data; and the other
way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from harness.protocols.members import DYNAMIC_QUORUM, FOURTH_BROKER, SPARE_BROKER, SPARE_CONTROLLER
from harness.rundir import RunDir
from harness.systems.kafka.assembly import KafkaCluster
from tests.live.cluster_rig import ORDERS, ClusterPool, FaultRig, make_whole, sending, wait_until

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("plugin")]
FOURTH, FIFTH = "kafka-4", "kafka-5"
FIVE = frozenset({FOURTH_BROKER, DYNAMIC_QUORUM, SPARE_CONTROLLER})


@pytest.fixture(scope="module")
def pool(
    image: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterPool]:
    image("kafka")
    with closing(ClusterPool(tmp_path_factory.mktemp("pool"))) as clusters:
        yield clusters


def of(pool: ClusterPool, needs: frozenset[str]) -> KafkaCluster:
    kafka: KafkaCluster = pool.get("kafka", runtime="docker", needs=needs)
    if ORDERS.name not in kafka.admin.topics():
        kafka.admin.create_topics([ORDERS])
    make_whole(kafka, ORDERS.name)
    return kafka


def has_data(engine: Any, node: str) -> bool:
    return any(volume.name.endswith(f"{node}-data") for volume in engine.volumes.list())


@pytest.mark.extended
@pytest.mark.parametrize(
    ("kind", "needs", "meanwhile"),
    [("add-broker", frozenset({SPARE_BROKER}), True), ("remove-broker", FIVE, False)],
)
def test_a_broker_comes_and_goes(
    pool: ClusterPool,
    engine: Any,
    tmp_path: Path,
    kind: str,
    needs: frozenset[str],
    meanwhile: bool,
) -> None:
    kafka = of(pool, needs)

    def is_there() -> tuple[bool, bool]:
        return FOURTH in kafka.admin.registered(), has_data(engine, FOURTH)

    assert is_there() == (not meanwhile, not meanwhile)
    with sending(kafka, ORDERS):
        rig = FaultRig(
            kafka, RunDir(tmp_path / "run").create(), {"fault": kind, "at": 0, "for": 60}
        )
        rig.wait_for("effect")
        # A broker that was drained is gone for the others before its container is.
        wait_until(f"{FOURTH} {kind}", lambda: is_there() == (meanwhile, meanwhile))
        rig.finish(now=True)
    assert is_there() == (not meanwhile, not meanwhile)


@pytest.mark.extended
def test_a_controller_votes_and_one_that_is_killed_votes_again(
    pool: ClusterPool, engine: Any, tmp_path: Path
) -> None:
    kafka = of(pool, FIVE)
    three = {"kafka-1", "kafka-2", "kafka-3"}
    joins = {"fault": "add-controller", "at": 0, "for": 60}
    with sending(kafka, ORDERS):
        rig = FaultRig(kafka, RunDir(tmp_path / "joins").create(), joins)
        rig.wait_for("effect")
        assert (set(kafka.admin.quorum().voters), has_data(engine, FIFTH)) == (
            {*three, FIFTH},
            True,
        )
        rig.finish(now=True)
        assert (set(kafka.admin.quorum().voters), has_data(engine, FIFTH)) == (three, False)
        for kind in ("controller-kill", "remove-controller"):
            before = kafka.admin.quorum()
            rig = FaultRig(
                kafka, RunDir(tmp_path / kind).create(), {"fault": kind, "at": 0, "for": 60}
            )
            rig.wait_for("effect")
            assert kafka.admin.quorum().leader != before.leader
            rig.finish(now=True)
            assert set(kafka.admin.quorum().voters) == three
