"""RabbitMQ's admin side: queues, who leads them, connections, readiness.

Nodes are asked as RabbitMQ's own tools ask them (`harness.systems.rabbitmq.link`), each for what it
knows itself. So a node that is frozen, or cut off, holds up no answer of another one.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, Final, get_args

from harness.admin.client_names import without_tag
from harness.admin.failover import FailoverAdmin, NoAnswer, each, wait_ready
from harness.admin.watched import watched_leaderships
from harness.connections.secret import Secret
from harness.connections.security import ANYBODY, Access
from harness.contracts.rows import Leadership
from harness.errors import EnvironmentNotReady, UsageError
from harness.protocols.cluster import (
    ClientConnection,
    Endpoint,
    Node,
    PartitionState,
    Resource,
    SeenLeaders,
    TopicSettings,
)
from harness.systems.rabbitmq import (
    CLASSIC,
    DEAD_LETTERS,
    DELIVERY_LIMIT,
    NO_MIRRORS,
    QUORUM,
    TYPE,
    VIRTUAL_HOST,
)
from harness.systems.rabbitmq.amqp import PROBES, Amqp
from harness.systems.rabbitmq.link import ErlangLink, Refused, shown
from harness.systems.rabbitmq.terms import Atom, Function, Pid

_ASK_S: Final = 8.0
_GLANCE_S: Final = 1.0
_MOVE_S: Final = 5.0
#: Since this version, RabbitMQ keeps its metadata in Khepri.
_WITHOUT_MNESIA: Final = (4, 2)
#: Since this version, a stream can be restarted with another leader.
_MOVES_STREAMS: Final = (4, 0)
#: Since this version, a query is given as module, function and arguments.
_NAMED_QUERIES: Final = (4, 3)
#: After this time, a cluster with an alarm is not waited for any longer before a run.
_ALARM_NS: Final = 10 * 10**9
#: So often a stream is restarted until the wanted node leads it.
_STREAM_MOVES: Final = 3
#: States of a member of a Raft group that takes part.
_TAKES_PART: Final = ("leader", "follower")
#: Places in RabbitMQ's record of a queue (`amqqueue`).
_NAME, _ARGUMENTS, _PID, _MIRRORS, _MIRRORS_IN_SYNC = 1, 5, 6, 7, 8
_TYPE, _TYPE_STATE, _FIELDS = 19, 20, 21
#: Words of a node that does not serve a virtual host, though the cluster has it.
_HOST_DOWN: Final = "is down"
_STREAM_TYPE: Final = "rabbit_stream_queue"
#: The system of Raft groups that quorum queues are in.
_QUORUM_QUEUES: Final = "quorum_queues"
#: The counters that the leader of a stream keeps, and its other members.
_WRITER, _REPLICA = "osiris_writer", "osiris_replica"
#: By resource, the setting of its limit, and the function that sets another limit until the node
#: ends.
_LIMITS: Final[Mapping[Resource, tuple[str, str, str]]] = {
    "memory": (
        "vm_memory_high_watermark",
        "vm_memory_monitor",
        "set_vm_memory_high_watermark",
    ),
    "disk": ("disk_free_limit", "rabbit_disk_monitor", "set_disk_free_limit"),
}
#: Begins the names of the policies that mirror our classic queues; and who made them.
_POLICY: Final = "brokerstorm-"
_MAKER: Final = b"brokerstorm"


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue as the nodes' shared table has it.

    Attributes:
        server: of a quorum queue, the name of its Raft server; else empty.
        node: which node led it when the table was written.
        members: the nodes that have a copy.
        in_sync: of a classic queue, those whose copy is complete.
        is_stream: it is a stream, and keeps what was read.
        id: tells the queue from a later one of its name; empty for a quorum queue, whose id its
            Raft servers have.
        arguments: the arguments that it was declared with, as texts.
    """

    name: str
    server: str
    node: str
    members: tuple[str, ...]
    in_sync: tuple[str, ...] = ()
    is_stream: bool = False
    id: str = ""
    arguments: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RaftView:
    """What one node says of Raft: group -> its leader, and the state of the node's own member.

    ``streams``: stream -> the counters of its own member, `_WRITER` or `_REPLICA`.
    """

    leaders: Mapping[str, str] = field(default_factory=dict)
    states: Mapping[str, str] = field(default_factory=dict)
    streams: Mapping[str, str] = field(default_factory=dict)


