"""RabbitMQ's admin on nodes that others use too: queues have our names here and longer ones there,
and every one that is made was written down before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from harness.admin.made_ledger import MadeLedger
from harness.admin.run_names import RunNames
from harness.errors import UsageError
from harness.protocols.cluster import Endpoint, Node, TopicSettings
from harness.systems.rabbitmq.admin import RabbitMqAdmin
from harness.systems.rabbitmq.link import shown

#: Places of the policy and of the operator policy in RabbitMQ's record of a queue (`amqqueue`).
_POLICIES: Final = (10, 11)
#: Keys of policies that let a queue drop messages, or drop the queue.
_DROPS: Final = frozenset(("message-ttl", "expires", "delivery-limit", "max-age"))
#: Keys that do so unless the queue refuses messages that exceed its bound.
_BOUNDS: Final = frozenset(("max-length", "max-length-bytes"))
_REFUSES: Final = "reject-publish"


class ExternalRabbitMqAdmin(RabbitMqAdmin):
    """A `RabbitMqAdmin` that sees the queues and the clients of one run alone (NamesTopics)."""

    def __init__(self, nodes: Sequence[Node], made: MadeLedger, **how: Any) -> None:
        super().__init__(nodes, **how)
        self._run = RunNames(made, "queue")

    def name_topics(self, addresses: Mapping[str, str], groups: Sequence[str]) -> None:
        """Set the names of topics; see `NamesTopics.name_topics`. Brokers have no groups."""
        self._run.set(addresses)

    def _declares_at(self, node: Node) -> Endpoint:
        return node.client

    def _theirs(self, stream: str) -> str:
        return self._run.theirs(stream)

    def _ours(self, queue: str) -> str:
        return self._run.ours(queue)

    def _probe_queue(self, node: str) -> str:
        """One of the run's own, once it has topics."""
        if not self._run.first_address:
            return ""
        queue = f"{self._run.first_address}-probe-{node}"
        self._run.note(queue)
        return queue

    def _start_host(self, name: str) -> None:
        """Do nothing: a virtual host of others is theirs to start."""

    def create_topics(self, topics: Sequence[TopicSettings]) -> None:
        """Create topics; see `RabbitMqAdmin.create_topics`.

        Raises:
            UsageError: a topic that is none of this run's.
        """
        self._run.refuse_foreign(topics)
        super().create_topics(topics)

    def _declare(self, node: str, stream: str, topic: TopicSettings) -> None:
        queue = self._theirs(stream)
        with self._run.making(queue):
            super()._declare(node, stream, topic)
        row = self._first(lambda link: self._row(link, queue))
        for policy, key, value in _dropping_keys(row):
            raise UsageError(
                f"queue {queue}: policy {policy} sets {key}={value}: messages may be dropped, "
                "which would look like a loss",
                hint=f"`rabbitmqctl list_policies -p {self._virtual_host}` (list_operator_policies) "
                "shows it: its pattern must leave out queues of this prefix",
            )

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics and the queues for the harness's own messages; see
        `RabbitMqAdmin.delete_topics`."""
        super().delete_topics(names)
        self._delete([queue for queue in self._run.noted if "-probe-" in queue])

    def delete_made(self, made: Mapping[str, Sequence[str]]) -> None:
        """Delete what a run made, by the brokers' names, and strike it out."""
        self._delete(self._run.made_in(made))

    def _delete(self, queues: Sequence[str]) -> None:
        super()._delete(queues)
        self._run.forget(queues)

    def _is_client_of_ours(self, name: str) -> bool:
        return self._run.has_client(name)


def _dropping_keys(row: Sequence[Any]) -> Iterator[tuple[str, str, str]]:
    """Yield policy, key and value of each setting of policies that lets a queue drop messages.

    Args:
        row: RabbitMQ's record of the queue.
    """
    for place in _POLICIES:
        if not isinstance(row[place], list):  # none matches
            continue
        policy = dict(row[place])
        sets = {shown(key): shown(value) for key, value in dict(policy["definition"]).items()}
        drops = _DROPS if sets.get("overflow") == _REFUSES else _DROPS | _BOUNDS
        yield from ((shown(policy["name"]), key, sets[key]) for key in sorted(drops & set(sets)))
