"""The Kafka admin without a broker: what it refuses, whom it asks, and when it gives up."""

from __future__ import annotations

import socket
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kafka.errors import InvalidReplicationFactorError, KafkaConnectionError, NotControllerError

from harness import records
from harness.admin.probe import probe_payload
from harness.errors import EnvironmentNotReady, UsageError
from harness.protocols.cluster import Admin, Endpoint, HasLeaders, Node, TopicSettings
from harness.systems.kafka import CORRELATION, api_versions
from harness.systems.kafka import admin as kafka_admin
from harness.systems.kafka import failover as kafka_failover
from harness.systems.kafka import topics as kafka_topics
from harness.systems.kafka.admin import KafkaAdmin
from harness.systems.kafka.readiness import missing_parts
from harness.systems.kafka.topics import topic_config

NODES = [
    Node(
        f"kafka-{n}",
        n,
        *(Endpoint(f"127.0.250.{n}", port) for port in (1, 2, 3)),
        folder=Path("/nowhere"),
    )
    for n in (1, 2, 3)
]


class Clients:
    """Stands for `connect`: each node answers as its behaviour says."""

    def __init__(self, **behaviour: Callable[[], Any]) -> None:
        self.behaviour = behaviour
        self.asked: list[str] = []
        self.closed: list[str] = []
        self.rows: list[dict[str, Any]] = []

    def __call__(self, node: Node, security: Mapping[str, Any]) -> Any:
        assert security == {"security_protocol": "PLAINTEXT"}
        clients = self

        class Client:
            def unfenced(self) -> Any:
                clients.asked.append(node.name)
                return clients.behaviour[node.name.replace("-", "_")]()

            controller = list_topics = unfenced

            def create_topics(self, topics: dict[str, Any], **options: object) -> dict[str, Any]:
                return {"topics": [{"name": name, "error_code": 0} for name in topics]}

            def describe_topics(self, topics: list[str]) -> list[dict[str, Any]]:
                assert set(topics) == {row["name"] for row in clients.rows}
                return clients.rows

            def close(self) -> None:
                clients.closed.append(node.name)

        return Client()


def refuses() -> Any:
    raise KafkaConnectionError("refused")


def everybody() -> list[int]:
    return [1, 2, 3]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Clients]:
    def put(**behaviour: Callable[[], Any]) -> Clients:
        clients = Clients(**behaviour)
        monkeypatch.setattr(kafka_failover, "connect", clients)
        monkeypatch.setattr(kafka_failover, "ASK_S", 0.3)
        return clients

    return put


def test_it_is_an_admin_with_leaders() -> None:
    admin = KafkaAdmin(NODES)
    assert isinstance(admin, Admin)
    assert isinstance(admin, HasLeaders)


def test_the_next_broker_is_asked_when_one_does_not_answer(install: Callable[..., Clients]) -> None:
    clients = install(kafka_1=refuses, kafka_2=refuses, kafka_3=everybody)
    admin = KafkaAdmin(NODES)
    assert admin.registered() == {"kafka-1", "kafka-2", "kafka-3"}
    assert clients.asked == ["kafka-1", "kafka-2", "kafka-3"]
    assert clients.closed == ["kafka-1", "kafka-2"]
    admin.registered()
    assert clients.asked[-1] == "kafka-3", "a broker that answered is asked again"


def test_nodes_known_to_be_away_are_asked_last(install: Callable[..., Clients]) -> None:
    clients = install(kafka_1=refuses, kafka_2=everybody, kafka_3=everybody)
    KafkaAdmin(NODES, is_reachable=lambda name: name != "kafka-1").registered()
    assert clients.asked == ["kafka-2"]


def test_an_answer_that_asking_again_would_not_change_ends_the_asking(
    install: Callable[..., Clients],
) -> None:
    def bad() -> Any:
        raise InvalidReplicationFactorError("3 of 1")

    clients = install(kafka_1=bad, kafka_2=everybody, kafka_3=everybody)
    with pytest.raises(UsageError, match="kafka-1 refuses"):
        KafkaAdmin(NODES).registered()
    assert clients.asked == ["kafka-1"]