class RabbitMqAdmin:
    """Admin, MovesLeaders, RemakesTopics, HasBacklogs, HasConnections, RaisesAlarms and
    HasHealthProbe for the nodes of a cluster. Thread-safe; every call ends within seconds.

    A stream "orders-0" is a queue of that name.

    Args:
        cookie: the secret that the nodes share.
        called: node -> the name that Erlang has for it (``rabbit@HOST``).
        version: series of the brokers, for example ``(4, 0)``.
        is_reachable: whether a node can answer, as far as the runtime knows; others are not asked.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        *,
        cookie: Callable[[], Secret],
        called: Mapping[str, str],
        version: tuple[int, ...] = (),
        is_reachable: Callable[[str], bool] = lambda name: True,
        access: Access = ANYBODY,
        virtual_host: str = VIRTUAL_HOST,
    ) -> None:
        self._version = version
        self._virtual_host = virtual_host
        self._names = tuple(sorted(node.name for node in nodes))
        self._is_reachable = is_reachable
        self._failover = FailoverAdmin(nodes, is_reachable)
        self._links = {node.name: ErlangLink(node.admin, cookie) for node in nodes}
        self._amqp = {
            node.name: Amqp(self._declares_at(node), access.admin, virtual_host) for node in nodes
        }
        self._erlang_of = dict(called)
        self._node_of = {node: name for name, node in called.items()}
        self._seen: Mapping[str, Queue] = MappingProxyType({})
        self.watch: Callable[[], None] = lambda: None

    # -- names -------------------------------------------------------------------------------------

    def _declares_at(self, node: Node) -> Endpoint:
        """Return where queues are declared: not by the way of clients, on which a network fault may
        last."""
        return Endpoint(node.admin.host, node.client.port)

    def _theirs(self, stream: str) -> str:
        """Return the name that the brokers have for a queue."""
        return stream

    def _ours(self, queue: str) -> str:
        """Return the stream that a queue of the brokers is; empty = it is none of a topic."""
        is_one = not queue.startswith(PROBES) and queue.rpartition("-")[2].isdigit()
        return queue if is_one else ""

    def _probe_queue(self, node: str) -> str:
        """Return the queue for the harness's own messages through a node; empty = there is none."""
        return f"{PROBES}{node}"

    # -- questions ---------------------------------------------------------------------------------

    def _each(self, question: Callable[[ErlangLink], Any]) -> dict[str, Any]:
        """Node -> its answer; nodes that give none are left out."""

        def ask(name: str) -> Any:
            try:
                return question(self._links[name])
            except NoAnswer as error:
                raise EnvironmentNotReady(f"{name}: {error}") from error

        return each([name for name in self._names if self._is_reachable(name)], ask)

    def _first(self, question: Callable[[ErlangLink], Any]) -> Any:
        """The first answer that a node gives.

        Raises:
            EnvironmentNotReady: none does.
        """
        return self._failover.first_answer(
            lambda node: question(self._links[node.name]), within_s=_ASK_S
        )

    def _queues(self) -> dict[str, Queue]:
        """Stream -> its queue, of our virtual host.

        Raises:
            EnvironmentNotReady: no node answers.
        """
        found = (self._queue(row) for row in self._first(self._rows))
        return {queue.name: queue for queue in found if queue is not None}

    def _rows(self, link: ErlangLink) -> list[Any]:
        """Return a node's records of the queues of our virtual host (`amqqueue`).

        Raises:
            NoAnswer: the node starts or stops, and does not have them.
        """
        try:
            rows = link.call("rabbit_amqqueue", "list", self._virtual_host.encode())
        except Refused as error:
            raise NoAnswer(f"lists no queues ({error})") from error
        if not isinstance(rows, list):
            raise NoAnswer(f"lists no queues ({shown(rows)})")
        return rows

    def _queue(self, row: Any) -> Queue | None:
        if not isinstance(row, tuple) or len(row) < _FIELDS:
            return None
        name = self._ours(row[_NAME][3].decode("utf-8", "replace"))
        pid, state = row[_PID], row[_TYPE_STATE]
        if not name:
            return None
        given = _arguments(row[_ARGUMENTS])
        if row[_TYPE] == _STREAM_TYPE:
            leader = self._node_of.get(pid.node, "") if isinstance(pid, Pid) else ""
            members, own = (
                state.get(key, ()) if isinstance(state, dict) else () for key in ("nodes", "name")
            )
            nodes = sorted(self._node_of.get(str(one), "") for one in members)
            return Queue(
                name, "", leader, tuple(nodes), is_stream=True, id=shown(own), arguments=given
            )
        if isinstance(pid, Pid):
            mirrors, complete = (
                tuple(self._node_of.get(one.node, "") for one in row[place])
                if isinstance(row[place], list)
                else ()
                for place in (_MIRRORS, _MIRRORS_IN_SYNC)
            )
            node, own = self._node_of.get(pid.node, ""), f"{pid.node} {pid.raw.hex()}"
            return Queue(
                name, "", node, (node, *mirrors), (node, *complete), id=own, arguments=given
            )
        server, erlang = pid
        members = state.get("nodes", ()) if isinstance(state, dict) else ()
        nodes = sorted(self._node_of.get(str(one), "") for one in members)
        leader = self._node_of.get(str(erlang), "")
        return Queue(name, str(server), leader, tuple(nodes), arguments=given)

    def _told(self) -> dict[str, RaftView]:
        """Node -> what it says of the Raft groups that it has a member of."""

        def ask(link: ErlangLink) -> RaftView:
            boards = link.call("ets", "tab2list", Atom("ra_leaderboard"))
            states = link.call("ets", "tab2list", Atom("ra_state"))
            counters = link.call("osiris_counters", "overview")
            return RaftView(
                {
                    str(row[0]): self._node_of.get(str(row[1][1]), "")
                    for row in boards
                    if isinstance(row[1], tuple)
                },
                {str(row[0]): str(row[1]) for row in states},
                {
                    self._ours(name): kind
                    for name, kind in _members_of_streams(counters, self._virtual_host)
                },
            )

        return self._each(ask)

    # -- who leads ---------------------------------------------------------------------------------

    def partition_states(self, topics: Sequence[str]) -> dict[str, PartitionState]:
        """Queue -> its state. While no node answers, the queues seen last, without a leader."""
        with suppress(EnvironmentNotReady):
            self._seen = MappingProxyType(self._queues())
        queues = [queue for queue in self._seen.values() if _topic(queue.name) in topics]
        told = self._told() if any(queue.server or queue.is_stream for queue in queues) else {}
        return {queue.name: self._state(queue, told) for queue in queues}

    def _state(self, queue: Queue, told: Mapping[str, RaftView]) -> PartitionState:
        if queue.is_stream:
            return _stream_state(queue, told)
        if not queue.server:
            there = tuple(name for name in queue.in_sync if self._is_reachable(name))
            leader = queue.node if queue.node in there else None
            return PartitionState(leader, queue.members, there)
        leader = self._leader(queue, told)
        others = (name for name in queue.members if name != leader)
        members = (leader, *others) if leader else queue.members
        return PartitionState(leader, members, self._in_sync(queue, told))

    def _leader(self, queue: Queue, told: Mapping[str, RaftView]) -> str | None:
        """Whom most members name, of those that answer: a node that was frozen until now still
        names the one from before."""
        votes = Counter(
            one.leaders[queue.server]
            for name, one in told.items()
            if name in queue.members and one.leaders.get(queue.server)
        )
        best = votes.most_common(2)
        if not best or (len(best) == 2 and best[0][1] == best[1][1]):
            return None
        leader = best[0][0]
        says = told.get(leader)
        return leader if says is not None and says.states.get(queue.server) == "leader" else None

    def _in_sync(self, queue: Queue, told: Mapping[str, RaftView]) -> tuple[str, ...]:
        return tuple(
            name
            for name in queue.members
            if name in told and told[name].states.get(queue.server) in _TAKES_PART
        )

    def leaders(self, topic: str) -> dict[int, str | None]:
        states = self.partition_states([topic])
        return {int(name.rpartition("-")[2]): state.leader for name, state in states.items()}

    def leaderships(self, topics: Sequence[str], seen: SeenLeaders) -> list[Leadership]:
        """The leaders as they were seen, one term each."""
        return watched_leaderships(seen)

    def controller(self) -> str | None:
        """None: no node decides for the others."""
        return None

    def registered(self) -> set[str]:
        """Nodes that run RabbitMQ and that a node sees in the cluster."""
        views = self._views()
        votes = Counter(name for view in views.values() for name in view)
        return {name for name, count in votes.items() if name in views and 2 * count > len(views)}

    def _views(self) -> dict[str, Set[str]]:
        """Node that runs RabbitMQ -> the nodes that it sees in the cluster, itself included."""
        ask = _running_by_mnesia if self._version < _WITHOUT_MNESIA else _connected
        return {
            node: {self._node_of[one] for one in view if one in self._node_of}
            for node, view in self._each(ask).items()
            if view
        }

    def answers(self, node: str) -> bool:
        try:
            self._links[node].call("erlang", "node", timeout_s=_GLANCE_S)
        except (NoAnswer, Refused):
            return False
        return True

    def move_leaders(self, topic: str, to: Mapping[int, str]) -> None:
        """Make these nodes the leaders of quorum queues or streams.

        Raises:
            UsageError: a classic queue, brokers that cannot move the leader of a stream, or the
                leader refuses.
            EnvironmentNotReady: the leader does not answer.
        """
        queues = self._queues()
        states = self.partition_states([topic])
        for partition, node in to.items():
            stream = f"{topic}-{partition}"
            queue, state = queues.get(stream), states.get(stream)
            if queue is None or state is None or not (queue.server or queue.is_stream):
                raise UsageError(f"{stream} is a classic queue: its leader cannot move")
            if queue.is_stream and self._version < _MOVES_STREAMS:
                raise UsageError(
                    f"{stream} is a stream: these brokers cannot move its leader",
                    hint="set cluster.version to 4.0 or newer",
                )
            if state.leader is None:
                raise EnvironmentNotReady(f"{stream} has no leader now")
            self._move(queue, state.leader, node)

    def _move(self, queue: Queue, leader: str, to: str) -> None:
        nodes = [Atom(self._erlang_of[name]) for name in (leader, to)]
        if queue.is_stream:
            self._move_stream(queue, leader, to, nodes[1])
            return
        ends = [(Atom(queue.server), node) for node in nodes]
        said = self._asked_to_move(leader, "ra", "transfer_leadership", *ends)
        if said not in ("ok", "already_leader"):
            raise UsageError(f"{leader} does not give {queue.name} to {to}: {shown(said)}")

    def _move_stream(self, queue: Queue, leader: str, to: str, node: Atom) -> None:
        """Restart a stream with another leader. RabbitMQ takes the preferred node only if no other
        one has later messages, which under load is a matter of chance."""
        name = self._theirs(queue.name).encode()
        asked = (self._virtual_host.encode(), name, {Atom("preferred_leader_node"): node})
        said: Any = None
        for _ in range(_STREAM_MOVES):
            said = self._asked_to_move(leader, "rabbit_stream_queue", "restart_stream", *asked)
            if said == ("ok", node):
                return
        if isinstance(said, tuple) and said[0] == "ok":
            kept = self._node_of.get(str(said[1]), str(said[1]))
            raise UsageError(f"{queue.name} is led by {kept}, whose messages {to} did not have yet")
        raise UsageError(f"{leader} does not give {queue.name} to {to}: {shown(said)}")

    def _asked_to_move(self, leader: str, module: str, function: str, *arguments: Any) -> Any:
        try:
            return self._links[leader].call(module, function, *arguments, timeout_s=_MOVE_S)
        except NoAnswer as error:
            raise EnvironmentNotReady(f"{leader}: {error}") from error

    # -- queues ------------------------------------------------------------------------------------

    def create_topics(self, topics: Sequence[TopicSettings]) -> None:
        """Create the queues of topics, their leaders spread over the nodes.

        Raises:
            UsageError: a queue exists, or a setting is refused.
            EnvironmentNotReady: a node does not answer.
        """
        count = len(self._queues())
        for topic in topics:
            for partition in range(topic.partitions):
                at = self._names[count % len(self._names)]
                stream = f"{topic.name}-{partition}"
                self._declare(at, stream, topic)
                count += 1

    def _declare(self, node: str, stream: str, topic: TopicSettings) -> None:
        queue = self._theirs(stream)
        if topic.config.get(TYPE) == CLASSIC and topic.replication > 1:
            self._mirror(queue, topic.replication)
        self._amqp[node].declare(queue, self._settings(topic))

    def _settings(self, topic: TopicSettings) -> Mapping[str, str]:
        """Return the arguments of a topic's queues. A message is given as often as necessary unless
        they say otherwise: newer brokers drop it after 20 times by default."""
        unlimited = self._version >= NO_MIRRORS and topic.config.get(TYPE) == QUORUM
        found = {**({DELIVERY_LIMIT: "-1"} if unlimited else {}), **topic.config}
        if dead := found.get(DEAD_LETTERS):
            found[DEAD_LETTERS] = self._theirs(dead)
        return found

    def _mirror(self, queue: str, copies: int) -> None:
        """Have a classic queue mirrored, by a policy of its own.

        Raises:
            UsageError: these brokers have no mirrors (4.0 and newer).
        """
        mode = {"ha-mode": "exactly", "ha-params": copies, "ha-sync-mode": "automatic"}
        words = (f"{_POLICY}{queue}", f"^{re.escape(queue)}$", json.dumps(mode))
        asked = (self._virtual_host, *words, 0, "queues", _MAKER)
        said = self._first(partial(_call, "rabbit_policy", "parse_set", *asked))
        if said != "ok":
            raise UsageError(
                f"queue {queue} cannot be mirrored on {copies} nodes: {shown(said)}",
                hint="set topics.replication to 1, or use a quorum queue",
            )

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete the queues of topics with what is in them; it is not an error if one does not
        exist."""
        self._delete([self._theirs(one) for one in self._queues() if _topic(one) in names])

    def _delete(self, queues: Sequence[str]) -> None:
        """Delete queues by the brokers' names, with the policies that mirror them."""
        reachable = [name for name in self._names if self._is_reachable(name)]
        if queues and reachable:
            self._amqp[reachable[0]].delete(queues)
        for queue in queues:
            policy = (self._virtual_host, f"{_POLICY}{queue}", _MAKER)
            self._first(partial(_call, "rabbit_policy", "delete", *policy))

    def topics(self) -> list[str]:
        """Names of all topics that have queues."""
        return sorted({_topic(stream) for stream in self._queues()})

    def topic_ids(self, topic: str) -> frozenset[str]:
        """Return the ids by which the nodes that answer know a topic; see
        `RemakesTopics.topic_ids`."""
        tables = self._each(self._rows)
        if not tables:
            raise EnvironmentNotReady("no node answers")
        found = set()
        for table in tables.values():
            queues = [queue for queue in map(self._queue, table) if queue is not None]
            ids = [self._id(queue) for queue in queues if _topic(queue.name) == topic]
            if ids:
                found.add(", ".join(sorted(ids)))
        return frozenset(found)

    def _id(self, queue: Queue) -> str:
        """Return the id of a queue. Each member of a Raft group has an id of its own, which its
        node alone knows, so one member is asked.

        Raises:
            EnvironmentNotReady: the node of that member does not answer.
        """
        if not queue.server:
            return queue.id
        asked = ("ra_directory", "uid_of", Atom(_QUORUM_QUEUES), Atom(queue.server))
        try:
            return shown(self._links[queue.members[0]].call(*asked))
        except NoAnswer as error:
            raise EnvironmentNotReady(f"{queue.members[0]}: {error}") from error

    def made_of(self, topic: str) -> TopicSettings:
        """Return the settings that create the same topic; see `RemakesTopics.made_of`.

        Raises:
            UsageError: the topic has no queue.
        """
        queues = [queue for queue in self._queues().values() if _topic(queue.name) == topic]
        if not queues:
            raise UsageError(f"topic {topic} has no queue")
        made = dict(queues[0].arguments)
        if dead := made.get(DEAD_LETTERS):
            made[DEAD_LETTERS] = self._ours(dead)
        return TopicSettings(topic, len(queues), len(queues[0].members), made)

    def backlogs(self, topics: Sequence[str]) -> dict[str, dict[str, int]]:
        """Queue -> under "", the messages in it that were not acknowledged, those handed out to
        consumers included. Streams are left out: they keep no position of a consumer.

        Raises:
            EnvironmentNotReady: the leader of a queue does not answer.
        """
        found = {}
        for stream, queue in self._queues().items():
            if _topic(stream) in topics and not queue.is_stream:
                found[stream] = {"": self._depth(queue)}
        return found

    def _depth(self, queue: Queue) -> int:
        try:
            if not queue.server:
                return self._depth_of_classic(queue)
            counts = ("rabbit_fifo", "query_messages_total")
            total: Any = Function(*counts, 1)
            if self._version >= _NAMED_QUERIES:
                total = (*map(Atom, counts), [])
            at = (Atom(queue.server), Atom(self._erlang_of.get(queue.node, "")))
            said = self._first(lambda link: link.call("ra", "consistent_query", at, total))
        except Refused as error:
            raise EnvironmentNotReady(f"{queue.name}: {error}") from error
        if not (isinstance(said, tuple) and said[0] == "ok" and isinstance(said[1], int)):
            raise EnvironmentNotReady(f"{queue.name}: its leader does not answer")
        return said[1]

    def _depth_of_classic(self, queue: Queue) -> int:
        name = self._theirs(queue.name)

        def ask(link: ErlangLink) -> int:
            asked = [Atom("messages")]
            return int(link.call("rabbit_amqqueue", "info", self._row(link, name), asked)[0][1])

        return int(self._first(ask))

    def _row(self, link: ErlangLink, queue: str) -> tuple[Any, ...]:
        """Return a node's record of a queue (`amqqueue`), by the brokers' name.

        Raises:
            NoAnswer: the node does not know the queue.
        """
        name = (Atom("resource"), self._virtual_host.encode(), Atom("queue"), queue.encode())
        said = link.call("rabbit_amqqueue", "lookup", name)
        if not (isinstance(said, tuple) and said[0] == "ok"):
            raise NoAnswer(f"knows no queue {queue}")
        row: tuple[Any, ...] = said[1]
        return row

    def end_offsets(self, topics: Sequence[str]) -> dict[str, int]:
        """Nothing: a queue has no positions. See `backlogs`."""
        return {}

    # -- connections -------------------------------------------------------------------------------

    def connections(self) -> list[ClientConnection]:
        """Return the connections of clients to the nodes that answer; a port is a node's name."""
        views = self._each(_connections_at)
        return sorted(
            (
                _connection(node, name, properties)
                for node, found in views.items()
                for name, (_, properties) in found.items()
                if self._is_client_of_ours(properties.get("instance", ""))
            ),
            key=lambda found: (found.port, found.id),
        )

    def _is_client_of_ours(self, name: str) -> bool:
        """Return whether faults may meet a client, by the name that it states."""
        return True

    def close_connection(self, connection: ClientConnection) -> None:
        """Close a connection, as `rabbitmqctl close_connection` does.

        Raises:
            EnvironmentNotReady: the node does not answer.
        """
        link = self._links[connection.port]
        try:
            found = _connections_at(link).get(connection.id)
            if found is not None:
                link.call("rabbit_networking", "close_connection", found[0], b"closed by a fault")
        except NoAnswer as error:
            raise EnvironmentNotReady(f"{connection.port}: {error}") from error

    # -- alarms ------------------------------------------------------------------------------------

    def alarms(self) -> Set[tuple[str, Resource]]:
        """Return the nodes that are short of memory or disk, as the nodes that answer list them."""
        views = self._each(lambda link: link.call("rabbit_alarm", "get_alarms"))
        return {found for view in views.values() for found in self._alarms_in(view)}

    def _alarms_in(self, alarms: Iterable[Any]) -> Iterator[tuple[str, Resource]]:
        """Yield node and resource of ``{{resource_limit, memory, Node}, []}``; other alarms do not
        block publishers."""
        for alarm in alarms:
            about = alarm[0] if isinstance(alarm, tuple) and len(alarm) == 2 else None
            if isinstance(about, tuple) and len(about) == 3 and about[0] == "resource_limit":
                for resource in get_args(Resource):
                    if about[1] == resource:
                        yield self._node_of.get(str(about[2]), str(about[2])), resource

    def raise_alarm(self, node: str, resource: Resource) -> None:
        """Set a limit that the node exceeds: one byte of memory, or 10^18 bytes of free disk.

        Raises:
            EnvironmentNotReady: the node does not answer.
        """
        excessive = (Atom("absolute"), 1) if resource == "memory" else 10**18
        self._limit(node, resource, excessive)

    def clear_alarms(self, node: str) -> None:
        """Set the limits of memory and disk to those in the configuration of the node.

        Raises:
            EnvironmentNotReady: the node does not answer.
        """
        for resource, (setting, *_) in _LIMITS.items():
            asked = (Atom("rabbit"), Atom(setting))
            try:
                found = self._links[node].call("application", "get_env", *asked)
            except NoAnswer as error:
                raise EnvironmentNotReady(f"{node}: {error}") from error
            if isinstance(found, tuple) and len(found) == 2:
                self._limit(node, resource, found[1])

    def _limit(self, node: str, resource: Resource, limit: Any) -> None:
        _, module, function = _LIMITS[resource]
        try:
            said = self._links[node].call(module, function, limit)
        except NoAnswer as error:
            raise EnvironmentNotReady(f"{node}: {error}") from error
        if said != "ok":
            raise EnvironmentNotReady(f"{node} does not set {function}: {shown(said)}")

    # -- feature flags -----------------------------------------------------------------------------

    def feature_flags(self) -> dict[str, bool]:
        """Feature flag -> whether it is enabled, of all that a node knows.

        Raises:
            EnvironmentNotReady: no node answers.
        """
        known, enabled = (
            self._first(partial(_call, "rabbit_feature_flags", "list", Atom(which)))
            for which in ("all", "enabled")
        )
        return {str(flag): flag in enabled for flag in sorted(known)}

    # -- readiness ---------------------------------------------------------------------------------

    def wait_ready(self, topics: Sequence[str], *, timeout_s: float, run_tag: int) -> None:
        """Return when every node runs and sees the others, the queues of ``topics`` have a leader
        and all their members, and a message went in and came out through every node.

        Raises:
            EnvironmentNotReady: what is still missing, by name.
        """
        impatient_ns = time.monotonic_ns() + _ALARM_NS

        def watch() -> None:
            self.watch()
            if not topics and time.monotonic_ns() > impatient_ns:
                self.refuse_alarms()

        wait_ready(lambda: self._missing(topics, run_tag), watch, timeout_s=timeout_s)

    def refuse_alarms(self) -> None:
        """Raise if an alarm blocks publishers. One that was set before a run does not end by
        itself.

        Raises:
            EnvironmentNotReady: the node, and its limit.
        """
        for name, resource in sorted(self.alarms()):
            setting, _, command = _LIMITS[resource]
            raise EnvironmentNotReady(
                f"{name} has a {resource} alarm, so publishers are blocked: see {setting}",
                hint=f"set {setting} in cluster.config; `rabbitmqctl {command}` changes it on a node "
                "that brokerstorm did not start",
            )

    def _missing(self, topics: Sequence[str], run_tag: int) -> str:
        running = self._each(lambda link: link.call("rabbit", "is_running"))
        for name in self._names:
            if running.get(name) != "true":
                return f"{name} is {'starting' if name in running else 'not answering'}"
        for name, view in self._views().items():
            if lacking := sorted(set(self._names) - view):
                return f"{name} does not see {lacking[0]} in the cluster"
        if problem := self._trouble():
            return problem
        return self._missing_queues(topics) or self._probed(topics, run_tag)

    def _trouble(self) -> str:
        """An alarm that blocks publishers, or a partition that a node has seen."""
        for name, resource in sorted(self.alarms()):
            return f"{name} has a {resource} alarm, so publishers are blocked"
        if self._version >= _WITHOUT_MNESIA:
            return ""
        seen = self._each(lambda link: link.call("rabbit_node_monitor", "partitions"))
        for name, partitions in seen.items():
            if partitions:
                others = ", ".join(self._node_of.get(str(one), str(one)) for one in partitions)
                return f"{name} has seen a partition from {others}, and serves on its own"
        return ""

    def _missing_queues(self, topics: Sequence[str]) -> str:
        states = self.partition_states(topics)
        lacking = [topic for topic in topics if topic not in {_topic(name) for name in states}]
        if lacking:
            return f"topic {lacking[0]} has no queue"
        for name, state in sorted(states.items()):
            if state.leader is None:
                return f"{name} has no leader"
            if late := sorted(set(state.replicas) - set(state.in_sync)):
                return f"{name}: {late[0]} is not in sync"
        return ""

    def _probed(self, topics: Sequence[str], run_tag: int) -> str:
        queues = [self._theirs(one) for one in self._queues() if _topic(one) in topics]
        for name, amqp in self._amqp.items():
            if reason := amqp.failure(queues, self._probe_queue(name), run_tag):
                if _HOST_DOWN in reason:
                    self._start_host(name)
                return f"{name}: {reason}"
        return ""

    def _start_host(self, name: str) -> None:
        """Start our virtual host on a node. A node does not start one that another node makes while
        it starts itself: ``rabbitmqctl restart_vhost`` is for that."""
        with suppress(NoAnswer, Refused):  # readiness is asked again
            host = self._virtual_host.encode()
            self._links[name].call("rabbit_vhost_sup_sup", "start_vhost", host)

    def close(self) -> None:
        """Drop all connections. Idempotent; a later call opens them again."""
        for link in self._links.values():
            link.close()


