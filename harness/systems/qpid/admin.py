"""Qpid Broker-J's admin side: queues, mastership of a group, connections, readiness."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from urllib.parse import quote

from harness.admin.client_names import without_tag
from harness.admin.failover import AlreadyThere, NotThere, each, wait_ready
from harness.admin.watched import watched_leaderships
from harness.connections.security import ANYBODY, Access
from harness.contracts.rows import Leadership
from harness.errors import EnvironmentNotReady, UsageError
from harness.protocols.cluster import (
    ClientConnection,
    Node,
    PartitionState,
    SeenLeaders,
    TopicSettings,
)
from harness.rundir import Document
from harness.systems.qpid.probe import Probe
from harness.systems.qpid.rest import OURS, QpidRest, QueuePlace, one
from harness.waiting import wait_until

_POLL_S = 0.1
_ASK_S = 8.0
MASTER, REPLICA = "MASTER", "REPLICA"
_ALONE = "ACTIVE"
#: Only what is asked for. The whole object has the node's replication state, and a node that is
#: asked for that while it joins its group again meets a null ("Environment is null") and shuts the
#: broker down (9.2.1).
_ROLE = "querybroker/virtualhostnode?select=name,state,role"
#: Where the harness' own message goes through.
_PROBE_QUEUE = "brokerstorm.probe"
#: Settings of a queue under which it drops or reorders messages, and the values that do not.
#: Settings of a queue, and that it is durable.
QueueConfig = Mapping[str, str | bool]
KEEPS = {
    "type": ("standard",),
    "overflowPolicy": ("NONE", "FLOW_TO_DISK", "PRODUCER_FLOW_CONTROL"),
    "maximumMessageTtl": ("0",),
    "maximumDeliveryAttempts": ("0",),
    "messageDurability": ("DEFAULT", "ALWAYS"),
    "durable": ("true",),
}


class QpidAdmin:
    """Admin, HasMastership, HasBacklogs and HasConnections for one broker or group. Thread-safe;
    every call ends within seconds.

    A stream "orders-0" is a queue of that name. All queues of a group are served by its master.

    Args:
        is_reachable: whether a node can answer, as far as the runtime knows; others are not asked.
        place: where its queues are.
        urls: node -> where its management answers; default: the admin endpoints.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        *,
        is_reachable: Callable[[str], bool] = lambda name: True,
        access: Access = ANYBODY,
        place: QueuePlace = OURS,
        urls: Mapping[str, str] | None = None,
    ) -> None:
        scheme = "https" if access.admin.tls else "http"
        self._nodes = tuple(nodes)
        self._names = tuple(sorted(node.name for node in nodes))
        self._is_reachable = is_reachable
        self._access = access
        self._place = place
        self._rest = QpidRest(
            urls or {node.name: f"{scheme}://{node.admin}" for node in nodes}, access.admin
        )
        self._seen: tuple[str, ...] = ()
        self.watch: Callable[[], None] = lambda: None

    # -- the group ---------------------------------------------------------------------------------

    def roles(self) -> dict[str, str]:
        """Node -> what it says that it is now: MASTER, REPLICA, WAITING, DETACHED. A single broker
        that serves is the MASTER. Nodes that do not answer are left out."""

        def role(name: str) -> str:
            rows = (self._rest.get(name, _ROLE) or {}).get("results") or ()  # none: it starts
            state, role = next(
                (row[1:] for row in rows if row[0] == self._place.host(name)), ("", "")
            )
            return str(role or MASTER) if state == _ALONE else str(state)

        return each([name for name in self._names if self._is_reachable(name)], role)

    def master(self) -> str | None:
        """The node that serves clients; None while there is none, or none answers."""
        return self._master_of(self.roles())

    def _master_of(self, roles: Mapping[str, str]) -> str | None:
        claimants = sorted(name for name, role in roles.items() if role == MASTER)
        if len(claimants) < 2:
            return claimants[0] if claimants else None
        # One that was frozen until now does not know yet that it was deposed: whom do the others
        # see?
        seen = each(roles, lambda name: self._others(name, MASTER))
        votes = sorted(
            (sum(name in others for others in seen.values()), name) for name in claimants
        )
        return votes[-1][1] if votes[-1][0] > votes[-2][0] else None

    def _others(self, node: str, role: str) -> list[str]:
        """The other nodes that a node of a group sees in a role."""
        if len(self._names) == 1:
            return []
        rows = self._rest.get(node, f"remotereplicationnode/{self._host(node)}") or []
        return sorted(self._place.nodes(row["name"] for row in rows if row.get("role") == role))

    def _host(self, node: str) -> str:
        return _quoted(self._place.host(node))

    def move_mastership(self, node: str) -> None:
        """Ask a replica to become the master; returns when asked, not when it is.

        Raises:
            UsageError: not a group, or no such node.
            EnvironmentNotReady: the node does not answer.
        """
        if len(self._names) == 1 or node not in self._names:
            raise UsageError(
                f"the mastership cannot move to {node!r}",
                hint=f"a group of {len(self._names)}: {', '.join(self._names)}",
            )
        self._rest.put(node, f"virtualhostnode/{self._host(node)}", {"role": MASTER})

    def virtual_host_id(self) -> str:
        """The id that the master has for its virtual host; it goes with the mastership.

        Raises:
            EnvironmentNotReady: no master answers.
        """
        master = self._serving()
        return str(self._rest.get(master, f"{self._path('virtualhost', master)}?depth=0")["id"])

    def controller(self) -> str | None:
        """The master: it serves, and it alone decides."""
        return self.master()

    def registered(self) -> set[str]:
        """Nodes that serve or follow."""
        return {name for name, role in self.roles().items() if role in (MASTER, REPLICA)}

    def partition_states(self, topics: Sequence[str]) -> dict[str, PartitionState]:
        """Queue -> its state. Without a master, no broker can be asked: then the queues seen last,
        without a leader."""
        master = self.master()
        if master is None:
            state = PartitionState(None, self._names, ())
        else:
            self._seen = tuple(self._depths(master))
            others = (name for name in self._names if name != master)
            state = PartitionState(
                master, (master, *others), (master, *self._others(master, REPLICA))
            )
        return {queue: state for queue in self._seen if queue.rpartition("-")[0] in topics}

    def leaders(self, topic: str) -> dict[int, str | None]:
        states = self.partition_states([topic])
        return {
            int(queue.rpartition("-")[2]): state.leader for queue, state in sorted(states.items())
        }

    def leaderships(self, topics: Sequence[str], seen: SeenLeaders) -> list[Leadership]:
        """The masters as they were seen, one term each."""
        return watched_leaderships(seen)

    def answers(self, node: str) -> bool:
        return self._rest.answers(node)

    # -- queues ------------------------------------------------------------------------------------

    def create_topics(self, topics: Sequence[TopicSettings]) -> None:
        """Create the queues of topics, each bound to the direct exchange under its own name.

        Raises:
            UsageError: a queue exists, has settings that drop or reorder messages, or one unknown
                here.
            EnvironmentNotReady: no master answers.
        """
        configs = {topic.name: queue_config(topic) for topic in topics}
        master = self._serving()
        for topic in topics:
            for partition in range(topic.partitions):
                self._make_queue(master, f"{topic.name}-{partition}", configs[topic.name])

    def _make_queue(self, master: str, stream: str, config: QueueConfig) -> None:
        queue = self._queue(stream)
        try:
            made = one(
                self._rest.post(master, self._path("queue", master), {"name": queue, **config})
            )
        except AlreadyThere:
            raise AlreadyThere(
                f"queue {queue} exists already", hint="choose another topic name"
            ) from None
        # JMS clients of the first generation send by way of it.
        bind = {"destination": queue, "bindingKey": queue}
        try:
            _refuse_unheeded(queue, config, made)
            self._rest.post(master, f"{self._path('exchange', master, 'amq.direct')}/bind", bind)
        except UsageError:
            self._rest.delete(master, self._path("queue", master, queue))
            raise

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete the queues of topics with what is in them; it is not an error if one does not
        exist."""
        master = self._serving()
        wanted = [stream for stream in self._depths(master) if stream.rpartition("-")[0] in names]
        self._delete(master, map(self._queue, wanted))

    def _delete(self, master: str, queues: Iterable[str]) -> None:
        for queue in queues:
            with suppress(NotThere):
                self._rest.delete(master, self._path("queue", master, queue))

    def topics(self) -> list[str]:
        """Names of all topics that have queues."""
        return sorted({queue.rpartition("-")[0] for queue in self._depths(self._serving())})

    def backlogs(self, topics: Sequence[str]) -> dict[str, dict[str, int]]:
        """Queue -> under "", the messages in it that were not taken for good, those handed out to
        consumers included."""
        found = self._depths(self._serving())
        return {
            stream: {"": depth}
            for stream, depth in found.items()
            if stream.rpartition("-")[0] in topics
        }

    def end_offsets(self, topics: Sequence[str]) -> dict[str, int]:
        """Nothing: a queue has no positions. See `backlogs`."""
        return {}

    def _queue(self, stream: str) -> str:
        """Return the brokers' name of a stream's queue."""
        return stream

    def _stream(self, queue: str) -> str:
        """The stream of a queue; empty = it is none."""
        return queue if queue.rpartition("-")[2].isdigit() else ""

    def _depths(self, master: str) -> dict[str, int]:
        """Stream -> messages in its queue. Names and numbers only: others may have queues by the
        thousand."""
        asked = f"{self._path('queryvhost', master)}/queue?select=name,queueDepthMessages"
        rows = (self._rest.get(master, asked) or {}).get("results") or ()
        return {
            stream: int(depth or 0) for name, depth in rows if (stream := self._stream(str(name)))
        }

    def _path(self, kind: str, node: str, *names: str) -> str:
        return f"{kind}/{_quoted(self._place.host(node), self._place.virtual_host, *names)}"

    # -- connections -------------------------------------------------------------------------------

    def connections(self) -> list[ClientConnection]:
        rows = self._rest.get(self._serving(), "connection") or []
        return sorted(map(self._connection, rows), key=lambda found: found.id)

    def _connection(self, row: Document) -> ClientConnection:
        pid, name = str(row.get("remoteProcessPid") or ""), str(row.get("clientId") or "")
        return ClientConnection(
            id=str(row["name"]),
            port=str(row["port"]),
            client_name=without_tag(name),
            pid=int(pid) if pid.isdigit() else 0,
        )

    def close_connection(self, connection: ClientConnection) -> None:
        with suppress(NotThere):
            self._rest.delete(
                self._serving(), f"connection/{_quoted(connection.port, connection.id)}"
            )

    # -- readiness ---------------------------------------------------------------------------------

    def _serving(self) -> str:
        """The master, waited for.

        Raises:
            EnvironmentNotReady: there is none in time.
        """
        master = wait_until(lambda: self._master_of(self.roles()), _ASK_S, every_s=_POLL_S)
        if master is None:
            raise EnvironmentNotReady(f"no broker serves its queues ({_shown(self.roles())})")
        return master

    def wait_ready(self, topics: Sequence[str], *, timeout_s: float, run_tag: int) -> None:
        """Return when every node serves or follows, the master has the queues of ``topics``, and a
        message was stored and taken again through it.

        Raises:
            EnvironmentNotReady: what is still missing, by name.
        """
        wait_ready(lambda: self._missing(topics, run_tag), self.watch, timeout_s=timeout_s)

    def _missing(self, topics: Sequence[str], run_tag: int) -> str:
        roles = self.roles()
        for name in self._names:
            if roles.get(name) not in (MASTER, REPLICA):
                return f"{name} is {roles.get(name, 'not answering')}"
        master = self._master_of(roles)
        if master is None:
            return f"no master ({_shown(roles)})"
        lagging = sorted(set(self._names) - {master, *self._others(master, REPLICA)})
        if lagging:
            return f"{lagging[0]} does not follow {master}"
        queues = sorted(self._depths(master))
        lacking = [
            topic for topic in topics if not any(q.rpartition("-")[0] == topic for q in queues)
        ]
        if lacking:
            return f"topic {lacking[0]} has no queue"
        node = next(node for node in self._nodes if node.name == master)
        wanted = [self._queue(queue) for queue in queues if queue.rpartition("-")[0] in topics]
        probe = Probe(node.client, run_tag, self._access.clients, self._place.virtual_host)
        return probe.failure(wanted, through=self._probe_queue())

    def _probe_queue(self) -> str:
        """Return the queue for the harness's own messages; empty if there is none."""
        return _PROBE_QUEUE

    def close(self) -> None:
        """Drop all connections. Idempotent; a later call opens them again."""
        self._rest.close()


