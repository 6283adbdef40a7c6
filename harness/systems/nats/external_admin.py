"""JetStream's admin on servers that others use too: streams have our names here and longer ones
there, and every one that is made was written down before."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from harness.admin.failover import AlreadyThere
from harness.admin.made_ledger import MadeLedger
from harness.errors import UsageError
from harness.protocols.cluster import Node, TopicSettings
from harness.systems.nats.admin import NatsAdmin
from harness.systems.nats.monitor import Monitor


class ExternalNatsAdmin(NatsAdmin):
    """A `NatsAdmin` that sees the streams of one run alone (NamesTopics)."""

    probe_stream = ""  # one that is not of a run is nothing to make there

    def __init__(self, nodes: Sequence[Node], made: MadeLedger, **how: Any) -> None:
        super().__init__(nodes, **how)
        self._ledger = made
        self._addresses: dict[str, str] = {}

    @property
    def monitor(self) -> Monitor:
        """Return the monitor of the servers."""
        return self._monitor

    def name_topics(self, addresses: Mapping[str, str], groups: Sequence[str]) -> None:
        """Set the names of topics; see `NamesTopics.name_topics`. Consumers are removed with their
        stream."""
        self._addresses = dict(addresses)

    def _theirs(self, stream: str) -> str:
        topic, _, partition = stream.rpartition("-")
        return f"{self._addresses.get(topic, topic)}-{partition}"

    def _ours(self, name: str) -> str:
        address, _, partition = name.rpartition("-")
        topic = next((topic for topic, at in self._addresses.items() if at == address), "")
        return f"{topic}-{partition}" if topic else name

    def create_topics(self, topics: Sequence[TopicSettings]) -> None:
        """Create topics; see `NatsAdmin.create_topics`.

        Raises:
            UsageError: a topic that is none of this run's.
        """
        if foreign := [topic.name for topic in topics if topic.name not in self._addresses]:
            raise UsageError(
                f"{foreign[0]} is not a topic of this run", hint=", ".join(self._addresses)
            )
        super().create_topics(topics)

    def _make(self, stream: str, topic: TopicSettings, before: Collection[str]) -> None:
        name = self._theirs(stream)
        self._ledger.add("stream", [name])
        try:
            super()._make(stream, topic, before)
        except AlreadyThere:  # whoever made it, it stays
            self._ledger.remove("stream", [name])
            raise

    def _drop(self, name: str) -> None:
        super()._drop(name)
        self._ledger.remove("stream", [name])

    def delete_made(self, made: Mapping[str, Sequence[str]]) -> None:
        """Delete what a run made, by the servers' names, and strike it out."""
        for name in made.get("stream", ()):
            self._drop(name)