def _members_of_streams(counters: Mapping[Any, Any], of: str) -> Iterator[tuple[str, str]]:
    """Yield each stream of a virtual host that a node has a member of, with that member's kind of
    counters."""
    for key in counters:
        if isinstance(key, tuple) and key[0] in (_WRITER, _REPLICA) and len(key[1]) == 4:
            _, host, _, name = key[1]
            if host == of.encode():
                yield name.decode("utf-8", "replace"), str(key[0])


def _stream_state(queue: Queue, told: Mapping[str, RaftView]) -> PartitionState:
    """A stream is led by the node that the shared table names, if that node has its writer."""
    roles = {name: told[name].streams.get(queue.name, "") for name in queue.members if name in told}
    leader = queue.node if roles.get(queue.node) == _WRITER else None
    others = tuple(name for name in queue.members if name != leader)
    members = (leader, *others) if leader else queue.members
    return PartitionState(leader, members, tuple(name for name in queue.members if roles.get(name)))


def _arguments(table: Any) -> dict[str, str]:
    """Return the arguments of a queue as a scenario writes them."""
    return {
        shown(key): str(value).lower() if kind == "bool" else shown(value)
        for key, kind, value in table
        if isinstance(value, (bytes, str, int))
    }


def _running_by_mnesia(link: ErlangLink) -> list[str]:
    """Return the nodes that a node sees in the cluster; empty while it starts: then it answers that
    it has no list."""
    nodes = link.call("rabbit_mnesia", "cluster_nodes", Atom("running"))
    return nodes if isinstance(nodes, list) else []


