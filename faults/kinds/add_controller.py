"""add-controller: a controller joins the quorum under load and votes; later it loses its vote and
leaves."""

from __future__ import annotations

from pydantic import Field

from faults.kit.cluster_view import ClusterView
from faults.kit.errors import FiringSkipped
from faults.kit.params import Inventory, Params
from faults.kit.votes import VoteChange, VoteFault, refuse_second
from harness.durations import Seconds
from harness.protocols.members import DYNAMIC_QUORUM, SPARE_CONTROLLER, ChangesVoters, HasMembers


class AddControllerParams(Params):
    within: Seconds = Field(60.0, gt=0, description="time limit for its start and its vote")
    for_: Seconds = Field(10.0, alias="for", gt=0, description="the node leaves after this time")


class Voting(VoteChange):
    """A voter more. Its heal takes the vote, so it asks brokers."""

    gives = True

    def apply(self) -> None:
        self.view.ability(HasMembers).join(self.node)
        self.give()

    def heal(self) -> None:
        self.take()
        self.view.ability(HasMembers).leave(self.node)

    def is_undone(self) -> bool:
        return self.node in self.view.ability(HasMembers).outside("controller")


class AddController(VoteFault[AddControllerParams]):
    """A controller that is not a broker joins, follows, gets a vote, and after `for` loses it and
    leaves."""

    kind = "add-controller"
    abilities = (HasMembers, ChangesVoters)
    needs = frozenset({SPARE_CONTROLLER, DYNAMIC_QUORUM})
    params = AddControllerParams

    def target(self, params: AddControllerParams) -> str:
        return "a controller that is not a broker"

    def ends_within_s(self, params: AddControllerParams) -> float | None:
        return params.for_ + params.within

    def commands(self, params: AddControllerParams, inventory: Inventory) -> list[str]:
        left = f"after {params.for_:g} s: RemoveRaftVoter; SIGTERM"
        return ["start a controller that is not a broker", "AddRaftVoter", left]

    def prepare(self, params: AddControllerParams, view: ClusterView, draw: int) -> Voting:
        outside = view.ability(HasMembers).outside("controller")
        if not outside:
            raise FiringSkipped("every controller is in the quorum already")
        before = view.ability(ChangesVoters).quorum()
        refuse_second(view, before)
        return Voting(view, outside[0], params, before, params.within)
