"""The bottom of the import graph: what a cluster, an admin, a worker and a fault look like.

A cluster *has* abilities (`Killable`, `Pausable`, `HasLeaders` ...); a scenario whose faults need
one it lacks is refused before anything starts. Nodes are named by their compose service
("kafka-1").
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from harness.contracts.rows import Bounds, FaultEvent, Leadership, ReplicaRow, StreamTransactions


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Node:
    """A broker and its three ways in: clients under test, other brokers, and the harness itself."""

    name: str
    number: int
    client: Endpoint
    peer: Endpoint
    admin: Endpoint
    folder: Path
    roles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The settings with which a topic is created."""

    name: str
    partitions: int
    replication: int
    config: Mapping[str, str] = field(default_factory=dict)
    grows_to: int = 0


@runtime_checkable
class Runtime(Protocol):
    """Starts and stops the nodes of one compose file. Everything it starts carries the run id."""

    run_id: str

    @property
    def nodes(self) -> Sequence[Node]:
        """The nodes that belong to the cluster now."""

    def up(self) -> None:
        """Start every node and return once their processes run (readiness is the admin's to say).

        Raises:
            EnvironmentNotReady: no Java, ports taken, memory, a node that died (its last log
                lines).
        """

    def down(self) -> None:
        """End every process of this run and free its addresses. Idempotent."""

    def pid(self, node: str) -> int | None:
        """Process id, None when the node is not running."""


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The leader of a stream (Pulsar: the owner of its bundle), its replicas (preferred leader
    first) and those in sync; no replicas where brokers keep no data themselves.
    """

    leader: str | None
    replicas: tuple[str, ...]
    in_sync: tuple[str, ...]


@runtime_checkable
class HasPlacement(Protocol):
    """Can tell which node leads or owns what.

    That is: which node serves each stream, and which node decides that.
    """

    def partition_states(self, topics: Sequence[str]) -> dict[str, PartitionState]:
        """Stream ("orders-0") -> its state, in one question; topics that do not exist are left
        out."""

    def leaders(self, topic: str) -> dict[int, str | None]:
        """Return the leader of each partition; None if it has none."""

    def controller(self) -> str | None:
        """The node that decides who leads: active controller (Kafka), leader broker (Pulsar)."""


#: Stream -> since when (CLOCK_MONOTONIC ns) which leader was seen, and how much later than it came
#: at most.
SeenLeaders = Mapping[str, Sequence[tuple[int, int, str | None]]]


@runtime_checkable
class HasLeaderships(Protocol):
    """Can tell afterwards who led or owned what, and from which position on."""

    def leaderships(self, topics: Sequence[str], seen: SeenLeaders) -> list[Leadership]:
        """In the order of streams and terms.

        Args:
            seen: what was watched; empty for systems that keep that history themselves.

        Raises:
            BrokerstormError: the brokers cannot say now.
        """


@runtime_checkable
class HasTransactions(Protocol):
    """Can tell afterwards which messages of a log were in which transaction, and how it ended
    (Kafka)."""

    def transactions(self, topics: Sequence[str], *, timeout_s: float) -> list[StreamTransactions]:
        """One for each stream; what could not be read in that time is missing at the end of it.

        Raises:
            BrokerstormError: the brokers cannot say now.
        """


class StoredMessage(NamedTuple):
    """A message of a topic, as a reader of committed data is given it.

    ``t_ms``: when the broker stored it (wall clock); 0 = it does not say.
    """

    partition: int
    position: int
    t_ms: int
    key: bytes
    value: bytes
    headers: Sequence[tuple[str, bytes]]


@runtime_checkable
class ReadsMessages(Protocol):
    """Can read a whole topic that clients of somebody else wrote (Kafka, NATS)."""

    def read_messages(
        self, topic: str, take: Callable[[StoredMessage], None], *, timeout_s: float, last: int = 0
    ) -> list[Bounds]:
        """Hand every committed message to ``take``, in the order of each partition, up to an end
        that is fixed at the start; how far each partition was read.

        Args:
            last: begin so many positions before the end of each partition; 0 = at its begin.

        Raises:
            BrokerstormError: the brokers do not answer.
        """


@runtime_checkable
class ReadsReplicas(Protocol):
    """Can read every replica of a log from the node that has it (Kafka, Pulsar, NATS)."""

    def read_replicas(self, topics: Sequence[str], *, timeout_s: float) -> list[ReplicaRow]:
        """One for each replica of each stream; what could not be read in that time is missing at
        its end.

        Raises:
            BrokerstormError: the brokers cannot say now who has what.
        """


@runtime_checkable
class TellsHidden(Protocol):
    """Gives readers what was committed only, and can tell afterwards what else a log holds
    (Pulsar)."""

    def hidden(
        self, given: Mapping[str, Collection[tuple[int, int]]], *, timeout_s: float
    ) -> list[StreamTransactions]:
        """One for each stream, with all of the log that a reader was not given (stream -> ledger
        and entry of all that it was); what could not be read in that time is not counted.

        Raises:
            BrokerstormError: the brokers cannot say now.
        """


@runtime_checkable
class MovesLeaders(HasPlacement, Protocol):
    """Can move the leaders of partitions (Kafka, NATS).

    Nodes are names; partitions are ints.
    """

    def move_leaders(self, topic: str, to: Mapping[int, str]) -> None:
        """Make these nodes leaders; returns when asked, not when moved. Brokers that cannot be told
        who comes next choose another one."""


@runtime_checkable
class MovesConsumerLeaders(HasPlacement, Protocol):
    """Can move the leaders of consumers that the brokers keep (NATS)."""

    def consumer_leaders(self, group: str, topics: Sequence[str]) -> dict[str, str | None]:
        """Stream -> the node that leads the group's consumer of it; streams without one are left
        out.

        Raises:
            BrokerstormError: the brokers cannot say now.
        """

    def move_consumer_leader(self, group: str, stream: str) -> None:
        """Ask it to step down; returns when asked, not when another one leads.

        Raises:
            UsageError: the brokers refuse it (their words).
            EnvironmentNotReady: no broker answers.
        """


@runtime_checkable
class HasLeaders(MovesLeaders, Protocol):
    """Can elect the preferred leaders of partitions (Kafka)."""

    def replicas(self, topic: str) -> dict[int, list[str]]:
        """Return the replicas of each partition, the preferred leader first."""

    def isr(self, topic: str) -> dict[int, list[str]]:
        """Return the replicas in sync of each partition."""

    def elect_preferred(self, topic: str, partitions: Iterable[int] | None = None) -> None:
        """Make the preferred leaders lead, for some partitions or for all."""


#: Settings of a topic that say which of its replicas are throttled (Kafka: KIP-73).
THROTTLED_REPLICAS = (
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
)


@runtime_checkable
class HasReassignments(HasPlacement, Protocol):
    """Can move replicas of partitions to other nodes (Kafka)."""

    def reassign(self, topic: str, to: Mapping[int, Sequence[str]]) -> None:
        """Give partitions these nodes, preferred leader first; returns when asked, not when moved.

        Raises:
            UsageError: the brokers refuse it (their words).
            EnvironmentNotReady: no broker answers.
        """

    def cancel_reassignments(self, topic: str, partitions: Iterable[int]) -> None:
        """Let the replicas stay that they had; a move that has ended stays. Raises as
        `reassign`."""

    def reassigning(self, topic: str) -> list[int]:
        """Partitions whose replicas are on the move now."""

    def throttle_moves(self, topic: str, bytes_per_s: int | None) -> None:
        """Let each broker send and take no more of a topic's replicas on the move (KIP-73); None
        lifts it. Idempotent. Raises as `reassign`."""


@runtime_checkable
class ChangesTopics(Protocol):
    """Can change settings of topics that are in use (Kafka, Pulsar).

    Where they are of a namespace (`System.changes_namespace`), ``topic`` means nothing.

    Each raises UsageError: the brokers refuse it (their words); EnvironmentNotReady: no broker
    answers.
    """

    def settings(self, topic: str, keys: Sequence[str]) -> dict[str, str]:
        """Return the values in force, whatever set them."""

    def own_settings(self, topic: str, keys: Sequence[str]) -> dict[str, str | None]:
        """Return the settings of the topic itself; None for a key that it does not have: the
        brokers' value is in force.
        """

    def change_settings(self, topic: str, to: Mapping[str, str | None]) -> None:
        """Give the topic settings of its own, or take them away (None). Idempotent."""


@runtime_checkable
class TruncatesLogs(Protocol):
    """Can remove the oldest messages of a log (Kafka)."""

    def log_spans(self, topic: str) -> dict[int, tuple[int, int]]:
        """Partition -> first offset of its log, and the one after its last readable message.

        Raises:
            EnvironmentNotReady: a partition has no leader or its leader does not answer.
        """

    def truncate(self, topic: str, to: Mapping[int, int]) -> None:
        """Remove what lies before an offset of each partition; returns when the leaders have.

        Raises:
            EnvironmentNotReady: a leader refuses (its words), or none answers.
        """


@runtime_checkable
class GrowsTopics(Protocol):
    """Can add partitions to a topic that is in use (Kafka)."""

    def grow(self, topic: str, to: int) -> None:
        """Give a topic so many partitions; returns when every broker in reach knows them. One that
        has them already is not an error.

        Raises:
            UsageError: the brokers refuse it (their words).
            EnvironmentNotReady: no broker answers.
        """


@runtime_checkable
class RemakesTopics(Protocol):
    """Can tell a topic from another one of its name, and what it was made with (Kafka: KIP-516).

    Each raises EnvironmentNotReady: no broker answers.
    """

    def topic_ids(self, topic: str) -> frozenset[str]:
        """The ids that brokers in reach know it by; none = no broker knows it."""

    def made_of(self, topic: str) -> TopicSettings:
        """Return the settings with which the same topic can be created again."""


@runtime_checkable
class HasBacklogs(Protocol):
    """Knows what consumers have yet to settle, where positions are not dense (Pulsar, Qpid)."""

    def backlogs(self, topics: Sequence[str]) -> dict[str, dict[str, int]]:
        """Stream -> subscription -> entries that it has not acknowledged yet. A queue has one
        backlog for all of its consumers, under the name "".

        Raises:
            BrokerstormError: the brokers cannot say now.
        """


@runtime_checkable
class HasShareGroups(Protocol):
    """Can tell what groups that settle one by one have settled, where positions are dense
    (Kafka)."""

    def share_lags(self, group: str, topics: Sequence[str]) -> dict[str, int]:
        """Stream -> messages that the group has not settled; one of which that is not known is left
        out.

        Args:
            group: as the brokers know it.

        Raises:
            BrokerstormError: the brokers cannot say now.
        """


@runtime_checkable
class HasCommittedOffsets(Protocol):
    """Can tell which positions a group has committed (Kafka), or up to which position it has
    acknowledged every message (NATS)."""

    def committed_offsets(self, group: str, topics: Sequence[str]) -> dict[str, int]:
        """Stream -> the next position that the group would read, -1 = it has committed none. A
        stream of which that is not known, or open in a transaction, is left out.

        Args:
            group: as the brokers know it.

        Raises:
            BrokerstormError: the brokers cannot say now.
        """


@runtime_checkable
class GivesOutAgain(Protocol):
    """Waits for acknowledgements of single messages, and gives a message out again that was not
    acknowledged in time (NATS)."""

    def held_for_s(self, group: str, topics: Sequence[str]) -> float:
        """Return the longest such time in seconds, of the streams where the group holds messages;
        0 = it holds none.

        Args:
            group: as the brokers know it.

        Raises:
            BrokerstormError: the brokers cannot say now.
        """


@runtime_checkable
class HasGroupMembers(Protocol):
    """Can report the members of a consumer group (Kafka)."""

    def group_members(self, group: str) -> dict[str, list[str]]:
        """Member id -> the streams that are assigned to it; empty if the group has no member.

        Args:
            group: as the brokers know it.

        Raises:
            BrokerstormError: the brokers cannot say now.
        """


@runtime_checkable
class HasCoordinators(Protocol):
    """Can tell which node coordinates a group (Kafka) or transactions."""

    def coordinator(self, kind: str, name: str) -> str | None:
        """The node; None while there is none, or the name is not known.

        Args:
            kind: "group" or "transactions".
            name: of the group, or the transactional id, as the brokers know it.

        Raises:
            EnvironmentNotReady: the brokers do not answer.
        """


@runtime_checkable
class HasHighWatermark(Protocol):
    """Shows readers only what is replicated (Kafka): what a leader alone acknowledged may be after
    the end that they see, and would look lost."""

    def pass_high_watermark(self, topics: Sequence[str], *, timeout_s: float, run_tag: int) -> None:
        """Return when readers see all that was acknowledged before in every partition.

        Raises:
            EnvironmentNotReady: the partitions of which that is not known.
        """


@runtime_checkable
class HasNamespaces(HasBacklogs, Protocol):
    """Topics live in a namespace (Pulsar). Topic names elsewhere are relative to the current
    one."""

    def enter_namespace(self, name: str, *, bundles: int = 12) -> None:
        """Create ``public/bs-1a2b3c4d`` with infinite retention, and use it from now on.

        Raises:
            UsageError: the brokers refuse it (their words).
            EnvironmentNotReady: no broker answers.
        """

    def drop_namespace(self, name: str) -> None:
        """Delete it with all its topics; it is not an error if it does not exist."""


@runtime_checkable
class NamesTopics(Protocol):
    """Can keep the topics of a run apart from other users' topics."""

    def name_topics(self, addresses: Mapping[str, str], groups: Sequence[str]) -> None:
        """From now on a topic has a name of its own here, and another one at the brokers.

        Args:
            addresses: topic -> what the brokers call it.
            groups: of consumers, as the brokers will know them; deleted with the topics.
        """


