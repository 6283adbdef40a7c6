"""Faults on operations of disks, on a cluster that is only state: their proof, and that heal undoes
them."""

from __future__ import annotations

from typing import Any

import pytest

import faults
from faults.engine.ledger import heal_from_ledger
from faults.kit.lied_disks import ANY_STREAM, lied_about
from harness.errors import ScenarioError
from harness.protocols.disturbed_disks import Disturbance, Disturbed
from harness.protocols.power import Unsynced
from harness.rundir import RunDir
from harness.systems import SYSTEMS
from tests.unit.fault_cluster import NAMES, StateCluster, StateRuntime
from tests.unit.fault_engine.rig import TOPICS, Rig


class DisturbedRuntime(StateRuntime):
    """Nodes with disks of which every third operation is met."""

    def __init__(self) -> None:
        super().__init__()
        self.disturbances: dict[tuple[str, str], Disturbance] = {}
        self.dies = False
        self.idle = False

    def disturb_disk(self, node: str, name: str, disturbance: Disturbance) -> None:
        self.disturbances[node, name] = disturbance
        self.calls.append(f"{disturbance.act} {node}")
        if self.dies:
            self.kill(node)

    def disk_disturbed(self, node: str, name: str) -> Disturbed | None:
        found = self.disturbances.get((node, name))
        if found is None:
            return None
        met = {} if self.idle else {found.operations[0]: 2}
        return Disturbed(6, met, ("orders-0/0.log",))

    def calm_disk(self, node: str, name: str) -> Disturbed:
        met = self.disk_disturbed(node, name)
        self.disturbances.pop((node, name), None)
        return met or Disturbed()

    def lift_limits(self, node: str) -> None:
        for key in [key for key in self.disturbances if key[0] == node]:
            del self.disturbances[key]


@pytest.fixture
def disks() -> DisturbedRuntime:
    return DisturbedRuntime()


@pytest.fixture
def cluster(disks: DisturbedRuntime) -> StateCluster:
    made = StateCluster(fence_s=0.0, join_s=0.0)
    made.runtime = made.admin.runtime = disks
    return made


def test_a_broker_that_dies_of_errors_is_started_when_its_disk_works(
    cluster: StateCluster, disks: DisturbedRuntime, run: RunDir
) -> None:
    disks.dies = True
    step = {"fault": "io-error", "target": "kafka-2", "operation": ["write"], "files": "log"}
    rig = Rig(cluster, run, {"at": 0, "for": 0.3, "share": 0.1, **step})
    rig.injector.join(20)
    effect = rig.rows("effect")[-1]
    assert "kafka-2: 2 of 6 writes ended with EIO (orders-0/0.log ...)" in effect["evidence"]
    assert "kafka-2 died of it" in effect["evidence"]
    assert effect["details"]["operations"] == {"kafka-2": {"seen": 6, "write": 2}}
    assert disks.calls == ["error kafka-2", "kill kafka-2", "start kafka-2"]
    assert disks.disturbances == {}
    assert rig.rows("healed")[0]["ok"]


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ({"fault": "io-delay", "delay": "50ms"}, "2 of 6 writes and syncs came 0.05 s late"),
        ({"fault": "fsync-lies"}, "2 of 6 syncs were only said to be done"),
    ],
)
@pytest.mark.parametrize("idle", [False, True])
def test_a_disturbed_disk_is_proved_by_its_own_counts(
    cluster: StateCluster,
    disks: DisturbedRuntime,
    run: RunDir,
    step: dict[str, Any],
    said: str,
    idle: bool,
) -> None:
    disks.idle = idle
    rig = Rig(cluster, run, {"at": 0, "for": 0.2, "target": "kafka-1", **step})
    rig.injector.join(20)
    effect = rig.rows("effect")[-1]
    assert effect["effective"] is not idle
    assert (said in effect["evidence"]) is not idle
    assert ("none of 6" in effect["evidence"]) is idle
    assert disks.disturbances == {}


def lost_of(*claimed: str, entries: tuple[str, ...] = ()) -> Unsynced:
    """Nine bytes, of which four were in files that the disk had said to have synced."""
    return Unsynced(1, 9, len(entries), ("orders-0/0.log",), 4 if claimed else 0, claimed, entries)


