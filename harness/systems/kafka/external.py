"""Kafka clusters that somebody else started."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from harness.clusters.external.cluster import (
    PROBED,
    ExternalSystem,
    FoundCluster,
    clocks,
    named_nodes,
    try_topic,
)
from harness.clusters.external.made import MadeNames
from harness.connections.file import Connection
from harness.connections.security import Access
from harness.errors import BrokerstormError
from harness.need import Need
from harness.protocols.cluster import Node
from harness.systems.kafka import KEEPS
from harness.systems.kafka.admin import KafkaAdmin
from harness.systems.kafka.external_admin import ExternalKafkaAdmin
from harness.systems.kafka.failover import KafkaFailover
from harness.systems.kafka.questions import KafkaQuestions
from harness.systems.kafka.security import probe_options

_REPLICAS: Final = 3


class _ExternalKafka(ExternalSystem):
    def find(self, connection: Connection) -> FoundCluster:
        found = _questions(connection).identity()
        brokers = {f"kafka-{number}": (number, at) for number, at in found.brokers.items()}
        nodes = named_nodes(connection, brokers, {name: at for name, (_, at) in brokers.items()})
        ask = KafkaFailover(nodes, lambda _node: True, connection.admin)
        try:
            version = ".".join(map(str, ask(lambda broker: broker.version())))
        finally:
            ask.close()
        return FoundCluster(found.cluster_id, version, nodes)

    def admin(
        self, connection: Connection, found: FoundCluster, made: MadeNames
    ) -> ExternalKafkaAdmin:
        access = Access(connection.security, connection.admin)
        return ExternalKafkaAdmin(
            KafkaAdmin(found.nodes, access=access), _questions(connection), made
        )

    def examine(
        self, connection: Connection, nodes: Sequence[Node], admin: ExternalKafkaAdmin
    ) -> Iterator[Need]:
        copies = connection.file.topics.replication or min(_REPLICAS, len(nodes))
        stamped = {"message.timestamp.type": "LogAppendTime"}
        address, refused = try_topic(connection, admin, "topics", len(nodes), copies, stamped)
        if refused:
            yield refused
            return
        yield Need("topics", True, f"{address} was made; {len(nodes)} partitions were written to")
        yield Need("replication", True, f"{copies} replicas of each, all in sync")
        questions = _questions(connection)
        leaders = admin.leaders(PROBED)
        stamped_s = questions.clocks(address, len(nodes))
        yield clocks({str(leaders.get(at)): found for at, found in sorted(stamped_s.items())})
        held = ", ".join(f"{key}={value}" for key, value in KEEPS.items())
        yield Need("retention", True, f"topics of runs keep everything, as the brokers say: {held}")
        yield _quotas(connection, nodes)


def _quotas(connection: Connection, nodes: Sequence[Node]) -> Need:
    ask = KafkaFailover(nodes, lambda _node: True, connection.admin)
    try:
        found = ask(lambda broker: broker.quotas())
    except BrokerstormError as error:
        return Need("quotas", False, f"unknown: {error}", "ask who runs it", needed=False)
    finally:
        ask.close()
    text = "; ".join(found) or "none"
    return Need(
        "quotas", not found, text, "a throttled client keeps no rate: leave them out", needed=False
    )


def _questions(connection: Connection) -> KafkaQuestions:
    return KafkaQuestions(connection.file.bootstrap, probe_options(connection.admin))


EXTERNAL = _ExternalKafka()