@runtime_checkable
class AnswersOwned(Protocol):
    """Can ask every broker what it owns (Pulsar)."""

    def ask_owned(self) -> dict[str, float | None]:
        """Broker -> seconds until it answered, None when it did not."""


@runtime_checkable
class HasBundles(HasPlacement, Protocol):
    """Can unload and split bundles of topics (Pulsar).

    Bundles are named by their range, "0x00000000_0x15555555".
    """

    def bundle_owners(self) -> dict[str, str | None]:
        """Bundles of the current namespace -> the node that owns each."""

    def bundles_of(self, streams: Sequence[str]) -> dict[str, str]:
        """Stream -> the bundle it is in, now."""

    def incarnation(self, stream: str) -> int:
        """A number that changes when the stream is loaded anew, also by the same owner. Loads
        it."""

    def unload_stream(self, stream: str) -> None:
        """Close it at its owner and disconnect its clients; returns when done."""

    def unload_bundle(self, bundle: str) -> None:
        """Unload a bundle: its owner gives it up, and another broker takes it."""

    def unload_namespace(self) -> None:
        """Unload all bundles of the namespace."""

    def split_bundle(self, bundle: str) -> None:
        """Halve it; returns when asked, not when the number of bundles has changed."""


@runtime_checkable
class HasTransfers(HasBundles, Protocol):
    """Can choose which broker owns a bundle next (Pulsar 3.0 and later)."""

    def transfer_bundle(self, bundle: str, to: str) -> None:
        """Unload it and ask that a node owns it next; returns when asked, not when owned."""


