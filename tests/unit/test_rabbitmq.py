"""RabbitMQ: settings of queues, promises of clients, terms of Erlang, and who leads a queue."""

from __future__ import annotations

import json
import re
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker

from harness.admin.failover import NoAnswer
from harness.clusters import spec_of
from harness.connections.file import Connection, read_connection
from harness.connections.secret import Secret
from harness.connections.security import ANYBODY
from harness.contract import checks_of
from harness.contracts.plan import PromisePlan, TopicPlan
from harness.errors import BrokerstormError, EnvironmentNotReady, ScenarioError, UsageError
from harness.plan.build import build_plan
from harness.plan.promise import PromiseContext
from harness.plan.settings import producer_settings
from harness.protocols.cluster import Endpoint, Node, TopicSettings
from harness.scenario.file import load_scenario
from harness.scenario.model import RequireSpec
from harness.systems import SYSTEMS
from harness.systems.rabbitmq import admin as rabbitmq_admin
from harness.systems.rabbitmq import amqp, external
from harness.systems.rabbitmq.admin import (
    Queue,
    RabbitMqAdmin,
    RaftView,
    _connections_at,
    _members_of_streams,
)
from harness.systems.rabbitmq.amqp import native
from harness.systems.rabbitmq.assembly import ASSEMBLY
from harness.systems.rabbitmq.external import EXTERNAL
from harness.systems.rabbitmq.external_admin import ExternalRabbitMqAdmin
from harness.systems.rabbitmq.link import CookieRefused, ErlangLink, Refused, shown
from harness.systems.rabbitmq.terms import (
    Atom,
    Function,
    MalformedTerm,
    Pid,
    Reference,
    decoded,
    encoded,
)
from harness.workers import known_workers, load_worker
from tests.specs import worker_spec
from workers.python_kit.worker_kit.spec import read_spec

RABBITMQ = SYSTEMS["rabbitmq"]
STREAM = {"x-queue-type": "stream"}
TO_DEAD = {"x-dead-letter-routing-key": "dead-0"}
DEAD = {"x-dead-letter-exchange": "", **TO_DEAD}


# ----- connections --------------------------------------------------------------------------------


class Connections:
    """A node with two connections; one of them is closing."""

    def call(self, module: str, function: str, *arguments: Any) -> Any:
        if function == "local_connections":
            return ["open", "closing"]
        properties = [(b"instance", "longstr", b"producer-1")]
        is_open = arguments[0] == "open"
        return [
            ("name", arguments[0].encode()),
            ("client_properties", properties if is_open else Atom("")),
        ]


def test_a_connection_that_is_closing_is_no_longer_there() -> None:
    link: Any = Connections()
    assert _connections_at(link) == {"open": ("open", {"instance": "producer-1"})}


# ----- settings of queues -------------------------------------------------------------------------


def test_a_topic_is_a_quorum_queue_unless_its_settings_say_otherwise() -> None:
    assert RABBITMQ.topic_config({}, 3, {}) == {
        "x-queue-type": "quorum",
        "x-quorum-initial-group-size": "3",
    }
    classic = {"x-queue-type": "classic"}
    assert RABBITMQ.topic_config(classic, 1, {}) == classic


@pytest.mark.parametrize(
    ("replication", "config", "key"),
    [
        (3, {"x-message-ttl": "1000"}, "x-message-ttl"),
        (3, {"x-delivery-limit": "5"}, "x-delivery-limit"),
        (3, {"x-max-length": "5"}, "x-overflow"),
        (3, {"x-queue-type": "odd"}, "x-queue-type"),
        (3, {"x-expires": "1000"}, "x-expires"),
        (3, {"x-overflow": "reject-publish-dlx"}, "x-overflow"),
        (3, {"x-dead-letter-exchange": "amq.direct", **TO_DEAD}, "x-dead-letter-exchange"),
        (3, {"x-dead-letter-exchange": ""}, "x-dead-letter-routing-key"),
        (3, {**DEAD, "x-dead-letter-strategy": "at-least-once"}, "x-dead-letter-strategy"),
        (3, {**DEAD, "x-queue-type": "stream"}, "x-dead-letter-exchange"),
        (3, {"x-queue-type": "stream", "x-max-age": "7d"}, "x-max-age"),
        (2, {"x-queue-type": "stream"}, "x-initial-cluster-size"),
        (5, {}, "x-quorum-initial-group-size"),
        (3, {"x-quorum-initial-group-size": "3"}, "x-quorum-initial-group-size"),
    ],
)
def test_settings_that_hide_a_loss_are_refused(
    replication: int, config: dict[str, str], key: str
) -> None:
    assert [name for name, _ in RABBITMQ.topic_problems(replication, config)] == [key]


