"""remove-broker: a broker is drained and leaves the cluster under load; later it joins again,
empty."""

from __future__ import annotations

from pydantic import Field

from faults.kit.cluster_view import ClusterView
from faults.kit.errors import FiringSkipped
from faults.kit.injection import FaultKind
from faults.kit.membership import MemberChange
from faults.kit.params import Inventory, Params
from harness.durations import Seconds
from harness.protocols.cluster import Proof
from harness.protocols.members import FOURTH_BROKER, HasMembers, UnregistersBrokers


class RemoveBrokerParams(Params):
    within: Seconds = Field(60.0, gt=0, description="time limit for each move of replicas")
    for_: Seconds = Field(
        10.0, alias="for", gt=0, description="the broker joins again after this time"
    )


class Removed(MemberChange):
    """A broker less. Its heal gives it its replicas back, so it asks brokers."""

    params: RemoveBrokerParams

    def __init__(self, view: ClusterView, node: str, params: RemoveBrokerParams) -> None:
        super().__init__(view, node, params, within_s=params.within)
        self.away = [node]
        self._before = {
            t: {p: s.replicas for p, s in own.items()} for t, own in self.kept().items()
        }

    def apply(self) -> None:
        self.leave()

    def proof(self) -> Proof:
        """Nobody knows it any more, and others have what it kept."""
        left, kept = sum(map(len, self.kept().values())), sum(map(len, self._before.values()))
        known = self.is_registered()
        word = "is still registered" if known else "is registered no more"
        text = f"{self.node} {word}, has {left} of the {kept} replicas that it had"
        return Proof(not known and not left, text, {"moved": kept - left})

    def heal(self) -> None:
        self.join()
        self.move(self._before)

    def is_undone(self) -> bool:
        return self.node not in self.members.outside()

    def missing(self) -> str:
        kept = self.kept()
        lacks = [
            f"{t}-{p}" for t, own in self._before.items() for p in own if p not in kept.get(t, {})
        ]
        return f"{self.node} has no replica of {lacks[0]}" if lacks else self.unsettled()


class RemoveBroker(FaultKind[RemoveBrokerParams]):
    """The fourth broker is drained and leaves; after `for` it joins again with an empty disk."""

    kind = "remove-broker"
    abilities = (HasMembers, UnregistersBrokers)
    needs = frozenset({FOURTH_BROKER})
    takes_nodes = True
    params = RemoveBrokerParams

    def target(self, params: RemoveBrokerParams) -> str:
        return "a broker that is not a controller"

    def ends_within_s(self, params: RemoveBrokerParams) -> float | None:
        return params.for_ + params.within

    def commands(self, params: RemoveBrokerParams, inventory: Inventory) -> list[str]:
        left = "AlterPartitionReassignments: every replica of the fourth broker -> the others"
        again = f"after {params.for_:g} s: start it with an empty disk; its replicas -> it"
        return [left, "SIGTERM; UnregisterBroker", again]

    def prepare(self, params: RemoveBrokerParams, view: ClusterView, draw: int) -> Removed:
        found = view.ability(HasMembers).may_leave()
        if not found:
            raise FiringSkipped("every broker of the cluster is also a controller")
        return Removed(view, found[0], params)