def test_a_retriable_answer_is_asked_elsewhere_without_hanging_up(
    install: Callable[..., Clients],
) -> None:
    def not_now() -> Any:
        raise NotControllerError("elsewhere")

    clients = install(kafka_1=not_now, kafka_2=everybody, kafka_3=everybody)
    KafkaAdmin(NODES).registered()
    assert clients.asked == ["kafka-1", "kafka-2"]
    assert clients.closed == []


def test_when_nobody_answers_it_gives_up_in_time_and_says_who(
    install: Callable[..., Clients],
) -> None:
    install(kafka_1=refuses, kafka_2=refuses, kafka_3=refuses)
    started = time.monotonic()
    with pytest.raises(
        EnvironmentNotReady, match=r"\(kafka-1, kafka-2, kafka-3 KafkaConnectionError"
    ):
        KafkaAdmin(NODES).registered()
    assert time.monotonic() - started < 20.0


def test_a_topic_is_there_when_every_broker_in_reach_knows_it(
    install: Callable[..., Clients],
) -> None:
    late = iter([[], [], ["orders"]])
    clients = install(kafka_1=lambda: ["orders"], kafka_2=lambda: next(late), kafka_3=refuses)
    KafkaAdmin(NODES).create_topics([TopicSettings("orders", 1, 1)])
    assert clients.asked.count("kafka-2") == 3


def test_the_controller_is_unknown_rather_than_an_error(install: Callable[..., Clients]) -> None:
    install(kafka_1=refuses, kafka_2=refuses, kafka_3=refuses)
    assert KafkaAdmin(NODES).controller() is None


def test_a_node_that_comes_back_is_not_believed_before_one_that_stayed(
    install: Callable[..., Clients],
) -> None:
    clients = install(kafka_1=everybody, kafka_2=everybody, kafka_3=everybody)
    away = {"kafka-1"}
    admin = KafkaAdmin(NODES, is_reachable=lambda name: name not in away)
    admin.registered()
    away.clear()
    admin.registered()
    assert clients.asked == ["kafka-2", "kafka-2"]


def test_waiting_for_readiness_ends_early_when_a_node_died(install: Callable[..., Clients]) -> None:
    install(kafka_1=refuses, kafka_2=refuses, kafka_3=refuses)

    def died() -> None:
        raise EnvironmentNotReady("kafka-2 died")

    with pytest.raises(EnvironmentNotReady, match="kafka-2 died"):
        KafkaAdmin(NODES, watch=died).wait_ready([], timeout_s=60.0, run_tag=1)


def test_what_is_missing_is_named_at_the_timeout(install: Callable[..., Clients]) -> None:
    install(kafka_1=lambda: [1, 3], kafka_2=refuses, kafka_3=lambda: [1, 3])
    with pytest.raises(EnvironmentNotReady, match="not ready after 0 s: kafka-2 is not registered"):
        KafkaAdmin(NODES).wait_ready(["orders"], timeout_s=0.2, run_tag=1)


def test_internal_topics_that_our_user_may_not_see_are_not_waited_for(
    install: Callable[..., Clients],
) -> None:
    clients = install(kafka_1=everybody, kafka_2=everybody, kafka_3=everybody)
    clients.rows = [
        {"name": name, "error_code": 29, "partitions": []} for name in kafka_admin.INTERNAL_TOPICS
    ]
    KafkaAdmin(NODES).wait_ready([], timeout_s=0.2, run_tag=1)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"cleanup.policy": "compact,delete"}, "cleanup.policy=compact,delete"),
        ({"retention.ms": "60000"}, "retention.ms=60000"),
        ({"retention.bytes": 1}, "retention.bytes=1"),
    ],
)
def test_topics_that_drop_records_are_refused(config: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match="could not be detected") as caught:
        topic_config(TopicSettings("orders", 1, 1, config))
    assert said in str(caught.value)
    assert "orders" in str(caught.value)


