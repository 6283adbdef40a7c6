"""NATS as processes: streams that are refused in one line, leaders that move, a stream that is
gone, clusters of others, and TLS."""

from __future__ import annotations

import json
import random
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from analysis.kernels.replicas import stretches
from harness.admin.failover import AlreadyThere
from harness.clusters.external.cluster import identified
from harness.clusters.nodes.file_damage import damage_files
from harness.connections.file import read_connection
from harness.errors import UsageError
from harness.protocols.cluster import (
    Endpoint,
    HasBacklogs,
    HasHealthProbe,
    MovesConsumerLeaders,
    MovesLeaders,
    ReadsReplicas,
    TopicSettings,
)
from harness.rundir import RunDir
from harness.systems.nats.assembly import NatsCluster
from tests.live.cluster_rig import RUN_TAG, UP_S, fire, up, wait_until

pytestmark = pytest.mark.live

TOPICS = [TopicSettings("orders", 2, 3)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsCluster]:
    with up("nats", tmp_path_factory.mktemp("nats"), *TOPICS) as found:
        yield found


def test_it_can_do_what_faults_ask_of_it(cluster: NatsCluster) -> None:
    for ability in (MovesLeaders, MovesConsumerLeaders, HasBacklogs, HasHealthProbe, ReadsReplicas):
        assert isinstance(cluster.admin, ability)
    assert cluster.admin.registered() == {"nats-1", "nats-2", "nats-3"}
    assert cluster.admin.controller() in cluster.admin.registered()
    assert cluster.admin.end_offsets(["orders"]) == {"orders-0": 2, "orders-1": 2}, (
        "a probe in each"
    )


def test_streams_that_cannot_be_made(cluster: NatsCluster) -> None:
    admin = cluster.admin
    with pytest.raises(AlreadyThere, match="orders-0 exists already"):
        admin.create_topics(TOPICS)
    with pytest.raises(AlreadyThere) as other:
        admin.create_topics([TopicSettings("orders", 2, 1)])
    assert "other settings" in other.value.hint
    held = {"name": "holder", "subjects": ["clicks-0"], "num_replicas": 1}
    admin._api.ask("STREAM.CREATE.holder", held)
    with pytest.raises(AlreadyThere) as subject:
        admin.create_topics([TopicSettings("clicks", 1, 3)])
    assert "another stream holds this subject" in subject.value.hint
    admin._drop("holder")
    with pytest.raises(UsageError, match="no_such"):
        admin.create_topics([TopicSettings("clicks", 1, 3, {"no_such": "1"})])
    assert admin.topics() == ["orders"], "nothing is left of what was refused"


def test_leaders_of_streams_and_of_consumers_move(cluster: NatsCluster, tmp_path: Path) -> None:
    admin = cluster.admin
    config = {"durable_name": "billing", "ack_policy": "explicit"}
    for partition in (0, 1):
        name = f"orders-{partition}"
        admin._api.ask(f"CONSUMER.CREATE.{name}.billing", {"stream_name": name, "config": config})
    assert admin.backlogs(["orders"]) == {"orders-0": {"billing": 1}, "orders-1": {"billing": 1}}
    steps: list[dict[str, Any]] = [
        {"fault": "leader-move", "topic": "orders"},
        {"fault": "consumer-leader-move", "topic": "orders", "group": "billing"},
    ]
    for step in steps:
        effect = fire(cluster, RunDir(tmp_path / step["fault"]).create(), TOPICS, step)["effect"]
        assert effect["effective"], effect
    admin.wait_ready(["orders"], timeout_s=UP_S, run_tag=RUN_TAG)


@pytest.mark.extended
def test_a_killed_and_a_frozen_server_are_seen(cluster: NatsCluster, tmp_path: Path) -> None:
    for kind in ("kill", "pause"):
        step = {"fault": kind, "target": "leader-of:orders-0", "for": "3s"}
        effect = fire(cluster, RunDir(tmp_path / kind).create(), TOPICS, step)["effect"]
        assert effect["effective"], effect
    cluster.admin.wait_ready(["orders"], timeout_s=UP_S, run_tag=RUN_TAG)


@pytest.mark.extended
def test_a_copy_with_damaged_files_lacks_messages_and_is_found(cluster: NatsCluster) -> None:
    """What a server cannot read it drops, says that it is healthy, and is not sent it again.

    Unless its Raft log is damaged, too, and it is sent everything: so only files of the streams
    are.
    """
    # Large: a flipped bit of a sequence number makes the server want all memory, which is another
    # defect.
    assert cluster.admin._api.publish(["orders-0", "orders-1"] * 50, bytes(20_000)) == ""
    assert wrong_copies(cluster) == set()
    (node,) = (node for node in cluster.runtime.nodes if node.name == "nats-1")
    cluster.runtime.stop(node.name)
    streams = {"log": ("*/streams/orders-*.blk",)}
    rng = random.Random(1)
    places = damage_files(
        node.folder / "data", streams, "log", "flip", places=20, size_bytes=1, rng=rng
    )
    assert len(places) == 20
    cluster.runtime.start(node.name)
    cluster.admin.wait_ready(["orders"], timeout_s=UP_S, run_tag=RUN_TAG)
    assert wrong_copies(cluster) == {("nats-1", "missing")}


