"""JetStream's admin side: streams, who leads them, consumers, readiness."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar, Final

from harness.admin.failover import AlreadyThere, NotThere, wait_ready
from harness.admin.health import first_bytes
from harness.admin.probe import probe_payload
from harness.admin.watched import watched_leaderships
from harness.connections.security import ANYBODY, Access
from harness.contracts.rows import UNREAD, Bounds, Leadership, ReplicaRow
from harness.errors import UsageError
from harness.protocols.cluster import (
    Endpoint,
    Node,
    PartitionState,
    SeenLeaders,
    StoredMessage,
    TopicSettings,
)
from harness.systems.nats import NODES, messages, native
from harness.systems.nats.api import JetStream
from harness.systems.nats.link import Link
from harness.systems.nats.monitor import Monitor, Told, meta_leader, stream_state
from harness.systems.nats.replicas import StreamReading

_GLANCE_S: Final = 1.0
_GONE_TEXT: Final = (
    "{stream} is gone: the leader of the meta group knows no such stream, and every server is up"
)


class NatsAdmin:
    """Admin, MovesLeaders, MovesConsumerLeaders, HasBacklogs, HasCommittedOffsets, GivesOutAgain
    and ReadsMessages for the servers of a cluster. Thread-safe; every call ends within seconds.

    A stream "orders-0" is a stream of that name, on the subject of that name.

    Args:
        is_reachable: whether a node can answer, as far as the runtime knows; others are not asked.
        can_choose: a leader that steps down can be told who comes next (2.11 and newer).
        links: node -> where the harness connects to it; default: not the way of clients, on which a
            network fault may last.
        urls: node -> where its monitoring answers; default: the admin endpoints.
        called: server, by the name that it has itself -> node, where that differs.

    Attributes:
        probe_stream: what a message of the harness goes through before there are topics; empty =
            none does.
    """

    probe_stream: ClassVar[str] = "brokerstorm-probe"

    def __init__(
        self,
        nodes: Sequence[Node],
        *,
        is_reachable: Callable[[str], bool] = lambda name: True,
        access: Access = ANYBODY,
        can_choose: bool = True,
        links: Mapping[str, Endpoint] | None = None,
        urls: Mapping[str, str] | None = None,
        called: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        scheme = "https" if access.admin.tls else "http"
        self._names = tuple(sorted(node.name for node in nodes))
        self._can_choose = can_choose
        self._links = links or {n.name: Endpoint(n.admin.host, n.client.port) for n in nodes}
        self._servers = {node: server for server, node in called.items()}
        self._api = JetStream(nodes, self._links, is_reachable, access.admin)
        urls = urls or {node.name: f"{scheme}://{node.admin}" for node in nodes}
        self._monitor = Monitor(urls, access.admin, called)
        self._made: dict[str, int] = {}
        self.gone: dict[str, str] = {}
        self.watch: Callable[[], None] = lambda: None

    # -- who leads ---------------------------------------------------------------------------------

    def _told(self) -> dict[str, Told]:
        return self._monitor.leaders_told(self._api.reachable())

    def partition_states(self, topics: Sequence[str]) -> dict[str, PartitionState]:
        told = self._told()
        streams = sorted({stream for each in told.values() for stream in each.streams})
        found = {
            stream: stream_state(stream, told)
            for stream in streams
            if _topic(self._ours(stream)) in topics
        }
        return {self._ours(stream): state for stream, state in found.items() if state}

    def leaders(self, topic: str) -> dict[int, str | None]:
        states = self.partition_states([topic])
        return {int(stream.rpartition("-")[2]): state.leader for stream, state in states.items()}

    def controller(self) -> str | None:
        """The leader of the meta group: it decides where streams and consumers are."""
        return meta_leader(self._told(), len(self._names))

    def registered(self) -> set[str]:
        """Servers that are healthy in their own words."""
        return {
            node
            for node, lacks in self._monitor.healthy(self._api.reachable()).items()
            if not lacks
        }

    def leaderships(self, topics: Sequence[str], seen: SeenLeaders) -> list[Leadership]:
        return watched_leaderships(seen)

    def answers(self, node: str) -> bool:
        """A server greets whoever connects; a frozen one does not."""
        return bool(first_bytes(self._links[node], b"PING\r\n", 4, _GLANCE_S))

    def move_leaders(self, topic: str, to: Mapping[int, str]) -> None:
        """Ask the leaders of streams to step down; returns when asked, not when moved. Before 2.11
        the others choose who comes next.

        Raises:
            UsageError: refused.
            EnvironmentNotReady: no answer.
        """
        for partition, node in to.items():
            self._step_down(f"STREAM.LEADER.STEPDOWN.{self._theirs(f'{topic}-{partition}')}", node)

    def _step_down(self, what: str, to: str) -> None:
        preferred = self._servers.get(to, to)
        self._api.ask(
            what, {"placement": {"preferred": preferred}} if self._can_choose and to else None
        )

    # -- consumers ---------------------------------------------------------------------------------

    def consumer_leaders(self, group: str, topics: Sequence[str]) -> dict[str, str | None]:
        """Stream -> the server that leads the group's consumer of it; streams without one are left
        out."""
        return {
            stream: (info.get("cluster") or {}).get("leader")
            for stream in self._streams(topics)
            for info in self._consumers(stream)
            if info["name"] == group
        }

    def move_consumer_leader(self, group: str, stream: str) -> None:
        """Ask the leader of a consumer to step down; returns when asked, not when moved. Raises as
        `move_leaders`."""
        self._step_down(f"CONSUMER.LEADER.STEPDOWN.{self._theirs(stream)}.{group}", "")

    def backlogs(self, topics: Sequence[str]) -> dict[str, dict[str, int]]:
        """Stream -> durable consumer -> messages not yet handed out, or not acknowledged."""
        found = {}
        for stream in self._streams(topics):
            found[stream] = {
                str(info["name"]): int(info.get("num_pending", 0))
                + int(info.get("num_ack_pending", 0))
                for info in self._consumers(stream)
            }
            if not found[stream] and not self._is_known(stream):
                found[stream] = {"": 0}  # gone: nothing is left to be handed out
        return found

    def committed_offsets(self, group: str, topics: Sequence[str]) -> dict[str, int]:
        """Stream -> the sequence after the last one up to which the durable consumer of that name
        has every message acknowledged, -1 = none; a stream without that consumer is left out.

        Raises:
            EnvironmentNotReady: the servers do not answer.
        """
        found = {}
        for stream in self._streams(topics):
            with suppress(NotThere):
                said = self._api.ask(f"CONSUMER.INFO.{self._theirs(stream)}.{group}")
                floor = int(said["ack_floor"]["stream_seq"])
                found[stream] = floor + 1 if floor else -1
        return found

    def held_for_s(self, group: str, topics: Sequence[str]) -> float:
        """Return the longest time that servers wait for an acknowledgement; see
        `harness.protocols.cluster.GivesOutAgain.held_for_s`."""
        waits_ns = [0]
        for stream in self._streams(topics):
            with suppress(NotThere):
                said = self._api.ask(f"CONSUMER.INFO.{self._theirs(stream)}.{group}")
                if said.get("num_ack_pending"):
                    config = said.get("config") or {}
                    waits_ns += [config.get("ack_wait") or 0, *(config.get("backoff") or [])]
        return max(waits_ns) / 1e9

    def read_messages(
        self, topic: str, take: Callable[[StoredMessage], None], *, timeout_s: float, last: int = 0
    ) -> list[Bounds]:
        """Read a topic; see `ReadsMessages.read_messages`. A stream that is gone is not read."""
        deadline = time.monotonic() + timeout_s
        nodes = {server: node for node, server in self._servers.items()}

        def link_to(server: str) -> Link:
            return self._api.link(nodes.get(server, server or self._names[0]))

        found = []
        for stream in self._streams([topic]):
            number = int(stream.rpartition("-")[2])
            name = self._theirs(stream)
            try:
                bounds = messages.read(
                    self._api, link_to, name, number, take, deadline=deadline, last=last
                )
            except NotThere:
                bounds = Bounds(end=1, why=UNREAD)
            found.append(replace(bounds, stream=stream))
        return found

    def _consumers(self, stream: str) -> list[dict[str, Any]]:
        return self._api.pages(f"CONSUMER.LIST.{self._theirs(stream)}", "consumers")

    # -- streams -----------------------------------------------------------------------------------

    def create_topics(self, topics: Sequence[TopicSettings]) -> None:
        """Create a replicated stream for each partition, on files.

        Raises:
            UsageError: a stream exists, its subject is held by another one, or a setting is not
                known.
            EnvironmentNotReady: no answer; JetStream is disabled, or has no room.
        """
        before = frozenset(self._api.pages("STREAM.NAMES", "streams"))
        for topic in topics:
            for partition in range(topic.partitions):
                self._make(f"{topic.name}-{partition}", topic, before)
            self._made[topic.name] = topic.partitions

    def _make(self, stream: str, topic: TopicSettings, before: Collection[str]) -> None:
        """Create one stream. ``before``: the streams that there were, by the servers' names.

        A server that answers too late is asked again, or another one is. The second answer then
        says that the stream exists, so only a stream that was there before belongs to others.
        """
        name = self._theirs(stream)
        asked = {key: native(value) for key, value in topic.config.items()}
        config = {
            "retention": "limits", "storage": "file", "discard": "new", **asked,
            "name": name, "subjects": [name], "num_replicas": topic.replication,
        }  # fmt: skip
        made = self._api.ask(f"STREAM.CREATE.{name}", config)
        if not made.get("did_create") and name in before:
            raise AlreadyThere(f"stream {name} exists already", hint="choose another topic name")
        said = made.get("config") or {}
        unheeded = [key for key, value in asked.items() if said.get(key, _absent(value)) != value]
        if unheeded:
            self._drop(name)
            raise UsageError(
                f"stream {name}: {unheeded[0]}={asked[unheeded[0]]} is not a setting of a stream"
            )

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete their streams with what is in them; it is not an error if one does not exist."""
        for stream in self._streams(names):
            self._drop(self._theirs(stream))
        for name in names:
            self._made.pop(name, None)

    def _drop(self, name: str) -> None:
        with suppress(NotThere):
            self._api.ask(f"STREAM.DELETE.{name}")

    def topics(self) -> list[str]:
        """Names of all topics that have streams."""
        return sorted(
            {_topic(stream) for stream in self._known() if stream.rpartition("-")[2].isdigit()}
        )

    def end_offsets(self, topics: Sequence[str]) -> dict[str, int]:
        """Stream -> the sequence after its last message; a stream that is gone is left out."""
        found = {}
        for stream in self._streams(topics):
            with suppress(NotThere):
                said = self._api.ask(f"STREAM.INFO.{self._theirs(stream)}")
                found[stream] = int(said["state"]["last_seq"]) + 1
        return found

    def _known(self) -> list[str]:
        """The streams that there are, by our names."""
        return [self._ours(str(name)) for name in self._api.pages("STREAM.NAMES", "streams")]

    def _streams(self, topics: Iterable[str]) -> list[str]:
        """Return the streams of topics: for our topics those that we created, for others those that
        exist."""
        topics = list(topics)
        made = [f"{topic}-{p}" for topic in topics for p in range(self._made.get(topic, 0))]
        others = {topic for topic in topics if topic not in self._made}
        return made + (sorted(s for s in self._known() if _topic(s) in others) if others else [])

    def _theirs(self, stream: str) -> str:
        """Return the servers' name of a stream."""
        return stream.replace(".", "_")

    def _ours(self, name: str) -> str:
        """The stream of a name of the servers."""
        made = (
            f"{topic}-{p}"
            for topic, count in self._made.items()
            for p in range(count)
            if "." in topic
        )
        return next((stream for stream in made if self._theirs(stream) == name), name)

    def read_replicas(self, topics: Sequence[str], *, timeout_s: float) -> list[ReplicaRow]:
        """Read every replica; see `ReadsReplicas.read_replicas`. A stream that is gone has none."""
        deadline = time.monotonic() + timeout_s
        before = self._healthy_states(topics)
        readings = {
            stream: StreamReading(
                self._api,
                self._theirs(stream),
                {self._servers.get(node, node): node for node in state.replicas},
            )
            for stream, state in before.items()
        }
        for reading in readings.values():
            reading.read(deadline)
        after = self._healthy_states(topics)
        none = PartitionState(None, (), ())
        return [
            row
            for stream, one in readings.items()
            for row in one.rows(stream, before[stream], after.get(stream, none))
        ]

    def _healthy_states(self, topics: Sequence[str]) -> dict[str, PartitionState]:
        """Return the states, without a server in sync that reports that it lacks something."""
        healthy = self.registered()
        return {
            stream: replace(state, in_sync=tuple(node for node in state.in_sync if node in healthy))
            for stream, state in self.partition_states(topics).items()
        }

    # -- readiness ---------------------------------------------------------------------------------

    def wait_ready(self, topics: Sequence[str], *, timeout_s: float, run_tag: int) -> None:
        """Return when every server is healthy and names the same leader of the meta group, every
        stream has a leader and all copies in sync, every server passes messages on to it, and a
        message was stored through each.

        A stream that the meta group does not know any more, once all that holds, is *gone*: no
        waiting brings it back (`gone` says which).

        Raises:
            EnvironmentNotReady: what is still missing, by name.
        """
        wait_ready(lambda: self._missing(topics, run_tag), self.watch, timeout_s=timeout_s)

    def _missing(self, topics: Sequence[str], run_tag: int) -> str:
        healthy = self._monitor.healthy(self._names)
        for name in self._names:
            if lacks := healthy.get(name, "does not answer"):
                return f"{name}: {lacks}"
        told = self._told()
        if len({each.meta for each in told.values()}) != 1 or not meta_leader(
            told, len(self._names)
        ):
            return "the meta group has no leader that all know"
        if not topics:
            return self._probe_missing(run_tag)
        streams = self._streams(topics)
        self.gone = {
            stream: _GONE_TEXT.format(stream=stream)
            for stream in streams
            if self._is_gone(stream, told)
        }
        there = [self._theirs(stream) for stream in streams if stream not in self.gone]
        for stream in there:
            state = stream_state(stream, told)
            if state is None or state.leader is None:
                return f"stream {stream} has no leader"
            if lagging := sorted(set(state.replicas) - set(state.in_sync)):
                return f"{lagging[0]} lags in stream {stream}"
        if lacking := sorted(set(topics) - {_topic(stream) for stream in streams}):
            return f"topic {lacking[0]} has no stream"
        if not there:
            return ""
        return self._api.unheard(there) or self._api.publish(there, probe_payload(run_tag))

    def _is_gone(self, stream: str, told: Mapping[str, Told]) -> bool:
        """No server has a copy, and the leader of the meta group, who alone says so, knows of
        none."""
        is_held = any(self._theirs(stream) in each.streams for each in told.values())
        return not is_held and not self._is_known(stream)

    def _is_known(self, stream: str) -> bool:
        """Return whether the leader of the meta group, or the stream's own leader, knows the
        stream."""
        try:
            self._api.ask(f"STREAM.INFO.{self._theirs(stream)}")
        except NotThere:
            return False
        return True

    def _probe_missing(self, run_tag: int) -> str:
        """A message through a stream of our own, which is dropped again."""
        if not (name := self.probe_stream):
            return ""
        copies = min(NODES, len(self._names))
        config = {"name": name, "subjects": [name], "num_replicas": copies, "storage": "memory"}
        self._api.ask(f"STREAM.CREATE.{name}", config)
        failure = self._api.publish([name], probe_payload(run_tag))
        self._drop(name)
        return failure

    def close(self) -> None:
        """Drop all connections. Idempotent; a later call opens them again."""
        self._monitor.close()


def _topic(stream: str) -> str:
    return stream.rpartition("-")[0]


def _absent(value: Any) -> Any:
    """Return the value of a setting that the servers leave out of an answer."""
    return type(value)() if isinstance(value, (bool, int)) else None
