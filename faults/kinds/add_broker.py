"""add-broker: a broker joins the cluster under load and takes replicas; later it is drained and
leaves."""

from __future__ import annotations

import random

from pydantic import Field

from faults.kit.cluster_view import ClusterView
from faults.kit.errors import FiringSkipped
from faults.kit.leadership import TopicFault
from faults.kit.membership import MemberChange
from faults.kit.params import Inventory, TopicParams
from harness.durations import Seconds
from harness.protocols.cluster import Proof
from harness.protocols.members import SPARE_BROKER, HasMembers, UnregistersBrokers


class AddBrokerParams(TopicParams):
    within: Seconds = Field(60.0, gt=0, description="time limit for its start and for each move")
    for_: Seconds = Field(20.0, alias="for", gt=0, description="the node leaves after this time")
    takes: tuple[int, ...] = Field((), description="these partitions; replaces `partitions`")


class Added(MemberChange):
    """A broker more. Its heal moves its replicas away, so it asks brokers."""

    params: AddBrokerParams

    def apply(self) -> None:
        self.join()
        states = self.view.states_of(self.params.topic)
        moves = {}
        # of the first its leader, of others followers
        for number, partition in enumerate(self.params.takes):
            nodes = list(states[partition].replicas)
            nodes[number % len(nodes)] = self.node
            moves[partition] = nodes
        self.move({self.params.topic: moves})

    def proof(self) -> Proof:
        """Registered, with replicas in sync."""
        kept = [s for own in self.kept().values() for s in own.values() if self.node in s.in_sync]
        led = sum(state.leader == self.node for state in kept)
        joined = self.is_registered()
        word = "joined" if joined else "is not registered"
        text = f"{self.node} {word}, in sync for {len(kept)} partitions, leads {led}"
        return Proof(joined and bool(kept), text, {"kept": len(kept), "led": led})

    def heal(self) -> None:
        self.leave()

    def is_undone(self) -> bool:
        return self.node in self.members.outside()

    def missing(self) -> str:
        return f"{self.node} is still registered" if self.is_registered() else self.unsettled()


class AddBroker(TopicFault[AddBrokerParams]):
    """A broker joins and takes a replica of `partitions` partitions; after `for` it is drained and
    leaves."""

    kind = "add-broker"
    abilities = (HasMembers, UnregistersBrokers)
    needs = frozenset({SPARE_BROKER})
    params = AddBrokerParams

    def ends_within_s(self, params: AddBrokerParams) -> float | None:
        return params.for_ + 2 * params.within

    def commands(self, params: AddBrokerParams, inventory: Inventory) -> list[str]:
        count = f"{params.partitions} of its partitions" if params.partitions else "every partition"
        moved = (
            f"AlterPartitionReassignments {params.topic}, {count}: one replica -> the new broker"
        )
        left = f"after {params.for_:g} s: its replicas -> the others; SIGTERM; UnregisterBroker"
        return ["start a broker that is not a controller", moved, left]

    def prepare(self, params: AddBrokerParams, view: ClusterView, draw: int) -> Added:
        outside = view.ability(HasMembers).outside()
        if not outside:
            raise FiringSkipped("every broker is in the cluster already")
        there = sorted(view.states_of(params.topic))
        count = min(params.partitions or len(there), len(there))
        takes = params.takes or tuple(sorted(random.Random(draw).sample(there, count)))
        resolved = params.model_copy(update={"takes": takes, "partitions": None})
        return Added(view, outside[0], resolved, within_s=params.within)
