"""Qpid Broker-J's admin side: queues, mastership of a group, connections, readiness."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from harness.brokers.failover import NotThere
from harness.brokers.qpid_probe import Probe
from harness.brokers.qpid_rest import VIRTUAL_HOST, Rest, each, one
from harness.connections.security import ANYBODY, Access
from harness.errors import EnvironmentNotReady, UsageError
from harness.protocols.cluster import (
    ClientConnection,
    Leadership,
    Node,
    PartitionState,
    SeenLeaders,
    TopicSettings,
)
from harness.waiting import wait_until, wait_while

_POLL_S = 0.1
_ASK_S = 8.0
MASTER, REPLICA = "MASTER", "REPLICA"
_ALONE = "ACTIVE"
#: Only what is asked for. The whole object has the node's replication state, and a node that is asked for
#: that while it joins its group again meets a null ("Environment is null") and shuts the broker down (9.2.1).
_ROLE = "querybroker/virtualhostnode?select=state,role"
#: Settings of a queue under which it drops or reorders messages, and the values that do not.
_KEEPS = {
    "type": ("standard",),
    "overflowPolicy": ("NONE", "FLOW_TO_DISK", "PRODUCER_FLOW_CONTROL"),
    "maximumMessageTtl": ("0",),
    "maximumDeliveryAttempts": ("0",),
    "messageDurability": ("DEFAULT", "ALWAYS"),
    "durable": ("true",),
}


class QpidAdmin:
    """Admin, HasMastership, HasBacklogs and HasConnections for one broker or group. Thread-safe; every call
    ends within seconds.

    A stream "orders-0" is a queue of that name. All queues of a group are served by its master.

    Args:
        is_reachable: whether a node can answer, as far as the runtime knows; others are not asked.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        *,
        is_reachable: Callable[[str], bool] = lambda name: True,
        access: Access = ANYBODY,
    ) -> None:
        self._nodes = tuple(nodes)
        self._names = tuple(sorted(node.name for node in nodes))
        self._is_reachable = is_reachable
        self._access = access
        self._rest = Rest(nodes, access.admin)
        self._seen: tuple[str, ...] = ()
        self.watch: Callable[[], None] = lambda: None

    # -- the group ------------------------------------------------------------------------------------

    def roles(self) -> dict[str, str]:
        """Node -> what it says that it is now: MASTER, REPLICA, WAITING, DETACHED. A single broker that
        serves is the MASTER. Nodes that do not answer are left out."""

        def role(name: str) -> str:
            found = (self._rest.get(name, _ROLE) or {}).get("results") or [("", "")]  # it starts
            state, role = found[0]
            return str(role or MASTER) if state == _ALONE else str(state)

        return each([name for name in self._names if self._is_reachable(name)], role)

    def master(self) -> str | None:
        """The node that serves clients; None while there is none, or none answers."""
        return self._master_of(self.roles())

    def _master_of(self, roles: Mapping[str, str]) -> str | None:
        claimants = sorted(name for name, role in roles.items() if role == MASTER)
        if len(claimants) < 2:
            return claimants[0] if claimants else None
        # One that was frozen until now does not know yet that it was deposed: whom do the others see?
        seen = each(roles, lambda name: self._others(name, MASTER))
        votes = sorted((sum(name in others for others in seen.values()), name) for name in claimants)
        return votes[-1][1] if votes[-1][0] > votes[-2][0] else None

    def _others(self, node: str, role: str) -> list[str]:
        """The other nodes that a node of a group sees in a role."""
        if len(self._names) == 1:
            return []
        rows = self._rest.get(node, f"remotereplicationnode/{node}") or []
        return sorted(row["name"] for row in rows if row.get("role") == role)

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
        self._rest.put(node, f"virtualhostnode/{node}", {"role": MASTER})

    def controller(self) -> str | None:
        """The master: it serves, and nobody else decides."""
        return self.master()

    def registered(self) -> set[str]:
        """Nodes that serve or follow."""
        return {name for name, role in self.roles().items() if role in (MASTER, REPLICA)}

    def partition_states(self, topics: Sequence[str]) -> dict[str, PartitionState]:
        """Queue -> its state. While nobody is the master nobody can be asked: then the queues seen last,
        without a leader."""
        master = self.master()
        if master is None:
            state = PartitionState(None, self._names, ())
        else:
            self._seen = tuple(self._queues(master))
            others = (name for name in self._names if name != master)
            state = PartitionState(master, (master, *others), (master, *self._others(master, REPLICA)))
        return {queue: state for queue in self._seen if queue.rpartition("-")[0] in topics}

    def leaders(self, topic: str) -> dict[int, str | None]:
        states = self.partition_states([topic])
        return {int(queue.rpartition("-")[2]): state.leader for queue, state in sorted(states.items())}

    def leaderships(self, topics: Sequence[str], seen: SeenLeaders) -> list[Leadership]:
        """The masters as they were seen, one term each."""
        return [
            Leadership(stream=stream, term=term, leader=leader, t_ns=t_ns, late_ns=late_ns)
            for stream, rows in sorted(seen.items())
            for term, (t_ns, late_ns, leader) in enumerate(rows, start=1)
        ]

    def answers(self, node: str) -> bool:
        return self._rest.answers(node)

    # -- queues ---------------------------------------------------------------------------------------

    def create_topics(self, topics: Sequence[TopicSettings]) -> None:
        """Create the queues of topics, each bound to the direct exchange under its own name.

        Raises:
            UsageError: a queue exists, has settings that drop or reorder messages, or one unknown here.
            EnvironmentNotReady: there is no master that answers.
        """
        configs = {topic.name: queue_config(topic) for topic in topics}
        master = self._serving()
        there = set(self._queues(master))
        for topic in topics:
            for partition in range(topic.partitions):
                queue = f"{topic.name}-{partition}"
                if queue in there:
                    raise UsageError(f"queue {queue} exists already", hint="choose another topic name")
                made = self._rest.put(master, _path("queue", master, queue), configs[topic.name])
                unknown = sorted(set(configs[topic.name]) - set(one(made)))
                if unknown:
                    self._rest.delete(master, _path("queue", master, queue))
                    raise UsageError(f"topic {topic.name}: a queue has no setting {unknown[0]!r}")
                # JMS clients of the first generation send by way of it.
                bind = {"destination": queue, "bindingKey": queue}
                self._rest.post(master, f"{_path('exchange', master, 'amq.direct')}/bind", bind)

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete the queues of topics with what is in them; one that is not there is no error."""
        master = self._serving()
        for queue in self._queues(master):
            if queue.rpartition("-")[0] in names:
                with suppress(NotThere):
                    self._rest.delete(master, _path("queue", master, queue))

    def topics(self) -> list[str]:
        """Names of all topics that have queues."""
        return sorted({queue.rpartition("-")[0] for queue in self._queues(self._serving())})

    def backlogs(self, topics: Sequence[str]) -> dict[str, dict[str, int]]:
        """Queue -> under "", the messages in it that nobody has taken for good, those handed out to consumers
        included."""
        found = self._queues(self._serving())
        return {
            queue: {"": int(row["statistics"]["queueDepthMessages"])}
            for queue, row in found.items()
            if queue.rpartition("-")[0] in topics
        }

    def end_offsets(self, topics: Sequence[str]) -> dict[str, int]:
        """Nothing: a queue has no positions. See `backlogs`."""
        return {}

    def _queues(self, master: str) -> dict[str, dict[str, Any]]:
        rows = self._rest.get(master, f"queue/{master}/{VIRTUAL_HOST}") or []
        return {row["name"]: row for row in rows if row["name"].rpartition("-")[2].isdigit()}

    # -- connections ----------------------------------------------------------------------------------

    def connections(self) -> list[ClientConnection]:
        rows = self._rest.get(self._serving(), "connection") or []
        return sorted((_connection(row) for row in rows), key=lambda found: found.id)

    def close_connection(self, connection: ClientConnection) -> None:
        with suppress(NotThere):
            self._rest.delete(self._serving(), f"connection/{_quoted(connection.port, connection.id)}")

    # -- readiness ------------------------------------------------------------------------------------

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
        """Return when every node serves or follows, the master has the queues of ``topics``, and a message
        was stored and taken again through it.

        Raises:
            EnvironmentNotReady: what is still missing, by name.
        """

        def missing() -> str:
            self.watch()
            try:
                return self._missing(topics, run_tag)
            except EnvironmentNotReady as error:
                return str(error)

        if still := wait_while(missing, timeout_s, every_s=_POLL_S):
            raise EnvironmentNotReady(
                f"the cluster is not ready after {timeout_s:.0f} s: {still}",
                hint="the nodes' logs are in its cluster folder; a busy machine needs more `limits.ready`",
            )

    def _missing(self, topics: Sequence[str], run_tag: int) -> str:
        roles = self.roles()
        for name in self._names:
            if roles.get(name) not in (MASTER, REPLICA):
                return f"{name} is {roles.get(name, 'not answering')}"
        master = self._master_of(roles)
        if master is None:
            return f"no master ({_shown(roles)})"
        behind = sorted(set(self._names) - {master, *self._others(master, REPLICA)})
        if behind:
            return f"{behind[0]} does not follow {master}"
        queues = sorted(self._queues(master))
        lacking = [topic for topic in topics if not any(q.rpartition("-")[0] == topic for q in queues)]
        if lacking:
            return f"topic {lacking[0]} has no queue"
        node = next(node for node in self._nodes if node.name == master)
        wanted = [queue for queue in queues if queue.rpartition("-")[0] in topics]
        return Probe(node.client, run_tag, self._access.clients).failure(wanted)

    def close(self) -> None:
        """Drop all connections. Idempotent; a later call opens them again."""
        self._rest.close()


def queue_config(topic: TopicSettings) -> dict[str, Any]:
    """The settings a queue is created with: the user's, and durable.

    Raises:
        UsageError: settings under which a queue drops, refuses or reorders messages.
    """
    config = dict(topic.config)
    for key, allowed in _KEEPS.items():
        value = str(config.get(key, allowed[0]))
        if value.casefold() not in [text.casefold() for text in allowed]:
            raise UsageError(
                f"topic {topic.name}: {key}={value} drops or reorders messages, so loss could not be told",
                hint=f"leave {key} out, or set it to {' or '.join(allowed)}",
            )
    return {**config, "durable": True}


def _connection(row: Mapping[str, Any]) -> ClientConnection:
    pid = str(row.get("remoteProcessPid") or "")
    return ClientConnection(
        id=str(row["name"]),
        port=str(row["port"]),
        client_name=str(row.get("clientId") or ""),
        pid=int(pid) if pid.isdigit() else 0,
    )


def _path(kind: str, node: str, name: str) -> str:
    return f"{kind}/{_quoted(node, VIRTUAL_HOST, name)}"


def _quoted(*parts: str) -> str:
    return "/".join(quote(part, safe="") for part in parts)


def _shown(roles: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {role}" for name, role in sorted(roles.items())) or "no node answers"
