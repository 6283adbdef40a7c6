"""Users of our own clusters: their SCRAM credentials, and the one who may do everything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import methodcaller
from typing import Final

from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ResourcePattern,
    ResourceType,
    UserScramCredentialUpsertion,
)
from kafka.errors import KafkaError

from harness.admin.failover import POLL_S
from harness.connections.secret import Secret
from harness.connections.security import Security
from harness.errors import EnvironmentNotReady
from harness.protocols.cluster import Node
from harness.systems.kafka.failover import KafkaFailover
from harness.systems.kafka.security import admin_options
from harness.systems.kafka.single import connect
from harness.waiting import wait_while

_MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_ADMIT_S: Final = 60.0
_EVERYTHING: Final = {
    ResourceType.TOPIC: "*",
    ResourceType.GROUP: "*",
    ResourceType.TRANSACTIONAL_ID: "*",
    ResourceType.CLUSTER: "kafka-cluster",
}


def admit(ask: KafkaFailover, passwords: Mapping[str, Secret], may: str) -> None:
    """Make users known to the brokers, and let one do everything.

    Args:
        may: the user with all rights; the others have none.

    Raises:
        EnvironmentNotReady: no broker answers, or it refuses (its words).
    """
    said: list[str | None] = []
    for mechanism in _MECHANISMS:  # Kafka takes one of a user in a request
        credentials = [
            UserScramCredentialUpsertion(user, mechanism, secret.reveal())
            for user, secret in passwords.items()
        ]
        said += ask(methodcaller("alter_user_scram_credentials", credentials)).values()
    rights = [
        ACL(
            f"User:{may}",
            "*",
            ACLOperation.ALL,
            ACLPermissionType.ALLOW,
            ResourcePattern(kind, name),
        )
        for kind, name in _EVERYTHING.items()
    ]
    failed = ask(lambda broker: broker.create_acls(rights))["failed"]
    if refused := [text for text in (*said, *failed) if text]:
        raise EnvironmentNotReady(f"Kafka refuses its users or their rights: {refused[0]}")


def wait_admitted(nodes: Sequence[Node], clients: Security) -> None:
    """Return when every broker lets the clients in, as one of them.

    Raises:
        EnvironmentNotReady: what a broker says after a minute.
    """
    options = admin_options(clients)

    def refused() -> str:
        for node in nodes:
            try:
                client = connect(replace(node, admin=node.client), options)
            except (KafkaError, OSError) as error:
                return f"{node.name}: {type(error).__name__}: {error}"
            try:
                client.list_topics()
                client.controller()  # asks for a right on the cluster
            except (KafkaError, OSError) as error:
                return f"{node.name}: {type(error).__name__}: {error}"
            finally:
                client.close()
        return ""

    if why := wait_while(refused, _ADMIT_S, every_s=POLL_S):
        raise EnvironmentNotReady(f"the clients' user is not let in within {_ADMIT_S:.0f} s: {why}")
