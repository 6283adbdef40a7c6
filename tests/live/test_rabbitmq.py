"""RabbitMQ as processes: queues that exist, leaders that move, connections that are closed, what
remains in a queue, and a run from cluster to verdict."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow.dataset import dataset

from harness.admin.failover import AlreadyThere
from harness.clusters import spec_of
from harness.contract.rig import CheckPlace, Rig
from harness.errors import Exit, UsageError
from harness.protocols.cluster import (
    ClientConnection,
    HasBacklogs,
    HasConnections,
    HasHealthProbe,
    MovesLeaders,
    TopicSettings,
)
from harness.records import Event
from harness.rundir import RunDir, read_json, read_jsonl
from harness.systems.rabbitmq.assembly import RabbitMqCluster
from harness.workers import load_worker
from tests.live.cluster_rig import RUN_TAG, UP_S, fire, up, wait_until
from tests.live.printed import follow_summary
from tests.live.run_rig import LiveRun, brokerstorm

pytestmark = pytest.mark.live

TOPICS = [TopicSettings("orders", 2, 3, {"x-queue-type": "quorum"})]

SCENARIO = """
name: rig
system: rabbitmq
topics: {orders: {replication: 3}, clicks: {replication: 3}}
load:
  rate: 200
  duration: 6s
  warm_up: 1s
  producers:
    shop: {client: amqp091-go, topics: [orders]}
    web: {client: pika, topics: [clicks]}
  consumers:
    billing: {client: amqp091-go, topics: [orders], options: {AckEvery: 20}}
    stats: {client: pika, topics: [clicks]}
faults:
  - {fault: leader-move, topic: orders, at: 2s}
limits:
  drain: 90s
require:
  rate_ratio: 0  # the machine that runs the tests may be busy
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMqCluster]:
    with up("rabbitmq", tmp_path_factory.mktemp("rabbitmq"), *TOPICS) as found:
        yield found


@pytest.fixture
def rig(cluster: RabbitMqCluster, tmp_path: Path) -> Iterator[Rig]:
    made = Rig(CheckPlace(cluster, tmp_path), load_worker("amqp091-go", system="rabbitmq"))
    yield made
    made.close()


def test_it_can_do_what_faults_ask_of_it(cluster: RabbitMqCluster) -> None:
    for ability in (MovesLeaders, HasBacklogs, HasConnections, HasHealthProbe):
        assert isinstance(cluster.admin, ability)
    assert cluster.admin.registered() == {"rabbitmq-1", "rabbitmq-2", "rabbitmq-3"}
    assert cluster.admin.backlogs(["orders"]) == {"orders-0": {"": 0}, "orders-1": {"": 0}}


def test_queues_that_cannot_be_made(cluster: RabbitMqCluster) -> None:
    admin = cluster.admin
    with pytest.raises(AlreadyThere, match="queue orders-0 exists already"):
        admin.create_topics(TOPICS)
    bounded = {**TOPICS[0].config, "x-max-length": "9", "x-overflow": "reject-publish"}
    with pytest.raises(AlreadyThere, match=r"orders-0 exists already with other arguments .*x-max"):
        admin.create_topics([TopicSettings("orders", 1, 3, bounded)])
    odd = {**TOPICS[0].config, "x-max-priority": "300"}
    with pytest.raises(UsageError, match=r"queue clicks-0: .*x-max-priority"):
        admin.create_topics([TopicSettings("clicks", 1, 3, odd)])
    assert admin.topics() == ["orders"], "nothing is left of what was refused"


def test_leaders_move(cluster: RabbitMqCluster, tmp_path: Path) -> None:
    step = {"fault": "leader-move", "topic": "orders"}
    effect = fire(cluster, RunDir(tmp_path / "move").create(), TOPICS, step)["effect"]
    assert effect["effective"], effect
    cluster.admin.wait_ready(["orders"], timeout_s=UP_S, run_tag=RUN_TAG)


