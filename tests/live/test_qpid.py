"""Qpid as processes: one broker through a whole run; a group whose mastership moves and whose
master dies."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
import urllib3

from harness.clusters.cluster import attach_cluster
from harness.errors import Exit, UsageError
from harness.protocols.cluster import (
    HasBacklogs,
    HasConnections,
    HasHealthProbe,
    HasMastership,
    Node,
    TopicSettings,
)
from harness.rundir import RunDir
from harness.systems.qpid.assembly import QpidCluster
from tests.live.cluster_rig import UP_S, fire, up
from tests.live.printed import follow_summary
from tests.live.run_rig import LiveRun

pytestmark = pytest.mark.live

TOPICS = [TopicSettings("orders", 1, 1), TopicSettings("clicks", 1, 1)]
NAMES = [topic.name for topic in TOPICS]

SCENARIO = """
name: rig
system: qpid
topics: {orders: {}, clicks: {}}
load:
  rate: 200
  duration: 6s
  warm_up: 1s
  producers:
    shop: {topics: [orders], options: {transacted: 10}}
    web: {client: pika, topics: [clicks], options: {transacted: 10}}
  consumers:
    billing:
      topics: [orders]
      group: billing
      settle: transacted
      per_transaction: 5
      rollback_every: 4
      options: {qpid.amqp.version: 0-9-1}
    stats: {client: pika, topics: [clicks], group: stats, settle: transacted, per_transaction: 5}
faults:
  - {fault: connection-close, target: "client:consumer", at: 2s}
limits:
  drain: 90s
require:
  rate_ratio: 0  # the machine that runs the tests may be busy
"""


@pytest.fixture
def run(tmp_path: Path, spark: object) -> Iterator[LiveRun]:
    with LiveRun(tmp_path, scenario=SCENARIO, inside=True) as live:
        yield live


def test_a_run_from_cluster_to_verdict(run: LiveRun) -> None:
    code = run.wait()
    document = run.document()
    sends = document["sends"]
    assert (code, document["verdict"], document["reasons"]) == (Exit.PASS, "pass", []), run.errors()
    # what a slow machine did not offer is no attempt
    assert 0 < sends["attempted"] == sends["ok"] <= 7 * 200
    assert document["rows"]["deliveries"] >= sends["ok"]
    (closed,) = document["faults"]
    assert (closed["kind"], closed["effective"], closed["healed"]) == (
        "connection-close",
        True,
        True,
    )
    assert run.processes() == []
    follow_summary(run.root)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[QpidCluster]:
    with up("qpid", tmp_path, topology="group") as found:
        yield found


def inject(cluster: QpidCluster, folder: Path, step: dict[str, Any]) -> dict[str, Any]:
    return fire(cluster, RunDir(folder).create(), TOPICS, step)["effect"]


@pytest.mark.extended
def test_a_group_serves_from_another_node_when_its_master_goes(
    group: QpidCluster, tmp_path: Path
) -> None:
    admin = group.admin
    for ability in (HasMastership, HasBacklogs, HasConnections, HasHealthProbe):
        assert isinstance(admin, ability)
    admin.create_topics(TOPICS)
    with pytest.raises(UsageError, match="orders-0 exists"):
        admin.create_topics(TOPICS[:1])
    admin.wait_ready(NAMES, timeout_s=UP_S, run_tag=1)
    assert admin.backlogs(NAMES) == {"orders-0": {"": 0}, "clicks-0": {"": 0}}

    first = admin.master()
    effect = inject(group, tmp_path / "move", {"fault": "mastership-move"})
    assert effect["effective"], effect
    second = admin.master()
    assert second not in (None, first)

    # The master of before may still be joining as a replica: until it has, another kill is not for
    # now.
    kill = {"fault": "kill", "target": "controller", "for": "2s", "wait": 60}
    effect = inject(group, tmp_path / "kill", kill)
    assert effect["effective"], effect
    admin.wait_ready(NAMES, timeout_s=UP_S, run_tag=1)  # the queues are there on whoever serves now
    assert admin.master() is not None
    assert admin.registered() == {"qpid-1", "qpid-2", "qpid-3"}
    admin.delete_topics(NAMES)
    assert admin.topics() == []


def test_management_is_for_the_harness_alone(tmp_path: Path) -> None:
    """Every account of the machine is `guest`; the management of a broker writes files as our
    user."""
    with up("qpid", tmp_path, TOPICS[0], topology="memory") as cluster:
        node, stolen = cluster.runtime.nodes[0], tmp_path / "stolen"
        provider = {"type": "PlainPasswordFile", "path": str(stolen)}
        answer = urllib3.request(
            "PUT",
            f"http://{node.admin}/api/latest/authenticationprovider/stranger",
            body=json.dumps(provider),
            headers={
                "Content-Type": "application/json",
                **urllib3.make_headers(basic_auth="guest:guest"),
            },
        )
        assert (answer.status, stolen.exists()) == (401, False)
        with pytest.raises(
            pika.exceptions.ProbableAccessDeniedError, match=r"PERFORM_ACTION\(manage\)"
        ):
            as_guest(node, "$management")
        assert ask_amqp_management(node, "org.apache.qpid.VirtualHostLogger") == 403
        # A later command is the harness, too.
        assert attach_cluster(cluster.runtime.folder).admin.topics() == ["orders"]


def as_guest(node: Node, virtual_host: str) -> pika.BlockingConnection:
    """A connection with the password that everybody knows."""
    proof = pika.PlainCredentials("guest", "guest")
    return pika.BlockingConnection(
        pika.ConnectionParameters(
            host=node.client.host,
            port=node.client.port,
            virtual_host=virtual_host,
            credentials=proof,
        )
    )


def ask_amqp_management(node: Node, kind: str) -> int:
    """Ask the virtual host's own management node to create something; returns the status of its
    answer."""
    connection = as_guest(node, "")
    try:
        channel = connection.channel()
        replies = channel.queue_declare("", exclusive=True).method.queue
        asked = pika.BasicProperties(
            content_type="amqp/map",
            headers={"type": kind, "operation": "CREATE", "name": "stranger"},
            reply_to=replies,
        )
        attributes = {
            "name": "stranger",
            "qpid-type": "VirtualHostFile",
            "fileName": "/nonexistent/stolen",
        }
        channel.basic_publish("", "$management", amqp_map(attributes), asked)
        _, properties, _ = next(channel.consume(replies, auto_ack=True, inactivity_timeout=UP_S))
        assert properties
        return int(properties.headers["statusCode"])
    finally:
        connection.close()


def amqp_map(texts: dict[str, str]) -> bytes:
    """A map as AMQP 0-10 encodes it: size, count, and each name with a text of 16-bit length (code
    0x95)."""
    entries = b"".join(
        struct.pack(">B", len(name))
        + name.encode()
        + struct.pack(">BH", 0x95, len(text))
        + text.encode()
        for name, text in texts.items()
    )
    counted = struct.pack(">I", len(texts)) + entries
    return struct.pack(">I", len(counted)) + counted
