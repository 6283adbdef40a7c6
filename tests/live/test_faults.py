"""Every kind of fault on real brokers: what it does, that it is proved, and that nothing of it stays."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import faults
from faults.engine.ledger import Ledger
from harness.clusters.kafka import KafkaCluster
from harness.protocols.cluster import TopicSettings
from harness.rundir import RunDir, read_jsonl
from tests.live.cluster_rig import injector_of, up, wait_until

pytestmark = pytest.mark.live

ROOT = Path(__file__).resolve().parents[2]
ORDERS = TopicSettings("orders", 12, 3, {"min.insync.replicas": "2"})


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    with up("kafka", tmp_path_factory.mktemp("faults"), ORDERS) as found:
        yield found


@pytest.fixture
def rig_of(cluster: KafkaCluster) -> Iterator[Callable[..., Rig]]:
    """Starts an injector of steps in a run."""
    made: list[Rig] = []

    def start(run: RunDir, *steps: dict[str, Any]) -> Rig:
        made.append(Rig(cluster, run, *steps))
        return made[-1]

    yield start
    for rig in made:
        rig.injector.heal_all(60)


@pytest.fixture
def run(tmp_path: Path, cluster: KafkaCluster) -> RunDir:
    """A run on a cluster that is whole."""
    cluster.admin.wait_ready(["orders"], timeout_s=60, run_tag=1)
    return RunDir(tmp_path / "run").create()


class Rig:
    """An injector on the cluster; `rig_of` ends it whatever the test does."""

    def __init__(self, cluster: KafkaCluster, run: RunDir, *steps: dict[str, Any]) -> None:
        self.cluster, self.run = cluster, run
        self.injector = injector_of(cluster, run, [ORDERS], *steps)
        self.injector.start(time.monotonic_ns())

    def wait_for(self, event: str, timeout_s: float = 30) -> dict[str, Any]:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            for row in read_jsonl(self.run.faults):
                if row["event"] == event:
                    return row
            time.sleep(0.05)
        raise AssertionError(f"no {event} within {timeout_s} s: {read_jsonl(self.run.faults)}")

    def finish(self, *, now: bool = False) -> None:
        """Everything came, took effect, and is healed; ``now``: do not wait for the time to heal."""
        if not now:
            self.injector.join(280)
        assert self.injector.heal_all(120) == [], read_jsonl(self.run.faults)
        rows = read_jsonl(self.run.faults)
        assert [row for row in rows if row["event"] == "skipped"] == []
        assert [row["evidence"] for row in rows if row["event"] == "effect" and not row["effective"]] == []
        assert [row["evidence"] for row in rows if row["event"] == "healed" and not row["ok"]] == []
        assert Ledger(self.run).entries() == []
        assert_whole(self.cluster)


def assert_whole(cluster: KafkaCluster) -> None:
    for node in cluster.runtime.nodes:
        assert cluster.runtime.is_running(node.name)
        assert not cluster.runtime.is_paused(node.name)
        assert cluster.admin.answers(node.name)
    assert {len(nodes) for nodes in cluster.admin.isr("orders").values()} == {3}
    assert None not in cluster.admin.leaders("orders").values()


def test_pause_beyond_the_session_timeout(
    cluster: KafkaCluster, run: RunDir, rig_of: Callable[..., Rig]
) -> None:
    rig = rig_of(run, {"fault": "pause", "target": "leader-of:orders-3", "at": 0, "for": "5m"})
    (target,) = rig.wait_for("inject")["targets"]
    pid = cluster.runtime.pid(target)
    effect = rig.wait_for("effect")
    assert psutil.Process(pid).status() == psutil.STATUS_STOPPED
    assert effect["effective"], effect
    assert "process stopped (state T)" in effect["evidence"]
    wait_until("leaders elsewhere", lambda: target not in cluster.admin.leaders("orders").values())
    rig.finish(now=True)
    assert cluster.runtime.pid(target) == pid


def test_pause_too_short_for_anybody_to_be_fenced(
    cluster: KafkaCluster, run: RunDir, rig_of: Callable[..., Rig]
) -> None:
    controller = cluster.admin.controller()
    follower = next(node.name for node in cluster.runtime.nodes if node.name != controller)
    rig = rig_of(run, {"fault": "pause", "target": follower, "at": 0, "for": 1.5})
    rig.finish()
    evidence = rig.wait_for("effect")["evidence"]
    assert "a request got no answer" in evidence or "shrank" in evidence


def test_restart_hands_leaders_over_first(
    cluster: KafkaCluster, run: RunDir, rig_of: Callable[..., Rig]
) -> None:
    rig = rig_of(run, {"fault": "restart", "target": "leader-of:orders", "at": 0, "down": 1})
    rig.finish()
    rows = {row["event"]: row for row in read_jsonl(run.faults)}
    assert "stopped in" in rows["effect"]["evidence"]
    assert rows["effect"]["details"]["leaders_moved"] >= 4


def test_controller_kill_elects_another(
    cluster: KafkaCluster, run: RunDir, rig_of: Callable[..., Rig]
) -> None:
    before = cluster.admin.controller()
    rig = rig_of(run, {"fault": "controller-kill", "at": 0, "for": "5m"})
    assert rig.wait_for("inject")["targets"] == [before]
    assert rig.wait_for("effect")["effective"]
    rig.finish(now=True)


def test_kill_and_the_preferred_election_after_it(
    cluster: KafkaCluster, run: RunDir, rig_of: Callable[..., Rig]
) -> None:
    pids = {node.name: cluster.runtime.pid(node.name) for node in cluster.runtime.nodes}
    rig = rig_of(run, {"fault": "kill", "target": "leader-of:orders", "at": 0.5, "for": "5m"})
    (target,) = rig.wait_for("inject")["targets"]
    effect = rig.wait_for("effect")
    assert not psutil.pid_exists(pids[target] or 0)
    assert not cluster.admin.answers(target)
    assert effect["effective"], effect
    wait_until("leaders elsewhere", lambda: target not in cluster.admin.leaders("orders").values(), 20)
    rig.finish(now=True)
    last = [row for row in read_jsonl(run.faults) if row["event"] == "effect"][-1]
    assert last["details"]["leaders_moved"] >= 4, last
    assert cluster.runtime.pid(target) != pids[target]

    replicas = cluster.admin.replicas("orders")
    misled = [p for p, leader in cluster.admin.leaders("orders").items() if leader != replicas[p][0]]
    assert misled
    result = faults.inject_once("preferred-election", {}, cluster, run, None)
    assert result["targets"] == [f"orders-{p}" for p in misled]
    assert result["effective"], result
    assert cluster.admin.leaders("orders") == {p: nodes[0] for p, nodes in replicas.items()}
    again = faults.inject_once("preferred-election", {}, cluster, run, None)
    assert "already" in again["skipped"]


def test_leader_moves_and_a_storm_of_them(
    cluster: KafkaCluster, run: RunDir, rig_of: Callable[..., Rig]
) -> None:
    before = cluster.admin.leaders("orders")
    rig = rig_of(run, {"fault": "leader-move", "partitions": 5, "at": 0})
    rig.finish()
    moves = {int(p): node for p, node in rig.wait_for("inject")["params"]["moves"].items()}
    assert len(moves) == 5
    assert cluster.admin.leaders("orders") == {**before, **moves}
    assert all(moves[p] != before[p] for p in moves)

    second = RunDir(run.root.parent / "storm").create()
    storm = {"times": 3, "gap": ["20ms", "200ms"]}
    rig = rig_of(second, {"fault": "leader-move", "topic": "orders", "at": 0.2, "storm": storm})
    rig.finish()
    assert len([row for row in read_jsonl(second.faults) if row["event"] == "inject"]) == 3


def test_rolling_restart(cluster: KafkaCluster, run: RunDir, rig_of: Callable[..., Rig]) -> None:
    pids = {node.name: cluster.runtime.pid(node.name) for node in cluster.runtime.nodes}
    rig = rig_of(run, {"fault": "rolling-restart", "at": 0})
    rig.finish()
    effect = rig.wait_for("effect")
    assert effect["evidence"].startswith("3 of 3 nodes restarted")
    assert all(cluster.runtime.pid(name) != pid for name, pid in pids.items())


def test_heal_all_in_the_middle_of_everything(
    cluster: KafkaCluster, run: RunDir, rig_of: Callable[..., Rig]
) -> None:
    rig = rig_of(
        run,
        {"fault": "pause", "target": "kafka-1", "at": 0, "for": 120},
        {"fault": "kill", "target": "kafka-2", "at": 0.5, "for": 120, "together": True},
    )
    while len(Ledger(run).entries()) < 2:
        time.sleep(0.05)
    time.sleep(0.5)
    assert rig.injector.heal_all(90) == [], read_jsonl(run.faults)
    cluster.admin.wait_ready(["orders"], timeout_s=60, run_tag=1)
    assert_whole(cluster)
    assert Ledger(run).entries() == []
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
timeline = faults.compile([step], seed=1, load_s=200, topics=topics, nodes=nodes)
injector = faults.Injector(timeline, cluster, run, on_event=lambda row: print(row["event"], flush=True))
injector.start(time.monotonic_ns())
time.sleep(200)
"""


