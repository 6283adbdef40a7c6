"""Network faults on clusters in containers: before the published ports, and between the nodes."""

from __future__ import annotations

import json
import logging
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from faults.engine.ledger import Ledger
from faults.kit.round_trips import measure
from harness.clusters import leftovers
from harness.clusters.cluster import BrokerCluster
from harness.clusters.docker import engine as docker_engine
from harness.clusters.docker import namespaces
from harness.clusters.docker.proxy import SERVICE
from harness.clusters.layout import addresses
from harness.clusters.nodes.processes import run_processes
from harness.protocols.cluster import TopicSettings
from harness.protocols.network import CLIENT_DETOURS, PEER_DETOURS
from harness.rundir import RunDir, read_jsonl
from tests.live.cluster_rig import (
    UP_S,
    injector_of,
    make_whole,
    new_run_id,
    sending,
    up,
    wait_until,
)
from tests.live.run_rig import brokerstorm
from tests.machine import ORPHANS

pytestmark = [
    pytest.mark.docker,
    pytest.mark.usefixtures("plugin"),
    pytest.mark.skipif(bool(namespaces.why_no_addresses()), reason=namespaces.why_no_addresses()),
]

log = logging.getLogger(__name__)  # shown with -rP --log-level=INFO
ROOT = Path(__file__).resolve().parents[2]
NEEDS = frozenset({CLIENT_DETOURS, PEER_DETOURS})
CLEAN_S = 60.0  # 5 s on a machine of its own
ORDERS = {
    "kafka": TopicSettings("orders", 6, 3, {"min.insync.replicas": "2"}),
    "pulsar": TopicSettings("orders", 1, 1),
    "qpid": TopicSettings("orders", 1, 1),
    "rabbitmq": TopicSettings("orders", 1, 3, {"x-queue-type": "quorum"}),
}


@pytest.fixture(scope="module")
def kafka(
    image: Callable[..., Any], engine: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerCluster[Any]]:
    image("kafka")
    folder = tmp_path_factory.mktemp("network")
    with up("kafka", folder, ORDERS["kafka"], runtime="docker", needs=NEEDS) as found:
        run_id = found.runtime.run_id
        yield found
    assert docker_engine.leftovers(engine, run_id) == {}
    assert list(run_processes(run_id)) == []
    assert rules_of(run_id) == []


def rules_of(run_id: str) -> list[str]:
    """Rules of iptables on this machine that are of a run."""
    done = subprocess.run(["iptables", "-S"], capture_output=True, text=True, check=False)
    return [line for line in done.stdout.splitlines() if run_id in line]


def is_whole(cluster: BrokerCluster[Any]) -> bool:
    """Whether requests on every wire that can be measured are answered."""
    detours = cluster.runtime.detours
    found = measure(cluster.request, detours.wires(), timeout_s=5, connect=detours.connect)
    return bool(found) and None not in found.values()


def strike(
    cluster: BrokerCluster[Any], folder: Path, step: dict[str, Any]
) -> dict[str, dict[str, Any]]:
    """The rows of a fault that is ended when its effect was seen; the last of each event."""
    run = RunDir(folder).create()
    injector = injector_of(cluster, run, [ORDERS[cluster.system]], {**step, "at": 0})
    injector.start(time.monotonic_ns())
    wait_until("an effect", lambda: any(row["event"] == "effect" for row in read_jsonl(run.faults)))
    assert injector.heal_all(UP_S) == []
    rows = {row["event"]: row for row in read_jsonl(run.faults)}
    log.info("%s", rows["effect"]["evidence"])
    assert rows["effect"]["effective"], rows
    assert rows["healed"]["ok"], rows
    assert Ledger(run).entries() == []
    assert is_whole(cluster)
    return rows


def callers(pid: int, ports: set[int]) -> set[str]:
    """Who has connections to these ports in the namespace of a process."""
    found = set()
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
            _, local, remote, state, *_ = line.split()
            if state == "01" and int(local.rpartition(":")[2], 16) in ports:
                word = remote.partition(":")[0][-8:]
                found.add(socket.inet_ntoa(struct.pack("=I", int(word, 16))))
    return found


