"""NATS: what its servers tell of leaders, how answers of its API are read, and what its clients
promise."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from harness.admin.failover import AlreadyThere, NoAnswer, NotThere
from harness.clusters.cluster import describe_cluster
from harness.contracts.plan import TopicPlan
from harness.errors import EnvironmentNotReady, ScenarioError, UsageError
from harness.plan.promise import ClientSettings, Consuming, PromiseContext
from harness.protocols.cluster import Endpoint, Node, PartitionState
from harness.systems import SYSTEMS
from harness.systems.nats import promise
from harness.systems.nats.api import JetStream, _checked
from harness.systems.nats.link import Link, NoResponders
from harness.systems.nats.monitor import Monitor, Told, meta_leader, stream_state
from harness.workers import load_worker

NODES = ("nats-1", "nats-2", "nats-3")


def group(leader: str, *others: Mapping[str, Any]) -> dict[str, Any]:
    return {"leader": leader, "replicas": list(others)}


def told(**leaders: str) -> dict[str, Told]:
    """Node -> what it says of orders-0: leader, and the others in sync."""
    return {
        node.replace("_", "-"): Told(
            leader,
            {
                "orders-0": group(
                    leader, *({"name": n, "current": True} for n in NODES if n != leader)
                )
            },
        )
        for node, leader in leaders.items()
    }


def test_a_leader_is_who_more_than_half_of_the_servers_name() -> None:
    stale = told(nats_1="nats-1", nats_2="nats-2", nats_3="nats-2")  # nats-1 was frozen until now
    assert meta_leader(stale, 3) == "nats-2"
    state = stream_state("orders-0", stale)
    assert state is not None
    assert (state.leader, state.replicas, state.in_sync) == ("nats-2", NODES, NODES)


def test_one_server_alone_names_no_leader() -> None:
    alone = told(nats_1="nats-1")
    assert meta_leader(alone, 3) is None
    state = stream_state("orders-0", alone)
    assert state is not None
    assert state.leader is None
    assert stream_state("orders-1", alone) is None, "no server has a copy of it"


def test_a_server_that_is_no_cluster_leads_all_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    class Jsz:
        def json(self) -> dict[str, Any]:
            return {"account_details": [{"stream_detail": [{"name": "orders-0"}]}]}

    monkeypatch.setattr(Monitor, "_get", lambda self, node, path: Jsz())
    alone = Monitor({"nats-1": "http://127.0.0.1:1"}).leaders_told(["nats-1"])
    assert meta_leader(alone, 1) == "nats-1"
    assert stream_state("orders-0", alone) == PartitionState("nats-1", ("nats-1",), ("nats-1",))


@pytest.mark.parametrize(
    ("replica", "follows"),
    [
        ({"current": True}, True),
        ({"current": False, "active": 5_000_000, "lag": 40}, True),  # as under load
        ({"current": False, "active": 5_000_000, "lag": 4_000}, False),
        ({"current": False, "active": 9_000_000_000, "lag": 1}, False),
        ({"current": True, "offline": True}, False),
    ],
    ids=str,
)
def test_a_follower_that_was_heard_of_and_lacks_little_is_in_sync(
    replica: dict[str, Any], follows: bool
) -> None:
    said = group("nats-1", {"name": "nats-2", **replica}, {"name": "nats-3", "current": True})
    state = stream_state("orders-0", {node: Told("", {"orders-0": said}) for node in NODES})
    assert state is not None
    assert ("nats-2" in state.in_sync) is follows


@pytest.mark.parametrize(
    ("code", "error", "hint"),
    [
        (10059, NotThere, ""),
        (10058, AlreadyThere, "other settings"),
        (10065, AlreadyThere, "another stream holds"),
        (10039, EnvironmentNotReady, "enable JetStream"),
        (10047, EnvironmentNotReady, "make room"),
        (10008, NoAnswer, ""),
        (10052, UsageError, ""),
    ],
)
def test_an_error_of_the_api_is_what_it_means_here(
    code: int, error: type[Exception], hint: str
) -> None:
    said = {"error": {"code": 400, "err_code": code, "description": "its words"}}
    with pytest.raises(error, match="its words") as caught:
        _checked("nats-1", "STREAM.CREATE.orders-0", said)
    assert hint in getattr(caught.value, "hint", "")


def test_servers_that_are_not_heard_of_now_are_asked_again() -> None:
    words = "no suitable peers for placement, peer offline"
    with pytest.raises(NoAnswer, match=words):
        _checked("nats-1", "STREAM.CREATE.a", {"error": {"err_code": 10005, "description": words}})


# -- the protocol


@pytest.fixture
def server() -> Iterator[tuple[Endpoint, list[bytes]]]:
    """Greets, pings us, and answers the first request as the test says."""
    listener = socket.create_server(("127.0.0.1", 0))
    answers: list[bytes] = []

    def serve() -> None:
        link, _ = listener.accept()
        with link, link.makefile("rb") as lines:
            link.sendall(b'INFO {"server_name":"a","jetstream":true} \r\n')
            while line := lines.readline():
                if line.startswith(b"PING"):
                    link.sendall(b"PING\r\nPONG\r\n")
                elif line.startswith((b"PUB", b"HPUB")):
                    reply = line.split()[2]
                    lines.read(int(line.split()[-1]) + 2)
                    link.sendall(answers[0].replace(b"REPLY", reply))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    host, port = listener.getsockname()
    yield Endpoint(host, port), answers
    listener.close()
    thread.join(5)


def test_a_request_has_the_answer_with_its_own_name(server: tuple[Endpoint, list[bytes]]) -> None:
    at, answers = server
    answers.append(b'MSG _INBOX.old 1 2\r\n{}\r\nMSG REPLY 1 10\r\n{"seq": 7}\r\n')
    with Link(at) as link:
        assert link.info["jetstream"] is True
        assert link.ask("orders-0", b"x", within_s=2.0) == {"seq": 7}


def test_a_subject_that_nobody_listens_to(server: tuple[Endpoint, list[bytes]]) -> None:
    at, answers = server
    answers.append(b"HMSG REPLY 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n")
    with Link(at) as link, pytest.raises(NoResponders):
        link.ask("$JS.API.INFO", within_s=2.0)


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        (b"HMSG REPLY 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n", "nats-1 does not pass messages on to"),
        (b'MSG REPLY 1 30\r\n{"error": {"err_code": 10060}}\r\n', ""),
    ],
)
def test_a_server_that_does_not_know_a_stream_yet_is_named(
    server: tuple[Endpoint, list[bytes]], answer: bytes, failure: str
) -> None:
    at, answers = server
    answers.append(answer)
    node = Node("nats-1", 1, at, at, at, Path())
    asked = JetStream([node], {"nats-1": at}, lambda name: True).unheard(["orders-0"])
    assert asked.startswith(failure)
    assert bool(asked) == bool(failure)


def test_a_server_that_does_not_answer_ends_the_question(
    server: tuple[Endpoint, list[bytes]],
) -> None:
    at, answers = server
    answers.append(b"")
    with Link(at) as link, pytest.raises(NoAnswer, match="in time"):
        link.ask("$JS.API.INFO", within_s=0.1)


# -- facts and promises


def topic(**config: str) -> TopicPlan:
    return TopicPlan(name="orders", address="orders", partitions=3, replication=3, config=config)


def settings(role: str, **options: str) -> ClientSettings:
    named = {key.replace("__", "."): value for key, value in options.items()}
    return ClientSettings(load_worker("nats.go"), "", named, role)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "config", "promised"),
    [
        ({}, {}, False),
        ({"Publish__MsgID": "true"}, {}, True),
        ({"Publish__MsgID": "true", "Publish__AsyncTimeout": "5s"}, {}, True),
        ({"Publish__MsgID": "true", "Publish__AsyncTimeout": "30s"}, {}, None),
        (
            {"Publish__MsgID": "true", "Publish__AsyncTimeout": "5s"},
            {"duplicate_window": "1000000000"},
            None,
        ),
    ],
    ids=str,
)
def test_what_is_sent_twice_is_stored_once_within_the_window_only(
    options: dict[str, str], config: dict[str, str], promised: bool | None
) -> None:
    producer = promise.read_producer(settings("producer", **options))
    assert producer.dedup(PromiseContext([topic(**config)], {}))[0] is promised


def test_order_is_kept_where_nothing_is_sent_again() -> None:
    context = PromiseContext([topic()], {})
    assert (
        promise.read_producer(settings("producer", Publish__RetryAttempts="0")).order(context)[0]
        is True
    )
    assert promise.read_producer(settings("producer")).order(context)[0] is False


def test_what_is_acknowledged_is_on_disks_with_sync_interval_always_only() -> None:
    producer = promise.read_producer(settings("producer"))
    assert producer.synced(topic(), PromiseContext([topic()], {}))[0] is False
    always = PromiseContext([topic()], {"jetstream.sync_interval": "always"})
    assert producer.synced(topic(), always)[0] is True


def test_consumers() -> None:
    def consuming(settle: str) -> Consuming:
        return Consuming("nats.go", "", {}, {}, settle)

    durable = promise.read_consumer(
        consuming("ack"), settings("consumer", Consumer__AckWait="5s"), ()
    )
    assert (durable.subscription, durable.order, durable.ack_timeout_s) == ("shared", "none", 5.0)
    assert not durable.acks_confirmed
    ordered = promise.read_consumer(consuming("none"), settings("consumer", Kind="ordered"), ())
    assert (ordered.subscription, ordered.order) == ("exclusive", "stream")
    with pytest.raises(ScenarioError, match="acknowledges nothing"):
        promise.read_consumer(consuming("ack"), settings("consumer", Kind="ordered"), ())


@pytest.mark.parametrize(
    "config",
    [{"max_age": "5"}, {"retention": "forever"}, {"subjects": "x"}, {"max_bytes": "9"}],
    ids=str,
)
def test_streams_that_would_drop_messages_are_refused(config: dict[str, str]) -> None:
    assert list(SYSTEMS["nats"].topic_problems(3, config))


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
def test_a_stream_that_removes_acknowledged_messages_is_read_as_a_queue(retention: str) -> None:
    assert not list(SYSTEMS["nats"].topic_problems(3, {"retention": retention}))
    own = topic(retention=retention)
    consuming = Consuming("nats.go", "", {}, {}, "ack", topics=[own])
    asked = promise.read_consumer(consuming, settings("consumer", Confirm="true"), ())
    assert (asked.subscription, asked.order, asked.acks_confirmed) == ("queue", "none", True)


@pytest.mark.parametrize("key", ["mirror", "sources"])
def test_a_stream_that_copies_others_is_refused_with_what_to_write_instead(key: str) -> None:
    ((where, why),) = SYSTEMS["nats"].topic_problems(3, {key: "{name: origin}"})
    assert where == key
    assert "declare the stream that it copies" in why


def test_names_and_limits() -> None:
    system = SYSTEMS["nats"]
    assert system.address("a.b", 1) == "a_b"
    assert system.address("orders", 0xAB, "team") == "team-000000ab-orders"
    assert system.size_limit({"max_msg_size": "1000"}, {"max_payload": "8MB"}) == 1000
    assert system.size_limit({}, {}) == 2**20
    data, end = system.request("client", 10) or (b"", b"")
    assert data.startswith(b"PUB ")
    assert end == b"PONG\r\n"
    assert system.request("peer") is None


def test_a_route_answers_who_shows_the_password() -> None:
    cluster = describe_cluster("nats")
    data, end = cluster.request("peer") or (b"", b"")
    hello = json.loads(data.splitlines()[0].removeprefix(b"CONNECT "))
    account = cluster.runtime.management.auth
    assert (hello["user"], hello["pass"], end) == (
        account.user,
        account.secret.reveal(),
        b"PONG\r\n",
    )
    assert cluster.request("peer", 10) is None, "it takes no ballast"
