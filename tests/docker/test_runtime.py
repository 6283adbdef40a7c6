"""Clusters in containers: they come up, lose nodes and get them back, and leave nothing in the
engine."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import urllib3

import faults
from faults.kinds import KINDS
from faults.kit.round_trips import measure
from harness.clusters import attach_cluster, leftovers, open_cluster
from harness.clusters.docker import engine as docker_engine
from harness.clusters.docker import limits, volumes
from harness.clusters.layout import addresses
from harness.clusters.limits.volumes import volumes_below
from harness.errors import EnvironmentNotReady
from harness.protocols.cluster import Cluster, Runtime, TopicSettings
from harness.protocols.limits import LiftsLimits, LimitsCpu
from harness.protocols.nodes import Killable, Pausable, Stoppable
from harness.rundir import RunDir
from harness.systems.kafka import SYSTEM as KAFKA
from harness.systems.kafka.assembly import KafkaCluster
from tests.live.cluster_rig import UP_S, fire, make_whole, new_run_id, sending, wait_until
from tests.live.run_rig import LiveRun
from tests.live.zookeeper_stranger import assert_a_stranger_is_refused
from tests.machine import ORPHANS

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("plugin")]

ROOT = Path(__file__).resolve().parents[2]
ORDERS = TopicSettings("orders", 6, 3, {"min.insync.replicas": "2"})
CLEAN_S = 60.0  # 5 s on a machine of its own
SMOKE = """
name: rig
topics:
  orders: {partitions: 6}
load:
  rate: 2000
  duration: 11s
  warm_up: 1s
  producers:
    shop: {options: {acks: all, enable.idempotence: true, linger.ms: 5}}
  consumers:
    billing: {group: billing}
faults:
  - {fault: pause, target: "leader-of:orders", at: 1s, for: 5s}  # it is fenced after 3 s
  - {fault: kill, target: random, at: 9s, for: 1s, wait: 20s}
require:
  rate_ratio: 0.5