def test_nodes_reach_each_other_through_the_proxy_only_and_are_late_when_it_is(
    kafka: BrokerCluster[Any], engine: Any, tmp_path: Path
) -> None:
    names = [
        docker_engine.service_of(one)
        for one in docker_engine.containers(engine, kafka.runtime.run_id)
    ]
    assert sorted(names) == ["kafka-1", "kafka-2", "kafka-3", SERVICE]
    ports = {kafka.runtime.spec.ports[name] for name in ("peer", "controller")}
    met: set[str] = set()
    for node in kafka.runtime.nodes:
        at = kafka.runtime.find(node.name)
        met |= callers(at.pid, ports) - {at.address, "127.0.0.1"}
    assert len(met) == 1, met
    assert met.isdisjoint(kafka.runtime.find(node.name).address for node in kafka.runtime.nodes)
    step = {
        "fault": "latency",
        "target": "kafka-2",
        "link": "peers",
        "delay": "300ms",
        "delay_jitter": "50ms",
    }
    rows = strike(kafka, tmp_path / "run", step)
    assert "before (kafka-" in rows["effect"]["evidence"], rows


FAULTS = [
    {"fault": "latency", "target": "kafka-1", "delay": "300ms"},
    {
        "fault": "latency",
        "target": "kafka-3",
        "link": "all",
        "way": "out",
        "delay": "250ms",
    },
    {"fault": "bandwidth", "target": "kafka-1", "link": "peers", "rate": 200},
    {"fault": "bandwidth", "target": "kafka-2", "rate": 200},
    {"fault": "blackhole", "target": "kafka-2", "link": "peers"},
    {"fault": "blackhole", "target": "all"},
    {"fault": "connection-reset", "target": "kafka-3"},
    {"fault": "connection-reset", "target": "kafka-3", "link": "peers"},
    {"fault": "partition", "target": "kafka-1", "link": "peers", "way": "in"},
    {"fault": "partition", "shape": "ring", "link": "peers"},
    {"fault": "packet-loss", "target": "leader-of:orders", "share": 0.3},
    {"fault": "name-change", "target": "kafka-2"},
]


@pytest.mark.slow
@pytest.mark.parametrize("step", FAULTS, ids=lambda step: "-".join(str(v) for v in step.values()))
def test_kafka(
    kafka: BrokerCluster[Any],
    tmp_path: Path,
    step: dict[str, Any],
) -> None:
    make_whole(kafka, "orders")
    with sending(kafka, ORDERS["kafka"]):
        strike(kafka, tmp_path / "run", step)


@pytest.mark.slow
def test_nodes_that_swap_their_addresses_are_found(kafka: BrokerCluster[Any]) -> None:
    """An engine gives the first free address: two nodes that are started in another order swap
    theirs."""
    before = {node: kafka.runtime.find(node).address for node in ("kafka-2", "kafka-3")}
    for node in ("kafka-2", "kafka-3"):
        kafka.runtime.kill(node)
    first, second = sorted(before, key=before.__getitem__)
    kafka.runtime.start(second)
    kafka.runtime.start(first)
    assert {kafka.runtime.find(node).address for node in before} == set(before.values())
    make_whole(kafka, "orders")
    wait_until("whole", lambda: is_whole(kafka))


