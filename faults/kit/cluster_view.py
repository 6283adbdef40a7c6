"""The cluster as a fault sees it: its abilities by name, and one look at who leads and who is in
sync."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar, cast

from faults.kit.params import Inventory
from harness.errors import BrokerstormError
from harness.protocols.cluster import (
    Cluster,
    HasBundles,
    HasCoordinators,
    HasHealthProbe,
    HasPlacement,
    Node,
    PartitionState,
)
from harness.protocols.faulting import ClientLives, Clients
from harness.protocols.nodes import SeenAway, Startable, TellsRunning

POLL_S = 0.2
A = TypeVar("A")  #: an ability


def find_ability(cluster: Cluster, ability: type[A]) -> A | None:
    """The part of the cluster that has an ability (itself, its runtime, its admin, its detours, its
    packets, the drivers of its nodes); None when none has."""
    network = (getattr(cluster.runtime, name, None) for name in ("detours", "packets"))
    drivers = getattr(cluster.runtime, "drivers", ())
    parts = (cluster, cluster.runtime, cluster.admin, *network, *drivers)
    return next((part for part in parts if isinstance(part, ability)), None)


def ability_of(cluster: Cluster, ability: type[A]) -> A:
    """The part of the cluster that has an ability of the fault; one without it was refused
    before."""
    return cast("A", find_ability(cluster, ability))


def is_outside(cluster: Cluster) -> bool:
    """Whether somebody else started it, so that only drivers reach its nodes."""
    return hasattr(cluster.runtime, "drivers")


def ability_text(ability: type) -> str:
    """Return what a cluster with the ability can do, as text: ``kill a node and start it
    again``."""
    return first_paragraph(ability).removeprefix("Can ").rstrip(".")


def first_paragraph(described: type) -> str:
    """The first paragraph of a class's docstring as one line, for people."""
    return " ".join((described.__doc__ or "").strip().partition("\n\n")[0].split())


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One look at the topics of a run. Keys are streams ("orders-0"), values are node names."""

    partitions: Mapping[str, PartitionState]
    controller: str | None
    registered: frozenset[str]

    def led_by(self, nodes: Sequence[str]) -> list[str]:
        """Streams that one of the nodes leads."""
        return [stream for stream, state in self.partitions.items() if state.leader in nodes]

    def shrunk(self) -> dict[str, list[str]]:
        """Stream -> replicas that are not in sync."""
        behind = {s: sorted(set(p.replicas) - set(p.in_sync)) for s, p in self.partitions.items()}
        return {stream: nodes for stream, nodes in behind.items() if nodes}

    def leader(self, stream: str) -> str | None:
        state = self.partitions.get(stream)
        return state.leader if state else None

    def in_sync(self, stream: str) -> set[str]:
        state = self.partitions.get(stream)
        return set(state.in_sync) if state else set()


class ClusterView:
    """The view of the cluster that a fault may use. The threads of a run's faults share it; it has
    no state but ``stopping``.

    Attributes:
        faulted: the nodes that a fault holds now.
        clients: asks for name -> process id of the run's workers that live now; empty without a
            run.
        lives: ends those processes and begins their next lives; None without a run.
        stopping: set when everything must be healed; a long injection ends early.
    """

    def __init__(
        self,
        cluster: Cluster,
        inventory: Inventory,
        *,
        faulted: Callable[[], frozenset[str]] = frozenset,
    ) -> None:
        self.cluster = cluster
        self._planned = inventory
        self.faulted = faulted
        self.clients: Clients = dict
        self.lives: ClientLives | None = None
        self.stopping = threading.Event()

    @property
    def inventory(self) -> Inventory:
        """The run's topics and the nodes of the cluster that runs, which a replay does not know
        before."""
        roles = {node.name: node.roles for node in self.cluster.runtime.nodes}
        return replace(self._planned, nodes=self.nodes, roles=roles)

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(sorted(node.name for node in self.cluster.runtime.nodes))

    @property
    def brokers(self) -> tuple[str, ...]:
        """The nodes that clients talk to: what a target means that names no role."""
        nodes = self.cluster.runtime.nodes
        return tuple(sorted(n.name for n in nodes if "broker" in n.roles)) or self.nodes

    def with_role(self, role: str) -> tuple[str, ...]:
        return tuple(sorted(n.name for n in self.cluster.runtime.nodes if role in n.roles))

    def alike(self, node: str) -> tuple[str, ...]:
        """The nodes that do what a node does, itself among them."""
        return self.brokers if node in self.brokers else self.with_role(self.node(node).roles[0])

    def node(self, name: str) -> Node:
        return next(node for node in self.cluster.runtime.nodes if node.name == name)

    @property
    def seen(self) -> SeenAway:
        """How the loss of a node is seen here."""
        found: SeenAway = getattr(self.cluster.runtime, "seen", SeenAway())
        return found

    def ability(self, ability: type[A]) -> A:
        """Return the cluster as one with the ability; see `ability_of`."""
        return ability_of(self.cluster, ability)

    @property
    def placement(self) -> HasPlacement:
        return self.ability(HasPlacement)

    @property
    def bundles(self) -> HasBundles:
        return self.ability(HasBundles)

    def is_running(self, node: str) -> bool:
        return self.ability(TellsRunning).is_running(node)

    def start(self, node: str) -> None:
        """Start a node that is down; returns when its process runs. No-op when it runs."""
        self.ability(Startable).start(node)

    def coordinators(self, group: str) -> list[str]:
        """The node that coordinates each name of a group or of transactions
        (`Inventory.coordinated`).

        Raises:
            BrokerstormError: the cluster does not answer.
        """
        kind, _, name = group.partition(":")
        source = self.ability(HasCoordinators)
        # without a run it is the brokers' name
        names = self._planned.coordinated.get(group, (name,))
        found = [source.coordinator(kind, each) for each in names]
        return [node for node in found if node is not None]

    def answers(self, node: str) -> bool | None:
        """Whether a request of our own to a node is answered; None when the cluster cannot tell."""
        teller = find_ability(self.cluster, HasHealthProbe)
        return None if teller is None else bool(teller.answers(node))

    def states_of(self, topic: str) -> dict[int, PartitionState]:
        """Partition -> state, of one topic.

        Raises:
            BrokerstormError: the cluster does not answer.
        """
        states = self.placement.partition_states([topic])
        return {int(stream.rpartition("-")[2]): state for stream, state in states.items()}

    def behind(self, topic: str) -> str:
        """A partition without a leader or with a replica out of sync; empty when there is none.
        Raises as `states_of`."""
        states = self.states_of(topic).items()
        own = (
            p for p, state in states if not state.leader or set(state.replicas) - set(state.in_sync)
        )
        return next((f"{topic}-{partition} is not in sync" for partition in own), "")

    def snapshot(self) -> Snapshot | None:
        """Return the cluster's view of itself now; None if it does not answer, which faults can
        cause."""
        try:
            return self._snapshot()
        except BrokerstormError:
            return None

    def _snapshot(self) -> Snapshot:
        source = self.placement
        states = source.partition_states([topic.name for topic in self.inventory.topics])
        registered = frozenset(self.cluster.admin.registered())
        return Snapshot(states, source.controller(), registered)