def test_power_is_lost_while_disks_lie_and_names_the_streams_of_which_all_lied(
    cluster: StateCluster, disks: DisturbedRuntime, run: RunDir
) -> None:
    """Every partition is on all nodes; the disk of each had only said to have synced something."""
    disks.unsynced = dict.fromkeys(NAMES, lost_of(*(f"orders-{p}/0.log" for p in range(6))))
    lies = {"fault": "fsync-lies", "nodes": "all", "at": 0, "for": 1}
    loss = {"fault": "power-loss", "nodes": "all", "at": 0.2, "for": 0.2}
    rig = Rig(cluster, run, lies, loss)
    rig.injector.join(20)
    effect = rig.rows("effect", 2)[-1]
    assert (
        "9 B in 1 files not synced (orders-0/0.log ...), 4 B said to be synced"
        in (effect["evidence"])
    )
    assert effect["details"]["lied"] == [f"orders-{p}" for p in range(6)]
    assert [row["ok"] for row in rig.rows("healed")] == [True, True]


def test_one_disk_that_lied_is_no_excuse(
    cluster: StateCluster, disks: DisturbedRuntime, run: RunDir
) -> None:
    disks.unsynced = dict.fromkeys(NAMES, lost_of())
    disks.unsynced["kafka-1"] = lost_of("orders-0/0.log", "__consumer_offsets-3/0.log")
    rig = Rig(cluster, run, {"fault": "power-loss", "nodes": "all", "at": 0, "for": 0.2})
    rig.injector.join(20)
    details = rig.rows("effect")[-1]["details"]
    assert (len(details["unkept"]), details["lied"]) == (6, [])


@pytest.mark.parametrize(
    ("lost", "lied"),
    [
        (lost_of("orders-1/0.log"), ["orders-1"]),
        (lost_of("orders-1/0.index", "replication-offset-checkpoint"), []),
        (lost_of("__cluster_metadata-0/0.log"), []),
        (lost_of("invoices-0/0.log"), []),  # a topic of somebody else
        (lost_of("__transaction_state-7/0.log"), ["__transaction_state-7"]),
        (lost_of(entries=("orders-2/0.log", "orders-3/0.index")), ["orders-2"]),
        (lost_of(entries=("orders-2",)), ["orders-2"]),
    ],
)
def test_a_disk_lied_about_the_streams_whose_messages_it_lost(
    cluster: StateCluster, disks: DisturbedRuntime, run: RunDir, lost: Unsynced, lied: list[str]
) -> None:
    """All disks lost the same: whether other streams have an excuse does not follow."""
    disks.unsynced = dict.fromkeys(NAMES, lost)
    rig = Rig(cluster, run, {"fault": "power-loss", "nodes": "all", "at": 0, "for": 0.2})
    rig.injector.join(20)
    details = rig.rows("effect")[-1]["details"]
    assert (len(details["unkept"]), details["lied"]) == (6, lied)


@pytest.mark.parametrize(
    ("lost", "lied"),
    [
        (lost_of("journal/1.txn"), {ANY_STREAM}),
        (lost_of("version-2/log.1", "ledgers/locations/1.sst"), set()),
        (lost_of(entries=("ledgers/current/2",)), {ANY_STREAM}),
        (lost_of(), set()),
    ],
)
def test_where_files_belong_to_all_streams_only_those_with_messages_count(
    lost: Unsynced, lied: set[str]
) -> None:
    assert lied_about(lost, SYSTEMS["pulsar"]) == lied


def test_files_of_a_topic_with_any_name_have_messages() -> None:
    lost = lost_of("my-checkpoint-0/0.log", "my-checkpoint-0/leader-epoch-checkpoint")
    assert lied_about(lost, SYSTEMS["kafka"]) == {"my-checkpoint-0"}


def test_a_disturbed_disk_is_calmed_by_another_process(
    cluster: StateCluster, disks: DisturbedRuntime, run: RunDir
) -> None:
    rig = Rig(cluster, run, {"fault": "fsync-lies", "target": "kafka-1", "at": 0, "for": "5m"})
    rig.wait_for("effect")
    assert heal_from_ledger(cluster, run) == []  # type: ignore[arg-type]
    assert disks.disturbances == {}
    assert rig.injector.heal_all(20) == []


@pytest.mark.parametrize(
    ("system", "keys", "said"),
    [
        (
            "qpid",
            {"files": "index"},
            "files: qpid has no files 'index'; allowed: log, metadata, any",
        ),
        ("kafka", {"operation": ["open"]}, "operation"),
        ("kafka", {"operation": []}, "operation"),
        ("kafka", {"errno": "EPERM"}, "errno"),
        ("kafka", {"share": 0}, "share"),
    ],
)
def test_a_disturbance_that_cannot_be_is_refused(
    system: str, keys: dict[str, Any], said: str
) -> None:
    with pytest.raises(ScenarioError, match=said):
        faults.compile(
            [{"fault": "io-error", "at": 0, **keys}],
            faults.inventory_of(topics=TOPICS, nodes=NAMES, system=system),
            seed=7,
            load_s=60,
        )