def test_topics_keep_everything_and_what_the_user_set() -> None:
    config = topic_config(
        TopicSettings("orders", 1, 3, {"min.insync.replicas": "2", "retention.ms": "-1"})
    )
    assert config == {
        "min.insync.replicas": "2",
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "retention.bytes": "-1",
    }


def test_many_topics_go_in_requests_of_a_bounded_size() -> None:
    topics = [TopicSettings(f"t{i}", 90, 3) for i in range(5)] + [TopicSettings("big", 1000, 3)]
    batches = list(kafka_topics._batches(topics))
    assert [t.name for batch in batches for t in batch] == [t.name for t in topics]
    assert [len(batch) for batch in batches] == [2, 2, 1, 1]
    assert list(kafka_topics._batches([])) == []


def partition(number: int, leader: int, isr: list[int]) -> dict[str, Any]:
    return {
        "partition_index": number,
        "leader_id": leader,
        "replica_nodes": [1, 2, 3],
        "isr_nodes": isr,
    }


def test_missing_parts_of_a_topic() -> None:
    names = {1: "kafka-1", 2: "kafka-2", 3: "kafka-3"}
    rows = [partition(1, -1, [1]), partition(0, 1, [1, 2, 3]), partition(2, 2, [2])]
    assert missing_parts("orders", {"error_code": 0, "partitions": rows}, names) == [
        "orders-1 has no leader",
        "orders-2: kafka-1, kafka-3 not in sync",
    ]
    assert missing_parts("orders", {"error_code": 0, "partitions": rows[1:2]}, names) == []
    assert missing_parts("orders", None, names) == ["topic orders: no metadata"]
    assert missing_parts("orders", {"error_code": 3, "partitions": []}, names) == [
        "topic orders: UnknownTopicOrPartitionError"
    ]


def test_a_probe_has_our_header_and_is_never_load() -> None:
    payload = probe_payload(0xDEADBEEF, lane=7, seq=2)
    assert len(payload) == records.MIN_PAYLOAD_BYTES
    header = np.frombuffer(payload[: records.HEADER_BYTES], records.HEADER)[0]
    assert header["magic"] == records.HEADER_MAGIC
    assert header["version"] == records.FORMAT_VERSION
    assert header["kind"] == records.Kind.PROBE
    assert (header["run_tag"], header["instance"], header["lane"], header["seq"]) == (
        0xDEADBEEF,
        0,
        7,
        2,
    )
    assert header["length"] == len(payload)
    assert int.from_bytes(payload[-4:], "little") == zlib.crc32(payload[:-4])


# ----- whether a node answers ---------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[tuple[Endpoint, dict[str, Any]]]:
    """Accepts, reads a request, and answers as ``how`` says; silent without a reply."""
    how: dict[str, Any] = {"reply": None, "requests": []}
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(5)

        def serve() -> None:
            link, _ = listening.accept()
            with link:
                how["requests"].append(link.recv(1024))
                if how["reply"] is not None:
                    link.sendall(how["reply"])
                how["done"].wait(5)

        how["done"] = threading.Event()
        thread = threading.Thread(target=serve)
        thread.start()
        yield Endpoint("127.0.0.1", listening.getsockname()[1]), how
        how["done"].set()
        thread.join(5)


def admin_at(endpoint: Endpoint) -> KafkaAdmin:
    return KafkaAdmin([Node("kafka-1", 1, endpoint, endpoint, endpoint, Path())])


def test_a_broker_that_answers(server: tuple[Endpoint, dict[str, Any]]) -> None:
    endpoint, how = server
    how["reply"] = struct.pack(">iih", 6, CORRELATION, 0)
    assert admin_at(endpoint).answers("kafka-1")
    assert how["requests"] == [api_versions()[0]]


@pytest.mark.parametrize("reply", [None, b"", b"\0\0\0\4\0\0\0\1"])
def test_a_broker_that_does_not(
    server: tuple[Endpoint, dict[str, Any]], reply: bytes | None
) -> None:
    endpoint, how = server
    how["reply"] = reply
    assert not admin_at(endpoint).answers("kafka-1")


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert not admin_at(Endpoint("127.0.0.1", port)).answers("kafka-1")
