"""Qpid's admin on brokers that others use too: queues have our names here and longer ones there,
and every one that is made was written down before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.admin.client_names import TAGGED
from harness.admin.failover import AlreadyThere
from harness.admin.made_ledger import MadeLedger
from harness.connections.security import Access
from harness.errors import UsageError
from harness.protocols.cluster import ClientConnection, Node, TopicSettings
from harness.systems.qpid.admin import QpidAdmin, QueueConfig
from harness.systems.qpid.rest import QueuePlace


class ExternalQpidAdmin(QpidAdmin):
    """A `QpidAdmin` that sees the queues and the clients of one run alone (NamesTopics)."""

    def __init__(
        self,
        nodes: Sequence[Node],
        urls: Mapping[str, str],
        access: Access,
        place: QueuePlace,
        made: MadeLedger,
    ) -> None:
        super().__init__(nodes, access=access, place=place, urls=urls)
        self._made = made
        self._addresses: dict[str, str] = {}
        self._called: dict[str, str] = {}
        self._noted: set[str] = set()

    def name_topics(self, addresses: Mapping[str, str], groups: Sequence[str]) -> None:
        """Set the names of topics; see `NamesTopics.name_topics`. Brokers have no groups."""
        self._addresses = dict(addresses)
        self._called = {address: name for name, address in addresses.items()}

    def _queue(self, stream: str) -> str:
        topic, _, partition = stream.rpartition("-")
        return f"{self._addresses[topic]}-{partition}"

    def _stream(self, queue: str) -> str:
        address, _, partition = queue.rpartition("-")
        ours = address in self._called and partition.isdigit()  # else it is the probe's
        return f"{self._called[address]}-{partition}" if ours else ""

    def create_topics(self, topics: Sequence[TopicSettings]) -> None:
        """Create topics; see `QpidAdmin.create_topics`.

        Raises:
            UsageError: a topic that is none of this run's.
        """
        if foreign := [topic.name for topic in topics if topic.name not in self._addresses]:
            raise UsageError(
                f"{foreign[0]} is not a topic of this run", hint=", ".join(self._addresses)
            )
        super().create_topics(topics)

    def _make_queue(self, master: str, stream: str, config: QueueConfig) -> None:
        queue = self._queue(stream)
        self._note(queue)
        try:
            super()._make_queue(master, stream, config)
        except AlreadyThere:  # whoever made it, it stays
            self._forget([queue])
            raise

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics and the queue for the harness's own messages; see
        `QpidAdmin.delete_topics`."""
        master = self._serving()
        streams = [stream for stream in self._depths(master) if stream.rpartition("-")[0] in names]
        self.delete_made(
            {"queue": [*map(self._queue, streams), *filter(None, [self._probe_queue()])]}
        )

    def delete_made(self, made: Mapping[str, Sequence[str]]) -> None:
        """Delete what a run made, by the brokers' names, and strike it out."""
        if queues := made.get("queue", ()):
            self._delete(self._serving(), queues)
            self._forget(queues)

    def connections(self) -> list[ClientConnection]:
        """Return the connections of this run's clients: their names end with its tag."""
        rows = self._rest.get(self._serving(), "connection") or []
        ours = [row for row in rows if self._is_ours(str(row.get("clientId") or ""))]
        return sorted(map(self._connection, ours), key=lambda found: found.id)

    def _is_ours(self, client: str) -> bool:
        tagged = TAGGED.fullmatch(client)
        return tagged is not None and any(f"-{tagged[2]}-" in address for address in self._called)

    def _probe_queue(self) -> str:
        """One of the run's own, once it has topics."""
        name = next((f"{address}-probe" for address in self._called), "")
        if name:
            self._note(name)
        return name

    def _note(self, queue: str) -> None:
        if queue not in self._noted:
            self._made.add("queue", [queue])
            self._noted.add(queue)

    def _forget(self, queues: Sequence[str]) -> None:
        self._made.remove("queue", queues)
        self._noted.difference_update(queues)