OTHERS = {
    ("qpid", "group"): [
        {"fault": "latency", "target": "qpid-2", "link": "all", "delay": "300ms"},
        {"fault": "partition", "target": "leader-of:orders"},
        {"fault": "partition", "target": "leader-of:orders", "link": "peers"},
    ],
    ("rabbitmq", ""): [
        {"fault": "latency", "target": "rabbitmq-2", "link": "all", "delay": "300ms"},
        {"fault": "partition", "target": "leader-of:orders", "link": "peers"},
        {"fault": "partition", "target": "leader-of:orders"},
    ],
    ("pulsar", "small"): [
        {"fault": "latency", "target": "bookie-1", "link": "peers", "delay": "300ms"},
        {"fault": "partition", "target": "broker-1"},
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize(("system", "topology"), OTHERS)
def test_other_systems(
    image: Callable[..., Any],
    system: str,
    topology: str,
    tmp_path: Path,
) -> None:
    image(system)
    topic = ORDERS[system]
    with up(system, tmp_path, topic, runtime="docker", needs=NEEDS, topology=topology) as cluster:
        for number, step in enumerate(OTHERS[system, topology]):
            strike(cluster, tmp_path / f"run-{number}", step)
            cluster.admin.wait_ready(["orders"], timeout_s=60, run_tag=1)


#: Starts a cluster, applies every network fault there is, says so and is killed.
HARNESS = """
import os, sys, faults
from pathlib import Path
from harness.clusters import open_cluster
from harness.protocols.cluster import TopicSettings
from harness.rundir import RunDir, read_jsonl
from harness.protocols.network import CLIENT_DETOURS, PEER_DETOURS
cluster = open_cluster("kafka", run_id=sys.argv[1], folder=Path(sys.argv[2], "cluster"), runtime="docker",
                       needs=frozenset({CLIENT_DETOURS, PEER_DETOURS}))
cluster.up(timeout_s=180)
for kind, params in (
    ("blackhole", {"target": "kafka-2", "link": "all"}),
    ("packet-loss", {"target": "kafka-1", "share": 0.5}),
):
    faults.inject_once(kind, params, cluster, RunDir(Path(sys.argv[2])), None)
os.kill(os.getpid(), 9)
"""


@pytest.mark.slow
def test_a_harness_killed_amid_network_faults_leaves_nothing_after_clean(
    image: Callable[..., Any], engine: Any, tmp_path: Path
) -> None:
    image("kafka")
    run_id = new_run_id()
    try:
        command = [sys.executable, "-c", HARNESS, run_id, str(tmp_path)]
        with ORPHANS:
            done = subprocess.run(
                command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False
            )
            assert done.returncode == -signal.SIGKILL, done.stderr
            assert len(docker_engine.containers(engine, run_id)) == 4
            assert len(list(run_processes(run_id))) == 1  # the proxy before clients
            assert len(rules_of(run_id)) == 2
            started = time.monotonic()
            cleaned = brokerstorm("clean")
        assert time.monotonic() - started < CLEAN_S
        assert cleaned.code == 0, cleaned.err
        assert f"removed  {run_id}" in cleaned.out
    finally:
        leftovers.remove(leftovers.find(run_id))
    assert docker_engine.leftovers(engine, run_id) == {}
    assert list(run_processes(run_id)) == []
    assert rules_of(run_id) == []
    assert run_id not in {claim.run_id for claim in addresses.claims()}


#: Late answers: first for consumers only, then for producers only.
LINKS = """
name: links
topics: {orders: {partitions: 3, replication: 3}}
load:
  rate: 300
  duration: 14s
  producers: {shop: {}}
  consumers: {billing: {}}
faults:
  - {fault: latency, target: kafka-1, link: consumers, way: out, delay: 500ms, at: 3s, for: 3s}
  - {fault: latency, target: kafka-1, link: producers, way: out, delay: 500ms, at: 9s, for: 3s}
"""


@pytest.mark.slow
def test_a_fault_on_one_client_role_is_proved_on_a_connection_of_this_role(
    image: Callable[..., Any], tmp_path: Path
) -> None:
    image("kafka")
    (tmp_path / "links.yaml").write_text(LINKS)
    runs = tmp_path / "runs"
    command = [
        sys.executable,
        "cli.py",
        "--run-dir",
        str(runs),
        "run",
        str(tmp_path / "links.yaml"),
    ]
    command += ["--runtime", "docker", "--seed", "1"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (journal,) = runs.glob("*-links/faults.jsonl")
    rows = [json.loads(line) for line in journal.read_text().splitlines()]
    evidence = [row["evidence"] for row in rows if row["event"] == "effect"]
    assert ["(consumers -> kafka-1)" in each for each in evidence] == [True, False], evidence
    assert ["(producers -> kafka-1)" in each for each in evidence] == [False, True], evidence
