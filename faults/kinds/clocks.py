"""clock-jump and clock-drift: the wall clock of a node is set, or goes too fast or too slow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeVar

from pydantic import Field, field_validator

from faults.kit.cluster_view import ClusterView
from faults.kit.params import Inventory, NodeParams
from faults.kit.resources import LimitedUntilWhole, ResourceFault, ability
from faults.kit.targets import target_text
from harness.durations import Seconds
from harness.protocols.clocks import OWN_CLOCKS, HasClocks
from harness.protocols.cluster import Details, HasPlacement
from harness.protocols.nodes import Killable

C = TypeVar("C", bound="ClockParams")
_TOLD_S: Final = 1.0
#: A clock that is nearer to the machine's than this is the machine's.
_SAME_S: Final = 0.001
#: A clock that drifts must have come this far to be seen.
_DRIFTED_S: Final = 0.005


class ClockParams(NodeParams):
    for_: Seconds = Field(10.0, alias="for", gt=0, description="the machine's clock again after this long")


class ClockJumpParams(ClockParams):
    by: Seconds = Field(60.0, gt=0, description="how far the clock is set at once")
    way: Literal["forward", "back"] = Field("forward", description="where to")


class ClockDriftParams(ClockParams):
    speed: float = Field(1.1, gt=0, le=100, description="seconds that the clock goes in one: 0.9 is too slow")

    @field_validator("speed")
    @classmethod
    def _other(cls, speed: float) -> float:
        if abs(speed - 1) < 1e-6:
            raise ValueError("1 is the machine's own speed")
        return speed


class ClockSet(LimitedUntilWhole):
    """Nodes whose clock is not the machine's.

    Those that die of it are started again, and those that stay away after it: the timers of Kafka's quorum go
    by the wall clock (KafkaRaftClient.poll), and a controller that had been an hour ahead did not come back.
    """

    def __init__(
        self, view: ClusterView, targets: Sequence[str], params: ClockParams, ahead_s: float, speed: float
    ) -> None:
        super().__init__(view, targets, params)
        self._clocks: HasClocks = ability(view, HasClocks)
        self._ahead_s, self._speed = ahead_s, speed
        self._told: dict[str, float] = {}

    def apply(self) -> None:
        for node in self.targets:
            self._clocks.set_clock(node, self._ahead_s, self._speed)

    def look(self) -> None:
        """What the processes themselves were told when they asked for the time."""
        for node in self.targets:
            told_s = self._clocks.clock_told(node, within_s=_TOLD_S)
            if told_s is not None and abs(told_s) > abs(self._told.get(node, 0.0)):
                self._told[node] = told_s

    def shortage(self) -> str:
        least_s = _DRIFTED_S if self._speed != 1 else _SAME_S
        if not self._told or any(abs(self._told.get(node, 0.0)) < least_s for node in self.targets):
            return ""
        return "; ".join(
            f"{node if len(self.targets) > 1 else 'it'} is told a time {abs(by):,.2f} s "
            f"{'ahead' if by > 0 else 'behind'}"
            for node, by in sorted(self._told.items())
        )

    def no_effect(self) -> str:
        return "no process asked for the time, or it was told the machine's"

    def details(self) -> Details:
        told = {node: round(by, 3) for node, by in self._told.items()}
        return {**super().details(), "told_s": told}

    def restore(self, node: str) -> None:
        self._clocks.set_clock(node, 0.0)

    def is_restored(self, node: str) -> bool:
        told_s = self._clocks.clock_told(node, within_s=_TOLD_S)
        return told_s is None or abs(told_s) < _SAME_S


class _ClockFault(ResourceFault[C]):
    abilities = (HasClocks, Killable, HasPlacement)
    needs = frozenset({OWN_CLOCKS})

    def lasts_s(self, params: C) -> float | None:
        return params.for_

    def _commands(self, what: str, params: C, inventory: Inventory) -> list[str]:
        who = target_text(params.target, inventory)
        return [f"wall clock of {who}: {what}", f"after {params.for_:g} s: the machine's again"]


class ClockJump(_ClockFault[ClockJumpParams]):
    """Set the wall clock of a node forward or back for `for`; monotonic clocks stay."""

    kind = "clock-jump"
    params = ClockJumpParams

    def commands(self, params: ClockJumpParams, inventory: Inventory) -> list[str]:
        return self._commands(f"{params.by:g} s {params.way}", params, inventory)

    def injection(self, view: ClusterView, targets: tuple[str, ...], params: ClockJumpParams) -> ClockSet:
        return ClockSet(view, targets, params, params.by if params.way == "forward" else -params.by, 1.0)


class ClockDrift(_ClockFault[ClockDriftParams]):
    """Let the wall clock of a node go too fast or too slow for `for`; monotonic clocks stay."""

    kind = "clock-drift"
    params = ClockDriftParams

    def commands(self, params: ClockDriftParams, inventory: Inventory) -> list[str]:
        return self._commands(f"{params.speed:g} times as fast", params, inventory)

    def injection(self, view: ClusterView, targets: tuple[str, ...], params: ClockDriftParams) -> ClockSet:
        return ClockSet(view, targets, params, 0.0, params.speed)
