"""RabbitMQ's admin on nodes that others use too: queues have our names here and longer ones there,
and every one that is made was written down before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from harness.admin.client_names import TAGGED
from harness.admin.failover import AlreadyThere
from harness.admin.made_ledger import MadeLedger
from harness.errors import UsageError
from harness.protocols.cluster import Endpoint, Node, TopicSettings
from harness.systems.rabbitmq.admin import RabbitMqAdmin

_QUEUE: Final = "queue"


class ExternalRabbitMqAdmin(RabbitMqAdmin):
    """A `RabbitMqAdmin` that sees the queues and the clients of one run alone (NamesTopics)."""

    def __init__(self, nodes: Sequence[Node], made: MadeLedger, **how: Any) -> None:
        super().__init__(nodes, **how)
        self._ledger = made
        self._addresses: dict[str, str] = {}
        self._noted: set[str] = set()

    def name_topics(self, addresses: Mapping[str, str], groups: Sequence[str]) -> None:
        """Set the names of topics; see `NamesTopics.name_topics`. Brokers have no groups."""
        self._addresses = dict(addresses)

    def _declares_at(self, node: Node) -> Endpoint:
        return node.client

    def _theirs(self, stream: str) -> str:
        topic, _, partition = stream.rpartition("-")
        return f"{self._addresses.get(topic, topic)}-{partition}"

    def _ours(self, queue: str) -> str:
        address, _, partition = queue.rpartition("-")
        topic = next((name for name, at in self._addresses.items() if at == address), "")
        return f"{topic}-{partition}" if topic and partition.isdigit() else ""

    def _probe_queue(self, node: str) -> str:
        """One of the run's own, once it has topics."""
        address = next(iter(self._addresses.values()), "")
        if not address:
            return ""
        queue = f"{address}-probe-{node}"
        self._note(queue)
        return queue

    def _start_host(self, name: str) -> None:
        """Do nothing: a virtual host of others is theirs to start."""

    def create_topics(self, topics: Sequence[TopicSettings]) -> None:
        """Create topics; see `RabbitMqAdmin.create_topics`.

        Raises:
            UsageError: a topic that is none of this run's.
        """
        if foreign := [topic.name for topic in topics if topic.name not in self._addresses]:
            raise UsageError(
                f"{foreign[0]} is not a topic of this run", hint=", ".join(self._addresses)
            )
        super().create_topics(topics)

    def _declare(self, node: str, stream: str, topic: TopicSettings) -> None:
        queue = self._theirs(stream)
        self._note(queue)
        try:
            super()._declare(node, stream, topic)
        except AlreadyThere:  # whoever made it, it stays
            self._forget([queue])
            raise

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics and the queues for the harness's own messages; see
        `RabbitMqAdmin.delete_topics`."""
        super().delete_topics(names)
        self._delete([queue for queue in self._noted if "-probe-" in queue])

    def delete_made(self, made: Mapping[str, Sequence[str]]) -> None:
        """Delete what a run made, by the brokers' names, and strike it out."""
        self._delete(made.get(_QUEUE, ()))

    def _delete(self, queues: Sequence[str]) -> None:
        super()._delete(queues)
        self._forget(queues)

    def _is_client_of_ours(self, name: str) -> bool:
        tagged = TAGGED.fullmatch(name)
        addresses = self._addresses.values()
        return tagged is not None and any(f"-{tagged[2]}-" in address for address in addresses)

    def _note(self, queue: str) -> None:
        if queue not in self._noted:
            self._ledger.add(_QUEUE, [queue])
            self._noted.add(queue)

    def _forget(self, queues: Sequence[str]) -> None:
        self._ledger.remove(_QUEUE, queues)
        self._noted.difference_update(queues)