def killed_harness(cluster: KafkaCluster, run: RunDir, kind: str) -> None:
    """Another process applies a fault to kafka-2 and is SIGKILLed while it is applied."""
    argv = [sys.executable, "-c", HARNESS, str(cluster.runtime.folder), str(run.root), kind]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True) as harness:
        try:
            assert harness.stdout is not None
            for line in harness.stdout:
                if line.strip() == "effect":
                    break
        finally:
            harness.kill()
    assert [entry["targets"] for entry in Ledger(run).entries()] == [["kafka-2"]]


def test_a_killed_harness_leaves_a_stopped_node_that_the_ledger_frees(
    cluster: KafkaCluster, run: RunDir
) -> None:
    pid = cluster.runtime.pid("kafka-2")
    killed_harness(cluster, run, "pause")
    assert psutil.Process(pid).status() == psutil.STATUS_STOPPED
    assert faults.heal_from_ledger(None, run) == []
    assert psutil.Process(pid).status() != psutil.STATUS_STOPPED
    cluster.admin.wait_ready(["orders"], timeout_s=60, run_tag=1)
    assert_whole(cluster)
    assert Ledger(run).entries() == []


def test_a_killed_harness_leaves_a_dead_node_that_is_started_if_kept(
    cluster: KafkaCluster, run: RunDir
) -> None:
    killed_harness(cluster, run, "kill")
    assert not cluster.runtime.is_running("kafka-2")
    assert faults.heal_from_ledger(cluster, run) == []
    cluster.admin.wait_ready(["orders"], timeout_s=60, run_tag=1)
    assert_whole(cluster)
    assert [row["event"] for row in read_jsonl(run.faults)][-2:] == ["heal", "healed"]
