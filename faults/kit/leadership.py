"""Base of leader-move and preferred-election: partitions of one topic get another leader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

from faults.kit.cluster_view import ClusterView
from faults.kit.errors import StepProblem
from faults.kit.injection import FaultKind, Instant
from faults.kit.params import Inventory, InventoryTopic, OneTopicParams, TopicParams, names
from harness.errors import did_you_mean
from harness.faultlog import ConfirmedAcks
from harness.protocols.cluster import PartitionState, Proof

T = TypeVar("T", bound=OneTopicParams)


class LeaderChange(Instant):
    """Asks for leaders and sees whether they came.

    ``call``: the question to the admin: topic, and partition -> wanted leader.
    """

    def __init__(
        self,
        view: ClusterView,
        topic: str,
        before: Mapping[int, PartitionState],
        wanted: Mapping[int, str],
        params: TopicParams,
        call: Callable[[str, Mapping[int, str]], None],
    ) -> None:
        super().__init__(view, [f"{topic}-{partition}" for partition in sorted(wanted)], params)
        self._call = call
        self.topic = topic
        self.before = {
            partition: before[partition].leader for partition in wanted if partition in before
        }
        self.wanted = dict(wanted)
        self._seen: dict[int, str] = {}
        self._unled: list[int] = sorted(wanted)

    def apply(self) -> None:
        self._call(self.topic, self.wanted)

    def _look(self) -> None:
        leaders = self.view.placement.leaders(self.topic)
        for partition in self.wanted:
            leader = leaders.get(partition)
            if leader is not None and leader != self.before.get(partition):
                self._seen.setdefault(partition, leader)
        self._unled = [partition for partition in self.wanted if leaders.get(partition) is None]

    def proof(self) -> Proof:
        """Effective when an asked partition was seen under another leader than before."""
        self._look()
        asked, moved = len(self.wanted), len(self._seen)
        changes = {
            f"{self.topic}-{p}": [self.before.get(p), node]
            for p, node in sorted(self._seen.items())
        }
        text = f"{moved} of {asked} leaders changed"
        if changes:
            stream, (old, new) = next(iter(changes.items()))
            text += f" ({stream}: {old} -> {new}{', ...' if moved > 1 else ''})"
        return Proof(moved > 0, text, {"asked": asked, "moved": moved, "leaders": changes})

    def confirmed_acks(self) -> ConfirmedAcks:
        """A leader hands over what followers have; Kafka keeps commits in a log of their own."""
        return "kept"

    def missing(self) -> str:
        self._look()
        return f"no leader for {self.topic}-{self._unled[0]}" if self._unled else ""


def refuse_unknown(
    key: str,
    topic: InventoryTopic,
    inventory: Inventory,
    partitions: Iterable[int],
    nodes: Iterable[str] = (),
) -> None:
    """Raises: StepProblem: a key names a partition that the topic has not, or a node that is
    none."""
    for partition in partitions:
        if not 0 <= partition < topic.partitions:
            raise StepProblem(
                key, f"{topic.name} has partitions 0 to {topic.partitions - 1}, not {partition}"
            )
    for node in nodes:
        if node not in inventory.nodes:
            raise StepProblem(key, f"no node {node!r}. Nodes: {names(inventory.nodes)}")


class TopicFault(FaultKind[T], Generic[T]):
    """Base of the kinds with a topic as target."""

    def complete(self, params: T, inventory: Inventory) -> T:
        known = [topic.name for topic in inventory.topics]
        if not params.topic:
            if len(known) != 1:
                raise StepProblem(
                    "topic", f"must be given, there are several topics: {names(known)}"
                )
            params = params.model_copy(update={"topic": known[0]})
        topic = inventory.topic(params.topic)
        if topic is None:
            near = did_you_mean(params.topic, known, label="topics")
            raise StepProblem("topic", f"no topic {params.topic!r}; {near}")
        count = getattr(params, "partitions", None)
        if count is not None and count > topic.partitions:
            raise StepProblem(
                "partitions", f"{count} is more than the {topic.partitions} of {topic.name}"
            )
        return params

    def target(self, params: T) -> str:
        return params.topic

    def choices(self, params: T) -> list[str]:
        count = getattr(params, "partitions", None)
        return [f"{count} partitions" if count else "all partitions"]
