"""flap, on a cluster that is only state."""

from __future__ import annotations

from harness.rundir import RunDir
from tests.unit.fault_cluster import StateCluster
from tests.unit.fault_engine.rig import Rig


def test_a_node_crashes_again_and_again(cluster: StateCluster, run: RunDir) -> None:
    rig = Rig(
        cluster,
        run,
        {"fault": "flap", "target": "kafka-2", "times": 2, "down": 0.3, "up": 0.1, "at": 0},
    )
    rig.injector.join(20)
    assert cluster.runtime.calls == ["kill kafka-2", "start kafka-2"] * 2
    assert rig.rows("effect")[-1]["effective"] is True
    assert [rig.rows(event)[0]["confirmed_acks"] for event in ("inject", "healed")] == [
        "at-risk",
        "at-risk",
    ]
    assert rig.rows("healed")[0]["ok"] is True