def test_a_bound_that_refuses_publishers_drops_nothing() -> None:
    kept = {"x-max-length": "5", "x-overflow": "reject-publish"}
    assert list(RABBITMQ.topic_problems(3, kept)) == []
    assert native(kept) == {"x-max-length": 5, "x-overflow": "reject-publish"}
    with pytest.raises(UsageError, match="x-max-length=many: must be a whole number"):
        native({"x-max-length": "many"})


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ("x-dead-letter-routing-key: dead-0", ""),
        ("x-dead-letter-routing-key: orders-0", "orders-0 is not a queue of another topic"),
        (
            "x-dead-letter-routing-key: deaf-0",
            "deaf-0 is not a queue of another topic, got .deaf-0.; did you me",
        ),
    ],
)
def test_dead_letters_go_to_the_queue_of_another_topic(
    tmp_path: Path, config: str, problem: str
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "name: x\nsystem: rabbitmq\ntopics: {dead: {}, orders: {config: "
        f'{{x-delivery-limit: 3, x-dead-letter-exchange: "", {config}}}}}}}\n'
        "load: {producers: {p: {client: amqp091-go, topics: [orders]}}}\n"
    )
    if problem:
        with pytest.raises(ScenarioError, match=problem):
            load_scenario(file, clients=known_workers)
        return
    plan = build_plan(load_scenario(file, clients=known_workers), seed=1)
    assert {RABBITMQ.moves_to(topic.config) for topic in plan.topics} == {"", "dead-0"}
    assert (
        admin()._settings(TopicSettings("orders", 1, 3, plan.topics[1].config))[
            "x-dead-letter-exchange"
        ]
        == ""
    )


def test_a_message_that_moves_without_a_confirm_is_promised_by_nobody() -> None:
    assert promised("amqp091-go", {**DEAD, "x-delivery-limit": "3"}).delivery == "durable"
    made = promised("amqp091-go", {**DEAD, "x-message-ttl": "1000"})
    assert (made.delivery, made.because["delivery"]) == (
        "none",
        "x-message-ttl on orders: a message is moved to dead-0 without a confirm",
    )
    safe = {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}
    kept = promised("amqp091-go", {**DEAD, **safe, "x-message-ttl": "1000"})
    assert kept.delivery == "durable"


def test_a_message_that_is_refused_for_good_needs_dead_letters(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "name: x\nsystem: rabbitmq\ntopics: {orders: {}}\n"
        "load: {producers: {p: {client: amqp091-go}}, "
        "consumers: {c: {client: amqp091-go, options: {Requeue: false}}}}\n"
    )
    with pytest.raises(ScenarioError, match="Requeue=false: topic orders has no dead letters"):
        build_plan(load_scenario(file, clients=known_workers), seed=1)


def test_the_first_node_starts_alone() -> None:
    """A node that joined while another one enabled its feature flags did not end its start."""
    after = {service.name: service.after for service in spec_of("rabbitmq", "").services}
    first = {"rabbitmq-1": "service_healthy"}
    assert after == {"rabbitmq-1": {}, "rabbitmq-2": first, "rabbitmq-3": first}


def test_mirrored_queues_are_refused_where_they_do_not_exist() -> None:
    classic = {"x-queue-type": "classic"}
    ((key, why),) = RABBITMQ.version_problems("4.0.5", 3, classic)
    assert (key, why) == (
        "x-queue-type",
        "RabbitMQ 4.0.5 has no mirrored queues: set topics.replication to 1",
    )
    assert not list(RABBITMQ.version_problems("3.10.8", 3, classic))
    assert not list(RABBITMQ.version_problems("4.0.5", 1, classic))
    assert not list(RABBITMQ.version_problems("4.0.5", 3, {}))


@pytest.mark.parametrize(
    ("before", "to", "problem"),
    [
        ("3.10.8", "4.0.5", "RabbitMQ 4.0.5 replaces nodes of 3.13 and newer only: upgrade 3.10.8"),
        ("3.13.7", "4.0.5", ""),
        ("4.0.5", "4.3.6", "RabbitMQ 4.3.6 replaces nodes of 4.2 and newer only"),
        ("4.0.5", "4.0.9", ""),
        ("4.0.5", "3.10.8", "cannot go back"),
    ],
)
def test_series_that_running_nodes_cannot_skip(before: str, to: str, problem: str) -> None:
    assert RABBITMQ.upgrade_problem(before, to).count(problem or "!") == bool(problem)


