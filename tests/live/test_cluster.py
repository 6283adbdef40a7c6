"""Real clusters as processes: they come up, they lose nodes and get them back, they leave
nothing."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer

from harness.clusters import BrokerCluster, attach_cluster, leftovers, open_cluster
from harness.clusters.layout import addresses
from harness.errors import EnvironmentNotReady, UsageError
from harness.protocols.cluster import Cluster, Runtime, TopicSettings
from harness.protocols.nodes import Killable, Pausable, Stoppable
from harness.systems.kafka.assembly import KafkaCluster
from tests.live.cluster_rig import ORDERS, UP_S, new_run_id, up, wait_until
from tests.machine import ORPHANS

pytestmark = pytest.mark.live

ROOT = Path(__file__).resolve().parents[2]
PARTITIONS = range(ORDERS.partitions)


def in_sync(cluster: KafkaCluster) -> bool:
    return all(len(nodes) == 3 for nodes in cluster.admin.isr("orders").values())


def test_it_has_the_abilities_that_faults_ask_for(kafka: KafkaCluster) -> None:
    assert isinstance(kafka, Cluster)
    for ability in (Runtime, Killable, Stoppable, Pausable):
        assert isinstance(kafka.runtime, ability)


def test_a_cluster_that_is_up_works(kafka: KafkaCluster) -> None:
    names = {node.name for node in kafka.runtime.nodes}
    assert kafka.admin.registered() == names
    assert kafka.admin.controller() in names
    assert set(kafka.admin.leaders("orders")) == set(PARTITIONS)
    assert set(kafka.admin.leaders("orders").values()) <= names
    assert in_sync(kafka)
    assert {"__consumer_offsets", "__transaction_state"} <= set(kafka.admin.topics())
    before = kafka.admin.end_offsets(["orders"])
    assert set(before) == {f"orders-{p}" for p in PARTITIONS}
    kafka.admin.wait_ready(["orders"], timeout_s=UP_S, run_tag=1)
    after = kafka.admin.end_offsets(["orders"])
    assert all(after[stream] == before[stream] + 1 for stream in before), "one probe a partition"
    assert len(kafka.bootstrap.split(",")) == 3
    ports = {(n.client.port, n.peer.port, n.admin.port) for n in kafka.runtime.nodes}
    assert len(ports) == 1
    assert len(set(ports.pop())) == 3


def test_topics_come_and_go_and_can_come_again(kafka: KafkaCluster) -> None:
    admin = kafka.admin
    topics = [TopicSettings(f"round-{n}", 70, 3) for n in range(3)]  # more than one request holds
    for chosen in (topics, topics[:1]):
        admin.create_topics(chosen)
        admin.wait_ready(["round-0"], timeout_s=UP_S, run_tag=1)
        assert set(admin.end_offsets(["round-0"]).values()) == {1}, (
            "a fresh topic holds the probe only"
        )
        admin.delete_topics([t.name for t in chosen])
        assert not any(name.startswith("round-") for name in admin.topics())
    admin.delete_topics(["never-there"])


def test_what_kafka_refuses_is_told_in_its_words(kafka: KafkaCluster) -> None:
    with pytest.raises(UsageError, match=r"orders.*exists"):
        kafka.admin.create_topics([ORDERS])
    with pytest.raises(UsageError, match="replication"):
        kafka.admin.create_topics([TopicSettings("many", 1, 5)])
    with pytest.raises(UsageError, match="colour"):
        kafka.admin.create_topics([TopicSettings("odd", 1, 3, {"colour": "red"})])
    with pytest.raises(UsageError, match="unknown topic 'nothing'"):
        kafka.admin.leaders("nothing")


def test_a_killed_node_loses_its_leaders_and_gets_back_in_sync(kafka: KafkaCluster) -> None:
    admin, runtime = kafka.admin, kafka.runtime
    admin.move_leaders("orders", dict.fromkeys(PARTITIONS, "kafka-2"))
    wait_until("leaders at kafka-2", lambda: set(admin.leaders("orders").values()) == {"kafka-2"})
    pid = runtime.pid("kafka-2")
    runtime.kill("kafka-2")
    assert not runtime.is_running("kafka-2")
    assert runtime.pid("kafka-2") is None
    assert pid is not None
    assert not psutil.pid_exists(pid)
    wait_until(
        "leaders elsewhere", lambda: set(admin.leaders("orders").values()) <= {"kafka-1", "kafka-3"}
    )
    assert "kafka-2" not in admin.registered()
    runtime.start("kafka-2")
    wait_until("full ISR", lambda: in_sync(kafka))
    assert runtime.pid("kafka-2") not in (None, pid)


def test_the_admin_answers_in_time_while_a_node_is_frozen(kafka: KafkaCluster) -> None:
    admin, runtime = kafka.admin, kafka.runtime
    frozen = admin.controller() or "kafka-1"
    runtime.pause(frozen)
    try:
        assert runtime.is_paused(frozen)
        assert runtime.is_running(frozen)
        longest_s = 0.0
        deadline = time.monotonic() + 60.0
        while frozen in admin.registered() or admin.controller() in (None, frozen):
            started = time.monotonic()
            admin.leaders("orders")
            longest_s = max(longest_s, time.monotonic() - started)
            assert time.monotonic() < deadline, "the frozen controller was never replaced"
        assert longest_s < 20.0, "it waited for the frozen node"
        assert all(frozen not in nodes for nodes in admin.isr("orders").values())
    finally:
        runtime.resume(frozen)
    wait_until("full ISR", lambda: in_sync(kafka))
    assert not runtime.is_paused(frozen)


def test_what_the_leader_alone_acknowledged_is_seen_by_readers_once_the_high_watermark_passed(
    kafka: KafkaCluster,
) -> None:
    admin, alone = kafka.admin, TopicSettings("alone", 1, 3)
    admin.create_topics([alone])
    admin.wait_ready(["alone"], timeout_s=UP_S, run_tag=1)
    (leader,) = admin.leaders("alone").values()
    followers = [node.name for node in kafka.runtime.nodes if node.name != leader]
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "acks": 1, "linger.ms": 0})
    stored: list[int | None] = []
    try:
        for node in followers:  # both: without a quorum of controllers none of them leaves the ISR
            kafka.runtime.pause(node)
        producer.produce(
            "alone", b"x", partition=0, on_delivery=lambda _, sent: stored.append(sent.offset())
        )
        producer.flush(UP_S)
        assert stored == [1]
        assert admin.end_offsets(["alone"]) == {"alone-0": 1}, "it is not replicated yet"
    finally:
        for node in followers:
            kafka.runtime.resume(node)
    admin.pass_high_watermark(["alone"], timeout_s=UP_S, run_tag=1)
    assert admin.end_offsets(["alone"])["alone-0"] > 2
    wait_until("full ISR", lambda: in_sync(kafka))
    admin.delete_topics(["alone"])


def test_leaders_go_where_they_are_sent_and_back(kafka: KafkaCluster) -> None:
    admin = kafka.admin
    preferred = {p: nodes[0] for p, nodes in admin.replicas("orders").items()}
    order = ["kafka-1", "kafka-2", "kafka-3"]
    wanted = {p: order[(order.index(node) + 1) % 3] for p, node in preferred.items()}
    admin.move_leaders("orders", wanted)
    wait_until("leaders as sent", lambda: admin.leaders("orders") == wanted)
    assert {p: nodes[0] for p, nodes in admin.replicas("orders").items()} == wanted
    assert all(len(nodes) == 3 for nodes in admin.replicas("orders").values())

    away = wanted[0]
    kafka.runtime.stop(away)
    wait_until(f"leaders off {away}", lambda: away not in admin.leaders("orders").values())
    kafka.runtime.start(away)
    wait_until("full ISR", lambda: in_sync(kafka))
    assert admin.leaders("orders") != wanted
    admin.elect_preferred("orders")
    wait_until("leaders as preferred", lambda: admin.leaders("orders") == wanted)
    assert last_leaders(kafka) == wanted
    with pytest.raises(UsageError, match="cannot move orders-99"):
        admin.move_leaders("orders", {99: "kafka-1"})
    with pytest.raises(UsageError, match="kafka-9"):
        admin.move_leaders("orders", {0: "kafka-9"})


def last_leaders(cluster: KafkaCluster) -> dict[int, str | None]:
    """Partition -> who leads in its last epoch, by the history that Kafka keeps; every epoch has
    its time and begins where those before it end."""
    told = cluster.admin.leaderships(["orders"], {})
    for number in PARTITIONS:
        own = [one for one in told if one.stream == f"orders-{number}"]
        begins = [one.first for one in own if one.first is not None]
        assert [one.term for one in own] == list(range(len(own)))
        assert [one.t_ns for one in own] == sorted(one.t_ns for one in own)
        assert begins == sorted(begins)
        assert 0 < own[0].t_ns < time.monotonic_ns()
        assert own[-1].first is not None
    return {int(one.stream.rpartition("-")[2]): one.leader for one in told}


def last_life(log: Path) -> str:
    """What a node wrote since its last start; it may have been killed before it had started."""
    return log.read_text().rpartition("Log4jController")[2]


def test_a_stopped_node_hands_its_leaders_over_before_it_goes(kafka: KafkaCluster) -> None:
    log = kafka.runtime.folder / "kafka-3" / "logs" / "stdout.log"
    # A node that was killed is a replica in sync again before its start is over; told to stop in
    # between, it hands nothing over.
    wait_until("kafka-3 has started", lambda: "Kafka Server started" in last_life(log))
    kafka.runtime.stop("kafka-3", timeout_s=60.0)
    assert "controlled shutdown" in last_life(log).lower(), last_life(log)[-5000:]
    assert "kafka-3" not in kafka.admin.leaders("orders").values()


#: Opens a cluster in a process of its own, says so, and then does what the test wants.
HARNESS = """
import sys, time
from pathlib import Path
from harness.clusters import open_cluster
cluster = open_cluster("kafka", run_id=sys.argv[1], folder=Path(sys.argv[2]))
cluster.up(timeout_s=180)
if sys.argv[3] == "keep":
    cluster.keep()