@pytest.mark.parametrize("kind", ["quorum", "classic", "stream"])
def test_a_queue_is_deleted_and_declared_again_as_it_was(
    cluster: RabbitMqCluster, tmp_path: Path, kind: str
) -> None:
    admin, name = cluster.admin, f"remade-{kind}"
    made = TopicSettings(name, 1, 1 if kind == "classic" else 3, {"x-queue-type": kind})
    admin.create_topics([made])
    admin.wait_ready([name], timeout_s=UP_S, run_tag=RUN_TAG)
    before, ids = admin.made_of(name), admin.topic_ids(name)
    assert (before.config["x-queue-type"], before.replication) == (kind, made.replication)
    step = {"fault": "recreate-topic", "topic": name, "for": 0.3}
    effect = fire(cluster, RunDir(tmp_path / kind).create(), [made], step)["effect"]
    assert effect["effective"], effect
    after = admin.topic_ids(name)
    assert (len(ids), len(after), after & ids) == (1, 1, frozenset())
    assert admin.made_of(name) == before
    admin.delete_topics([name])
    assert admin.topic_ids(name) == frozenset()


def test_a_connection_that_the_broker_closes_is_gone(cluster: RabbitMqCluster, rig: Rig) -> None:
    producer = rig.producer(rig.topic(), load_s=30, name="cut-off")
    producer.begin()
    producer.wait_stats(lambda stats: stats.ok >= 50)
    (own,) = [one for one in cluster.admin.connections() if one.client_name == "cut-off"]
    assert own.pid == producer.pid
    cluster.admin.close_connection(own)
    wait_until("it is gone", lambda: own not in cluster.admin.connections())
    cluster.admin.close_connection(own)  # gone already: not an error
    before = producer.stats.ok
    producer.wait_stats(lambda stats: stats.ok > before + 50)
    assert producer.stats.exposure["reconnects"] == 1


@pytest.mark.extended
def test_a_connection_that_the_java_client_restores_is_the_only_one(
    cluster: RabbitMqCluster, tmp_path: Path
) -> None:
    """The application saw its channel closed before it learned why, and opened a connection of its
    own; a message that came over the other one was not always acknowledged."""
    rig = Rig(CheckPlace(cluster, tmp_path), load_worker("amqp-client", system="rabbitmq"))
    try:
        consumer = rig.consumer(rig.topic(), options={"networkRecoveryInterval": "200"})

        def own() -> list[ClientConnection]:
            return [one for one in cluster.admin.connections() if one.pid == consumer.pid]

        for closed in range(1, 11):
            (before,) = own()
            cluster.admin.close_connection(before)
            wait_until("it is restored", lambda: [one for one in own() if one != before])  # noqa: B023
            consumer.wait_stats(lambda stats: stats.exposure.get("reconnects", 0) >= closed)  # noqa: B023
        assert (len(own()), consumer.stats.exposure["reconnects"]) == (1, 10)
    finally:
        rig.close()


def test_everything_that_remains_in_a_queue_is_read(rig: Rig) -> None:
    """A quorum queue gives 2,000 messages to a consumer that names no limit and acknowledges
    nothing."""
    topic = rig.topic()
    count = rig.feed(topic, rate=1000, warm_up_s=0, load_s=2.5).done_line.ok
    assert count > 2000
    audit = rig.audit(topic)
    bounds = audit.bounds()[f"{topic}-0"]
    assert (bounds["why"], bounds["read_to"]) == ("end", count)


STREAMS = """
name: rig
system: rabbitmq
topics:
  orders: {replication: 3, config: {x-queue-type: stream}}
  clicks: {replication: 3, config: {x-queue-type: stream}}
load:
  rate: 200
  duration: 10s
  warm_up: 1s
  producers:
    shop: {client: amqp091-go, topics: [orders]}
    web: {client: amqp-client, topics: [clicks]}
  consumers:
    billing: {client: amqp091-go, topics: [orders], settle: none, options: {StreamOffset: first}}
    stats:
      client: amqp-client
      topics: [clicks]
      settle: none
      options: {streamOffset: first, automaticRecoveryEnabled: false}
faults:
  - {fault: resource-alarm, at: 1s, for: 2s}
  - {fault: connection-close, target: "client:consumer", at: 6s}
limits:
  drain: 90s
require:
  rate_ratio: 0  # the machine that runs the tests may be busy
"""


@pytest.mark.extended
def test_streams_are_judged_as_logs_and_an_alarm_blocks_publishers(
    tmp_path: Path, spark: object
) -> None:
    with LiveRun(tmp_path, scenario=STREAMS, inside=True) as run:
        code = run.wait()
        document = run.document()
        passed = (code, document["verdict"], document["reasons"])
        assert passed == (Exit.PASS, "pass", []), run.errors()
        assert document["rows"]["log"] >= document["sends"]["ok"] > 0
        assert document["rows"]["deliveries"] >= document["sends"]["ok"]
        assert [fault["effective"] for fault in document["faults"]] == [True, True]
        events = read_jsonl(RunDir(run.root).events)
        blocked = [event for event in events if event["kind"] == "blocked"]
        assert blocked, "no client reported that it is blocked"


