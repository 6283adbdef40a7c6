"""clock-jump and clock-drift: the wall clock of a node is set, or goes too fast or too slow."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final, Literal, TypeVar

from pydantic import Field, field_validator

from faults.kit.cluster_view import ClusterView
from faults.kit.params import Inventory, NodeParams
from faults.kit.resources import ResourceFault, ResourceLimited, ability
from faults.kit.targets import target_text
from harness.durations import Seconds
from harness.faultlog import ConfirmedAcks
from harness.protocols.clocks import OWN_CLOCKS, HasClocks
from harness.protocols.cluster import HasPlacement
from harness.protocols.nodes import Killable

C = TypeVar("C", bound="ClockParams")
_TOLD_S: Final = 1.0
#: Nodes that are not whole again so long after their clock is right do not become so by themselves.
_CATCH_UP_S: Final = 10.0
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


class ClockSet(ResourceLimited):
    """Nodes whose clock is not the machine's; those that die of it are started again."""

    def __init__(
        self, view: ClusterView, targets: Sequence[str], params: ClockParams, ahead_s: float, speed: float
    ) -> None:
        super().__init__(view, targets, params)
        self._clocks: HasClocks = ability(view, HasClocks)
        self._ahead_s, self._speed = ahead_s, speed
        self._told: dict[str, float] = {}
        self._back_s: float | None = None
        self._restarted = False

    def apply(self) -> None:
        for node in self.targets:
            self._clocks.set_clock(node, self._ahead_s, self._speed)

    def note(self) -> None:
        """What the processes themselves were told when they asked for the time."""
        super().note()
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

    def details(self) -> dict[str, Any]:
        restarted = {"restarted": True} if self._restarted else {}
        return {
            **super().details(),
            **restarted,
            "told_s": {node: round(by, 3) for node, by in self._told.items()},
        }

    def heal(self) -> None:
        """Give the machine's clock back, start crashed nodes, restart survivors that do not recover: Kafka's
        quorum goes by the wall clock, and a controller that was an hour ahead then waits for an hour."""
        if self._is_stuck():
            self._restarted = True
            for node in self._not_whole():
                self.view.killable.kill(node)
        super().heal()
        self._back_s = self._back_s or time.monotonic()

    def is_undone(self) -> bool:
        return super().is_undone() and not self._is_stuck()

    def _is_stuck(self) -> bool:
        if self._restarted or self._back_s is None or set(self.targets) <= set(self._died):
            return False
        return time.monotonic() - self._back_s > _CATCH_UP_S and bool(super().missing())

    def _not_whole(self) -> list[str]:
        """Targets that are not registered, or not in sync for a stream; all where nobody can say."""
        now = self.view.snapshot()
        if now is None:
            return list(self.targets)
        behind = {node for nodes in now.shrunk().values() for node in nodes}
        return [node for node in self.targets if node in behind or node not in now.registered]

    def confirmed_acks(self) -> ConfirmedAcks:
        return "at-risk" if self._restarted and self.hits_broker() else super().confirmed_acks()

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