else:
    print("up", flush=True)
    time.sleep(600)
"""


def harness(run_id: str, folder: Path, then: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HARNESS, run_id, str(folder), then]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def run_id() -> Iterator[str]:
    """A run id; whatever carries it is gone after the test."""
    found = new_run_id()
    yield found
    leftovers.remove(leftovers.find(found))


def cluster_id(cluster: BrokerCluster[Any]) -> str:
    found = (cluster.runtime.folder / "kafka-1" / "data").rglob("meta.properties")
    return next(found).read_text().split("cluster.id=")[1]


@pytest.mark.extended
def test_a_kept_cluster_beside_another_can_be_taken_over(
    kafka: KafkaCluster, run_id: str, tmp_path: Path
) -> None:
    with harness(run_id, tmp_path, "keep") as process:
        assert process.wait(UP_S) == 0
    assert run_id not in {one.run_id for one in leftovers.find()}
    kept = attach_cluster(tmp_path)
    assert kept.runtime.run_id == run_id
    assert all(kept.runtime.is_running(node.name) for node in kept.runtime.nodes)
    assert len(kept.admin.registered()) == 3

    assert len({node.client.host for one in (kafka, kept) for node in one.runtime.nodes}) == 6
    assert ORDERS.name not in kept.admin.topics()
    assert cluster_id(kafka) != cluster_id(kept)
    kept.runtime.kill("kafka-1")
    wait_until("kafka-1 fenced", lambda: "kafka-1" not in kept.admin.registered())
    kept.runtime.start("kafka-1")
    kept.admin.wait_ready([], timeout_s=UP_S, run_tag=1)
    kept.down()
    assert leftovers.find(run_id) == []
    assert not (tmp_path / "kafka-1" / "data").exists()
    assert (tmp_path / "kafka-1" / "logs" / "stdout.log").stat().st_size > 0
    assert all(kafka.runtime.is_running(node.name) for node in kafka.runtime.nodes)
    with pytest.raises(UsageError, match="no cluster to attach to"):
        attach_cluster(tmp_path)


@pytest.mark.extended
def test_a_killed_harness_leaves_only_what_is_found_and_removed(
    kafka: KafkaCluster, run_id: str, tmp_path: Path
) -> None:
    with harness(run_id, tmp_path, "hold") as process, ORPHANS:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "up"
        assert run_id not in {one.run_id for one in leftovers.find()}, "its harness lives"
        process.send_signal(signal.SIGKILL)
        process.wait()
        mine = [one for one in leftovers.find() if one.run_id == run_id]
        assert [len(one.processes) for one in mine] == [3]
        assert len(mine[0].claims) == 1
        started = time.monotonic()
        leftovers.remove(mine)
        assert time.monotonic() - started < 60.0
    assert leftovers.find(run_id) == []
    assert not any(identity.is_alive() for identity in mine[0].processes)
    assert run_id not in {claim.run_id for claim in addresses.claims()}
    assert not list(tmp_path.glob("*/pid.json"))
    assert all(kafka.runtime.is_running(node.name) for node in kafka.runtime.nodes)


def test_settings_that_kafka_refuses_end_before_any_node_runs(run_id: str, tmp_path: Path) -> None:
    cluster = open_cluster(
        "kafka", run_id=run_id, folder=tmp_path, broker_config={"num.io.threads": "many"}
    )
    try:
        with pytest.raises(EnvironmentNotReady, match=r"num\.io\.threads") as caught:
            cluster.up(timeout_s=UP_S)
        assert "cluster.config" in caught.value.hint
        assert leftovers.find(run_id)[0].processes == ()
    finally:
        cluster.down()


def test_a_node_that_dies_at_start_is_an_error_with_its_last_words(
    run_id: str, tmp_path: Path
) -> None:
    cluster = open_cluster("kafka", run_id=run_id, folder=tmp_path)
    node = cluster.runtime.nodes[1]
    try:
        with (
            socket.create_server((node.client.host, node.client.port)),
            pytest.raises(EnvironmentNotReady, match="kafka-2 died") as caught,
        ):
            cluster.up(timeout_s=UP_S)
        assert "ss -ltnp" in caught.value.hint
        assert str(node.folder / "logs" / "stdout.log") in caught.value.hint
    finally:
        cluster.down()
    assert leftovers.find(run_id) == []


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.6.2", "3.9.1", "4.0.0", "4.4.0"])
def test_every_supported_line_of_versions_works(version: str, tmp_path: Path) -> None:
    with up("kafka", tmp_path, ORDERS, version=version) as cluster:
        assert cluster.admin.controller() in {node.name for node in cluster.runtime.nodes}
        cluster.admin.move_leaders("orders", dict.fromkeys(PARTITIONS, "kafka-3"))
        wait_until(
            "leaders moved", lambda: set(cluster.admin.leaders("orders").values()) == {"kafka-3"}
        )
        cluster.runtime.kill("kafka-3")
        wait_until("leaders off", lambda: "kafka-3" not in cluster.admin.leaders("orders").values())
        cluster.runtime.start("kafka-3")
        cluster.admin.wait_ready(["orders"], timeout_s=UP_S, run_tag=1)
        assert last_leaders(cluster) == cluster.admin.leaders("orders")


@pytest.mark.slow
@pytest.mark.parametrize(("system", "version"), [("kafka", ""), ("pulsar", "4.2.4"), ("qpid", "")])
def test_a_machine_without_maven_gets_the_same_jars(
    system: str, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a Maven of our own, against the real repository."""
    from harness.clusters import spec_of
    from harness.toolchains import jars, maven

    wanted = spec_of(system, version).artifacts
    monkeypatch.setenv("BROKERSTORM_CACHE", str(tmp_path / "installed"))
    installed = jars.resolved(jars.resolve(wanted))
    monkeypatch.setenv("BROKERSTORM_CACHE", str(tmp_path / "own"))
    monkeypatch.setattr(maven, "find_maven", maven.Maven)
    assert jars.resolved(jars.resolve(wanted)) == installed
