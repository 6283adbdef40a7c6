"""A broker that joins the cluster, or leaves it: replicas are moved off it first, and it is
forgotten."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from faults.kit.cluster_view import POLL_S, ClusterView
from faults.kit.injection import Injection
from faults.kit.params import Params
from harness.errors import EnvironmentNotReady
from harness.faultlog import ConfirmedAcks
from harness.protocols.cluster import PartitionState
from harness.protocols.members import HasMembers, UnregistersBrokers
from harness.waiting import wait_while

#: Topic -> partition -> its nodes, preferred leader first.
Moves = Mapping[str, Mapping[int, Sequence[str]]]


class MemberChange(Injection):
    """Base of both kinds: one broker, and the ways in and out of the cluster."""

    def __init__(self, view: ClusterView, node: str, params: Params, *, within_s: float) -> None:
        super().__init__(view, [node], params)
        self.node = node
        self._within_s = within_s
        self.members = view.ability(HasMembers)
        self.admin = view.ability(UnregistersBrokers)

    def join(self) -> None:
        self.members.join(self.node)
        self._wait(lambda: "" if self.is_registered() else f"{self.node} is not registered")

    def leave(self) -> None:
        """Return when no member of the cluster knows the node any more."""
        if self.node not in self.members.outside():
            self.move(self._drained())
            self.members.leave(self.node)
        self.admin.unregister(self.node)

    def move(self, moves: Moves) -> None:
        """Give partitions these nodes; returns when they have them."""
        for topic, own in moves.items():
            self.admin.reassign(topic, own)
        self._wait(lambda: "".join(map(self._moving, moves)))

    def _moving(self, topic: str) -> str:
        return f"{topic} is still moving" if self.admin.reassigning(topic) else ""

    def _wait(self, lacking: Callable[[], str]) -> None:
        if why := wait_while(lacking, self._within_s, every_s=POLL_S):
            raise EnvironmentNotReady(f"{why} after {self._within_s:g} s")

    def is_registered(self) -> bool:
        return self.node in self.view.cluster.admin.registered()

    def kept(self) -> dict[str, dict[int, PartitionState]]:
        """Partitions of which the broker has a replica, of all topics, internal ones too."""
        found: dict[str, dict[int, PartitionState]] = {}
        topics = self.admin.topics()
        for stream, state in self.admin.partition_states(topics).items():
            topic, _, partition = stream.rpartition("-")
            if self.node in state.replicas:
                found.setdefault(topic, {})[int(partition)] = state
        return found

    def _drained(self) -> Moves:
        kept = self.kept()
        return {
            t: {p: self._without(t, p, state) for p, state in own.items()}
            for t, own in kept.items()
        }

    def _without(self, topic: str, partition: int, state: PartitionState) -> list[str]:
        """Return its nodes with the broker replaced by another one, in turn.

        Raises:
            EnvironmentNotReady: there is none.
        """
        free = sorted(set(self.view.brokers) - set(state.replicas))
        if not free:
            raise EnvironmentNotReady(
                f"{topic}-{partition} is on every broker: {self.node} cannot leave"
            )
        return [
            free[partition % len(free)] if node == self.node else node for node in state.replicas
        ]

    def unsettled(self) -> str:
        """A partition that is not in sync, or moves."""
        topics = (topic.name for topic in self.view.inventory.topics)
        return next(
            filter(None, (self._moving(topic) or self.view.behind(topic) for topic in topics)), ""
        )

    def confirmed_acks(self) -> ConfirmedAcks:
        """Return that confirmed acknowledgements stay: what a broker leads is moved before it
        stops."""
        return "kept"
