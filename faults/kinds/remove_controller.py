"""remove-controller: a controller loses its vote under load; later it gets it back."""

from __future__ import annotations

import random

from pydantic import Field

from faults.kit.cluster_view import ClusterView
from faults.kit.errors import FiringSkipped, StepProblem
from faults.kit.params import Inventory, Params, names
from faults.kit.votes import VoteChange, VoteFault, refuse_second
from harness.durations import Seconds
from harness.protocols.members import DYNAMIC_QUORUM, ChangesVoters, Quorum

_LEADER, _ANY = "controller", "random"
_LEAST = 3  # voters: of two, each is needed


class RemoveControllerParams(Params):
    target: str = Field(
        _LEADER, description="`controller` (the active one), `random` (one that votes), or a node"
    )
    within: Seconds = Field(60.0, gt=0, description="time limit for each change of its vote")
    for_: Seconds = Field(
        10.0, alias="for", gt=0, description="the controller votes again after this time"
    )


class NotVoting(VoteChange):
    """A voter less; its process keeps running. Its heal gives the vote back, so it asks brokers."""

    gives = False

    def __init__(
        self, view: ClusterView, node: str, params: RemoveControllerParams, before: Quorum
    ) -> None:
        super().__init__(view, node, params, before, params.within)
        self.away = [node]  # a second one away leaves no majority

    def apply(self) -> None:
        self.take()

    def heal(self) -> None:
        self.give()

    def is_undone(self) -> bool:
        return self.node in self.admin.quorum().voters


class RemoveController(VoteFault[RemoveControllerParams]):
    """Take the vote from a controller, which only follows from then on, and give it back after
    `for`."""

    kind = "remove-controller"
    abilities = (ChangesVoters,)
    needs = frozenset({DYNAMIC_QUORUM})
    takes_nodes = True
    params = RemoveControllerParams

    def complete(
        self, params: RemoveControllerParams, inventory: Inventory
    ) -> RemoveControllerParams:
        nodes = [
            node for node in inventory.nodes if _LEADER in inventory.roles.get(node, (_LEADER,))
        ]
        allowed = [_LEADER, _ANY, *nodes]
        if params.target not in allowed:
            raise StepProblem(
                "target", f"no controller {params.target!r}. Allowed: {names(allowed)}"
            )
        return params

    def ends_within_s(self, params: RemoveControllerParams) -> float | None:
        return params.for_ + params.within

    def commands(self, params: RemoveControllerParams, inventory: Inventory) -> list[str]:
        who = {_LEADER: "the active controller", _ANY: "a controller that votes"}
        return [
            f"RemoveRaftVoter {who.get(params.target, params.target)}",
            f"after {params.for_:g} s: AddRaftVoter, the same",
        ]

    def prepare(self, params: RemoveControllerParams, view: ClusterView, draw: int) -> NotVoting:
        before = view.ability(ChangesVoters).quorum()
        refuse_second(view, before)
        if len(before.voters) < _LEAST:
            raise FiringSkipped(f"only {names(sorted(before.voters))} vote: each is needed")
        # one that add-controller let in is its own
        mine = sorted(set(before.voters) & set(view.brokers))
        chosen = {_LEADER: before.leader or "", _ANY: random.Random(draw).choice(mine)}
        node = chosen.get(params.target, params.target)
        if node not in mine:
            raise FiringSkipped(
                f"{node or 'nobody'} is not a voter that this fault may remove: {names(mine)} are"
            )
        return NotVoting(view, node, params.model_copy(update={"target": node}), before)
