"""A broker that joins as one container more, and leaves with its data; one that leaves and joins again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.clusters import open_cluster
from harness.protocols.members import FOURTH_BROKER, SPARE_BROKER
from harness.rundir import RunDir
from tests.live.cluster_rig import ORDERS, UP_S, FaultRig, new_run_id, sending

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("plugin")]
FOURTH = "kafka-4"


@pytest.mark.parametrize(
    ("kind", "need", "meanwhile"),
    [("add-broker", SPARE_BROKER, True), ("remove-broker", FOURTH_BROKER, False)],
)
def test_a_broker_comes_and_goes(
    image: Callable[..., Any], engine: Any, tmp_path: Path, kind: str, need: str, meanwhile: bool
) -> None:
    image("kafka")
    needs = frozenset({need})
    kafka = open_cluster(
        "kafka", run_id=new_run_id(), folder=tmp_path / "cluster", runtime="docker", needs=needs
    )

    def is_there() -> tuple[bool, bool]:
        volumes = [each.name for each in engine.volumes.list()]
        return FOURTH in kafka.admin.registered(), any(name.endswith(f"{FOURTH}-data") for name in volumes)

    try:
        kafka.up(timeout_s=UP_S)
        kafka.admin.create_topics([ORDERS])
        kafka.admin.wait_ready([ORDERS.name], timeout_s=UP_S, run_tag=1)
        assert is_there() == (not meanwhile, not meanwhile)
        with sending(kafka, ORDERS):
            rig = FaultRig(kafka, RunDir(tmp_path / "run").create(), {"fault": kind, "at": 0, "for": 60})
            rig.wait_for("effect")
            assert is_there() == (meanwhile, meanwhile)
            rig.finish(now=True)
        assert is_there() == (not meanwhile, not meanwhile)
    finally:
        kafka.down()