@pytest.mark.parametrize(
    ("version", "kind", "more"),
    [
        ((3, 10), "quorum", {}),
        ((4, 0), "quorum", {"x-delivery-limit": "-1"}),
        ((4, 0), "stream", {}),
    ],
)
def test_no_queue_drops_a_message_that_was_given_often(
    version: tuple[int, ...], kind: str, more: dict[str, str]
) -> None:
    """4.0 and newer drop it after 20 times by default."""
    nodes = admin(version=version)
    topic = TopicSettings("orders", 1, 3, {"x-queue-type": kind})
    assert nodes._settings(topic) == {"x-queue-type": kind, **more}


def test_lines_of_the_log_name_the_queue_that_has_a_new_leader() -> None:
    line = re.compile(RABBITMQ.log_leader.replace("{stream}", "orders-0"))
    assert line.search("queue 'orders-0' in vhost 'brokerstorm': detected a new leader {'x','y'}")
    assert line.search("queue 'orders-0' in vhost 'brokerstorm': candidate -> leader in term: 1")
    assert not line.search("queue 'orders-1' in vhost 'brokerstorm': candidate -> leader")
    assert not line.search("queue 'orders-0' in vhost 'brokerstorm': leader call - not known")


# ----- promises -----------------------------------------------------------------------------------


def promised(
    client: str, topic_config: dict[str, str] | None = None, **options: str
) -> PromisePlan:
    settings = producer_settings(client, "", options, system="rabbitmq")
    config = RABBITMQ.topic_config(topic_config or {}, 3, {})
    topic = TopicPlan(name="orders", partitions=1, replication=3, config=config)
    return settings.promise(PromiseContext([topic], {}, ""), RequireSpec())


def test_a_stream_keeps_what_was_read() -> None:
    stream = RABBITMQ.topic_config(STREAM, 3, {})
    assert stream == {**STREAM, "x-initial-cluster-size": "3"}
    assert native(stream)["x-initial-cluster-size"] == 3
    assert not RABBITMQ.removes_settled(stream)
    assert RABBITMQ.removes_settled({})


@pytest.mark.parametrize(
    ("topic", "consumer", "problem"),
    [
        (STREAM, "settle: none", "topic orders is a stream: its consumer must say where it begins"),
        (STREAM, "options: {StreamOffset: first}", "is a stream, which keeps no acknowledgements"),
        ({}, "options: {StreamOffset: first}", "none of its topics is a stream"),
        (STREAM, "settle: none, options: {StreamOffset: last}", "must be first or next"),
        (STREAM, "settle: none, options: {StreamOffset: first}", ""),
    ],
)
def test_a_consumer_of_a_stream_says_where_it_begins(
    tmp_path: Path, topic: dict[str, str], consumer: str, problem: str
) -> None:
    file = tmp_path / "mine.yaml"
    config = f"config: {{x-queue-type: {topic['x-queue-type']}}}" if topic else ""
    file.write_text(
        f"name: x\nsystem: rabbitmq\ntopics: {{orders: {{replication: 3, {config}}}}}\n"
        "load: {producers: {p: {client: amqp091-go}}, "
        f"consumers: {{c: {{client: amqp091-go, {consumer}}}}}}}\n"
    )
    scenario = load_scenario(file, clients=known_workers)
    if problem:
        with pytest.raises(ScenarioError, match=problem):
            build_plan(scenario, seed=1)
        return
    promise = build_plan(scenario, seed=1).consumers[0].promise
    assert (promise.subscription, promise.order, promise.start) == (
        "exclusive",
        "stream",
        "earliest",
    )


@pytest.mark.parametrize(
    ("topic", "options", "dedup"),
    [
        (STREAM, {}, True),
        (STREAM, {"deduplicate": "false"}, False),
        ({}, {}, False),
    ],
)
def test_a_stream_stores_the_messages_of_a_named_producer_once(
    topic: dict[str, str], options: dict[str, str], dedup: bool
) -> None:
    promise = promised("stream-client", topic, **options)
    assert promise.dedup is dedup
    assert promise.delivery == "durable"
    assert promised("amqp091-go", STREAM).dedup is False