OTHER_DEBIAN = """
name: rig
system: rabbitmq
cluster: {{version: {version}}}
topics: {{orders: {{replication: 3}}, clicks: {{replication: 3}}}}
load:
  rate: 200
  duration: 8s
  warm_up: 1s
  producers:
    shop: {{client: amqp091-go, topics: [orders]}}
    web: {{client: qpid-jms-legacy, topics: [clicks]}}
  consumers:
    billing: {{client: amqp091-go, topics: [orders], options: {{AckEvery: 20}}}}
    stats: {{client: qpid-jms-legacy, topics: [clicks]}}
faults:
  - {{fault: kill, target: "leader-of:clicks", at: 1s, for: 1s}}
  - {{fault: leader-move, topic: orders, at: 6s}}
limits:
  drain: 90s
require:
  rate_ratio: 0  # the machine that runs the tests may be busy
"""


@pytest.mark.extended
def test_brokers_of_another_debian_and_a_client_of_amqp_1_0(tmp_path: Path, spark: object) -> None:
    program = spec_of("rabbitmq", "4.0").program
    assert program is not None
    versions = [each for each in program.released() if each.startswith("4.0.")]
    if not versions:
        pytest.skip("no package index that can be read has RabbitMQ 4.0")
    scenario = OTHER_DEBIAN.format(version=versions[0])
    with LiveRun(tmp_path, scenario=scenario, inside=True) as run:
        code = run.wait()
        document = run.document()
        passed = (code, document["verdict"], document["reasons"])
        assert passed == (Exit.PASS, "pass", []), run.errors()
        assert [fault["effective"] for fault in document["faults"]] == [True, True]
        flags = read_json(RunDir(run.root).manifest)["machine"]["feature flags"]
        assert "enabled" in flags


DEAD_LETTERS = """
name: rig
system: rabbitmq
topics:
  orders:
    replication: 3
    config:
      x-single-active-consumer: true
      x-delivery-limit: 1
      x-dead-letter-exchange: ""
      x-dead-letter-routing-key: dead-0
      x-dead-letter-strategy: at-least-once
      x-overflow: reject-publish
  dead: {replication: 3}
load:
  rate: 100
  duration: 6s
  warm_up: 1s
  producers:
    shop: {client: amqp091-go, topics: [orders]}
  consumers:
    billing: {client: amqp091-go, topics: [orders], settle: ack, nack_every: 2, count: 2}
faults:
  - {fault: leader-move, topic: dead, at: 2s}
limits:
  drain: 90s
require:
  rate_ratio: 0  # the machine that runs the tests may be busy
"""


@pytest.mark.extended
def test_dead_letters_are_not_lost_and_one_consumer_is_active(
    tmp_path: Path, spark: object
) -> None:
    with LiveRun(tmp_path, scenario=DEAD_LETTERS, inside=True) as run:
        code = run.wait()
        document = run.document()
        passed = (code, document["verdict"], document["reasons"])
        assert passed == (Exit.PASS, "pass", []), run.errors()
        bounds = {row["stream"]: row["end"] for row in read_jsonl(RunDir(run.root).log_bounds)}
        assert bounds["dead-0"] > 0
        assert bounds["orders-0"] == 0
        found = dataset(run.root / "sealed" / "deliveries", partitioning="hive").to_table()
        rows = zip(*(found[name].to_pylist() for name in ("session", "event")), strict=True)
        assert len({session for session, event in rows if event == Event.DELIVER}) == 1


OWN = """
name: rig
system: rabbitmq
topics:
  orders:
    replication: 3
    config:
      x-delivery-limit: 1
      x-dead-letter-exchange: ""
      x-dead-letter-routing-key: dead-0
      x-dead-letter-strategy: at-least-once
      x-overflow: reject-publish
  dead: {replication: 3}
load:
  rate: 100
  duration: 6s
  warm_up: 1s
  producers:
    shop: {client: amqp091-go, topics: [orders]}
  consumers:
    billing: {client: amqp091-go, topics: [orders], settle: ack, nack_every: 2}
faults:
  - {fault: leader-move, topic: orders, at: 1s}
  - {fault: connection-close, target: "client:producer", at: 3s}
require:
  rate_ratio: 0  # the machine that runs the tests may be busy
"""


