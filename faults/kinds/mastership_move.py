"""mastership-move: another node of a group becomes the one that serves; every client must follow
it."""

from __future__ import annotations

import random

from pydantic import Field

from faults.kit.cluster_view import ClusterView
from faults.kit.errors import FiringSkipped, StepProblem
from faults.kit.injection import FaultKind, Instant
from faults.kit.params import Inventory, Params, names
from harness.faultlog import ConfirmedAcks
from harness.protocols.cluster import HasMastership, Proof


class MastershipMoveParams(Params):
    to: str = Field("other", description="a node, or `other` for any node except the master")


class MastershipMoved(Instant):
    """A replica was asked to become the master."""

    def __init__(self, view: ClusterView, old: str, new: str) -> None:
        super().__init__(view, [new], MastershipMoveParams(to=new))
        self.old, self.new = old, new
        self._seen = ""

    def apply(self) -> None:
        self.view.ability(HasMastership).move_mastership(self.new)

    def proof(self) -> Proof:
        """Effective when another node than before was seen as the master."""
        master = self.view.ability(HasMastership).master()
        if master not in (None, self.old):
            self._seen = self._seen or str(master)
        if not self._seen:
            return Proof(False, f"{self.old} is still the master")
        text = f"master {self.old} -> {self._seen}" + (
            "" if self._seen == self.new else f", not {self.new}"
        )
        return Proof(True, text, {"old": self.old, "new": self._seen, "asked": self.new})

    def confirmed_acks(self) -> ConfirmedAcks:
        """The master hands over before it steps down."""
        return "kept"

    def missing(self) -> str:
        return "" if self.view.ability(HasMastership).master() else "no node is the master"


class MastershipMove(FaultKind[MastershipMoveParams]):
    """Make another node of the group the master; clients lose their connections and must follow."""

    kind = "mastership-move"
    abilities = (HasMastership,)
    params = MastershipMoveParams

    def complete(self, params: MastershipMoveParams, inventory: Inventory) -> MastershipMoveParams:
        if len(inventory.nodes) < 2:
            raise StepProblem(
                "to", "the cluster has one node: the mastership cannot move; see cluster.topology"
            )
        if params.to != "other" and params.to not in inventory.nodes:
            raise StepProblem(
                "to", f"no node {params.to!r}. Allowed: {names(['other', *inventory.nodes])}"
            )
        return params

    def target(self, params: MastershipMoveParams) -> str:
        return params.to

    def commands(self, params: MastershipMoveParams, inventory: Inventory) -> list[str]:
        to = params.to if params.to != "other" else "{a replica, chosen then}"
        return [f'PUT /api/latest/virtualhostnode/{to} {{"role": "MASTER"}}']

    def prepare(
        self, params: MastershipMoveParams, view: ClusterView, draw: int
    ) -> MastershipMoved:
        group = view.ability(HasMastership)
        master = group.master()
        if master is None:
            raise FiringSkipped("no node is the master right now")
        followers = sorted(set(group.roles()) - {master} - view.faulted())
        if params.to != "other":
            followers = [node for node in followers if node == params.to]
        if not followers:
            raise FiringSkipped(
                f"{'no replica' if params.to == 'other' else params.to} can become the master now"
            )
        return MastershipMoved(view, master, random.Random(draw).choice(followers))
