"""reassign: replicas of a topic move to other nodes while clients use it, as when disks are
balanced."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from itertools import chain

from pydantic import Field

from faults.kit.cluster_view import POLL_S, ClusterView
from faults.kit.errors import FiringSkipped, StepProblem
from faults.kit.injection import Instant
from faults.kit.leadership import TopicFault, refuse_unknown
from faults.kit.params import Inventory, TopicParams, names
from harness.contracts.ledger import LedgerEntry
from harness.durations import Seconds
from harness.faultlog import ConfirmedAcks
from harness.protocols.cluster import THROTTLED_REPLICAS, HasReassignments, PartitionState, Proof
from harness.sizes import Size, in_units


class ReassignParams(TopicParams):
    moves: dict[int, tuple[str, ...]] = Field(
        default_factory=dict,
        description=(
            "these moves, as partition -> its nodes with the preferred leader first; replaces "
            "`partitions`"
        ),
    )
    within: Seconds = Field(60.0, gt=0, description="time limit for the moves")
    throttle: Size | None = Field(
        None,
        description="bytes per second for moving replicas, for each broker; default: no limit",
    )
    cancel_after: Seconds | None = Field(
        None,
        gt=0,
        description=(
            "moves that have not finished after this time are cancelled, and their replicas stay "
            "where they were"
        ),
    )


class Reassigned(Instant):
    """Partitions whose replicas move; it lasts until they are there, or cancelled."""

    params: ReassignParams

    def __init__(
        self,
        view: ClusterView,
        topic: str,
        before: Mapping[int, PartitionState],
        params: ReassignParams,
    ) -> None:
        super().__init__(
            view, [f"{topic}-{partition}" for partition in sorted(params.moves)], params
        )
        self._topic = topic
        self._before = before
        self._cancelled: list[int] = []

    @property
    def _admin(self) -> HasReassignments:
        return self.view.ability(HasReassignments)

    def apply(self) -> None:
        if self.params.throttle is None:
            self._move()
            return
        self._admin.throttle_moves(self._topic, self.params.throttle)
        try:
            self._move()
        finally:
            self._admin.throttle_moves(self._topic, None)

    def _move(self) -> None:
        self._admin.reassign(self._topic, self.params.moves)
        start = time.monotonic()
        while left := self._admin.reassigning(self._topic):
            waited_s = time.monotonic() - start
            if self.params.cancel_after is not None and waited_s >= self.params.cancel_after:
                self._cancelled = sorted(set(left) & set(self.params.moves))
                self._admin.cancel_reassignments(self._topic, self._cancelled)
                return
            if waited_s > self.params.within or self.view.stopping.wait(POLL_S):
                return

    def proof(self) -> Proof:
        """The brokers name other replicas than before, or that the move had begun and was
        cancelled."""
        now = self.view.states_of(self._topic)
        moved = {
            p: state.replicas
            for p, state in now.items()
            if p in self.params.moves and set(state.replicas) != set(self._before[p].replicas)
        }
        parts = [f"{len(moved)} of {len(self.params.moves)} partitions have other replicas"]
        if moved:
            partition, nodes = min(moved.items())
            was = names(self._before[partition].replicas)
            parts.append(f"{self._topic}-{partition}: {was} -> {names(nodes)}")
        if self._cancelled:
            parts.append(f"{len(self._cancelled)} moves cancelled")
        details = {
            "moved": len(moved),
            "cancelled": [f"{self._topic}-{p}" for p in self._cancelled],
        }
        return Proof(bool(moved or self._cancelled), "; ".join(parts), details)

    def ledger_entry(self) -> LedgerEntry:
        """Without the names of its replicas a topic is not throttled, whatever rate a broker
        keeps."""
        throttled = dict.fromkeys(THROTTLED_REPLICAS)
        return LedgerEntry(settings={self._topic: throttled} if self.params.throttle else {})

    def confirmed_acks(self) -> ConfirmedAcks:
        """A leader that leaves hands over what followers have."""
        return "kept"

    def missing(self) -> str:
        if left := self._admin.reassigning(self._topic):
            return f"{self._topic}-{min(left)} is still moving"
        return self.view.behind(self._topic)


class Reassign(TopicFault[ReassignParams]):
    """Move replicas of `partitions` partitions to nodes that have none, and wait; or cancel in the
    middle."""

    kind = "reassign"
    abilities = (HasReassignments,)
    params = ReassignParams

    def complete(self, params: ReassignParams, inventory: Inventory) -> ReassignParams:
        params = super().complete(params, inventory)
        topic = inventory.topic(params.topic)
        assert topic is not None
        brokers = [
            node for node in inventory.nodes if "broker" in inventory.roles.get(node, ("broker",))
        ]
        if not params.moves and brokers and topic.replication >= len(brokers):
            raise StepProblem(
                "topic",
                f"{topic.name} has a replica on each of the {len(brokers)} brokers: none can move",
            )
        refuse_unknown("moves", topic, inventory, params.moves, chain(*params.moves.values()))
        return params

    def ends_within_s(self, params: ReassignParams) -> float | None:
        return min(params.within, params.cancel_after or params.within)

    def choices(self, params: ReassignParams) -> list[str]:
        moves = ", ".join(f"{p} -> {'+'.join(nodes)}" for p, nodes in params.moves.items())
        return [moves] if moves else super().choices(params)

    def commands(self, params: ReassignParams, inventory: Inventory) -> list[str]:
        if params.moves:
            order = [f"{params.topic}-{p} -> {names(nodes)}" for p, nodes in params.moves.items()]
        else:
            count = (
                f"{params.partitions} of its partitions" if params.partitions else "every partition"
            )
            order = [f"{params.topic}, {count}: one replica -> a node that has none, chosen then"]
        if params.cancel_after is None:
            last = f"wait until they are there, {params.within:g} s at most"
        else:
            last = f"after {params.cancel_after:g} s: cancel what has not arrived"
        slow = [f"at most {in_units(params.throttle)}/s of each broker"] if params.throttle else []
        return [*slow, *(f"AlterPartitionReassignments {each}" for each in order), last]

    def prepare(self, params: ReassignParams, view: ClusterView, draw: int) -> Reassigned:
        states = view.states_of(params.topic)
        moves = dict(params.moves) or _chosen(states, view, params.partitions, random.Random(draw))
        if not moves:
            raise FiringSkipped(
                f"no partition of {params.topic} can have a replica elsewhere right now"
            )
        resolved = params.model_copy(update={"moves": moves, "partitions": None})
        return Reassigned(view, params.topic, states, resolved)


def _chosen(
    states: Mapping[int, PartitionState], view: ClusterView, count: int | None, rng: random.Random
) -> dict[int, tuple[str, ...]]:
    """Partition -> its nodes with one of them, the leader as likely as another, replaced."""
    away = view.faulted()
    moves: dict[int, tuple[str, ...]] = {}
    for partition, state in sorted(states.items()):
        others = sorted(set(view.brokers) - set(state.replicas) - away)
        if others and state.replicas:
            place = rng.randrange(len(state.replicas))
            nodes = list(state.replicas)
            nodes[place] = rng.choice(others)
            moves[partition] = tuple(nodes)
    chosen: Sequence[int] = rng.sample(sorted(moves), min(count or len(moves), len(moves)))
    return {partition: moves[partition] for partition in sorted(chosen)}
