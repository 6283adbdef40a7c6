"""Kafka's admin side: leaders, members, readiness, asked in a way that survives dead and frozen
brokers."""

from __future__ import annotations

import logging
import struct
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import methodcaller
from typing import Any
from uuid import UUID

from kafka import TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import for_code

from harness.admin.failover import LOGS_HINT, POLL_S
from harness.admin.health import first_bytes
from harness.admin.tls import context_of
from harness.connections.secret import Secret
from harness.connections.security import ANYBODY, Access
from harness.contracts.rows import Bounds, Leadership, ReplicaRow, StreamTransactions
from harness.errors import EnvironmentNotReady, UsageError
from harness.protocols.cluster import THROTTLED_REPLICAS, Node, SeenLeaders, StoredMessage
from harness.protocols.members import Quorum
from harness.systems.kafka import (
    CORRELATION,
    api_versions,
    epochs,
    messages,
    transactions,
    users,
)
from harness.systems.kafka.epochs import NodeData
from harness.systems.kafka.failover import KafkaFailover
from harness.systems.kafka.readiness import Probes, missing_parts
from harness.systems.kafka.replicas import ReplicaReading
from harness.systems.kafka.single import SingleBrokerAdmin
from harness.systems.kafka.topics import TopicAdmin
from harness.waiting import wait_while

log = logging.getLogger(__name__)

INTERNAL_TOPICS = {"__consumer_offsets": "GROUP", "__transaction_state": "TRANSACTION"}
_COORDINATED = {"group": "GROUP", "transactions": "TRANSACTION"}
_ANSWER_S = 0.5  # a broker that lives answers in a few milliseconds, also on a busy machine
_PREFERRED = 0
_NONE_IN_PROGRESS = 85  # NO_REASSIGNMENT_IN_PROGRESS
_METADATA = "metadata.version"
_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_NO_RIGHT = 29  # TOPIC_AUTHORIZATION_FAILED
_VOTES_SO = (126, 127)  # DUPLICATE_VOTER, VOTER_NOT_FOUND
_UNKNOWN_BROKER = 102  # BROKER_ID_NOT_REGISTERED
_ELECTION_NOT_NEEDED, _PREFERRED_NOT_AVAILABLE = 84, 80


