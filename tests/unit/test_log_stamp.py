"""Lines of each broker's and each client's log, as runs have them, are read to the millisecond."""

from __future__ import annotations

import tomllib
from datetime import UTC, datetime
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.log_stamp import Stamp, first_stamp
from harness.systems import SYSTEMS
from harness.workers import known_workers
from harness.workers.spec import WorkerSpec

JAVA_CLIENT = (
    "2026-11-22T16:08:43.724Z [kafka-producer-network-thread | producer-1] WARN "
    "org.apache.kafka.clients.NetworkClient - Connection to node 1 could not be established",
    "2026-11-22T16:08:43.724Z [pulsar-client-io-1-1] INFO org.apache.pulsar.client.impl.ClientCnx - closed",
)
PYTHON_CLIENT = ("2026-11-22 16:08:43,724 ERROR pika.adapters: socket closed", "")
#: Of each client: a line that warns, and one that does not (none: its log has warnings only, or no
#: levels).
CLIENTS = {
    "confluent-kafka": (
        "%3|1795363723.724|FAIL|producer-1#producer-1| [thrd:127.0.240.1:19092/1]: Connect failed",
        "%6|1795363723.724|GETSUBSCRIPTIONS|rdkafka#producer-1| [thrd:main]: nothing",
    ),
    "rust-rdkafka": (
        "%3|1795363723.724|FAIL|producer-1| [thrd:127.0.240.1:19092/1]: Connect failed",
        "%6|1795363723.724|GETSUBSCRIPTIONS|producer-1| [thrd:main]: nothing",
    ),
    "amqp-client": JAVA_CLIENT,
    "stream-client": JAVA_CLIENT,
    "kafka-clients": JAVA_CLIENT,
    "pulsar-client-java": JAVA_CLIENT,
    "qpid-jms-legacy": JAVA_CLIENT,
    "kafka-python": PYTHON_CLIENT,
    "aiokafka": PYTHON_CLIENT,
    "pika": PYTHON_CLIENT,
    "pulsar-client": (
        "2026-11-22 16:08:43.724 WARN  [140231] ClientConnection:1698 | [127.0.0.1:5 -> 127.0.0.1:6] closed",
        "2026-11-22 16:08:43.724 INFO  [140231] HandlerBase:152 | Schedule reconnection in 0.1 s",
    ),
    "franz-go": (
        "2026-11-22T16:08:43.724 [WARN] unable to open connection to broker; addr: 127.0.0.1:9092, broker: 2",
        "2026-11-22T16:08:43.724 [INFO] producing to a new topic for the first time; topic: orders",
    ),
    "kafkajs": (
        '2026-11-22T16:08:43.724 ERROR [Connection] Connection error {"broker":"127.0.0.1:9092"}',
        '2026-11-22T16:08:43.724 INFO [ConsumerGroup] Consumer has joined the group {"groupId":"billing"}',
    ),
    "kafka-go": (
        "",
        "[kafka-go] 2026/11/22 16:08:43.724000 error writing messages to orders (partition 3): EOF",
    ),
    "pulsar-client-go": (
        "2026-11-22T16:08:43.724 WARNING Connection was closed map[local_addr:127.0.0.1:5]",
        "2026-11-22T16:08:43.724 INFO Reconnected producer to broker map[]",
    ),
    "amqp091-go": (
        "",
        "[amqp091] 2026/11/22 16:08:43.724000 connection closed",
    ),
    "nats-py": (
        "2026-11-22 16:08:43,724 WARNING nats: the connection is lost",
        "2026-11-22 16:08:43,724 INFO nats: connected again",
    ),
    "nats.go": (
        "",
        "[nats.go] 2026/11/22 16:08:43.724000 the client is connected again, to nats://127.0.1.1:14222",
    ),
    "sarama": (
        "",
        "[sarama] 2026/11/22 16:08:43.724000 producer/broker/1 state change to [retrying] on orders-3",
    ),
}
NODES = {
    "kafka": (
        "[2026-11-22 16:08:43,724] WARN [RaftManager id=2] Connection to node 1 lost (o.a.k.NetworkClient)",
        "[2026-11-22 16:08:43,724] INFO [Broker id=2] Leader orders-5 starts at leader epoch 1 (state)",
    ),
    "nats": (
        "[4711] 2026/11/22 16:08:43.724000 [WRN] JetStream cluster stream '$G > orders-0' has NO quorum",
        "[4711] 2026/11/22 16:08:43.724000 [INF] JetStream cluster new stream leader for '$G > orders-0'",
    ),
    "pulsar": (
        "2026-11-22T16:08:43,724+0000 [main] ERROR org.apache.pulsar.PulsarBrokerStarter - Failed",
        "[2026-11-22 16:08:43,724] INFO [persistent://public/bs-1/orders] Closed (o.a.p.PersistentTopic)",
    ),
    "rabbitmq": (
        "2026-11-22 16:08:43.724000+00:00 [warning] <0.625.0> closing AMQP connection <0.933.0>",
        "2026-11-22 16:08:43.724000+00:00 [info] <0.9.0> queue 'orders-0' in vhost 'a': found a new leader",
    ),
    "qpid": (
        "2026-11-22 16:08:43,724 WARN  [VirtualHostNode-qpid-1-Config] (o.a.q.s.v.b.BDBHA) - lost the master",
        "2026-11-22 16:08:43,724 INFO  [Group-Change-Learner] (q.m.h.role_changed) - HA-1010 : Role Changed",
    ),
}
WALL_NS = 1795363723_724_000_000


