"""resource-alarm on a cluster that is only state: listed by the brokers, cleared, and cleared by a
later process."""

from __future__ import annotations

import pytest

from faults.engine.ledger import Ledger, heal_from_ledger
from harness.protocols.cluster import Resource
from harness.rundir import RunDir
from tests.unit.fault_cluster import StateAdmin, StateCluster
from tests.unit.fault_engine.rig import Rig


class AlarmedAdmin(StateAdmin):
    """RaisesAlarms: the alarms are those that were raised."""

    def __init__(self, *args: object, **more: object) -> None:
        super().__init__(*args, **more)  # type: ignore[arg-type]
        self.raised: set[tuple[str, Resource]] = set()

    def alarms(self) -> set[tuple[str, Resource]]:
        return set(self.raised)

    def raise_alarm(self, node: str, resource: Resource) -> None:
        self.raised.add((node, resource))

    def clear_alarms(self, node: str) -> None:
        self.raised = {each for each in self.raised if each[0] != node}


@pytest.fixture
def cluster() -> StateCluster:
    found = StateCluster()
    found.admin = AlarmedAdmin(found.runtime)
    return found


def alarmed(cluster: StateCluster) -> AlarmedAdmin:
    assert isinstance(cluster.admin, AlarmedAdmin)
    return cluster.admin


STEP = {"fault": "resource-alarm", "at": 0, "for": 0.2, "target": "kafka-2", "resource": "disk"}


def test_the_brokers_list_it_until_it_is_cleared(cluster: StateCluster, run: RunDir) -> None:
    rig = Rig(cluster, run, STEP)
    rig.injector.join(20)
    assert rig.rows("effect")[0]["effective"] is True, rig.rows()
    assert rig.rows("effect")[0]["evidence"] == "kafka-2: the brokers list the disk alarm"
    assert rig.rows("healed")[0]["ok"] is True
    assert rig.rows("healed")[0]["confirmed_acks"] == "kept"
    assert (alarmed(cluster).raised, cluster.runtime.calls) == (set(), [])


def test_an_alarm_of_somebody_else_stays(cluster: StateCluster, run: RunDir) -> None:
    alarmed(cluster).raised.add(("kafka-1", "memory"))
    rig = Rig(cluster, run, STEP)
    rig.injector.join(20)
    (skipped,) = rig.rows("skipped")
    assert "kafka-1 has a memory alarm already" in skipped["reason"]
    assert alarmed(cluster).raised == {("kafka-1", "memory")}


def test_it_is_cleared_from_the_ledger(cluster: StateCluster, run: RunDir) -> None:
    rig = Rig(cluster, run, {**STEP, "for": 60})
    rig.wait_for("effect")
    (entry,) = Ledger(run).entries()
    assert entry.alarmed == ("kafka-2",)
    assert heal_from_ledger(cluster, run) == []  # type: ignore[arg-type]
    assert alarmed(cluster).raised == set()
    rig.injector.heal_all(5)