def _connected(link: ErlangLink) -> list[str]:
    """Return the nodes that a node is connected to, itself included; empty if it does not run
    RabbitMQ. It asks none of them."""
    if link.call("rabbit", "is_running") != "true":
        return []
    return [link.call("erlang", "node"), *link.call("erlang", "nodes")]


def _call(module: str, function: str, *more: Any) -> Any:
    """Call a function of the last argument, which is a link, with the arguments before it."""
    *arguments, link = more
    return link.call(module, function, *arguments)


def _connections_at(link: ErlangLink) -> dict[str, tuple[Pid, Mapping[str, str]]]:
    """Name of a connection to a node -> its process, and the properties that the client states as
    texts."""
    found: dict[str, tuple[Pid, Mapping[str, str]]] = {}
    asked = [Atom("name"), Atom("client_properties")]
    for pid in link.call("rabbit_networking", "local_connections"):
        try:
            items = dict(link.call("rabbit_networking", "connection_info", pid, asked))
        except Refused:  # it has ended meanwhile
            continue
        if not isinstance(items["client_properties"], list):
            continue  # it is closing, and no longer knows them
        properties = {
            key.decode("utf-8", "replace"): value.decode("utf-8", "replace")
            for key, kind, value in items["client_properties"]
            if kind == "longstr"
        }
        found[items["name"].decode("utf-8", "replace")] = (pid, properties)
    return found


def _connection(node: str, name: str, properties: Mapping[str, str]) -> ClientConnection:
    pid = properties.get("qpid.client_pid", "")
    return ClientConnection(
        id=name,
        port=node,
        client_name=without_tag(properties.get("instance", "")),
        pid=int(pid) if pid.isdigit() else 0,
    )


def _topic(stream: str) -> str:
    return stream.rpartition("-")[0]
