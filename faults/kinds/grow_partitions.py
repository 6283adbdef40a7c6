"""grow-partitions: a topic gets more partitions while clients use it."""

from __future__ import annotations

from pydantic import Field

from faults.kit.cluster_view import ClusterView
from faults.kit.errors import FiringSkipped, StepProblem
from faults.kit.injection import Instant
from faults.kit.leadership import TopicFault
from faults.kit.params import Inventory, OneTopicParams
from harness.faultlog import ConfirmedAcks
from harness.protocols.cluster import GrowsTopics, HasPlacement, Proof


class GrowPartitionsParams(OneTopicParams):
    to: int | None = Field(
        None,
        ge=2,
        description="number of partitions afterwards; default: `grows_to` of the topic in the scenario",
    )


class Grown(Instant):
    """A topic with more partitions, for good: they cannot be taken away."""

    params: GrowPartitionsParams

    def __init__(
        self, view: ClusterView, topic: str, before: int, params: GrowPartitionsParams
    ) -> None:
        super().__init__(view, [topic], params)
        self._topic, self._before, self._wanted = topic, before, params.to or 0

    def apply(self) -> None:
        self.view.ability(GrowsTopics).grow(self._topic, self._wanted)

    def proof(self) -> Proof:
        """Return the partitions that brokers report, each with a leader."""
        led = [p for p, leader in self.view.placement.leaders(self._topic).items() if leader]
        text = f"{self._topic}: {self._before} -> {len(led)} partitions with a leader"
        return Proof(len(led) > self._before, text, {"grown": {self._topic: self._before}})

    def confirmed_acks(self) -> ConfirmedAcks:
        """A group's commits are by partition, and no partition goes."""
        return "kept"

    def missing(self) -> str:
        states = self.view.states_of(self._topic)
        if len(states) < self._wanted:
            return f"{self._topic} has {len(states)} of {self._wanted} partitions"
        return self.view.behind(self._topic)


class GrowPartitions(TopicFault[GrowPartitionsParams]):
    """Add partitions to a topic while clients use it; from then on a key may belong to another
    partition."""

    kind = "grow-partitions"
    abilities = (GrowsTopics, HasPlacement)
    params = GrowPartitionsParams

    def complete(self, params: GrowPartitionsParams, inventory: Inventory) -> GrowPartitionsParams:
        params = super().complete(params, inventory)
        topic = inventory.topic(params.topic)
        assert topic is not None
        if not topic.grows_to:
            raise StepProblem(
                "topic",
                f"say what {topic.name} grows to: `grows_to` of the topic (it has {topic.partitions})",
            )
        to = topic.grows_to if params.to is None else params.to
        if not topic.partitions < to <= topic.grows_to:
            allowed = f"{topic.partitions + 1} to {topic.grows_to} (grows_to of the topic)"
            raise StepProblem("to", f"{to} for {topic.name}; allowed: {allowed}")
        return params.model_copy(update={"to": to})

    def choices(self, params: GrowPartitionsParams) -> list[str]:
        return [f"to {params.to} partitions"]

    def commands(self, params: GrowPartitionsParams, inventory: Inventory) -> list[str]:
        return [f"CreatePartitions {params.topic}: {params.to} in all"]

    def prepare(self, params: GrowPartitionsParams, view: ClusterView, draw: int) -> Grown:
        before = len(view.placement.leaders(params.topic))
        if before >= (params.to or 0):
            raise FiringSkipped(f"{params.topic} has {before} partitions already")
        return Grown(view, params.topic, before, params)