def queue_config(topic: TopicSettings) -> QueueConfig:
    """The settings a queue is created with: the user's, durable, and without what a broker's
    context may say.

    Raises:
        UsageError: settings under which a queue drops, refuses or reorders messages.
    """
    config = dict(topic.config)
    for key, allowed in KEEPS.items():
        value = str(config.get(key, allowed[0]))
        if value.casefold() not in [text.casefold() for text in allowed]:
            raise UsageError(
                f"topic {topic.name}: {key}={value} drops or reorders messages: loss could not be detected",
                hint=f"leave {key} out, or set it to {' or '.join(allowed)}",
            )
    return {**{key: allowed[0] for key, allowed in KEEPS.items()}, **config, "durable": True}


def _refuse_unheeded(queue: str, config: QueueConfig, made: Document) -> None:
    """A queue may be made otherwise than asked for: without settings that it does not have, or with
    others of the broker's context.

    Raises:
        UsageError: a setting is not there, or would drop or reorder messages.
    """
    if unknown := sorted(set(config) - set(made)):
        raise UsageError(f"queue {queue}: a queue has no setting {unknown[0]!r}")
    for key, allowed in KEEPS.items():
        if str(made.get(key)).casefold() not in [text.casefold() for text in allowed]:
            raise UsageError(
                f"queue {queue} was made with {key}={made.get(key)}: it may drop messages",
                hint=f"the broker must permit {key}={allowed[0]} for queues with this prefix",
            )


def _quoted(*parts: str) -> str:
    return "/".join(quote(part, safe="") for part in parts)


def _shown(roles: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {role}" for name, role in sorted(roles.items())) or "no node answers"