@pytest.mark.extended
def test_a_run_on_nodes_of_others_leaves_their_queues_as_they_were(
    tmp_path: Path, spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROKERSTORM_RUN_DIR", str(tmp_path / "runs"))
    (tmp_path / "own.yaml").write_text(OWN)
    with up("rabbitmq", tmp_path, *TOPICS, secure=True) as theirs:
        asked = str(tmp_path / "own.yaml"), "--cluster", str(theirs.connection_file)
        for command in ("doctor", "run"):
            said = brokerstorm(command, *asked)
            assert said.code == 0, f"{command}: {said.out}{said.err}"
        assert theirs.admin.topics() == ["orders"]
        assert theirs.admin.backlogs(["orders"]) == {"orders-0": {"": 0}, "orders-1": {"": 0}}
        rows = theirs.admin._first(lambda link: link.call("rabbit_amqqueue", "list"))
        left = [row[1][3] for row in rows if row[1][3].startswith(b"brokerstorm-")]
        assert left == []
        short = ("brokerstorm", "short", "^brokerstorm-", '{"message-ttl": 60000}', 0, "queues")
        theirs.admin._first(lambda link: link.call("rabbit_policy", "parse_set", *short, b"x"))
        said = brokerstorm("doctor", *asked)
        assert (said.code, "policy short sets message-ttl=60000" in said.out) == (4, True), said.out


PROTOCOL = """
name: rig
system: rabbitmq
topics:
  orders: {replication: 3, config: {x-queue-type: stream}}
  clicks: {replication: 3, config: {x-queue-type: stream}}
load:
  rate: 200
  duration: 10s
  warm_up: 1s
  producers:
    shop: {client: stream-client}
  consumers:
    billing: {client: stream-client, topics: [orders], settle: none, options: {streamOffset: first}}
    stats:
      client: stream-client
      topics: [clicks]
      settle: none
      receive: listener
      options: {streamOffset: first}
faults:
  - {fault: kill, target: "leader-of:orders", at: 2s, for: 1s}
limits:
  drain: 90s
require:
  dedup: once
  rate_ratio: 0  # the machine that runs the tests may be busy
"""


def test_a_virtual_host_that_a_node_did_not_start_is_started(cluster: RabbitMqCluster) -> None:
    """A node leaves it out if another node makes it while both start."""
    admin = cluster.admin
    link = admin._links["rabbitmq-2"]
    host = admin._virtual_host.encode()
    link.call("rabbit_vhost_sup_sup", "stop_and_delete_vhost", host)
    assert str(link.call("rabbit_vhost_sup_sup", "is_vhost_alive", host)) == "false"
    admin.wait_ready(["orders"], timeout_s=UP_S, run_tag=RUN_TAG)
    assert str(link.call("rabbit_vhost_sup_sup", "is_vhost_alive", host)) == "true"


@pytest.mark.extended
def test_named_producers_of_the_stream_protocol_store_each_message_once(
    tmp_path: Path, spark: object
) -> None:
    with LiveRun(tmp_path, scenario=PROTOCOL, inside=True) as run:
        code = run.wait()
        document = run.document()
        passed = (code, document["verdict"], document["reasons"])
        assert passed == (Exit.PASS, "pass", []), run.errors()
        assert document["rows"]["deliveries"] >= document["sends"]["ok"] > 0
        assert document["faults"][0]["effective"]


def test_a_run_from_cluster_to_verdict(tmp_path: Path, spark: object) -> None:
    with LiveRun(tmp_path, scenario=SCENARIO, inside=True) as run:
        code = run.wait()
        document = run.document()
        sends = document["sends"]
        passed = (code, document["verdict"], document["reasons"])
        assert passed == (Exit.PASS, "pass", []), run.errors()
        assert 0 < sends["attempted"] <= 7 * 200
        assert document["rows"]["deliveries"] >= sends["ok"] > 0
        (moved,) = document["faults"]
        assert (moved["kind"], moved["effective"]) == ("leader-move", True)
        assert run.processes() == []
        follow_summary(run.root)