def test_every_client_and_system_has_lines_here() -> None:
    assert known_workers().keys() == CLIENTS.keys()
    assert SYSTEMS.keys() == NODES.keys()


@pytest.mark.parametrize("client", CLIENTS)
def test_a_line_of_a_client(client: str) -> None:
    reads_both((Stamp(known_workers()[client].log_stamp),), CLIENTS[client])


@pytest.mark.parametrize("system", NODES)
def test_a_line_of_a_broker(system: str) -> None:
    reads_both(tuple(map(Stamp, SYSTEMS[system].log_stamps)), NODES[system])


def reads_both(stamps: tuple[Stamp, ...], lines: tuple[str, str]) -> None:
    for line, is_severe in zip(lines, (True, False), strict=True):
        if line:
            found = first_stamp(stamps, line.encode())
            assert found is not None
            assert (found.wall_ns, found.is_severe) == (WALL_NS, is_severe)
            assert line[: found.end].endswith(("724", "724000", "724Z", "724+0000", "+00:00"))
    for other in (
        "\tat java.base/java.lang.Thread.run(Thread.java:840)",
        "",
        "Caused by: 2026-11-22",
    ):
        assert first_stamp(stamps, other.encode()) is None


ISO = Stamp("{time} ")


@pytest.mark.parametrize(
    ("text", "hour"),
    [
        ("2026-11-22 16:08:43,5 ", 16),
        ("2026-11-22 16:08:43+02:00 ", 14),
        ("2026/11/22T16:08:43.5Z ", 16),
    ],
)
def test_a_time_without_a_zone_is_utc(text: str, hour: int) -> None:
    found = ISO.read(text.encode())
    assert found is not None
    assert datetime.fromtimestamp(found.wall_ns / 1e9, UTC).hour == hour


def test_what_only_looks_like_a_time_is_none() -> None:
    assert ISO.read(b"2026-13-45 99:00:00 ") is None
    assert ISO.read(b"2026-11-22 ") is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{when}", r"\{when\} in '\{when\}' is none of \{time\}, \{unix\}"),
        ("", "must have {time} or {unix} once"),
        ("{time} {unix}", "must have {time} or {unix} once"),
        ("{time} {level} {level}", "{level} at most once"),
        ("{*}{*}{*}{time}", r"has \{\*\} more than 2 times"),
    ],
)
def test_a_stamp_that_says_no_time_is_refused(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Stamp(text)


def test_a_hostile_stamp_is_no_regular_expression() -> None:
    assert Stamp("(a+)+$ {time}").read(b"a" * 5000) is None
    assert Stamp("{*}{*}{time}").read(b"a" * 5000) is None


def test_a_worker_with_such_a_stamp_is_refused(tmp_path: Path) -> None:
    raw = tomllib.loads((known_workers()["sarama"].folder / "worker.toml").read_text())
    with pytest.raises(UsageError, match=r"log_stamp: .*must have {time} or {unix} once"):
        WorkerSpec.read(tmp_path, {**raw, "log_stamp": "."})