"""


@pytest.fixture(scope="module")
def kafka_image(image: Callable[..., Any], plugin: Any) -> Any:
    return image("kafka")


#: What this machine can give: its brokers then keep their data on volumes that can be full or slow.
NEEDS = frozenset(need for need in volumes.GIVES if not volumes.why_not(need))


@pytest.fixture(scope="module")
def cluster(kafka_image: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    folder = tmp_path_factory.mktemp("cluster")
    found = open_cluster("kafka", run_id=new_run_id(), folder=folder, runtime="docker", needs=NEEDS)
    try:
        found.up(timeout_s=UP_S)
        found.admin.create_topics([ORDERS])
        found.admin.wait_ready(["orders"], timeout_s=UP_S, run_tag=1)
        yield found
    finally:
        found.down()
    assert volumes_below(folder) == []


@pytest.fixture
def whole(cluster: KafkaCluster) -> KafkaCluster:
    make_whole(cluster, "orders")
    return cluster


@pytest.fixture
def run_id(engine: Any) -> Iterator[str]:
    """A run id; whatever carries it is gone after the test."""
    found = new_run_id()
    yield found
    leftovers.remove(leftovers.find(found))


def test_it_is_a_cluster_as_faults_know_it(whole: KafkaCluster) -> None:
    assert isinstance(whole, Cluster)
    for ability in (Runtime, Killable, Stoppable, Pausable):
        assert isinstance(whole.runtime, ability)
    assert whole.admin.registered() == {node.name for node in whole.runtime.nodes}


def test_its_nodes_are_at_the_addresses_of_the_block(whole: KafkaCluster) -> None:
    for node in whole.runtime.nodes:
        assert node.client.host == f"127.0.{whole.runtime.block}.{node.number}"
        socket.create_connection((node.client.host, node.client.port), timeout=5).close()
        with pytest.raises(ConnectionRefusedError):  # the port for its peers is not ours
            socket.create_connection((node.peer.host, node.peer.port), timeout=1).close()


def test_a_node_has_a_process_that_can_be_measured(whole: KafkaCluster) -> None:
    pid = whole.runtime.pid("kafka-1")
    assert pid is not None
    assert psutil.Process(pid).name() == "java"


def test_a_killed_node_is_missed_and_comes_back_with_its_data(whole: KafkaCluster) -> None:
    whole.runtime.kill("kafka-2")
    assert not whole.runtime.is_running("kafka-2")
    assert whole.runtime.pid("kafka-2") is None
    wait_until("kafka-2 fenced", lambda: "kafka-2" not in whole.admin.registered())
    assert "exit code 137" in whole.runtime.log_tail("kafka-2")
    whole.runtime.kill("kafka-2")  # once more is no error
    whole.runtime.start("kafka-2")
    whole.admin.wait_ready(["orders"], timeout_s=UP_S, run_tag=1)
    assert all(len(nodes) == 3 for nodes in whole.admin.isr("orders").values())


def test_a_frozen_node_accepts_connections_and_answers_nothing(whole: KafkaCluster) -> None:
    node = whole.runtime.layout.node("kafka-3")
    whole.runtime.pause("kafka-3")
    whole.runtime.pause("kafka-3")  # once more is no error
    assert whole.runtime.is_paused("kafka-3")
    assert whole.runtime.is_running("kafka-3")
    socket.create_connection((node.admin.host, node.admin.port), timeout=5).close()
    assert not whole.admin.answers("kafka-3")
    whole.runtime.resume("kafka-3")
    whole.runtime.resume("kafka-3")
    wait_until("an answer", lambda: whole.admin.answers("kafka-3"))


@pytest.mark.extended
def test_a_container_is_given_less_cpu_and_all_of_it_again(whole: KafkaCluster) -> None:
    runtime = whole.runtime
    assert isinstance(runtime, LimitsCpu)
    assert isinstance(runtime, LiftsLimits)
    before = runtime.cpu_use("kafka-2")
    runtime.limit_cpu("kafka-2", 0.02)
    wait_until("held back", lambda: runtime.cpu_use("kafka-2").throttled > before.throttled)
    runtime.lift_limits("kafka-2")
    assert runtime.cpu_use("kafka-2").cores is None
    whole.admin.wait_ready(["orders"], timeout_s=UP_S, run_tag=1)


@pytest.mark.extended
@pytest.mark.parametrize(
    ("step", "shown"),
    [
        # Longer than replica.lag.time.max.ms: a node that lives shows it only as a replica that
        # falls behind.
        ({"fault": "disk-full", "for": 8}, "no space left on its data volume (a write got ENOSPC)"),
        ({"fault": "slow-disk", "for": 3, "rate": "200kB"}, "200 kB/s at most:"),
        # A node that has just been started has little in the page cache that it could be short of.
        ({"fault": "memory-limit", "headroom": "1MB", "for": 8}, "of memory, "),
    ],
    ids=["full disk", "slow disk", "little memory"],
)
def test_what_a_container_lacks_is_seen_and_given_back(
    whole: KafkaCluster, tmp_path: Path, step: dict[str, Any], shown: str
) -> None:
    if missing := set(KINDS[step["fault"]].needs) - NEEDS - limits.GIVES:
        pytest.skip(volumes.why_not(missing.pop()))
    run = RunDir(tmp_path / "run").create()
    with sending(whole, ORDERS):
        rows = fire(whole, run, [ORDERS], {"target": "kafka-2", "wait": 60, **step})
    assert rows["effect"]["effective"], rows
    assert shown in rows["effect"]["evidence"]
    assert whole.runtime.try_write("kafka-2", 65536)[0] == ""
    assert not whole.runtime.is_slowed("kafka-2")
    assert whole.runtime.memory_use("kafka-2").limit is None


@pytest.mark.extended
def test_a_container_has_damaged_files_and_is_wiped_where_it_refuses_them(
    whole: KafkaCluster, tmp_path: Path
) -> None:
    with sending(whole, ORDERS):
        wait_until("messages", lambda: min(whole.admin.end_offsets(["orders"]).values()) > 100)
    whole.runtime.stop("kafka-2")
    for place in whole.runtime.damage_files(
        "kafka-2", "log", "flip", places=5, size_bytes=1, seed=7
    ):
        found = whole.runtime.read_data("kafka-2", place.file)
        assert found is not None
        assert found[place.offset : place.offset + 1].hex() == place.after != place.before
    whole.runtime.start("kafka-2")
    whole.admin.wait_ready(["orders"], timeout_s=UP_S, run_tag=1)

    step = {
        "fault": "file-damage",
        "files": "metadata",
        "damage": "cut",
        "places": 100,
        "size": "1MB",
    }
    run = RunDir(tmp_path / "run").create()
    effect = fire(whole, run, [ORDERS], {"target": "kafka-2", "for": 0.1, **step})["effect"]
    assert effect["effective"], effect
    assert effect["details"]["wiped"] == {"kafka-2": "ended"}
    whole.admin.wait_ready(["orders"], timeout_s=UP_S, run_tag=1)
    rows = whole.admin.read_replicas(["orders"], timeout_s=60)
    assert {(row.in_sync, row.is_read, row.odd) for row in rows} == {(True, True, ())}, (
        "all came again"
    )


def test_a_node_cut_off_from_its_peers_is_fenced_and_clients_still_reach_it(
    whole: KafkaCluster, tmp_path: Path
) -> None:
    run = RunDir(tmp_path / "run").create()
    detours = attach_cluster(whole.runtime.folder).runtime.detours
    wires = [wire for wire in detours.wires() if "kafka-2" in (wire.source, wire.target)]
    row = faults.inject_once("partition", {"target": "kafka-2", "link": "peers"}, whole, run, None)
    try:
        assert row.effective, row
        assert "no answer on 4 of 4 wires" in row.evidence
        wait_until("kafka-2 fenced", lambda: "kafka-2" not in whole.admin.registered())
        assert whole.admin.answers("kafka-2")
        whole.runtime.kill("kafka-2")
        whole.runtime.start("kafka-2")  # a new network, where it is cut off, too
        assert set(measure(KAFKA.request, wires, connect=detours.connect).values()) == {None}
    finally:
        assert faults.heal_from_ledger(whole, run) == []
    whole.admin.wait_ready(["orders"], timeout_s=UP_S, run_tag=1)
    assert all(len(nodes) == 3 for nodes in whole.admin.isr("orders").values())
    assert None not in measure(KAFKA.request, wires, timeout_s=5, connect=detours.connect).values()


@pytest.mark.extended
def test_a_frozen_node_can_be_killed_and_stopped(whole: KafkaCluster) -> None:
    whole.runtime.pause("kafka-1")
    whole.runtime.kill("kafka-1")
    assert (whole.runtime.is_running("kafka-1"), whole.runtime.is_paused("kafka-1")) == (
        False,
        False,
    )
    whole.runtime.start("kafka-1")
    whole.admin.wait_ready(["orders"], timeout_s=UP_S, run_tag=1)
    whole.runtime.pause("kafka-1")
    whole.runtime.stop("kafka-1")
    assert not whole.runtime.is_running("kafka-1")


@pytest.mark.extended
def test_another_process_takes_a_kept_cluster_over(whole: KafkaCluster) -> None:
    """`inject` and `down` are such processes."""
    attached = attach_cluster(whole.runtime.folder)
    assert attached.runtime.name == "docker"
    assert all(attached.runtime.is_running(node.name) for node in attached.runtime.nodes)
    assert attached.admin.registered() == {"kafka-1", "kafka-2", "kafka-3"}
    attached.admin.close()


#: Opens a cluster in a process of its own, says so, and waits to be killed.
HARNESS = """
import sys, time
from pathlib import Path
from harness.clusters import open_cluster
cluster = open_cluster("kafka", run_id=sys.argv[1], folder=Path(sys.argv[2]), runtime="docker")
print("opened", flush=True)
cluster.up(timeout_s=180)
"""


@pytest.mark.extended
def test_a_harness_killed_while_compose_works_leaves_nothing_after_clean(
    kafka_image: Any, engine: Any, run_id: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", HARNESS, run_id, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process, ORPHANS:
        wait_until("the first container", lambda: bool(docker_engine.containers(engine, run_id)))
        assert run_id not in {one.run_id for one in leftovers.find()}, "its harness lives"
        process.send_signal(signal.SIGKILL)
        process.wait()
        (mine,) = [one for one in leftovers.find() if one.run_id == run_id]
        assert "containers" in mine.in_engine
        assert "containers (" in mine.describe()
        started = time.monotonic()
        leftovers.remove([mine])
        assert time.monotonic() - started < CLEAN_S
    assert docker_engine.leftovers(engine, run_id) == {}
    assert leftovers.find(run_id) == []
    assert run_id not in {claim.run_id for claim in addresses.claims()}
    time.sleep(1.0)  # a plugin that lives would go on creating
    assert docker_engine.leftovers(engine, run_id) == {}


def test_a_node_that_never_becomes_healthy_ends_the_start_with_its_last_lines(
    kafka_image: Any, engine: Any, run_id: str, tmp_path: Path
) -> None:
    cluster = open_cluster(
        "kafka",
        run_id=run_id,
        folder=tmp_path,
        runtime="docker",
        broker_config={"num.io.threads": "many"},
    )
    try:
        with pytest.raises(
            EnvironmentNotReady, match=r"(?s)kafka-\d died .*num.io.threads"
        ) as caught:
            cluster.up(timeout_s=UP_S)
        assert "cluster.config" in caught.value.hint
        # the first of three; the others may not have begun
        dead = str(caught.value).partition(" ")[0]
        assert "num.io.threads" in (tmp_path / dead / "logs" / "stdout.log").read_text()
    finally:
        cluster.down()
    assert docker_engine.leftovers(engine, run_id) == {}


def test_a_port_that_is_taken_is_named(kafka_image: Any, run_id: str, tmp_path: Path) -> None:
    cluster = open_cluster("kafka", run_id=run_id, folder=tmp_path, runtime="docker")
    try:
        with socket.socket() as other:  # somebody was quicker, after the addresses were looked at
            other.bind((cluster.runtime.nodes[1].client.host, cluster.runtime.nodes[1].client.port))
            other.listen()
            with pytest.raises(EnvironmentNotReady, match=r"in use|allocated") as caught:
                cluster.up(timeout_s=UP_S)
        assert "`ss -ltnp`" in caught.value.hint
    finally:
        cluster.down()


@pytest.fixture
def run(kafka_image: Any, tmp_path: Path) -> Iterator[LiveRun]:
    found = LiveRun(tmp_path, scenario=SMOKE, runtime="docker")
    yield found
    found.close()


def test_a_run_in_containers_is_judged_as_any_other(run: LiveRun, engine: Any) -> None:
    assert run.wait() == 0, run.errors()
    document = run.document()
    assert document["verdict"] == "pass"
    assert document["environment"]["runtime"] == "docker (asked for)"
    faults = [json.loads(line) for line in (run.root / "faults.jsonl").read_text().splitlines()]
    assert [f["effective"] for f in faults if f.get("event") == "effect"] != []
    assert (run.root / "cluster" / "kafka-1" / "logs" / "stdout.log").stat().st_size > 0
    assert docker_engine.leftovers(engine, run.root.name) == {}


def test_clean_removes_a_run_whose_harness_was_killed_with_a_node_frozen(
    run: LiveRun, engine: Any
) -> None:
    run.wait_for_fault()
    with ORPHANS:
        run.signal(signal.SIGKILL)
        run.process.wait()
        assert len(docker_engine.containers(engine, run.root.name)) == 3
        done = run.command("clean")
    assert done.code == 0, done.err
    assert f"removed  {run.root.name}" in done.out
    assert docker_engine.leftovers(engine, run.root.name) == {}
    assert run.processes() == []


def test_management_in_a_container_is_for_the_harness_alone(
    image: Callable[..., Any], tmp_path: Path, engine: Any
) -> None:
    """Settings of a broker can name a variable of its environment: the password is not there."""
    image("qpid")
    folder = tmp_path / "cluster"
    cluster = open_cluster(
        "qpid", run_id=new_run_id(), folder=folder, topology="memory", runtime="docker"
    )
    try:
        cluster.up(timeout_s=UP_S)
        password = cluster.runtime.management.secret_file.read_text()
        (container,) = docker_engine.containers(engine, cluster.runtime.run_id)
        code, environment = container.exec_run(["cat", "/proc/1/environ"])
        assert (code, password.encode() in environment) == (0, False)
        assert not any(
            password in path.read_text(errors="replace")
            for path in folder.rglob("*")
            if path.is_file()
        )
        (node,) = cluster.runtime.nodes
        guest = urllib3.make_headers(basic_auth="guest:guest")
        assert (
            urllib3.request("GET", f"http://{node.admin}/api/latest/broker", headers=guest).status
            == 401
        )
        cluster.runtime.stop(node.name)
        cluster.runtime.start(node.name)
        attached = attach_cluster(folder)
        attached.admin.wait_ready([], timeout_s=UP_S, run_tag=1)
        attached.admin.close()
    finally:
        cluster.down()
    assert docker_engine.leftovers(engine, cluster.runtime.run_id) == {}


def test_a_stranger_does_not_join_servers_in_containers(
    image: Callable[..., Any], tmp_path: Path, engine: Any
) -> None:
    """Settings name variables of the container, whose values no file holds."""
    image("nats")
    folder = tmp_path / "cluster"
    cluster = open_cluster("nats", run_id=new_run_id(), folder=folder, runtime="docker")
    try:
        cluster.up(timeout_s=UP_S)
        cluster.runtime.stop("nats-2")
        cluster.runtime.start("nats-2")
        cluster.admin.wait_ready([], timeout_s=UP_S, run_tag=1)
        stranger = 'CONNECT {"verbose":false,"cluster":"brokerstorm"}\\r\\nPING\\r\\n'
        container = next(one for one in docker_engine.containers(engine, cluster.runtime.run_id))
        ask = f"printf '{stranger}' | nc -w 5 localhost 16222"
        _, answer = container.exec_run(["sh", "-c", ask])
        assert b"Authorization Violation" in answer, answer
        password = cluster.runtime.management.secret_file.read_text()
        files = [path for path in folder.rglob("*") if path.is_file()]
        assert [path for path in files if password in path.read_text(errors="replace")] == []
    finally:
        cluster.down()


@pytest.mark.extended
def test_nodes_of_rabbitmq_in_containers_share_a_cookie_that_no_file_holds(
    image: Callable[..., Any], tmp_path: Path, engine: Any
) -> None:
    """A node that was killed joins the others again, with a cookie from its environment."""
    image("rabbitmq")
    folder = tmp_path / "cluster"
    cluster = open_cluster("rabbitmq", run_id=new_run_id(), folder=folder, runtime="docker")
    try:
        cluster.up(timeout_s=UP_S)
        cluster.runtime.kill("rabbitmq-2")
        assert cluster.admin.registered() == {"rabbitmq-1", "rabbitmq-3"}
        cluster.runtime.start("rabbitmq-2")
        cluster.admin.wait_ready([], timeout_s=UP_S, run_tag=1)
        password = cluster.runtime.management.secret_file.read_text()
        container = docker_engine.containers(engine, cluster.runtime.run_id)[0]
        _, seen = container.exec_run(["cat", "/proc/1/environ"])
        assert (b"BINDIR=" in seen, password.encode() in seen) == (True, False)
        files = [path for path in folder.rglob("*") if path.is_file()]
        assert [path for path in files if password in path.read_text(errors="replace")] == []
    finally:
        cluster.down()


@pytest.mark.extended
def test_administration_of_pulsar_in_containers_is_for_the_harness_alone(
    image: Callable[..., Any], tmp_path: Path, engine: Any
) -> None:
    """Each broker makes the files with key and token at its start, in memory."""
    image("pulsar")
    folder = tmp_path / "cluster"
    cluster = open_cluster("pulsar", run_id=new_run_id(), folder=folder, runtime="docker")
    try:
        cluster.up(timeout_s=UP_S)
        node = cluster.runtime.nodes[-1]
        answer = urllib3.request("PUT", f"http://{node.admin}/admin/v2/tenants/stranger", json={})
        assert answer.status == 401
        assert_a_stranger_is_refused(cluster)
        secrets = (cluster.runtime.management.secret_file, cluster.runtime.management.token_file)
        found = [path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file()]
        assert not [secret for secret in secrets for text in found if secret.read_text() in text]
    finally:
        cluster.down()