@runtime_checkable
class HasMastership(HasPlacement, Protocol):
    """Can make another node the master, the one that serves everything (Qpid)."""

    def roles(self) -> dict[str, str]:
        """Node -> MASTER, REPLICA, or what else it says it is; nodes that do not answer are left
        out."""

    def master(self) -> str | None:
        """Return the node that is the master; None if there is none."""

    def move_mastership(self, node: str) -> None:
        """Ask a replica to become the master; returns when asked, not when it is."""


@dataclass(frozen=True, slots=True)
class ClientConnection:
    """A client's connection as the broker names it; ``pid`` is what the client says of itself, else
    0."""

    id: str
    port: str
    client_name: str
    pid: int


@runtime_checkable
class HasConnections(Protocol):
    """Can list and close the connections of clients (Qpid, RabbitMQ)."""

    def connections(self) -> list[ClientConnection]:
        """Return the connections of clients."""

    def close_connection(self, connection: ClientConnection) -> None:
        """Close a connection, as an operator would. It is not an error if the connection is
        gone."""


#: What a node can be short of.
Resource = Literal["memory", "disk"]


@runtime_checkable
class RaisesAlarms(Protocol):
    """Can make a node report that it is short of memory or disk (RabbitMQ).

    Each raises EnvironmentNotReady: the node does not answer.
    """

    def alarms(self) -> Set[tuple[str, Resource]]:
        """Return the nodes that are short of a resource, as the nodes that answer list them."""

    def raise_alarm(self, node: str, resource: Resource) -> None:
        """Set the limit of a resource so that the node exceeds it. Idempotent."""

    def clear_alarms(self, node: str) -> None:
        """Set the limits to those in the configuration of the node. Idempotent."""


