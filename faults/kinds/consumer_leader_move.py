"""consumer-leader-move: the node that keeps a consumer's state hands it over, while nothing is
broken."""

from __future__ import annotations

import random
from collections.abc import Mapping

from pydantic import Field

from faults.kit.cluster_view import ClusterView
from faults.kit.errors import FiringSkipped, StepProblem
from faults.kit.injection import Instant
from faults.kit.leadership import TopicFault
from faults.kit.params import Inventory, OneTopicParams, names
from harness.faultlog import ConfirmedAcks
from harness.protocols.cluster import MovesConsumerLeaders, Proof


class ConsumerLeaderMoveParams(OneTopicParams):
    group: str = Field(description="the consumer group")
    streams: tuple[str, ...] = Field(
        (), description="these streams, for example `orders-0`; default: all streams of the topic"
    )


class ConsumerLeadersMoved(Instant):
    """The leaders of consumers were asked to step down."""

    params: ConsumerLeaderMoveParams

    def __init__(
        self,
        view: ClusterView,
        group: str,
        before: Mapping[str, str | None],
        params: ConsumerLeaderMoveParams,
    ) -> None:
        super().__init__(view, sorted(before), params)
        self.group, self.before = group, dict(before)
        self._seen: dict[str, str] = {}
        self._unled = sorted(before)

    def apply(self) -> None:
        for stream in self.targets:
            self.view.ability(MovesConsumerLeaders).move_consumer_leader(self.group, stream)

    def _look(self) -> None:
        leaders = self.view.ability(MovesConsumerLeaders).consumer_leaders(
            self.group, [self.params.topic]
        )
        for stream, old in self.before.items():
            leader = leaders.get(stream)
            if leader and leader != old:
                self._seen.setdefault(stream, leader)
        self._unled = [stream for stream in self.targets if not leaders.get(stream)]

    def proof(self) -> Proof:
        """Effective when a consumer was seen under another leader than before."""
        self._look()
        changes = {
            stream: [self.before[stream], node] for stream, node in sorted(self._seen.items())
        }
        text = f"{len(changes)} of {len(self.before)} leaders of consumers changed"
        if changes:
            stream, (old, new) = next(iter(changes.items()))
            text += (
                f" ({self.group} of {stream}: {old} -> {new}{', ...' if len(changes) > 1 else ''})"
            )
        return Proof(bool(changes), text, {"group": self.group, "leaders": changes})

    def confirmed_acks(self) -> ConfirmedAcks:
        """A confirmed acknowledgement is in the consumer's own replicated log."""
        return "kept"

    def missing(self) -> str:
        self._look()
        return f"no leader for {self.group} of {self._unled[0]}" if self._unled else ""


class ConsumerLeaderMove(TopicFault[ConsumerLeaderMoveParams]):
    """Make the leaders of a group's consumers step down, so that another server continues."""

    kind = "consumer-leader-move"
    abilities = (MovesConsumerLeaders,)
    params = ConsumerLeaderMoveParams

    def complete(
        self, params: ConsumerLeaderMoveParams, inventory: Inventory
    ) -> ConsumerLeaderMoveParams:
        params = super().complete(params, inventory)
        groups = _groups(inventory)
        if groups and params.group not in groups:
            raise StepProblem("group", f"no group {params.group!r}. Allowed: {names(groups)}")
        return params

    def choices(self, params: ConsumerLeaderMoveParams) -> list[str]:
        return [f"group {params.group}"]

    def commands(self, params: ConsumerLeaderMoveParams, inventory: Inventory) -> list[str]:
        streams = params.streams or (f"each stream of {params.topic}",)
        return [
            f"$JS.API.CONSUMER.LEADER.STEPDOWN: {params.group} of {stream}" for stream in streams
        ]

    def prepare(
        self, params: ConsumerLeaderMoveParams, view: ClusterView, draw: int
    ) -> ConsumerLeadersMoved:
        inventory = view.inventory
        group = next(iter(inventory.coordinated.get(f"group:{params.group}", ())), params.group)
        found = view.ability(MovesConsumerLeaders).consumer_leaders(group, [params.topic])
        led = {stream: leader for stream, leader in found.items() if leader}
        if params.streams:
            led = {stream: leader for stream, leader in led.items() if stream in params.streams}
        if not led:
            raise FiringSkipped(f"no consumer {group} of {params.topic} has a leader right now")
        chosen = random.Random(draw).sample(sorted(led), len(led))
        resolved = params.model_copy(update={"streams": tuple(sorted(chosen))})
        return ConsumerLeadersMoved(
            view, group, {stream: led[stream] for stream in chosen}, resolved
        )


def _groups(inventory: Inventory) -> list[str]:
    """Return the groups of the plan; empty if they are not known."""
    kept = (name.partition(":") for name in inventory.coordinated)
    return sorted(name for kind, _, name in kept if kind == "group")
