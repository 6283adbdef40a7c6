"""Qpid's admin on brokers that others use too: queues have our names here and longer ones there,
and every one that is made was written down before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.admin.made_ledger import MadeLedger
from harness.admin.run_names import RunNames
from harness.connections.security import Access
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
        self._run = RunNames(made, "queue")

    def name_topics(self, addresses: Mapping[str, str], groups: Sequence[str]) -> None:
        """Set the names of topics; see `NamesTopics.name_topics`. Brokers have no groups."""
        self._run.set(addresses)

    def _queue(self, stream: str) -> str:
        return self._run.theirs(stream)

    def _stream(self, queue: str) -> str:
        return self._run.ours(queue)

    def create_topics(self, topics: Sequence[TopicSettings]) -> None:
        """Create topics; see `QpidAdmin.create_topics`.

        Raises:
            UsageError: a topic that is none of this run's.
        """
        self._run.refuse_foreign(topics)
        super().create_topics(topics)

    def _make_queue(self, master: str, stream: str, config: QueueConfig) -> None:
        with self._run.making(self._queue(stream)):
            super()._make_queue(master, stream, config)

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics and the queue for the harness's own messages; see
        `QpidAdmin.delete_topics`."""
        master = self._serving()
        streams = [stream for stream in self._depths(master) if stream.rpartition("-")[0] in names]
        self._delete_queues([*map(self._queue, streams), *filter(None, [self._probe_queue()])])

    def delete_made(self, made: Mapping[str, Sequence[str]]) -> None:
        """Delete what a run made, by the brokers' names, and strike it out."""
        self._delete_queues(self._run.made_in(made))

    def _delete_queues(self, queues: Sequence[str]) -> None:
        if queues:
            self._delete(self._serving(), queues)
            self._run.forget(queues)

    def connections(self) -> list[ClientConnection]:
        """Return the connections of this run's clients: their names end with its tag."""
        rows = self._rest.get(self._serving(), "connection") or []
        ours = [row for row in rows if self._run.has_client(str(row.get("clientId") or ""))]
        return sorted(map(self._connection, ours), key=lambda found: found.id)

    def _probe_queue(self) -> str:
        """One of the run's own, once it has topics."""
        if not self._run.first_address:
            return ""
        queue = f"{self._run.first_address}-probe"
        self._run.note(queue)
        return queue
