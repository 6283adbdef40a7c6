"""JetStream's admin on servers that others use too: streams have our names here and longer ones
there, and every one that is made was written down before."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from harness.admin.made_ledger import MadeLedger
from harness.admin.run_names import RunNames
from harness.protocols.cluster import Node, TopicSettings
from harness.systems.nats.admin import NatsAdmin
from harness.systems.nats.monitor import Monitor


class ExternalNatsAdmin(NatsAdmin):
    """A `NatsAdmin` that sees the streams of one run alone (NamesTopics)."""

    probe_stream = ""  # one that is not of a run is nothing to make there

    def __init__(self, nodes: Sequence[Node], made: MadeLedger, **how: Any) -> None:
        super().__init__(nodes, **how)
        self._run = RunNames(made, "stream")

    @property
    def monitor(self) -> Monitor:
        """Return the monitor of the servers."""
        return self._monitor

    def name_topics(self, addresses: Mapping[str, str], groups: Sequence[str]) -> None:
        """Set the names of topics; see `NamesTopics.name_topics`. Consumers are removed with their
        stream."""
        self._run.set(addresses)

    def _theirs(self, stream: str) -> str:
        return self._run.theirs(stream)

    def _ours(self, name: str) -> str:
        return self._run.ours(name) or name

    def create_topics(self, topics: Sequence[TopicSettings]) -> None:
        """Create topics; see `NatsAdmin.create_topics`.

        Raises:
            UsageError: a topic that is none of this run's.
        """
        self._run.refuse_foreign(topics)
        super().create_topics(topics)

    def _make(self, stream: str, topic: TopicSettings, before: Collection[str]) -> None:
        with self._run.making(self._theirs(stream)):
            super()._make(stream, topic, before)

    def _drop(self, name: str) -> None:
        super()._drop(name)
        self._run.forget([name])

    def delete_made(self, made: Mapping[str, Sequence[str]]) -> None:
        """Delete what a run made, by the servers' names, and strike it out."""
        for name in self._run.made_in(made):
            self._drop(name)
