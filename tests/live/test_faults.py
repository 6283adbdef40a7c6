"""Every kind of fault on real brokers: what it does, that it is proved, and that nothing of it
stays."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

import faults
from analysis.kernels.replicas import stretches
from faults.engine.ledger import Ledger
from faults.kit.cluster_view import ClusterView
from faults.kit.params import Inventory
from faults.kit.targets import parse, resolve
from harness.clusters.clocks import clocks
from harness.protocols.cluster import THROTTLED_REPLICAS, TopicSettings
from harness.rundir import RunDir, read_jsonl
from harness.systems.kafka.assembly import KafkaCluster
from harness.systems.kafka.questions import KafkaQuestions
from tests.live.cluster_rig import ORDERS, FaultRig, assert_whole, make_whole, sending, wait_until

pytestmark = pytest.mark.live

ROOT = Path(__file__).resolve().parents[2]
Begin = Callable[..., FaultRig]


@pytest.mark.extended
def test_pause_beyond_the_session_timeout(kafka: KafkaCluster, begin: Begin) -> None:
    rig = begin({"fault": "pause", "target": "leader-of:orders-3", "at": 0, "for": "5m"})
    (target,) = rig.wait_for("inject")["targets"]
    pid = kafka.runtime.pid(target)
    effect = rig.wait_for("effect")
    assert psutil.Process(pid).status() == psutil.STATUS_STOPPED
    assert effect["effective"], effect
    assert "process stopped (state T)" in effect["evidence"]
    wait_until("leaders elsewhere", lambda: target not in kafka.admin.leaders("orders").values())
    rig.finish(now=True)
    assert kafka.runtime.pid(target) == pid


def test_pause_too_short_for_anybody_to_be_fenced(kafka: KafkaCluster, begin: Begin) -> None:
    controller = kafka.admin.controller()
    follower = next(node.name for node in kafka.runtime.nodes if node.name != controller)
    rig = begin({"fault": "pause", "target": follower, "at": 0, "for": 1.5})
    rig.finish()
    evidence = rig.rows("effect")[0]["evidence"]
    assert "a request got no answer" in evidence or "shrank" in evidence


def test_targets_by_what_a_node_does(kafka: KafkaCluster, begin: Begin) -> None:
    groups = {"group:ours": ["billing"]}
    view = ClusterView(kafka, Inventory((ORDERS,), (), coordinated=groups))
    states = kafka.admin.partition_states(["orders"])
    found = {
        text: resolve(parse(text, view.inventory), view, draw=1)[0]
        for text in ("follower-of:orders-3", "replica-of:orders-3", "coordinator-of:group:ours")
    }
    assert (
        found["coordinator-of:group:ours"]
        == kafka.admin.coordinator("group", "billing")
        is not None
    )
    assert found["replica-of:orders-3"] in states["orders-3"].replicas
    assert found["follower-of:orders-3"] in set(states["orders-3"].replicas) - {
        states["orders-3"].leader
    }


@pytest.mark.extended
def test_restart_hands_leaders_over_first(kafka: KafkaCluster, begin: Begin) -> None:
    rig = begin({"fault": "restart", "target": "leader-of:orders", "at": 0, "down": 1})
    rig.finish()
    effect = rig.rows("effect")[-1]
    assert "stopped in" in effect["evidence"]
    assert effect["details"]["leaders_moved"] >= 1


@pytest.mark.extended
def test_controller_kill_elects_another(kafka: KafkaCluster, begin: Begin) -> None:
    before = kafka.admin.controller()
    rig = begin({"fault": "controller-kill", "at": 0, "for": "5m"})
    assert rig.wait_for("inject")["targets"] == [before]
    assert rig.wait_for("effect")["effective"]
    rig.finish(now=True)


def test_kill_and_the_preferred_election_after_it(kafka: KafkaCluster, begin: Begin) -> None:
    pids = {node.name: kafka.runtime.pid(node.name) for node in kafka.runtime.nodes}
    preferred = {p: nodes[0] for p, nodes in kafka.admin.replicas("orders").items()}
    kafka.admin.elect_preferred("orders")  # else the kill may bring leaders to their first replicas
    wait_until(
        "leaders at their first replicas", lambda: kafka.admin.leaders("orders") == preferred
    )
    before = kafka.admin.leaders("orders")
    rig = begin({"fault": "kill", "target": "leader-of:orders", "at": 0, "for": "5m"})
    (target,) = rig.wait_for("inject")["targets"]
    effect = rig.wait_for("effect")
    assert not psutil.pid_exists(pids[target] or 0)
    assert not kafka.admin.answers(target)
    assert effect["effective"], effect
    wait_until("leaders elsewhere", lambda: target not in kafka.admin.leaders("orders").values())
    rig.finish(now=True)
    last = rig.rows("effect")[-1]
    assert last["details"]["leaders_moved"] >= list(before.values()).count(target) > 0, last
    assert kafka.runtime.pid(target) != pids[target]

    misled = [p for p, leader in kafka.admin.leaders("orders").items() if leader != preferred[p]]
    assert misled
    result = faults.inject_once("preferred-election", {}, kafka, rig.run, None)
    assert result.targets == tuple(f"orders-{p}" for p in misled)
    assert result.effective, result
    assert kafka.admin.leaders("orders") == preferred
    again = faults.inject_once("preferred-election", {}, kafka, rig.run, None)
    assert "already" in again.skipped


def test_leader_moves_and_a_burst_of_them(kafka: KafkaCluster, begin: Begin) -> None:
    before = kafka.admin.leaders("orders")
    rig = begin({"fault": "leader-move", "partitions": 5, "at": 0})
    rig.finish()
    moves = {int(p): node for p, node in rig.rows("inject")[0]["params"]["moves"].items()}
    assert len(moves) == 5
    assert kafka.admin.leaders("orders") == {**before, **moves}
    assert all(moves[p] != before[p] for p in moves)

    burst = {"times": 3, "gap": ["20ms", "200ms"]}
    rig = begin({"fault": "leader-move", "topic": "orders", "at": 0, "storm": burst})
    rig.finish()
    assert len(rig.rows("inject")) == 3


def test_truncated_logs_begin_later(kafka: KafkaCluster, begin: Begin) -> None:
    with sending(kafka, ORDERS):
        wait_until(
            "messages everywhere",
            lambda: min(e for _, e in kafka.admin.log_spans("orders").values()) > 9,
        )
        rig = begin({"fault": "truncate", "share": 0.5, "at": 0})
        rig.finish()
    cuts = {int(p): offset for p, offset in rig.rows("inject")[0]["params"]["cuts"].items()}
    assert sorted(cuts) == list(range(ORDERS.partitions))
    assert {p: span[0] for p, span in kafka.admin.log_spans("orders").items()} == cuts
    assert rig.rows("effect")[0]["details"]["cut"] == {f"orders-{p}": cuts[p] for p in cuts}


@pytest.mark.extended
def test_retention_removes_what_was_acknowledged_until_it_is_put_back(
    kafka: KafkaCluster, tmp_path: Path
) -> None:
    kept = TopicSettings("kept", 2, 3)
    if kept.name not in kafka.admin.topics():
        kafka.admin.create_topics([kept])
    make_whole(kafka, kept.name)
    config = {"retention.ms": "300", "segment.ms": "200"}
    step = {"fault": "change-config", "config": config, "at": 0, "for": "5m"}
    before = kafka.admin.settings(kept.name, list(config))
    with sending(kafka, kept):
        rig = FaultRig(kafka, RunDir(tmp_path / "kept").create(), step, topics=[kept])
        wait_until(
            "a log begins later",
            lambda: max(b for b, _ in kafka.admin.log_spans("kept").values()) > 0,
        )
        assert rig.wait_for("effect")["effective"]
        rig.finish(now=True)
        assert kafka.admin.settings(kept.name, list(config)) == before
    cut = rig.rows("effect")[-1]["details"]["cut"]
    assert cut == {f"kept-{p}": b for p, (b, _) in kafka.admin.log_spans("kept").items() if b}


def test_a_topic_grows_and_its_new_partitions_work(kafka: KafkaCluster, tmp_path: Path) -> None:
    grown = TopicSettings("grown", 2, 3, grows_to=5)
    if grown.name in kafka.admin.topics():
        kafka.admin.delete_topics([grown.name])
    kafka.admin.create_topics([grown])
    make_whole(kafka, grown.name)
    with sending(kafka, grown):
        rig = FaultRig(
            kafka,
            RunDir(tmp_path / "grows").create(),
            {"fault": "grow-partitions", "at": 0},
            topics=[grown],
        )
        rig.finish()
    assert rig.rows("effect")[-1]["evidence"] == "grown: 2 -> 5 partitions with a leader"
    kafka.admin.wait_ready([grown.name], timeout_s=60, run_tag=1)
    assert sorted(kafka.admin.end_offsets([grown.name])) == [f"grown-{p}" for p in range(5)]


def test_a_topic_is_deleted_and_made_again_as_it_was(kafka: KafkaCluster, tmp_path: Path) -> None:
    remade = TopicSettings("remade", 3, 2, {"min.insync.replicas": "2"})
    if remade.name not in kafka.admin.topics():
        kafka.admin.create_topics([remade])
    make_whole(kafka, remade.name)
    before, ids = kafka.admin.made_of(remade.name), kafka.admin.topic_ids(remade.name)
    step = {"fault": "recreate-topic", "at": 0, "for": "5m"}
    with sending(kafka, remade):
        rig = FaultRig(kafka, RunDir(tmp_path / "again").create(), step, topics=[remade])
        rig.wait_for("effect")
        assert remade.name not in kafka.admin.topics()
        rig.finish(now=True)
    after = kafka.admin.topic_ids(remade.name)
    assert (len(after), after & ids) == (1, frozenset())
    assert kafka.admin.made_of(remade.name) == before
    assert before.config["min.insync.replicas"] == "2"


@pytest.mark.extended
@pytest.mark.skipif(bool(clocks.why_not()), reason=clocks.why_not())
def test_a_broker_whose_clock_jumped_stamps_messages_with_its_time(
    kafka: KafkaCluster, begin: Begin
) -> None:
    if "stamped" not in kafka.admin.topics():
        kafka.admin.create_topics(
            [TopicSettings("stamped", 3, 3, {"message.timestamp.type": "LogAppendTime"})]
        )
    jump = {"fault": "clock-jump", "target": "kafka-2", "by": "1h", "way": "back"}
    rig = begin({**jump, "at": 0, "for": "5m"})
    rig.wait_for("effect")
    leaders = kafka.admin.leaders("stamped")
    ahead_s = KafkaQuestions(kafka.bootstrap, {}).clocks("stamped", 3)
    rig.finish(now=True)
    assert "it gets a time 3,600.00 s behind" in rig.rows("effect")[-1]["evidence"]
    assert {leaders[p]: round(by / 3600) for p, (by, _) in ahead_s.items()} == {
        "kafka-1": 0,
        "kafka-2": -1,
        "kafka-3": 0,
    }


def test_replicas_move_throttled_and_the_throttle_is_lifted(
    kafka: KafkaCluster, tmp_path: Path
) -> None:
    moved = TopicSettings("moved", 2, 2)
    if moved.name not in kafka.admin.topics():
        kafka.admin.create_topics([moved])
    make_whole(kafka, moved.name)
    before = kafka.admin.replicas(moved.name)
    step = {"fault": "reassign", "partitions": 1, "throttle": "5MB", "at": 0}
    with sending(kafka, moved):
        rig = FaultRig(kafka, RunDir(tmp_path / "moves").create(), step, topics=[moved])
        rig.finish()
    after = kafka.admin.replicas(moved.name)
    assert sum(set(before[p]) != set(after[p]) for p in before) == 1
    assert set(kafka.admin.own_settings(moved.name, THROTTLED_REPLICAS).values()) == {None}


@pytest.mark.extended
def test_rolling_restart(kafka: KafkaCluster, begin: Begin) -> None:
    pids = {node.name: kafka.runtime.pid(node.name) for node in kafka.runtime.nodes}
    rig = begin({"fault": "rolling-restart", "at": 0})
    rig.finish()
    assert rig.rows("effect")[-1]["evidence"].startswith("3 of 3 nodes restarted")
    assert all(kafka.runtime.pid(name) != pid for name, pid in pids.items())


def test_heal_all_in_the_middle_of_everything(kafka: KafkaCluster, begin: Begin) -> None:
    rig = begin(
        {"fault": "pause", "target": "kafka-1", "at": 0, "for": 120},
        {"fault": "kill", "target": "kafka-2", "at": 0.5, "for": 120, "together": True},
    )
    wait_until("both are applied", lambda: len(rig.rows("inject")) == 2)
    assert rig.injector.heal_all(120) == [], read_jsonl(rig.run.faults)
    make_whole(kafka, "orders")
    assert_whole(kafka)
    assert Ledger(rig.run).entries() == []
    assert rig.injector.heal_all(1) == []


HARNESS = """
import sys, time
from pathlib import Path
import faults
from harness.clusters.cluster import attach_cluster
from harness.protocols.cluster import TopicSettings
from harness.rundir import RunDir
cluster, run = attach_cluster(Path(sys.argv[1])), RunDir(Path(sys.argv[2]))
nodes = [node.name for node in cluster.runtime.nodes]
topics = [TopicSettings("orders", 12, 3)]
step = {"fault": sys.argv[3], "target": "kafka-2", "at": 0, "for": "100s"}
inventory = faults.inventory_of(topics=topics, nodes=nodes)
timeline = faults.compile([step], inventory, seed=1, load_s=200)
injector = faults.Injector(timeline, cluster, run, on_event=lambda row: print(row.event, flush=True))
injector.start(time.monotonic_ns())
time.sleep(200)
"""


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path / "run").create()


def killed_harness(kafka: KafkaCluster, run: RunDir, kind: str) -> None:
    """Another process applies a fault to kafka-2 and is SIGKILLed while it is applied."""
    argv = [sys.executable, "-c", HARNESS, str(kafka.runtime.folder), str(run.root), kind]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True) as harness:
        try:
            assert harness.stdout is not None
            for line in harness.stdout:
                if line.strip() == "effect":
                    break
        finally:
            harness.kill()
    assert [entry.targets for entry in Ledger(run).entries()] == [("kafka-2",)]


def test_a_killed_harness_leaves_a_stopped_node_that_the_ledger_frees(
    kafka: KafkaCluster, run: RunDir
) -> None:
    pid = kafka.runtime.pid("kafka-2")
    killed_harness(kafka, run, "pause")
    assert psutil.Process(pid).status() == psutil.STATUS_STOPPED
    assert faults.heal_from_ledger(None, run, kafka.runtime.run_id) == []
    assert psutil.Process(pid).status() != psutil.STATUS_STOPPED
    make_whole(kafka, "orders")
    assert_whole(kafka)
    assert Ledger(run).entries() == []


@pytest.mark.extended
def test_a_killed_harness_leaves_a_dead_node_that_is_started_if_kept(
    kafka: KafkaCluster, run: RunDir
) -> None:
    killed_harness(kafka, run, "kill")
    assert not kafka.runtime.is_running("kafka-2")
    assert faults.heal_from_ledger(kafka, run) == []
    make_whole(kafka, "orders")
    assert_whole(kafka)
    assert [row["event"] for row in read_jsonl(run.faults)][-2:] == ["heal", "healed"]


@pytest.mark.extended
def test_damaged_files_are_served_or_refused(kafka: KafkaCluster, begin: Begin) -> None:
    """Kafka does not look at checksums of what it kept in good order: only other replicas show the
    damage. A broker that refuses its metadata is wiped, and has what the others have in the end."""
    with sending(kafka, ORDERS):
        wait_until("messages", lambda: min(kafka.admin.end_offsets(["orders"]).values()) > 100)
    assert wrong_replicas(kafka) == set()
    begin({"fault": "file-damage", "target": "kafka-2", "places": 20, "at": 0, "for": 0.1}).finish()
    assert ("kafka-2", "damaged") in wrong_replicas(kafka)

    step = {
        "fault": "file-damage",
        "target": "kafka-2",
        "files": "metadata",
        "damage": "cut",
        "places": 100,
    }
    rig = begin({**step, "size": "1MB", "at": 0, "for": 0.1})
    rig.finish()
    details = rig.rows("effect")[-1]["details"]
    assert "meta.properties" in {place["file"] for place in details["damaged"]["kafka-2"]}
    assert details["wiped"] == {"kafka-2": "ended"}
    assert wrong_replicas(kafka) == set()


def wrong_replicas(kafka: KafkaCluster) -> set[tuple[str, str]]:
    """Node and what is wrong with what it has; every replica is in sync and was read."""
    rows = kafka.admin.read_replicas(["orders"], timeout_s=60)
    assert len(rows) == ORDERS.partitions * ORDERS.replication
    assert [row for row in rows if not (row.in_sync and row.is_read)] == []
    return {(one.replica.node, one.split) for one in stretches(rows)}
