"""Kafka clusters that somebody else started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.brokers.kafka import KafkaAdmin
from harness.brokers.kafka_shared import SharedKafkaAdmin
from harness.brokers.kafka_stranger import KafkaStranger
from harness.clusters.external.cluster import Found, System, named_nodes
from harness.clusters.external.made import Made
from harness.connections.file import Connection
from harness.protocols.cluster import Node


class _Kafka(System):
    def find(self, connection: Connection) -> Found:
        found = KafkaStranger(connection.file.bootstrap, _options(connection)).identity()
        brokers = {f"kafka-{number}": (number, at) for number, at in found.brokers.items()}
        nodes = named_nodes(connection, brokers, {name: at for name, (_, at) in brokers.items()})
        return Found(found.cluster_id, "", nodes)

    def admin(self, connection: Connection, nodes: Sequence[Node], made: Made) -> SharedKafkaAdmin:
        stranger = KafkaStranger(connection.file.bootstrap, _options(connection))
        return SharedKafkaAdmin(KafkaAdmin(nodes), stranger, made)


def _options(connection: Connection) -> Mapping[str, Any]:
    return {}


SYSTEM = _Kafka()