def test_a_stranger_does_not_join_as_a_server(cluster: NatsCluster) -> None:
    """Whoever speaks the protocol of routes as a server is the system account."""
    for node in cluster.runtime.nodes:
        answer = as_a_server(node.peer)
        assert b"Authorization Violation" in answer, (node.name, answer)
        assert b"PONG" not in answer, (node.name, answer)
    # The servers know each other, also one that was down.
    cluster.runtime.kill("nats-2")
    cluster.runtime.start("nats-2")
    cluster.admin.wait_ready(["orders"], timeout_s=UP_S, run_tag=RUN_TAG)
    password = cluster.runtime.management.secret_file.read_bytes()
    files = [path for path in cluster.runtime.folder.rglob("*") if path.is_file()]
    assert [path for path in files if password in content_of(path)] == [], (
        "no settings and no log hold it"
    )


def content_of(path: Path) -> bytes:
    """What a file of a running server holds; nothing if the server has removed it meanwhile."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def as_a_server(peer: Endpoint) -> bytes:
    """What the peer port answers a program that presents itself as a server of the cluster."""
    connect = {"verbose": False, "name": "STRANGER", "cluster": "brokerstorm"}
    info = {
        "server_id": "STRANGER",
        "server_name": "stranger",
        "cluster": "brokerstorm",
        "host": "127.0.0.1",
    }
    said = f"CONNECT {json.dumps(connect)}\r\nINFO {json.dumps(info)}\r\nPING\r\n"
    with socket.create_connection((peer.host, peer.port), timeout=10) as link:
        link.sendall(said.encode())
        found = b""
        while b"PONG" not in found and (more := link.recv(4096)):
            found += more
        return found


def wrong_copies(cluster: NatsCluster) -> set[tuple[str, str]]:
    """Server and what is wrong with what it has; every copy is in sync and was read."""
    rows = cluster.admin.read_replicas(["orders"], timeout_s=60)
    assert len(rows) == 6
    assert [row for row in rows if not (row.in_sync and row.is_read)] == []
    return {(one.replica.node, one.split) for one in stretches(rows)}


@pytest.mark.extended
def test_a_server_that_wants_all_memory_ends(
    cluster: NatsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bit of a sequence number is another: all up to that one is noted as deleted, one by one,
    before a checksum is looked at. Its limit ends it, and not the machine; with a smaller one
    within seconds."""
    services = cluster.runtime.layout.services
    (node,) = (node for node in cluster.runtime.nodes if node.name == "nats-2")
    assert services[node.name].memory_max_mb == 4000
    assert cluster.admin._api.publish(["orders-0"] * 5, bytes(100)) == ""
    wrong_copies(cluster)  # each server has them now
    cluster.runtime.stop(node.name)
    (block,) = node.folder.glob("data/**/streams/orders-0/msgs/*.blk")
    whole = block.read_bytes()
    second = int.from_bytes(whole[:4], "little") & 0x7FFFFFFF  # the highest bit: it has headers
    damaged = bytearray(whole)
    damaged[second + 10] ^= 1
    try:
        block.write_bytes(damaged)
        little = services[node.name].model_copy(update={"memory_max_mb": 500})
        monkeypatch.setitem(services, node.name, little)
        cluster.runtime.start(node.name)
        wait_until("it ended", lambda: not cluster.runtime.is_running(node.name))
        said = cluster.runtime.log_tail(node.name)
        assert re.search(r"fatal error: .*(cannot allocate|out of) memory", said), said
        stack = (node.folder / "logs" / "stderr.log").read_text().rpartition("fatal error: ")[2]
        assert "indexCacheBuf" in stack
    finally:
        cluster.runtime.kill(node.name)
        block.write_bytes(whole)
        monkeypatch.undo()
        cluster.runtime.start(node.name)
        cluster.admin.wait_ready(["orders"], timeout_s=UP_S, run_tag=RUN_TAG)


def test_a_stream_that_is_gone_is_not_waited_for(cluster: NatsCluster) -> None:
    admin = cluster.admin
    admin.create_topics([TopicSettings("lost", 2, 3)])
    admin.wait_ready(["lost"], timeout_s=UP_S, run_tag=RUN_TAG)
    admin._drop("lost-1")  # as a bug of the servers would
    admin.wait_ready(["lost"], timeout_s=UP_S, run_tag=RUN_TAG)
    assert list(admin.gone) == ["lost-1"]
    assert admin.end_offsets(["lost"]).keys() == {"lost-0"}
    assert admin.backlogs(["lost"])["lost-1"] == {"": 0}
    admin.delete_topics(["lost"])
    wait_until("the streams are deleted", lambda: "lost" not in admin.topics())


def test_a_secure_cluster_and_one_of_others(tmp_path: Path) -> None:
    with up("nats", tmp_path, *TOPICS, secure=True) as found:
        assert found.connection_file is not None
        theirs = identified(read_connection(found.connection_file))
        needs = {need.name: need for need in theirs.examine()}
        assert all(need.ok for need in needs.values() if need.needed), needs
        assert {"cluster", "streams", "deletion"} <= needs.keys()
        assert found.admin.topics() == ["orders"]
