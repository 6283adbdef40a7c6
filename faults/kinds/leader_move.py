"""leader-move: leadership changes hands while nothing is broken."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Self

from pydantic import Field, model_validator

from faults.kit.cluster_view import ClusterView
from faults.kit.errors import FiringSkipped, StepProblem
from faults.kit.leadership import LeaderChange, TopicFault, refuse_unknown
from faults.kit.params import Inventory, TopicParams
from harness.protocols.cluster import MovesLeaders, PartitionState


class LeaderMoveParams(TopicParams):
    moves: dict[int, str] = Field(
        default_factory=dict, description="these moves, as partition -> node; replaces `partitions`"
    )

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.moves and self.partitions is not None:
            raise ValueError("give either `partitions` or `moves`")
        return self


class LeaderMove(TopicFault[LeaderMoveParams]):
    """Move the leaders of `partitions` partitions of a topic to another in-sync replica.

    Kafka: partitions are reassigned with the wanted leader first (no data moves), then elected.
    NATS: the leaders step down in favour of another server.
    """

    kind = "leader-move"
    abilities = (MovesLeaders,)
    params = LeaderMoveParams

    def complete(self, params: LeaderMoveParams, inventory: Inventory) -> LeaderMoveParams:
        params = super().complete(params, inventory)
        topic = inventory.topic(params.topic)
        assert topic is not None
        if topic.replication < 2:
            raise StepProblem("topic", f"{topic.name} has one replica: its leaders cannot move")
        refuse_unknown("moves", topic, inventory, params.moves, params.moves.values())
        return params

    def choices(self, params: LeaderMoveParams) -> list[str]:
        moves = ", ".join(f"{partition} -> {node}" for partition, node in params.moves.items())
        return [moves] if moves else super().choices(params)

    def commands(self, params: LeaderMoveParams, inventory: Inventory) -> list[str]:
        name = params.topic
        if params.moves:
            order = [
                f"{name}-{p} -> [{node}, its other replicas]" for p, node in params.moves.items()
            ]
        else:
            topic = inventory.topic(name)
            count = params.partitions or (topic.partitions if topic else 0)
            order = [f"{name}, {count} partitions -> [another replica first], chosen then"]
        return [
            *(f"AlterPartitionReassignments {each}" for each in order),
            f"ElectLeaders preferred {name}, the same (NATS: STREAM.LEADER.STEPDOWN of each)",
        ]

    def prepare(self, params: LeaderMoveParams, view: ClusterView, draw: int) -> LeaderChange:
        states = view.states_of(params.topic)
        count = params.partitions or len(states)
        wanted = params.moves or _choose(states, view.faulted(), count, random.Random(draw))
        if not wanted:
            raise FiringSkipped(
                f"no partition of {params.topic} has another in-sync replica right now"
            )
        resolved = LeaderMoveParams(topic=params.topic, moves=wanted)
        move = view.ability(MovesLeaders).move_leaders
        return LeaderChange(view, params.topic, states, wanted, resolved, move)


def _choose(
    states: Mapping[int, PartitionState], away: frozenset[str], count: int, rng: random.Random
) -> dict[int, str]:
    """Up to ``count`` movable partitions, each with its new leader."""
    others = {
        partition: sorted(set(state.in_sync) - {state.leader} - away)
        for partition, state in sorted(states.items())
    }
    movable = [partition for partition, nodes in others.items() if nodes]
    chosen = sorted(rng.sample(movable, min(count, len(movable))))
    return {partition: rng.choice(others[partition]) for partition in chosen}
