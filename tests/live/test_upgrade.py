"""rolling-upgrade on real brokers: their processes are of the other version, and features
follow."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.clusters.cluster import attach_cluster
from harness.protocols.versions import need_of
from harness.rundir import RunDir
from tests.live.cluster_rig import IMPATIENT, ORDERS, ClusterPool, FaultRig, sending

pytestmark = pytest.mark.live
NEW = "4.1.2"


@pytest.mark.extended
def test_kafka_is_upgraded_under_load_and_its_features_are_raised(
    pool: ClusterPool, tmp_path: Path
) -> None:
    needs = frozenset({need_of(NEW)})
    kafka = pool.get("kafka", version="3.9.1", needs=needs, broker_config=IMPATIENT)
    kafka.admin.create_topics([ORDERS])
    step = {"fault": "rolling-upgrade", "to": NEW, "finalize": True, "at": 0}
    with sending(kafka, ORDERS):
        rig = FaultRig(kafka, RunDir(tmp_path / "run").create(), step)
        rig.finish()
    effect = rig.rows("effect")[-1]
    assert effect["effective"], effect["evidence"]
    assert effect["evidence"].endswith("metadata.version 21 -> 27")
    names = [node.name for node in kafka.runtime.nodes]
    assert [effect["details"][name]["version"] for name in names] == [NEW] * 3
    later = attach_cluster(kafka.runtime.folder)
    later.admin.close()
    assert [later.runtime.version(name) for name in names] == [NEW] * 3
