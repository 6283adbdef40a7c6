"""Kinds of fault on a cluster that is only state: their effect on nodes and leaders, and its
proof."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

import faults
from faults.engine.ledger import heal_from_ledger
from harness.errors import ScenarioError
from harness.protocols.cluster import PartitionState, TopicSettings
from harness.protocols.power import Unsynced
from harness.rundir import RunDir, read_json
from tests.unit.fault_cluster import NAMES, StateCluster
from tests.unit.fault_engine.rig import TOPICS, Rig, kill


def test_pause_that_moves_nothing_is_vacuous(run: RunDir) -> None:
    rig = Rig(StateCluster(fence_s=30.0, join_s=0.0), run, {"fault": "pause", "at": 0, "for": 0.1})
    rig.injector.join(20)
    (effect,) = rig.rows("effect")
    assert effect["effective"] is False
    assert "but no leader moved and no ISR shrank" in effect["evidence"]


def test_restart_counts_down_after_the_stop(cluster: StateCluster, run: RunDir) -> None:
    cluster.runtime.stop_takes_s = 0.15
    rig = Rig(cluster, run, {"fault": "restart", "at": 0, "down": 0.1, "target": "controller"})
    rig.injector.join(20)
    inject, heal = rig.rows("inject")[0], rig.rows("heal")[0]
    assert inject["targets"] == ["kafka-1"]
    assert (heal["t_ns"] - inject["t_ns"]) / 1e9 >= 0.25
    assert rig.rows("effect")[0]["effective"] is True
    assert cluster.runtime.calls == ["stop kafka-1", "start kafka-1"]


def test_controller_kill(cluster: StateCluster, run: RunDir) -> None:
    rig = Rig(cluster, run, {"fault": "controller-kill", "at": 0, "for": 0.2})
    rig.injector.join(20)
    assert rig.rows("inject")[0]["targets"] == ["kafka-1"]
    assert rig.rows("effect")[0]["details"]["controller"] == "kafka-1 -> kafka-2"


def test_power_loss_drops_what_is_not_synced_before_nodes_start(
    cluster: StateCluster, run: RunDir
) -> None:
    cluster.runtime.unsynced = {
        node: Unsynced(3, 1_500_000, 0, ("orders-0/0.log",)) for node in NAMES[:2]
    }
    rig = Rig(
        cluster, run, {"fault": "power-loss", "at": 0, "for": 0.2, "target": "kafka-1, kafka-2"}
    )
    rig.injector.join(20)
    (effect,) = rig.rows("effect")
    assert (
        "dropped of kafka-1: 1.5 MB in 3 files not synced (orders-0/0.log ...)"
        in effect["evidence"]
    )
    assert effect["details"]["dropped"]["kafka-2"] == {"bytes": 1_500_000, "files": 3, "entries": 0}
    assert effect["details"]["unkept"] == []  # kafka-3 was in sync, and kept what it had
    calls = cluster.runtime.calls
    assert sorted(calls[:2]) == ["kill kafka-1", "kill kafka-2"]
    assert calls[2:] == ["drop kafka-1", "drop kafka-2", "start kafka-1", "start kafka-2"]


def test_power_loss_of_all_names_what_no_replica_in_sync_kept(
    cluster: StateCluster, run: RunDir
) -> None:
    cluster.runtime.unsynced = dict.fromkeys(NAMES, Unsynced(1, 9, 0, ("orders-0/0.log",)))
    rig = Rig(cluster, run, {"fault": "power-loss", "at": 0, "for": 0.2, "nodes": "all"})
    rig.injector.join(20)
    assert sorted(rig.rows("inject")[0]["targets"]) == list(NAMES)
    assert rig.rows("effect")[0]["details"]["unkept"] == [f"orders-{p}" for p in range(6)]


@pytest.mark.parametrize("keepers", [set(), {"kafka-1"}, {"kafka-1", "kafka-3"}])
def test_power_loss_where_brokers_keep_no_data_is_one_of_all_nodes_that_do(
    keepers: set[str], cluster: StateCluster, run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = cluster.admin.partition_states

    def unstated(topics: Sequence[str]) -> dict[str, PartitionState]:
        return {
            stream: replace(state, replicas=(), in_sync=())
            for stream, state in states(topics).items()
        }

    monkeypatch.setattr(cluster.admin, "partition_states", unstated)
    cluster.runtime.keepers = keepers
    cluster.runtime.unsynced = dict.fromkeys(NAMES[:2], Unsynced(1, 9, 0, ("journal/1.txn",)))
    rig = Rig(
        cluster, run, {"fault": "power-loss", "at": 0, "for": 0.2, "target": "kafka-1, kafka-2"}
    )
    rig.injector.join(20)
    streams = [f"orders-{p}" for p in range(6)] if keepers == {"kafka-1"} else []
    assert rig.rows("effect")[0]["details"]["unkept"] == streams


def test_power_loss_of_a_disk_of_which_all_was_synced(cluster: StateCluster, run: RunDir) -> None:
    rig = Rig(cluster, run, {"fault": "power-loss", "at": 0, "for": 0.2, "target": "kafka-1"})
    rig.injector.join(20)
    (effect,) = rig.rows("effect")
    assert effect["evidence"].startswith(
        "kafka-1: process gone, all of kafka-1 was synced; leaders of 2"
    )
    assert (effect["effective"], effect["details"]["unkept"]) == (True, [])


def test_damaged_files_are_shown_as_they_are_read_again(cluster: StateCluster, run: RunDir) -> None:
    step = {
        "fault": "file-damage",
        "at": 0,
        "for": 0.2,
        "target": "kafka-1",
        "places": 3,
        "stop": "kill",
    }
    rig = Rig(cluster, run, step)
    rig.injector.join(20)
    (effect,) = rig.rows("effect")
    place = "orders-0/0.log at 4,096: 4f -> 4b"
    assert (
        f"process gone, damaged: {place}, {place} and 1 more place; leaders" in effect["evidence"]
    )
    assert effect["details"]["damaged"]["kafka-1"][0]["offset"] == 4_096
    assert effect["details"]["wiped"] == {}
    assert cluster.runtime.calls == ["kill kafka-1", "flip log kafka-1", "start kafka-1"]


@pytest.mark.parametrize("wipe", [True, False])
def test_a_node_that_refuses_its_files_is_wiped_where_the_step_says_so(
    cluster: StateCluster, run: RunDir, wipe: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("faults.engine.firing._RETRY_S", 0.05)
    monkeypatch.setattr("faults.engine.prover._FOLLOW_S", 0.01)
    cluster.runtime.refuses_damage = True
    step = {
        "fault": "file-damage",
        "at": 0,
        "for": 0.1,
        "target": "kafka-2",
        "damage": "cut",
        "wipe": wipe,
    }
    rig = Rig(cluster, run, step, verify_s=5 if wipe else 0.5)
    rig.injector.join(20)
    assert ("renew kafka-2" in cluster.runtime.calls) is wipe
    assert rig.rows("healed")[0]["ok"] is wipe
    told = rig.rows("effect")[-1]
    assert told["details"]["wiped"] == ({"kafka-2": "ended"} if wipe else {})
    assert ("kafka-2 refused them and was wiped" in told["evidence"]) is wipe


def test_truncate_removes_a_share_and_says_where_logs_begin(
    cluster: StateCluster, run: RunDir
) -> None:
    cluster.admin.spans |= {0: (10, 110), 1: (0, 4)}
    rig = Rig(cluster, run, {"fault": "truncate", "at": 0, "share": 0.25})
    rig.injector.join(20)
    assert rig.rows("inject")[0]["params"]["cuts"] == {"0": 35, "1": 1}  # the others hold nothing
    effect = rig.rows("effect")[0]
    assert effect["details"]["cut"] == {"orders-0": 35, "orders-1": 1}
    assert effect["evidence"] == "2 of 2 logs begin later (orders-0 at 35), 26 messages are gone"


def test_recreate_topic_deletes_it_and_makes_it_again_as_it_was(
    cluster: StateCluster, run: RunDir
) -> None:
    rig = Rig(cluster, run, {"fault": "recreate-topic", "at": 0, "for": 0.2})
    rig.injector.join(20)
    assert cluster.admin.made == [TopicSettings("orders", 6, 3, {"segment.bytes": "1000000"})]
    assert rig.rows("effect")[-1]["details"] == {"remade": ["orders"]}
    assert rig.rows("effect")[0]["evidence"].startswith("orders: first -> ")
    assert rig.rows("healed")[0]["ok"]


def test_a_topic_that_is_not_gone_was_not_recreated(cluster: StateCluster, run: RunDir) -> None:
    cluster.admin.delete_topics = lambda names: None  # type: ignore[method-assign]
    cluster.admin.create_topics = lambda topics: None  # type: ignore[method-assign]
    rig = Rig(cluster, run, {"fault": "recreate-topic", "at": 0, "for": 0.2})
    rig.injector.join(20)
    assert not rig.rows("effect")[-1]["effective"]


def test_add_broker_brings_a_broker_in_and_takes_it_out_again(run: RunDir) -> None:
    cluster = of_two(StateCluster(fence_s=0.0, join_s=0.0))
    cluster.admin.order = {p: ["kafka-1", "kafka-2"] for p in cluster.admin.order}
    cluster.runtime.leave("kafka-3")
    rig = Rig(cluster, run, {"fault": "add-broker", "at": 0, "for": 0.3, "partitions": 2})
    rig.injector.join(20)
    assert rig.rows("effect")[0]["evidence"].startswith("kafka-3 joined, in sync for 2 partitions")
    assert rig.rows("healed")[0]["ok"]
    assert cluster.runtime.calls[1:] == ["start kafka-3", "stop kafka-3", "unregister kafka-3"]
    assert {tuple(sorted(nodes)) for nodes in cluster.admin.order.values()} == {
        ("kafka-1", "kafka-2")
    }


def test_remove_broker_drains_a_broker_and_gives_it_back_what_it_had(run: RunDir) -> None:
    cluster = StateCluster(fence_s=0.0, join_s=0.0)
    cluster.admin.order = {p: [NAMES[p % 3], NAMES[(p + 1) % 3]] for p in cluster.admin.order}
    before = {p: list(nodes) for p, nodes in cluster.admin.order.items()}
    rig = Rig(cluster, run, {"fault": "remove-broker", "at": 0, "for": 0.3})
    rig.injector.join(20)
    said = "kafka-3 is registered no more, has 0 of the 4 replicas that it had"
    assert rig.rows("effect")[0]["evidence"] == said
    assert rig.rows("healed")[0]["ok"]
    assert cluster.admin.order == before


def test_no_broker_may_join_or_leave_where_there_is_none(
    cluster: StateCluster, run: RunDir
) -> None:
    cluster.runtime.may_leave = lambda: []  # type: ignore[method-assign]
    rig = Rig(cluster, run, {"fault": "add-broker", "at": 0}, {"fault": "remove-broker", "at": 0.3})
    rig.injector.join(20)
    assert [row["reason"] for row in rig.rows("skipped")] == [
        "every broker is in the cluster already",
        "every broker of the cluster is also a controller",
    ]


def test_add_controller_gives_a_vote_and_takes_it_back(run: RunDir) -> None:
    cluster = of_two(StateCluster(fence_s=0.0, join_s=0.0))
    cluster.admin.order = {p: ["kafka-1", "kafka-2"] for p in cluster.admin.order}
    cluster.runtime.leave("kafka-3")
    cluster.admin.voters = {"kafka-1", "kafka-2"}
    cluster.admin.refusals = ["kafka-3 is not caught up"]
    rig = Rig(cluster, run, {"fault": "add-controller", "at": 0, "for": 0.3})
    rig.injector.join(20)
    assert rig.rows("effect")[0]["evidence"] == (
        "voters kafka-1, kafka-2 -> kafka-1, kafka-2, kafka-3; "
        "active kafka-1 (epoch 1) -> kafka-1 (epoch 0); lag of kafka-3: 0"
    )
    assert rig.rows("healed")[0]["ok"]
    assert cluster.admin.voters == {"kafka-1", "kafka-2"}
    assert cluster.runtime.calls[1:] == ["start kafka-3", "stop kafka-3"]


@pytest.mark.parametrize(
    ("target", "gone"),
    [("controller", {"kafka-1"}), ("kafka-2", {"kafka-2"}), ("random", set(NAMES))],
)
def test_remove_controller_takes_a_vote_and_gives_it_back(
    run: RunDir, target: str, gone: set[str]
) -> None:
    cluster = StateCluster(fence_s=0.0, join_s=0.0)
    rig = Rig(cluster, run, {"fault": "remove-controller", "at": 0, "for": 0.3, "target": target})
    rig.injector.join(20)
    voters = set(rig.rows("effect")[0]["details"]["voters"])
    assert len(voters) == 2
    assert set(NAMES) - voters <= gone
    assert rig.rows("healed")[0]["ok"]
    assert cluster.admin.voters == set(NAMES)
    assert cluster.runtime.calls == []


def test_a_vote_that_the_brokers_do_not_give_back_is_not_healed(
    cluster: StateCluster, run: RunDir
) -> None:
    cluster.admin.refusals = ["kafka-1 is not caught up"] * 1000
    step = {"fault": "remove-controller", "at": 0, "for": 0.2, "within": 0.3}
    rig = Rig(cluster, run, step, verify_s=1.0)
    rig.injector.join(20)
    healed = rig.rows("healed")[0]
    assert (healed["ok"], healed["undone"]) == (False, False)
    assert "kafka-1 gets no vote within 0.3 s: kafka-1 is not caught up" in healed["evidence"]


def test_no_controller_gets_or_loses_a_vote_where_that_cannot_be(
    cluster: StateCluster, run: RunDir
) -> None:
    cluster.admin.voters = {"kafka-1", "kafka-2"}
    rig = Rig(
        cluster,
        run,
        {"fault": "add-controller", "at": 0},
        {"fault": "remove-controller", "at": 0.3},
    )
    rig.injector.join(20)
    assert [row["reason"] for row in rig.rows("skipped")] == [
        "every controller is in the quorum already",
        "only kafka-1, kafka-2 vote: each is needed",
    ]


def test_one_change_of_voters_at_a_time(cluster: StateCluster, run: RunDir) -> None:
    spare = replace(cluster.runtime.nodes[0], name="kafka-5", number=5, roles=("controller",))
    three = [replace(node, roles=("broker", "controller")) for node in cluster.runtime.nodes]
    cluster.runtime.nodes = [*three, spare]  # it has joined, and follows
    rig = Rig(cluster, run, {"fault": "remove-controller", "at": 0})
    rig.injector.join(20)
    said = "kafka-5 is in the quorum, or joins it: one change of voters at a time"
    assert [row["reason"] for row in rig.rows("skipped")] == [said]
    cluster.runtime.nodes, cluster.runtime.away = three, {"kafka-5"}
    cluster.admin.voters = {"kafka-1", "kafka-2"}
    rig = Rig(cluster, RunDir(run.root / "2").create(), {"fault": "add-controller", "at": 0})
    rig.injector.join(20)
    said = "kafka-3 has no vote now: one change of voters at a time"
    assert [row["reason"] for row in rig.rows("skipped")] == [said]


GROWING = [TopicSettings("orders", 6, 3, grows_to=9)]


def test_grow_partitions_to_what_the_topic_grows_to_and_no_further(
    cluster: StateCluster, run: RunDir
) -> None:
    steps = [
        {"fault": "grow-partitions", "at": 0, "to": 7},
        {"fault": "grow-partitions", "at": 0.3},
    ]
    rig = Rig(cluster, run, *steps, {"fault": "grow-partitions", "at": 0.6}, topics=GROWING)
    rig.injector.join(20)
    first, second = rig.rows("effect")
    assert (first["evidence"], first["details"]) == (
        "orders: 6 -> 7 partitions with a leader",
        {"grown": {"orders": 6}},
    )
    assert second["details"] == {"grown": {"orders": 7}}
    assert rig.rows("skipped")[0]["reason"] == "orders has 9 partitions already"


@pytest.mark.parametrize(
    ("topics", "to", "said"),
    [
        (TOPICS, {}, "say what orders grows to: `grows_to` of the topic"),
        (GROWING, {"to": 10}, r"10 for orders; allowed: 7 to 9 \(grows_to of the topic\)"),
        (GROWING, {"to": 6}, "6 for orders; allowed: 7 to 9"),
    ],
)
def test_grow_partitions_refuses_what_the_plan_does_not_know(
    topics: list[TopicSettings], to: dict[str, int], said: str
) -> None:
    with pytest.raises(ScenarioError, match=said):
        faults.compile(
            [{"fault": "grow-partitions", "at": 0, **to}],
            faults.inventory_of(topics=topics, nodes=NAMES),
            seed=7,
            load_s=60,
        )


def of_two(cluster: StateCluster) -> StateCluster:
    cluster.admin.order = {p: nodes[:2] for p, nodes in cluster.admin.order.items()}
    return cluster


def test_reassign_gives_partitions_other_nodes(cluster: StateCluster, run: RunDir) -> None:
    before = {p: set(nodes) for p, nodes in of_two(cluster).admin.order.items()}
    topics = [TopicSettings("orders", 6, 2)]
    rig = Rig(cluster, run, {"fault": "reassign", "at": 0, "partitions": 2}, topics=topics)
    rig.injector.join(20)
    moves = {int(p): set(nodes) for p, nodes in rig.rows("inject")[0]["params"]["moves"].items()}
    assert {p: set(nodes) for p, nodes in cluster.admin.order.items()} == {**before, **moves}
    assert all(len(moves[p] - before[p]) == 1 for p in moves)
    assert rig.rows("effect")[0]["evidence"].startswith(
        "2 of 2 partitions have other replicas; orders-"
    )


def test_reassign_is_cancelled_in_the_middle(cluster: StateCluster, run: RunDir) -> None:
    of_two(cluster).admin.moves_ignored = True
    before = dict(cluster.admin.order)
    topics = [TopicSettings("orders", 6, 2)]
    step = {"fault": "reassign", "at": 0, "cancel_after": 0.05, "throttle": "1MB"}
    rig = Rig(cluster, run, step, topics=topics)
    rig.injector.join(20)
    assert cluster.admin.throttles == [1_000_000, None]
    assert (cluster.admin.order, cluster.admin.wanted) == (before, {})
    assert "6 moves cancelled" in rig.rows("effect")[0]["evidence"]
    assert rig.rows("healed")[0]["ok"] is True


def test_change_config_puts_back_what_the_topic_itself_had(
    cluster: StateCluster, run: RunDir
) -> None:
    before, config = (
        dict(cluster.admin.own),
        {"segment.bytes": "2000000", "max.message.bytes": "500"},
    )
    rig = Rig(cluster, run, {"fault": "change-config", "config": config, "at": 0, "for": "5m"})
    rig.wait_for("effect")
    assert cluster.admin.own == config
    assert rig.rows("effect")[0]["evidence"] == (
        "orders: segment.bytes: 1000000 -> 2000000, max.message.bytes: of the brokers -> 500"
    )
    assert read_json(run.ledger / "fault-000001.json")["settings"] == {
        "orders": {"segment.bytes": "1000000", "max.message.bytes": None}
    }
    assert heal_from_ledger(cluster, run) == []  # type: ignore[arg-type]
    assert cluster.admin.own == before
    assert rig.injector.heal_all(20) == []


def test_change_config_of_a_namespace_is_healed_by_another_process(
    cluster: StateCluster, run: RunDir
) -> None:
    step = {"fault": "change-config", "config": {"deduplication": True}, "at": 0, "for": "5m"}
    rig = Rig(cluster, run, step, topics=[*TOPICS, TopicSettings("carts", 3, 3)], system="pulsar")
    rig.wait_for("effect")
    assert rig.rows("inject")[0]["targets"] == ["namespace"]
    assert rig.rows("effect")[0]["evidence"] == "namespace: deduplication: of the brokers -> true"
    assert read_json(run.ledger / "fault-000001.json")["settings"] == {
        "namespace": {"deduplication": None}
    }
    assert heal_from_ledger(cluster, run) == []  # type: ignore[arg-type]
    assert "deduplication" not in cluster.admin.own
    assert rig.injector.heal_all(20) == []


PROMISED = "would change what is promised. Allowed: "


@pytest.mark.parametrize(
    ("system", "keys", "said"),
    [
        ("kafka", {"config": {"cleanup.policy": "compact"}}, f"{PROMISED}min.insync.replicas, "),
        (
            "kafka",
            {"config": {"min.insync.replicas": 1}},
            "=1: below 2 an acknowledgement promises less",
        ),
        ("kafka", {"config": {"unclean.leader.election.enable": True}}, PROMISED),
        ("pulsar", {"config": {"messageTTL": 10}}, f"messageTTL=10: {PROMISED}publishRate.publish"),
        ("pulsar", {"config": {"retention": 10}}, PROMISED),
        (
            "pulsar",
            {"config": {"deduplication": False}},
            "a message that is sent again may be stored twice",
        ),
        ("pulsar", {"config": {"deduplication": "on"}}, "must be true or false"),
        ("pulsar", {"config": {"maxProducersPerTopic": "02"}}, "must be a whole number, 0 or more"),
        ("pulsar", {"config": {"publishRate": 10}}, PROMISED),
        (
            "pulsar",
            {"config": {"dispatchRate.ratePeriodInSecond": 0}},
            "must be a whole number, 1 or more",
        ),
        (
            "pulsar",
            {"config": {"maxProducersPerTopic": 2}, "topic": "orders"},
            "topic: .* leave it out",
        ),
    ],
)
def test_change_config_refuses_what_changes_promises(
    system: str, keys: dict[str, Any], said: str
) -> None:
    step = {"fault": "change-config", "at": 0, **keys}
    with pytest.raises(ScenarioError, match=said):
        faults.compile(
            [step],
            faults.inventory_of(topics=TOPICS, nodes=NAMES, system=system),
            seed=7,
            load_s=60,
        )


def test_retention_takes_effect_when_logs_begin_later(cluster: StateCluster, run: RunDir) -> None:
    step = {"fault": "change-config", "config": {"retention.bytes": 1000}, "at": 0, "for": 0.6}
    rig = Rig(cluster, run, step)
    rig.wait_for("inject")
    cluster.admin.spans |= {0: (25, 110)}
    rig.injector.join(20)
    effect = rig.rows("effect")[-1]
    assert effect["details"]["cut"] == {"orders-0": 25}
    assert effect["evidence"].endswith(
        "retention.bytes: of the brokers -> 1000; 25 messages of 1 logs are gone"
    )


def test_retention_that_removed_nothing_had_no_effect(cluster: StateCluster, run: RunDir) -> None:
    step = {"fault": "change-config", "config": {"retention.ms": 1000}, "at": 0, "for": 0.4}
    rig = Rig(cluster, run, step)
    rig.injector.join(20)
    assert not rig.rows("effect")[-1]["effective"]


def test_a_proof_says_what_the_node_was_that_was_chosen(cluster: StateCluster, run: RunDir) -> None:
    rig = Rig(cluster, run, kill(0, target="leader-of:orders-1"))
    rig.injector.join(20)
    assert rig.rows("effect")[0]["evidence"].endswith("(kafka-2 was the leader of orders-1)")


def test_rolling_restart_takes_one_after_the_other(cluster: StateCluster, run: RunDir) -> None:
    away: list[set[str]] = []
    original = cluster.runtime.stop

    def stop_and_look(node: str, *, timeout_s: float = 30.0) -> bool:
        away.append(set(NAMES) - cluster.admin.registered())
        return original(node, timeout_s=timeout_s)

    cluster.runtime.stop = stop_and_look  # type: ignore[method-assign]
    cluster.admin.fence_s = 0.0  # an orderly stop hands over at once
    rig = Rig(cluster, run, {"fault": "rolling-restart", "at": 0})
    rig.injector.join(10)
    assert cluster.runtime.calls == [
        f"{call} {node}" for node in NAMES for call in ("stop", "start")
    ]
    assert away == [set(), set(), set()]
    (effect,) = rig.rows("effect")
    assert effect["effective"] is True, effect
    assert effect["evidence"].startswith("3 of 3 nodes restarted: kafka-1 back in sync after")
    assert rig.events(1) == ["inject", "heal", "effect", "healed"], (
        "it is proved before it is healed"
    )
    assert rig.rows("healed")[0]["ok"] is True


def test_rolling_upgrade_says_which_version_each_node_had(
    cluster: StateCluster, run: RunDir
) -> None:
    cluster.admin.fence_s = 0.0
    rig = Rig(cluster, run, {"fault": "rolling-upgrade", "to": "4.1.2", "finalize": True, "at": 0})
    rig.injector.join(10)
    (effect,) = rig.rows("effect")
    assert effect["effective"] is True, effect
    assert "kafka-3 3.9.1 -> 4.1.2 back in sync after" in effect["evidence"]
    assert effect["evidence"].endswith("metadata.version 21 -> 27")
    assert effect["details"]["kafka-1"]["was"] == "3.9.1"


def test_a_node_that_does_not_start_as_the_other_version_goes_on_as_what_it_was(
    cluster: StateCluster, run: RunDir
) -> None:
    cluster.runtime.dies_as = "3.5.2"
    step = {"fault": "rolling-downgrade", "to": "3.5.2", "at": 0, "ready_within": 0.3}
    rig = Rig(cluster, run, step)
    rig.injector.join(10)
    (effect,) = rig.rows("effect")
    assert effect["effective"] is False
    assert "kafka-1 does not start as 3.5.2: kafka-1 refuses its metadata" in effect["evidence"]
    assert cluster.runtime.versions == dict.fromkeys(NAMES, "3.9.1")
    assert cluster.runtime.running == set(NAMES)


def test_an_upgrade_to_what_everybody_runs_is_skipped(cluster: StateCluster, run: RunDir) -> None:
    rig = Rig(cluster, run, {"fault": "rolling-upgrade", "to": "3.9.1", "at": 0})
    rig.injector.join(10)
    assert rig.rows("skipped")[0]["reason"] == "every broker has version 3.9.1"


@pytest.mark.parametrize(
    ("kind", "to", "said"),
    [("rolling-upgrade", "3.5.2", "older than"), ("rolling-downgrade", "4.1.2", "newer than")],
)
def test_a_roll_in_the_wrong_direction_is_refused(
    cluster: StateCluster, kind: str, to: str, said: str
) -> None:
    cluster.version = "3.9.1"
    timeline = faults.compile(
        [{"fault": kind, "to": to, "at": 1}],
        faults.inventory_of(topics=TOPICS, nodes=NAMES),
        seed=7,
        load_s=60,
    )
    with pytest.raises(ScenarioError, match=f"{to} is {said} 3.9.1; use rolling-"):
        faults.refuse_unsupported(timeline, cluster)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("step", "told"),
    [
        ({"fault": "clock-jump", "by": "1h"}, "it gets a time 3,600.00 s ahead"),
        ({"fault": "clock-jump", "by": "30s", "way": "back"}, "it gets a time 30.00 s behind"),
        ({"fault": "clock-drift", "speed": 1.5}, "it gets a time 0.50 s ahead"),
    ],
)
def test_a_clock_is_proved_by_what_the_process_was_told(
    cluster: StateCluster, run: RunDir, step: dict[str, Any], told: str
) -> None:
    rig = Rig(cluster, run, {**step, "target": "kafka-2", "at": 0, "for": 0.3})
    rig.injector.join(10)
    effect = rig.rows("effect")[-1]
    assert effect["effective"] is True, effect
    assert told in effect["evidence"]
    assert rig.rows("healed")[0]["ok"] is True
    assert cluster.runtime.clocks == {"kafka-2": 0.0}


def test_a_node_that_stays_away_when_its_clock_is_right_is_restarted(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = StateCluster()
    set_clock, kill = cluster.runtime.set_clock, cluster.runtime.kill

    def leaves_it_away(node: str, ahead_s: float, speed: float = 1.0) -> None:
        set_clock(node, ahead_s, speed)
        if not ahead_s and "kill kafka-2" not in cluster.runtime.calls:
            cluster.runtime.paused.add(node)

    def frees(node: str) -> None:
        cluster.runtime.paused.discard(node)
        kill(node)

    monkeypatch.setattr(cluster.runtime, "set_clock", leaves_it_away)
    monkeypatch.setattr(cluster.runtime, "kill", frees)
    rig = Rig(
        cluster, run, {"fault": "clock-jump", "by": "1h", "target": "kafka-2", "at": 0, "for": 0.2}
    )
    rig.injector.join(20)
    assert rig.rows("healed")[0]["ok"] is True
    assert cluster.runtime.calls[:2] == ["kill kafka-2", "start kafka-2"]
    assert "died" not in rig.rows("effect")[-1]["evidence"], "the heal killed it"


def test_rolling_restart_stops_rolling_when_everything_heals(run: RunDir) -> None:
    cluster = StateCluster(join_s=0.3)
    rig = Rig(cluster, run, {"fault": "rolling-restart", "at": 0})
    rig.wait_for("inject")
    assert rig.injector.heal_all(5) == []
    assert cluster.runtime.running == set(NAMES)
    assert "stop kafka-3" not in cluster.runtime.calls
    assert rig.rows("effect")[0]["effective"] is False


def test_leader_move_is_proved_by_who_leads(cluster: StateCluster, run: RunDir) -> None:
    rig = Rig(cluster, run, {"fault": "leader-move", "topic": "orders", "partitions": 4, "at": 0})
    rig.injector.join(20)
    (effect,) = rig.rows("effect")
    assert effect["details"]["moved"] == 4
    moves = rig.rows("inject")[0]["params"]["moves"]
    assert {p: cluster.admin.leader[int(p)] for p in moves} == moves
    assert all(old != new for old, new in effect["details"]["leaders"].values())
    assert rig.events(1) == ["inject", "effect", "heal", "healed"]


def test_leader_move_that_nobody_carried_out(
    cluster: StateCluster, run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("faults.engine.firing.PROOF_S", 0.1)
    cluster.admin.moves_ignored = True
    rig = Rig(cluster, run, {"fault": "leader-move", "at": 0})
    rig.injector.join(20)
    assert rig.rows("effect")[0]["effective"] is False
    assert rig.rows("effect")[0]["evidence"] == "0 of 6 leaders changed"


def test_leader_move_goes_to_nodes_that_can_lead(cluster: StateCluster, run: RunDir) -> None:
    rig = Rig(cluster, run, kill(0.0, 30, target="kafka-1"), {"fault": "leader-move", "at": 0.3})
    rig.wait_for("inject", 2)
    rig.injector.heal_all(5)
    moves = rig.rows("inject", 2)[0]["params"]["moves"]
    assert moves
    assert "kafka-1" not in moves.values()


def test_preferred_election(cluster: StateCluster, run: RunDir) -> None:
    cluster.admin.leader = dict.fromkeys(range(6), "kafka-1")
    rig = Rig(
        cluster,
        run,
        {"fault": "preferred-election", "at": 0},
        {"fault": "preferred-election", "at": 0.5},
    )
    rig.injector.join(20)
    assert rig.rows("inject")[0]["targets"] == ["orders-1", "orders-2", "orders-4", "orders-5"]
    assert rig.rows("effect")[0]["effective"] is True
    assert "already" in rig.rows("skipped")[0]["reason"]


def said_of_acks(rig: Rig) -> list[str]:
    """Before it was applied, and when it was healed."""
    return [rig.rows(event)[0]["confirmed_acks"] for event in ("inject", "healed")]


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (kill(0), ["at-risk", "at-risk"]),
        ({"fault": "controller-kill", "at": 0, "for": 0.1}, ["at-risk", "at-risk"]),
        ({"fault": "restart", "at": 0}, ["unknown", "kept"]),
        ({"fault": "rolling-restart", "at": 0}, ["unknown", "kept"]),
        ({"fault": "pause", "at": 0, "for": 0.3, "target": "kafka-1"}, ["unknown", "at-risk"]),
        ({"fault": "leader-move", "at": 0}, ["kept", "kept"]),
    ],
    ids=lambda value: value["fault"] if isinstance(value, dict) else "",
)
def test_a_fault_says_what_it_does_to_acknowledgements(
    cluster: StateCluster, run: RunDir, step: dict[str, Any], said: list[str]
) -> None:
    rig = Rig(cluster, run, step)
    rig.injector.join(20)
    assert said_of_acks(rig) == said


def test_of_a_pause_that_was_not_seen_to_move_anything_nobody_knows(run: RunDir) -> None:
    rig = Rig(StateCluster(fence_s=30.0, join_s=0.0), run, {"fault": "pause", "at": 0, "for": 0.1})
    rig.injector.join(20)
    assert said_of_acks(rig) == ["unknown", "unknown"]


@pytest.mark.parametrize("kind", ["restart", "rolling-restart"])
@pytest.mark.parametrize("why", ["killed", "too long"])
def test_a_stop_that_was_cut_short_may_cost_acknowledgements(
    cluster: StateCluster, run: RunDir, monkeypatch: pytest.MonkeyPatch, kind: str, why: str
) -> None:
    cluster.runtime.stops_by_itself = why != "killed"
    if why == "too long":
        monkeypatch.setattr(sys.modules["faults.kinds.restart"], "_ORDERLY_S", 0.0)
    rig = Rig(cluster, run, {"fault": kind, "at": 0})
    rig.injector.join(20)
    assert said_of_acks(rig) == ["unknown", "at-risk"]