def test_a_client_of_amqp_1_0_needs_brokers_that_speak_it(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    text = "name: x\nsystem: rabbitmq\ntopics: {orders: {}}\n"
    load = "load: {producers: {p: {client: qpid-jms-legacy}}}\n"
    file.write_text(text + load)
    with pytest.raises(
        ScenarioError, match=r"must be 4\.0 or newer: qpid-jms-legacy talks to no older"
    ):
        load_scenario(file, clients=known_workers)
    file.write_text(text + "cluster: {version: 4.0.5}\n" + load)
    assert load_scenario(file, clients=known_workers).cluster.version == "4.0.5"
    assert promised("qpid-jms-legacy").delivery == "durable"
    presettled = promised("qpid-jms-legacy", **{"jms.presettlePolicy.presettleAll": "true"})
    assert presettled.delivery == "none"


def test_queues_and_streams_are_read_in_different_ways(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "name: x\nsystem: rabbitmq\n"
        "topics: {a: {replication: 3}, b: {replication: 3, config: {x-queue-type: stream}}}\n"
        "load: {producers: {p: {client: amqp091-go}}}\n"
    )
    with pytest.raises(ScenarioError, match=r"topics.b.config: keeps .* put them into two scen"):
        load_scenario(file, clients=known_workers)


@pytest.mark.parametrize("client", ["amqp091-go", "pika", "amqp-client"])
def test_a_confirm_of_a_quorum_queue_survives_a_kill(client: str) -> None:
    made = promised(client)
    assert made.delivery == "durable"
    assert "2 of 3 nodes" in made.because["delivery"]


def test_without_confirms_nothing_is_promised() -> None:
    assert promised("pika", confirms="0", mandatory="0").delivery == "none"
    assert promised("amqp091-go", Confirms="none", Mandatory="false").delivery == "none"
    made = promised("amqp091-go", Confirms="none", Transacted="20", Mandatory="false")
    assert made.delivery == "unknown"


def test_a_transient_message_in_a_classic_queue_is_forgotten() -> None:
    classic = {"x-queue-type": "classic"}
    assert promised("amqp091-go", classic).delivery == "durable"
    assert promised("amqp091-go", classic, DeliveryMode="1").delivery == "none"
    assert promised("amqp091-go", DeliveryMode="1").delivery == "durable", "quorum: on disk anyway"
    assert promised("amqp-client", classic, deliveryMode="1").delivery == "none"


def test_a_stream_is_not_synced_before_the_confirm() -> None:
    made = promised("amqp091-go", STREAM)
    assert (made.delivery, made.because["delivery"]) == (
        "durable",
        "confirmed when 2 of 3 nodes have it",
    )


def test_one_client_has_the_promises_of_the_system_that_it_is_used_with(tmp_path: Path) -> None:
    def plan(system: str) -> Any:
        file = tmp_path / "mine.yaml"
        load = "{producers: {p: {client: amqp091-go}}, consumers: {c: {client: amqp091-go}}}"
        file.write_text(f"name: x\nsystem: {system}\nload: {load}\n")
        return build_plan(load_scenario(file, clients=known_workers), seed=1)

    assert "Transacted=20" in plan("qpid").producers[0].promise.because["delivery"]
    assert "nodes wrote it" in plan("rabbitmq").producers[0].promise.because["delivery"]
    assert plan("rabbitmq").consumers[0].settle == "ack"


def test_its_workers_are_asked_for_no_transactions() -> None:
    """Transactions do not cover quorum queues."""

    def asked(system: str) -> set[str]:
        return {check.name for check in checks_of(load_worker("amqp091-go", system=system))}

    assert {name for name in asked("qpid") if "transaction" in name}
    assert not {name for name in asked("rabbitmq") if "transaction" in name}


# ----- terms --------------------------------------------------------------------------------------

PID = Pid("rabbit@a", bytes(12))
REFERENCE = Reference("rabbit@a", bytes(16), 3)


@pytest.mark.parametrize(
    "term",
    [
        *(0.4, 0, 255, 256, -1, 2**31, -(2**31) - 1, 2**100, -(2**700)),
        *(Atom("ok"), b"text", [], [1, 2], (), (Atom("a"), [b"b"]), {Atom("k"): 1}),
        *(PID, REFERENCE, Function("rabbit_fifo", "query_messages_total", 1)),
        tuple(range(300)),
    ],
)
def test_a_term_comes_back_as_it_was(term: Any) -> None:
    data = encoded(term)
    assert decoded(data + b"more") == (term, len(data))


def test_terms_that_are_cut_off_or_unknown_are_refused() -> None:
    whole = encoded((Atom("ok"), [b"text", 2**40]))
    for size in range(len(whole)):
        with pytest.raises(MalformedTerm):
            decoded(whole[:size])
    with pytest.raises(MalformedTerm, match="the type 7"):
        decoded(b"\x83\x07")
    with pytest.raises(TypeError):
        encoded(object())


def test_a_reason_is_shown_as_one_short_line() -> None:
    reason = (Atom("EXIT"), (Atom("undef"), [(Atom("m"), b"two\nlines")]))
    assert shown(reason) == "{EXIT, {undef, [{m, two lines}]}}"
    assert shown(list(b"spelt")) == "spelt"


# ----- the link -----------------------------------------------------------------------------------


@pytest.fixture
def silent() -> Iterator[Endpoint]:
    """A node that accepts connections and answers nothing, as one that is frozen."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield Endpoint("127.0.0.1", server.getsockname()[1])


def test_a_frozen_node_gives_no_answer_in_time(silent: Endpoint) -> None:
    link = ErlangLink(silent, lambda: Secret("cookie"))
    with pytest.raises(NoAnswer, match="no answer in time"):
        link.call("erlang", "node", timeout_s=0.2)


def test_a_node_of_another_cluster_is_told_by_its_cookie() -> None:
    """The node asks for the digest of its challenge, and hangs up when it is another one."""

    def serve(server: socket.socket) -> None:
        link, _ = server.accept()
        with link:
            link.recv(1024)
            name = b"rabbit@a"
            head = b"N" + struct.pack(">QIIH", 0, 7, 1, len(name)) + name
            link.sendall(b"\x00\x03sok" + struct.pack(">H", len(head)) + head)
            link.recv(1024)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=(server,))
        thread.start()
        at = Endpoint("127.0.0.1", server.getsockname()[1])
        with pytest.raises(CookieRefused, match="of another cluster"):
            ErlangLink(at, lambda: Secret("cookie")).call("erlang", "node")
        thread.join()


# ----- who leads ----------------------------------------------------------------------------------

NAMES = ("rabbitmq-1", "rabbitmq-2", "rabbitmq-3")
QUEUE = Queue("orders-0", "v_orders-0", NAMES[0], NAMES)


def admin(version: tuple[int, ...] = (3, 10)) -> RabbitMqAdmin:
    at = Endpoint("127.0.0.1", 1)
    nodes = [Node(name, n, at, at, at, Path(), ("broker",)) for n, name in enumerate(NAMES, 1)]
    called = {name: f"rabbit@{name}.peer" for name in NAMES}
    return RabbitMqAdmin(nodes, cookie=lambda: Secret("x"), called=called, version=version)


def says(leader: str, state: str) -> RaftView:
    return RaftView({QUEUE.server: leader}, {QUEUE.server: state})


def test_a_node_that_was_frozen_is_outvoted() -> None:
    told = {
        NAMES[0]: says(NAMES[0], "leader"),  # it does not know yet
        NAMES[1]: says(NAMES[1], "leader"),
        NAMES[2]: says(NAMES[1], "follower"),
    }
    state = admin()._state(QUEUE, told)
    assert (state.leader, state.replicas[0]) == (NAMES[1], NAMES[1])


def test_a_leader_that_does_not_answer_is_none() -> None:
    told = {name: says(NAMES[0], "follower") for name in NAMES[1:]}
    state = admin()._state(QUEUE, told)
    assert (state.leader, state.in_sync) == (None, NAMES[1:])


def test_a_member_that_recovers_is_not_in_sync() -> None:
    told = {
        NAMES[0]: says(NAMES[0], "leader"),
        NAMES[1]: says(NAMES[0], "follower"),
        NAMES[2]: says(NAMES[0], "recover"),
    }
    assert admin()._state(QUEUE, told).in_sync == NAMES[:2]


STREAM_QUEUE = Queue("orders-0", "", NAMES[0], NAMES, is_stream=True)


def counters(kind: str) -> dict[Any, Any]:
    """The counters of a node with one member of the stream, and of one in another virtual host."""
    name = (Atom("resource"), b"brokerstorm", Atom("queue"), b"orders-0")
    other = (Atom("resource"), b"/", Atom("queue"), b"orders-1")
    return {(Atom(kind), name): {}, (Atom("osiris_writer"), other): {}, Atom("odd"): {}}


@pytest.mark.parametrize(
    ("kinds", "leader", "in_sync"),
    [
        (("osiris_writer", "osiris_replica", "osiris_replica"), NAMES[0], NAMES),
        (("osiris_replica", "osiris_replica", "osiris_replica"), None, NAMES),  # it was deposed
        (("osiris_writer", "osiris_replica"), NAMES[0], NAMES[:2]),  # one does not answer
    ],
)
def test_the_leader_of_a_stream_has_its_writer(
    kinds: tuple[str, ...], leader: str | None, in_sync: tuple[str, ...]
) -> None:
    told = {
        name: RaftView(streams=dict(_members_of_streams(counters(kind), "brokerstorm")))
        for name, kind in zip(NAMES, kinds, strict=False)
    }
    assert set(told[NAMES[0]].streams) == {"orders-0"}
    state = admin()._state(STREAM_QUEUE, told)
    assert (state.leader, state.in_sync, state.replicas) == (leader, in_sync, NAMES)


def test_a_node_that_starts_knows_neither_nodes_nor_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers some questions before it has the tables; another node is asked then."""
    nodes = admin()
    missing = (Atom("corrupt_or_missing_cluster_files"), (Atom("ok"), []), (Atom("ok"), []))
    monkeypatch.setitem(nodes._links, NAMES[0], Answers((Atom("error"), missing)))
    for name in NAMES[1:]:
        running = [Atom(f"rabbit@{one}.peer") for one in NAMES[1:]]
        monkeypatch.setitem(nodes._links, name, Answers(running))
    assert nodes.registered() == set(NAMES[1:])
    row: list[Any] = [Atom("none")] * 21
    row[1] = (Atom("resource"), b"brokerstorm", Atom("queue"), b"orders-0")
    row[5], row[6] = [], (Atom("orders-0"), Atom("rabbit@rabbitmq-2.peer"))
    monkeypatch.setitem(nodes._links, NAMES[0], Answers(Atom("feature_flags_file_not_set")))
    monkeypatch.setitem(nodes._links, NAMES[1], Refusing(Refused("no_exists")))
    monkeypatch.setitem(nodes._links, NAMES[2], Answers([tuple(row)]))
    assert set(nodes._queues()) == {"orders-0"}


class Refusing:
    """A connection to a node whose functions fail."""

    def __init__(self, why: Refused) -> None:
        self._why = why

    def call(self, *asked: Any, **more: Any) -> Any:
        raise self._why

    def close(self) -> None:
        """Nothing to close."""


# ----- declarations -------------------------------------------------------------------------------


class Closing:
    """A connection and its channel, on which the broker refuses a declaration."""

    is_open = False

    def __init__(self, text: str) -> None:
        self._text = text

    def channel(self) -> Closing:
        return self

    def queue_declare(self, queue: str, *, passive: bool = False, **more: Any) -> None:
        if passive:
            raise ChannelClosedByBroker(404, "NOT_FOUND")
        raise ConnectionClosedByBroker(541, self._text)


def test_a_type_of_queue_that_is_switched_off_names_its_feature_flag(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = (
        "INTERNAL_ERROR - Cannot declare a queue 'queue 'orders-0' in vhost 'brokerstorm'' of type"
        " 'rabbit_quorum_queue' on node 'rabbit@one': the corresponding feature flag is disabled"
    )
    monkeypatch.setattr(amqp.pika, "BlockingConnection", lambda parameters: Closing(text))
    node = amqp.Amqp(Endpoint("127.0.0.1", 1), ANYBODY.admin)
    with pytest.raises(EnvironmentNotReady, match="x-queue-type=quorum") as caught:
        node.declare("orders-0", {"x-queue-type": "quorum"})
    assert "enable_feature_flag" in caught.value.hint


# ----- alarms -------------------------------------------------------------------------------------


def test_an_alarm_is_that_of_the_node_it_names() -> None:
    limit = (Atom("resource_limit"), Atom("disk"), Atom("rabbit@rabbitmq-2.peer"))
    others = [(Atom("file_descriptor_limit"), []), Atom("odd")]
    assert set(admin()._alarms_in([(limit, []), *others])) == {("rabbitmq-2", "disk")}


def test_an_alarm_before_the_load_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster with an alarm would be waited for until `limits.ready`."""
    asked: Any = admin()
    monkeypatch.setattr(asked, "alarms", lambda: {("rabbitmq-2", "memory")})
    monkeypatch.setattr(asked, "_missing", lambda topics, run_tag: asked._trouble())
    monkeypatch.setattr(rabbitmq_admin, "_ALARM_NS", 0)
    text = "rabbitmq-2 has a memory alarm, so publishers are blocked"
    with pytest.raises(EnvironmentNotReady, match=f"^{text}: see vm_memory_high") as caught:
        asked.wait_ready([], timeout_s=60, run_tag=1)
    assert "cluster.config" in caught.value.hint
    with pytest.raises(EnvironmentNotReady, match=f"is not ready after 0 s: {text}"):
        asked.wait_ready(["orders"], timeout_s=0, run_tag=1)  # a fault may have raised it
    (need,) = EXTERNAL.examine(connection(tmp_path), (), asked)
    assert (need.name, need.ok, need.text) == ("alarms", False, str(caught.value))


class Answers:
    """A connection to a node that gives these answers, one after the other."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[Any, ...]] = []

    def call(self, *asked: Any, **more: Any) -> Any:
        self.asked.append(asked)
        return self._answers.pop(0)


def test_a_stream_is_restarted_until_the_wanted_node_leads_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A node is chosen only if no other one has later messages."""
    nodes = admin((4, 0))
    erlang = [Atom(f"rabbit@{name}.peer") for name in NAMES]
    stream = Queue("orders-0", "", NAMES[0], tuple(NAMES), is_stream=True)
    link = Answers((Atom("ok"), erlang[0]), (Atom("ok"), erlang[1]))
    monkeypatch.setitem(nodes._links, NAMES[0], link)
    nodes._move(stream, NAMES[0], NAMES[1])
    assert link.asked[1][:2] == ("rabbit_stream_queue", "restart_stream")
    assert link.asked[1][-1] == {"preferred_leader_node": erlang[1]}
    monkeypatch.setitem(nodes._links, NAMES[0], Answers(*[(Atom("ok"), erlang[0])] * 3))
    with pytest.raises(UsageError, match=f"is led by {NAMES[0]}, whose messages {NAMES[1]} did"):
        nodes._move(stream, NAMES[0], NAMES[1])


def test_the_id_of_a_topic_is_asked_of_a_member_and_forgotten_with_its_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes = admin()
    resource = (Atom("resource"), b"brokerstorm", Atom("queue"), b"orders-0")
    row: list[Any] = [Atom("amqqueue"), resource, *[Atom("none")] * 20]
    row[5] = [(b"x-queue-type", Atom("longstr"), b"quorum"), (b"x-a", Atom("bool"), Atom("true"))]
    row[6] = (Atom("brokerstorm_orders-0"), Atom("rabbit@rabbitmq-1.peer"))
    row[19], row[20] = Atom("rabbit_quorum_queue"), {"nodes": [Atom("rabbit@rabbitmq-2.peer")]}
    tables: list[Any] = [[tuple(row)], [tuple(row)]]
    monkeypatch.setattr(nodes, "_each", lambda ask: dict(enumerate(tables)))
    monkeypatch.setattr(nodes, "_first", lambda ask: tables[0])
    monkeypatch.setitem(nodes._links, NAMES[1], Answers(b"first", b"first", b"second"))
    assert nodes.topic_ids("orders") == {"first"}
    made = TopicSettings("orders", 1, 1, {"x-queue-type": "quorum", "x-a": "true"})
    assert nodes.made_of("orders") == made
    tables[:] = [[tuple(row)], []]
    assert nodes.topic_ids("orders") == {"second"}
    tables[:] = [[], []]
    assert nodes.topic_ids("orders") == frozenset()
    with pytest.raises(UsageError, match="topic orders has no queue"):
        nodes.made_of("orders")


# ----- clusters of others -------------------------------------------------------------------------


def connection(tmp_path: Path, **changes: str) -> Connection:
    (tmp_path / "cookie").write_text("secret")
    keys = {
        "system": "rabbitmq",
        "bootstrap": "127.0.0.1:1,127.0.0.1:2/orders",
        "admin_url": "127.0.0.1:3,127.0.0.1:4",
        "cookie": "{file: cookie}",
        **changes,
    }
    text = "".join(f"{key}: {value}\n" for key, value in keys.items() if value)
    (tmp_path / "own.yaml").write_text(text)
    return read_connection(tmp_path / "own.yaml")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"bootstrap": "127.0.0.1:1"}, "own.yaml: bootstrap: which virtual host"),
        ({"bootstrap": "amqp://a:1/orders"}, "own.yaml: bootstrap: 'amqp:' is not HOST:PORT"),
        ({"admin_url": "127.0.0.1:3"}, "admin_url has 1 addresses, and bootstrap 2 nodes"),
        ({"cookie": ""}, "own.yaml: cookie is missing: nodes answer only who knows it"),
        ({}, "own.yaml: admin_url: 127.0.0.1:3: nothing listens there"),
    ],
)
def test_a_connection_file_that_does_not_lead_to_nodes(
    tmp_path: Path, changes: dict[str, str], problem: str
) -> None:
    with pytest.raises(BrokerstormError, match=problem):
        EXTERNAL.find(connection(tmp_path, **changes))


@pytest.mark.parametrize(
    ("refused", "problem"),
    [
        (CookieRefused("no"), "own.yaml: cookie: 127.0.0.1:3: no"),
        (Refused("no_exists"), "admin_url: 127.0.0.1:3: RabbitMQ does not run there yet"),
    ],
)
def test_a_node_that_starts_is_not_one_of_another_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused, problem: str
) -> None:
    monkeypatch.setattr(external, "ErlangLink", lambda at, cookie: Refusing(refused))
    with pytest.raises(EnvironmentNotReady, match=problem):
        EXTERNAL.find(connection(tmp_path))


def test_other_systems_have_no_cookie(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cookie: nodes of nats have none; leave it out"):
        connection(tmp_path, system="nats")


def test_queues_of_a_run_have_longer_names_at_the_brokers(tmp_path: Path) -> None:
    at = Endpoint("127.0.0.1", 1)
    node = Node("one", 1, at, at, at, Path(), ("broker",))
    made: Any = Ledger()
    how: Any = {"cookie": lambda: Secret("x"), "called": {"one": "rabbit@a"}}
    nodes = ExternalRabbitMqAdmin([node], made, **how)
    assert nodes._probe_queue("one") == "", "nothing is made before the run has topics"
    nodes.name_topics({"orders": "storm-7-orders", "dead": "storm-7-dead"}, ())
    assert nodes._theirs("orders-0") == "storm-7-orders-0"
    assert [nodes._ours(name) for name in ("storm-7-orders-0", "orders-0", "storm-8-dead-0")] == [
        "orders-0",
        "",
        "",
    ]
    assert (
        nodes._settings(TopicSettings("orders", 1, 1, DEAD))["x-dead-letter-routing-key"]
        == "storm-7-dead-0"
    )
    assert nodes._probe_queue("one") == "storm-7-orders-probe-one"
    assert made.names == ["storm-7-orders-probe-one"], "written down before it is made"
    with pytest.raises(UsageError, match="carts is not a topic of this run"):
        nodes.create_topics([TopicSettings("carts", 1, 1)])


@pytest.mark.parametrize(
    ("sets", "key"),
    [
        ([(b"message-ttl", 60000)], "message-ttl=60000"),
        ([(b"max-length", 9), (b"overflow", b"drop-head")], "max-length=9"),
        ([(b"max-length", 9), (b"overflow", b"reject-publish")], ""),
        ([(b"ha-mode", b"all")], ""),
    ],
)
@pytest.mark.parametrize("place", [10, 11])  # a policy, and one of the operator
def test_a_policy_of_others_that_drops_messages_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int, sets: Any, key: str
) -> None:
    at = Endpoint("127.0.0.1", 1)
    node = Node("one", 1, at, at, at, Path(), ("broker",))
    made: Any = Ledger()
    how: Any = {"cookie": lambda: Secret("x"), "called": {"one": "rabbit@a"}}
    nodes = ExternalRabbitMqAdmin([node], made, **how)
    nodes.name_topics({"orders": "storm-7-orders"}, ())
    row: list[Any] = [Atom("undefined")] * 21
    row[place] = [(Atom("name"), b"short"), (Atom("definition"), sets)]
    monkeypatch.setattr(nodes, "_queues", dict)
    monkeypatch.setitem(nodes._links, "one", Answers((Atom("ok"), tuple(row))))
    monkeypatch.setattr(nodes._amqp["one"], "declare", lambda queue, config: None)
    asked = [TopicSettings("orders", 1, 1)]
    if not key:
        nodes.create_topics(asked)
        return
    with pytest.raises(UsageError, match=f"storm-7-orders-0: policy short sets {key}: messages"):
        nodes.create_topics(asked)
    assert made.names == ["storm-7-orders-0"], "it is written down, so it will be deleted"


class Ledger:
    """The names that were written down."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def add(self, kind: str, names: list[str]) -> None:
        self.names += names


def test_feature_flags_that_are_off_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = admin((4, 0))
    link = Answers({Atom("khepri_db"): 1, Atom("stream_queue"): 1}, {Atom("stream_queue"): 1})
    monkeypatch.setattr(nodes, "_first", lambda ask: ask(link))
    assert ASSEMBLY.facts(nodes) == {"feature flags": "1 of 2 enabled; not khepri_db"}


def test_a_python_worker_has_its_options_of_the_system_of_the_run(tmp_path: Path) -> None:
    """Transactions, which are pika's default on Qpid, do not cover quorum queues."""
    spec = tmp_path / "spec.json"
    settings = Path("workers/pika_client/worker.toml").absolute()
    for system, own in (("qpid", {"transacted"}), ("rabbitmq", {"confirms", "mandatory"})):
        made = worker_spec(library="pika", system=system).model_dump(mode="json")
        spec.write_text(json.dumps(made | {"role": "producer"}))
        assert own == read_spec(spec, settings).options.keys() - {"heartbeat"}