class KafkaAdmin(TopicAdmin):
    """Admin, HasLeaders and HasHighWatermark for one cluster. Thread-safe; every call ends within
    seconds.

    Args:
        is_reachable: whether a node can answer, as far as the runtime knows; decides whom to ask
            first.
        is_member: whether a node is of the cluster now.
        watch: called while waiting for readiness; raises to end the wait early (a node died at
            start).
        data: a file below a node's data folder; the history of leaders is in one.
        controller_at: where the others find a controller.
        access: how brokers are to be known, and who asks them: the harness, and its probes as a
            client.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        *,
        is_reachable: Callable[[str], bool] = lambda name: True,
        watch: Callable[[], None] = lambda: None,
        is_member: Callable[[str], bool] = lambda name: True,
        data: NodeData = lambda node, path: None,
        controller_at: Callable[[str], str] = lambda name: "",
        access: Access = ANYBODY,
    ) -> None:
        self._all = tuple(node for node in nodes if node.roles != ("controller",))
        self._doors = {node.name: node.admin for node in nodes}
        self._is_member = is_member
        self._data = data
        super().__init__(nodes, KafkaFailover(self._all, is_reachable, access.admin))
        self.watch = watch
        self._access = access
        self._controller_at = controller_at

    @property
    def _nodes(self) -> tuple[Node, ...]:
        """The brokers of the cluster now."""
        return tuple(node for node in self._all if self._is_member(node.name))

    # -- leaders -----------------------------------------------------------------------------------

    def leaderships(self, topics: Sequence[str], seen: SeenLeaders) -> list[Leadership]:
        """Every leader epoch: who led since when, from the metadata log; where the log has its
        first message, from the leader of now. What one of the two does not tell is left unknown."""
        return epochs.leaderships(
            self._ask, self._data, self._nodes, lambda: self._described(topics)
        )

    def transactions(self, topics: Sequence[str], *, timeout_s: float) -> list[StreamTransactions]:
        """Return the transactions in the log of every partition; fewer if the time is not
        sufficient."""
        partitions = [(topic, number) for topic in topics for number in self.leaders(topic)]
        return transactions.transactions(self._ask, self.leaders, partitions, within_s=timeout_s)

    def read_messages(
        self, topic: str, take: Callable[[StoredMessage], None], *, timeout_s: float, last: int = 0
    ) -> list[Bounds]:
        """Read a topic as committed data; see `ReadsMessages.read_messages`."""
        bootstrap = ",".join(str(node.client) for node in self._nodes)
        partitions = sorted(self._partitions(topic))
        return messages.read(
            bootstrap, self._access.clients, topic, partitions, take, timeout_s=timeout_s, last=last
        )

    def read_replicas(self, topics: Sequence[str], *, timeout_s: float) -> list[ReplicaRow]:
        """Read every replica of topics; see `ReadsReplicas.read_replicas`."""
        spans = {
            f"{topic}-{p}": span for topic in topics for p, span in self.log_spans(topic).items()
        }
        reading = ReplicaReading(self._ask, self.partition_states(topics), spans)
        reading.read(within_s=timeout_s)
        return reading.rows(self.partition_states(topics))

    def _described(self, topics: Sequence[str]) -> dict[tuple[str, int], tuple[str | None, int]]:
        """(topic, partition) -> leader and leader epoch now."""
        return {
            (row["name"], p["partition_index"]): (
                self._names.get(p["leader_id"]),
                p["leader_epoch"],
            )
            for row in self._topic_rows(topics)
            for p in row["partitions"]
        }

    def controller(self) -> str | None:
        """The active controller (leader of the metadata quorum), None while none is known."""
        try:
            return self._names.get(self._ask(lambda broker: broker.controller()))
        except EnvironmentNotReady:
            return None

    def coordinator(self, kind: str, name: str) -> str | None:
        return self._names.get(self._ask(methodcaller("coordinator", _COORDINATED[kind], name)))

    def share_lags(self, group: str, topics: Sequence[str]) -> dict[str, int]:
        """Stream -> messages that a share group has not settled; those it cannot tell of are left
        out. Raises as `_of_group`."""
        return self._of_group("share_lags", group, topics)

    def committed_offsets(self, group: str, topics: Sequence[str]) -> dict[str, int]:
        """Stream -> the next position that a group would read, -1 = none; those it cannot tell of
        are left out. Raises as `_of_group`."""
        return self._of_group("committed_offsets", group, topics)

    def _of_group(self, question: str, group: str, topics: Sequence[str]) -> dict[str, int]:
        """Ask a group's coordinator about the partitions of topics.

        Raises:
            EnvironmentNotReady: the group has no coordinator, or no broker answers.
        """
        node = self.coordinator("group", group)
        if node is None:
            raise EnvironmentNotReady(f"no node coordinates group {group}")
        partitions = {topic: list(self._partitions(topic)) for topic in topics}
        return self._ask(methodcaller(question, group, partitions), only=node)

    def move_leaders(self, topic: str, to: Mapping[int, str]) -> None:
        """Reassign with the wanted node first (same nodes, so no data moves) and elect it.

        Returns when asked, not when moved: a wanted node that is out of sync is not elected, and
        `leaders` says so.

        Raises:
            UsageError: unknown topic, partition or node.
            EnvironmentNotReady: no broker answers.
        """
        replicas = self.replicas(topic)
        moves: dict[TopicPartition, list[int]] = {}
        for partition, name in to.items():
            if name not in self._numbers or partition not in replicas:
                raise UsageError(
                    f"cannot move {topic}-{partition} to {name!r}",
                    hint=f"partitions 0-{len(replicas) - 1}; nodes {', '.join(self._numbers)}",
                )
            others = [other for other in replicas[partition] if other != name]
            wanted = [name, *others][: len(replicas[partition])]
            moves[TopicPartition(topic, partition)] = [self._numbers[node] for node in wanted]
        self._reassign(moves)
        self.elect_preferred(topic, to)

    def reassign(self, topic: str, to: Mapping[int, Sequence[str]]) -> None:
        """Begin to move replicas; see `HasReassignments.reassign`."""
        self._reassign(
            {TopicPartition(topic, p): [self._numbers[n] for n in ns] for p, ns in to.items()}
        )

    def cancel_reassignments(self, topic: str, partitions: Iterable[int]) -> None:
        """Cancel moves of replicas; see `HasReassignments.cancel_reassignments`."""
        self._reassign(
            {TopicPartition(topic, p): None for p in partitions}, besides=(_NONE_IN_PROGRESS,)
        )

    def reassigning(self, topic: str) -> list[int]:
        """Return the partitions whose replicas move; see `HasReassignments.reassigning`."""
        asked = {topic: list(self._partitions(topic))}
        return [
            tp.partition
            for tp in self._ask(lambda broker: broker.list_partition_reassignments(asked))
        ]

    def throttle_moves(self, topic: str, bytes_per_s: int | None) -> None:
        """Limit the rate of moves; see `HasReassignments.throttle_moves`. Each broker accepts its
        own settings only when it is asked itself.
        """
        rate = ("DELETE", None) if bytes_per_s is None else ("SET", str(bytes_per_s))
        for node in self._nodes:
            of_node = ConfigResource(
                ConfigResourceType.BROKER, str(node.number), dict.fromkeys(_RATES, rate)
            )
            self._alter(of_node, only=node.name)
        which = ("DELETE", None) if bytes_per_s is None else ("SET", "*")
        self._alter(
            ConfigResource(
                ConfigResourceType.TOPIC, topic, dict.fromkeys(THROTTLED_REPLICAS, which)
            )
        )

    def _reassign(
        self, moves: Mapping[TopicPartition, list[int] | None], besides: Sequence[int] = ()
    ) -> None:
        """``besides``: codes of errors that are none here."""
        results = self._ask(
            lambda broker: broker.alter_partition_reassignments(moves, timeout_ms=2000)
        )
        refused = {
            tp: error
            for tp, error in results.items()
            if error is not None and not error.retriable and error.errno not in besides
        }
        if refused:
            said = ", ".join(
                f"{tp.topic}-{tp.partition}: {error.__name__}" for tp, error in refused.items()
            )
            raise UsageError(f"Kafka refuses the reassignment: {said}")

    def elect_preferred(self, topic: str, partitions: Iterable[int] | None = None) -> None:
        """Elect the first replica of each partition (all when None) where it is in sync."""
        wanted = sorted(self._partitions(topic) if partitions is None else partitions)
        # {topic: [ids]} on purpose: a list of TopicPartition is accepted and silently elects
        # nothing.
        answer = self._ask(
            lambda broker: broker.elect_leaders(
                _PREFERRED, {topic: wanted}, timeout_ms=2000, raise_errors=False
            )
        )
        for result in answer.replica_election_results:
            for row in result.partition_result:
                if row.error_code not in (0, _ELECTION_NOT_NEEDED, _PREFERRED_NOT_AVAILABLE):
                    log.warning(
                        "election of %s-%s: %s",
                        topic,
                        row.partition_id,
                        for_code(row.error_code).__name__,
                    )

    def answers(self, node: str) -> bool:
        """Whether a node answers a request of ours within half a second."""
        head = first_bytes(
            self._doors[node], api_versions()[0], 8, _ANSWER_S, context_of(self._access.admin.tls)
        )
        return len(head) == 8 and struct.unpack(">ii", head)[1] == CORRELATION

    def unregister(self, node: str) -> None:
        """Unregister a broker; see `UnregistersBrokers.unregister`."""
        code, said = self._ask(methodcaller("unregister", self._numbers[node]))
        if code not in (0, _UNKNOWN_BROKER):
            raise EnvironmentNotReady(f"{node} stays registered: {said or for_code(code).__name__}")

    def quorum(self) -> Quorum:
        """Return the quorum of controllers; see `ChangesVoters.quorum`."""
        found = self._ask(methodcaller("quorum"))
        ends = {row.replica_id: row.log_end_offset for row in found.current_voters}
        if found.leader_id not in ends:
            raise EnvironmentNotReady("no controller leads the others")
        end = ends[found.leader_id]

        def lagging(rows: Iterable[Any]) -> dict[str, int]:
            return {
                self._names[row.replica_id]: max(end - row.log_end_offset, 0)
                for row in rows
                if row.replica_id in self._names
            }

        leader = self._names.get(found.leader_id)
        return Quorum(
            leader, found.leader_epoch, lagging(found.current_voters), lagging(found.observers)
        )

    def add_voter(self, node: str) -> str:
        """Add a voter; see `ChangesVoters.add_voter`."""
        directory = self._directory(node)
        if directory is None:
            return f"{node} does not follow the others yet"
        host, _, port = self._controller_at(node).rpartition(":")
        return self._change_voter(
            methodcaller("add_voter", self._numbers[node], directory, host, int(port))
        )

    def remove_voter(self, node: str) -> str:
        """Remove a voter; see `ChangesVoters.remove_voter`."""
        directory = self._directory(node)
        if directory is None:
            return ""
        return self._change_voter(methodcaller("remove_voter", self._numbers[node], directory))

    def _directory(self, node: str) -> UUID | None:
        """The id of the disk with which a controller votes, or only follows; None = neither."""
        found = self._ask(methodcaller("quorum"))
        number = self._numbers[node]
        rows = (
            row for row in (*found.current_voters, *found.observers) if row.replica_id == number
        )
        return next((row.replica_directory_id for row in rows), None)

    def _change_voter(self, question: Callable[[SingleBrokerAdmin], tuple[int, str | None]]) -> str:
        """Why a vote is not given or taken yet, in the brokers' words."""
        code, said = self._ask(question)
        return "" if code in (0, *_VOTES_SO) else said or for_code(code).__name__

    def admit(self, passwords: Mapping[str, Secret], may: str) -> None:
        """Create a user; see `users.admit`. Returns when every broker accepts the user."""
        users.admit(self._ask, passwords, may)
        users.wait_admitted(self._nodes, self._access.clients)

    def finalize_features(self) -> dict[str, tuple[int, int]]:
        """Finalize features; see `FinalizesFeatures.finalize_features`. The metadata version is
        first, because the others depend on it.
        """
        found = self._ask(methodcaller("describe_features"))[_METADATA]
        before, highest = found["finalized"][1], found["supported"][1]
        if highest == before:
            return {}
        said = self._ask(methodcaller("update_features", {_METADATA: highest}, timeout_ms=2000))
        if (word := said[_METADATA]) != "OK":
            raise EnvironmentNotReady(f"{_METADATA} stays at {before}: {word}")
        return {_METADATA: (before, highest)}

    # -- readiness ---------------------------------------------------------------------------------

    def registered(self) -> set[str]:
        """Nodes that are registered and not fenced."""
        return set(self._named(self._ask(lambda broker: broker.unfenced())))

    def wait_ready(self, topics: Sequence[str], *, timeout_s: float, run_tag: int) -> None:
        """Return when every node is registered, every partition (internal topics too) has a leader
        and all its replicas in sync, and a probe message was stored through each partition of
        ``topics``; and when all that still holds after the probes.

        Raises:
            EnvironmentNotReady: what is still missing, by name.
        """
        deadline = time.monotonic() + timeout_s
        self._wait_whole(topics, timeout_s, timeout_s)
        while True:
            limit_s = max(deadline - time.monotonic(), 5.0)
            self.pass_high_watermark(topics, timeout_s=limit_s, run_tag=run_tag)
            if not self._look([*topics, *INTERNAL_TOPICS]):
                return
            self._wait_whole(topics, deadline - time.monotonic(), timeout_s)

    def pass_high_watermark(self, topics: Sequence[str], *, timeout_s: float, run_tag: int) -> None:
        """Move the high watermark on; see `HasHighWatermark`. Every replica in sync receives a
        probe after the messages that the leader acknowledged.
        """
        counts = {topic: len(self._partitions(topic)) for topic in topics}
        probes = Probes(
            ",".join(str(node.client) for node in self._nodes), run_tag, self._access.clients
        )
        probes.through(counts, timeout_s=timeout_s)

    def _wait_whole(self, topics: Sequence[str], left_s: float, timeout_s: float) -> None:
        missing = wait_while(
            lambda: self._look([*topics, *INTERNAL_TOPICS]), left_s, every_s=POLL_S
        )
        if missing:
            more = f"; and {len(missing) - 5} more" if len(missing) > 5 else ""
            raise EnvironmentNotReady(
                f"the cluster is not ready after {timeout_s:.0f} s: {'; '.join(missing[:5])}{more}",
                hint=f"{LOGS_HINT}; a busy machine needs more `limits.ready`",
            )

    def _look(self, topics: Sequence[str]) -> list[str]:
        """Return what is missing now, as sentences."""
        self.watch()
        try:
            return self._missing(topics)
        except EnvironmentNotReady as error:
            return [str(error)]

    def _missing(self, topics: Sequence[str]) -> list[str]:
        absent = sorted({node.name for node in self._nodes} - self.registered())
        if absent:
            there = self._ask.reachable()
            return [
                f"{name} is not registered"
                + ("" if name in there else " (its process is down or frozen)")
                for name in absent
            ]
        # Every node must say so: one that was frozen or down until now may answer with the past.
        for node in self._nodes:
            found = {row["name"]: row for row in self._topic_rows(topics, only=node.name)}
            codes = {topic: row["error_code"] for topic, row in found.items()}
            # Where rights are for a prefix: what a run needs of them shows when it makes its own
            # topics.
            unseen = {topic for topic in INTERNAL_TOPICS if codes.get(topic) == _NO_RIGHT}
            for topic, kind in INTERNAL_TOPICS.items():
                if codes.get(topic) and topic not in unseen:
                    self._ask(methodcaller("coordinator", kind, "brokerstorm"))
            missing = [
                text
                for topic in topics
                if topic not in unseen
                for text in missing_parts(topic, found.get(topic), self._names)
            ]
            if missing:
                return missing
        return []

    def close(self) -> None:
        """Drop all connections. Idempotent; a later call opens them again."""
        self._ask.close()