@runtime_checkable
class HasHealthProbe(Protocol):
    """Knows how to ask one node something that only a live process answers."""

    def answers(self, node: str) -> bool:
        """One request, about a second at most; a stopped process accepts connections and answers
        nothing."""


@runtime_checkable
class HasTopics(Protocol):
    """Knows which topics there are."""

    def topics(self) -> list[str]:
        """Names of all topics, internal ones included."""


@runtime_checkable
class Admin(Protocol):
    """Talks to the brokers through their admin endpoints."""

    def create_topics(self, topics: Sequence[TopicSettings]) -> None:
        """Create topics."""

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics. It is not an error if one does not exist."""

    def wait_ready(self, topics: Sequence[str], *, timeout_s: float, run_tag: int) -> None:
        """Return when the cluster *works*: every node registered, every partition led with full
        ISR, and a probe message stored through each.

        Raises:
            EnvironmentNotReady: what is still missing, by name.
        """

    def registered(self) -> set[str]:
        """Return the nodes that are registered with the cluster."""

    def end_offsets(self, topics: Sequence[str]) -> dict[str, int]:
        """Stream ("orders-0") -> the position after its last message, now."""

    def close(self) -> None: ...


@runtime_checkable
class Cluster(Protocol):
    """A runtime and its admin: what faults and the run see."""

    system: str
    version: str
    facts: Mapping[str, str]

    @property
    def runtime(self) -> Runtime:
        """The processes or containers of the cluster."""

    @property
    def admin(self) -> Admin:
        """The administrator that is connected to the cluster."""

    @property
    def bootstrap(self) -> str:
        """Client endpoints, comma separated."""

    @property
    def admin_url(self) -> str:
        """Return the URL that workers use to administrate; empty when the system has no such
        endpoint."""

    @property
    def security(self) -> Any:
        """Return what the cluster asks of clients (`harness.connections.security.Security`); None
        if it asks nothing.
        """

    def request(self, port: str, ballast: int = 0) -> tuple[bytes, int | bytes] | None:
        """A request that whoever listens on a port answers at once, and what shows that all of it
        came through: how many answers, or what an answer ends with. None = there is none.

        Args:
            port: its name in the compose file.
            ballast: bytes to make the request longer by, where that can be done.
        """

    def up(self, *, timeout_s: float = 60.0) -> None:
        """Start, and return when it works."""

    def down(self) -> None: ...


#: Of a proof: each kind of fault tells others. Those that judging goes by are `FaultDetails`.
Details = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Proof:
    """Whether a fault took effect, and how we know."""

    effective: bool
    evidence: str
    details: Details = field(default_factory=dict)


class Progress(Protocol):
    """The live view, as a run feeds it."""

    def phase(self, name: str, note: str = "") -> None:
        """Show that a phase of the run begins."""

    def update(self, **numbers: Any) -> None:
        """Show numbers, such as messages sent so far."""

    def fault(self, event: FaultEvent) -> None:
        """Show an event of a fault."""

    def download(self, text: str, fraction: float | None) -> None:
        """Show the progress of a download; ``fraction`` is None if its size is not known."""

    def note(self, text: str) -> None:
        """Show a note to the user."""

    def waiting(self, worker: str, text: str) -> None:
        """Show what a worker waits for in vain, until it continues; an empty text ends this."""

    def close(self) -> None: ...
