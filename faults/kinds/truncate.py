"""truncate: an operator, or retention, removes the oldest messages of a log while clients use
it."""

from __future__ import annotations

import random
from collections.abc import Mapping

from pydantic import Field

from faults.kit.cluster_view import ClusterView
from faults.kit.errors import FiringSkipped, StepProblem
from faults.kit.injection import Instant
from faults.kit.leadership import TopicFault, refuse_unknown
from faults.kit.params import Inventory, Share, TopicParams
from harness.faultlog import ConfirmedAcks
from harness.protocols.cluster import HasPlacement, Proof, TruncatesLogs


class TruncateParams(TopicParams):
    share: Share = Field(
        0.5,
        description="share of the messages in a partition that is removed, oldest first",
    )
    cuts: dict[int, int] = Field(
        default_factory=dict,
        description="these cuts, as partition -> first offset that remains; replaces `share`",
    )


class Truncated(Instant):
    """Logs whose oldest messages were removed."""

    params: TruncateParams

    def __init__(self, view: ClusterView, topic: str, params: TruncateParams) -> None:
        super().__init__(
            view, [f"{topic}-{partition}" for partition in sorted(params.cuts)], params
        )
        self._logs = view.ability(TruncatesLogs)
        self._topic = topic
        self._before = self._logs.log_spans(topic)

    def apply(self) -> None:
        self._logs.truncate(self._topic, self.params.cuts)

    def proof(self) -> Proof:
        """Asked of the leaders: where each log begins now, and where it began."""
        now = self._logs.log_spans(self._topic)
        cut = {
            f"{self._topic}-{partition}": now[partition][0]
            for partition in self.params.cuts
            if partition in now and now[partition][0] > self._before[partition][0]
        }
        gone = sum(begin - self._before[p][0] for p, (begin, _) in now.items() if p in self._before)
        if not cut:
            return Proof(False, "no log begins later than before")
        stream, offset = next(iter(cut.items()))
        text = f"{len(cut)} of {len(self.params.cuts)} logs begin later ({stream} at {offset})"
        return Proof(True, f"{text}, {gone:,} messages are gone", {"cut": cut})

    def confirmed_acks(self) -> ConfirmedAcks:
        """Positions of groups stay; one below the new begin is out of range."""
        return "kept"

    def missing(self) -> str:
        unled = [
            p for p, leader in self.view.placement.leaders(self._topic).items() if leader is None
        ]
        return f"no leader for {self._topic}-{unled[0]}" if unled else ""


class Truncate(TopicFault[TruncateParams]):
    """Remove the oldest messages of a topic (DeleteRecords); they do not count as lost."""

    kind = "truncate"
    samples = ()  # it removes what was acknowledged
    abilities = (TruncatesLogs, HasPlacement)
    params = TruncateParams

    def complete(self, params: TruncateParams, inventory: Inventory) -> TruncateParams:
        params = super().complete(params, inventory)
        if any(name.startswith("transactions:") for name in inventory.coordinated):
            raise StepProblem(
                "topic", "transactions of which a part was removed cannot be judged as a whole"
            )
        topic = inventory.topic(params.topic)
        assert topic is not None
        refuse_unknown("cuts", topic, inventory, params.cuts)
        return params

    def choices(self, params: TruncateParams) -> list[str]:
        cuts = ", ".join(f"{partition} to {offset}" for partition, offset in params.cuts.items())
        return [cuts] if cuts else super().choices(params)

    def commands(self, params: TruncateParams, inventory: Inventory) -> list[str]:
        if params.cuts:
            return [
                f"DeleteRecords {params.topic}-{p} before {offset}"
                for p, offset in params.cuts.items()
            ]
        which = (
            f"{params.partitions} partitions of {params.topic}"
            if params.partitions
            else params.topic
        )
        return [
            f"DeleteRecords {which} before the offset that leaves {1 - params.share:.0%} of each log"
        ]

    def prepare(self, params: TruncateParams, view: ClusterView, draw: int) -> Truncated:
        cuts = dict(params.cuts) or _chosen(
            view.ability(TruncatesLogs).log_spans(params.topic), params, random.Random(draw)
        )
        if not cuts:
            raise FiringSkipped(f"{params.topic} holds nothing that could be removed")
        return Truncated(view, params.topic, params.model_copy(update={"cuts": cuts}))


def _chosen(
    spans: Mapping[int, tuple[int, int]], params: TruncateParams, rng: random.Random
) -> dict[int, int]:
    """Partition -> first offset that stays, where that removes anything."""
    cuts = {
        p: begin + round((end - begin) * params.share) for p, (begin, end) in sorted(spans.items())
    }
    worth = [p for p, offset in cuts.items() if offset > spans[p][0]]
    chosen = sorted(rng.sample(worth, min(params.partitions or len(worth), len(worth))))
    return {p: cuts[p] for p in chosen}
