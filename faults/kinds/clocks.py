"""clock-jump and clock-drift: the wall clock of a node or client is set, or goes too fast or too
slow."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeVar, cast

from pydantic import Field, field_validator

from faults.kit.clients import clients_of_run, is_client, refuse_clients
from faults.kit.cluster_view import ClusterView
from faults.kit.injection import Injection
from faults.kit.params import Inventory, NodeParams
from faults.kit.resources import LimitedUntilWhole, ResourceFault
from faults.kit.targets import target_text
from harness.durations import Seconds
from harness.faultlog import ConfirmedAcks
from harness.protocols.clocks import CLIENT_CLOCKS, OWN_CLOCKS, HasClocks
from harness.protocols.cluster import Details, HasPlacement, Proof
from harness.protocols.faulting import ClientLives
from harness.protocols.nodes import Killable

C = TypeVar("C", bound="ClockParams")
_TOLD_S: Final = 1.0
#: A clock that is nearer to the machine's than this is the machine's.
_SAME_S: Final = 0.001
#: A clock that drifts must have come this far to be seen.
_DRIFTED_S: Final = 0.005
_NOT_TOLD: Final = "no process asked for the time, or it got the time of the machine"


class ClockParams(NodeParams):
    target: str = Field(
        "random",
        description=(
            "a node, as for other kinds, or clients, as for client-kill (`client`, "
            "`client:producer`): only clients on this machine whose programs are not written in "
            "Go"
        ),
    )
    for_: Seconds = Field(
        10.0,
        alias="for",
        gt=0,
        description="after this time the process has the clock of the machine again",
    )


class ClockJumpParams(ClockParams):
    by: Seconds = Field(60.0, gt=0, description="time by which the clock is set")
    way: Literal["forward", "back"] = Field("forward", description="direction: `forward` or `back`")


class ClockDriftParams(ClockParams):
    speed: float = Field(
        1.1,
        gt=0,
        le=100,
        description="speed of the clock: 1.1 is 10 % too fast, 0.9 is 10 % too slow",
    )

    @field_validator("speed")
    @classmethod
    def _other(cls, speed: float) -> float:
        if abs(speed - 1) < 1e-6:
            raise ValueError("1 is the machine's own speed")
        return speed


class _Told:
    """The times that processes received when they asked: the largest deviation, in seconds.

    Args:
        ask: as `HasClocks.clock_told`.
    """

    def __init__(
        self, ask: Callable[..., float | None], targets: Sequence[str], speed: float
    ) -> None:
        self._ask, self._targets = ask, targets
        self._least_s = _DRIFTED_S if speed != 1 else _SAME_S
        self._by: dict[str, float] = {}

    def look(self) -> None:
        for name in self._targets:
            told_s = self._ask(name, within_s=_TOLD_S)
            if told_s is not None and abs(told_s) > abs(self._by.get(name, 0.0)):
                self._by[name] = told_s

    def words(self) -> str:
        """Empty while it is not seen of all."""
        if any(abs(self._by.get(name, 0.0)) < self._least_s for name in self._targets):
            return ""
        return "; ".join(
            f"{name if len(self._targets) > 1 else 'it'} gets a time {abs(by):,.2f} s "
            f"{'ahead' if by > 0 else 'behind'}"
            for name, by in sorted(self._by.items())
        )

    def details(self) -> Details:
        told_s = {name: round(by, 3) for name, by in self._by.items()}
        return {"told_s": told_s, "moved_clocks": True}

    def is_right(self, name: str) -> bool:
        """Whether a process that asks gets the machine's time."""
        told_s = self._ask(name, within_s=_TOLD_S)
        return told_s is None or abs(told_s) < _SAME_S


class ClockSet(LimitedUntilWhole):
    """Nodes whose clock is not the machine's.

    Nodes that die of it are restarted, and so are nodes that stay away after it: the timers of
    Kafka's quorum use the wall clock (KafkaRaftClient.poll), and a controller that had been an hour
    ahead did not come back.
    """

    def __init__(
        self,
        view: ClusterView,
        targets: Sequence[str],
        params: ClockParams,
        ahead_s: float,
        speed: float,
    ) -> None:
        super().__init__(view, targets, params)
        self._clocks = view.ability(HasClocks)
        self._ahead_s, self._speed = ahead_s, speed
        self._told = _Told(self._clocks.clock_told, self.targets, speed)

    def apply(self) -> None:
        for node in self.targets:
            self._clocks.set_clock(node, self._ahead_s, self._speed)

    def look(self) -> None:
        self._told.look()

    def shortage(self) -> str:
        return self._told.words()

    def no_effect(self) -> str:
        return _NOT_TOLD

    def details(self) -> Details:
        return {**super().details(), **self._told.details()}

    def restore(self, node: str) -> None:
        self._clocks.set_clock(node, 0.0)

    def is_restored(self, node: str) -> bool:
        return self._told.is_right(node)


class ClientClockSet(Injection):
    """Client processes whose clock is not the machine's. A later life begins with the machine's."""

    def __init__(
        self,
        view: ClusterView,
        targets: Sequence[str],
        params: ClockParams,
        ahead_s: float,
        speed: float,
    ) -> None:
        super().__init__(view, targets, params)
        self._lives = cast("ClientLives", view.lives)
        self._ahead_s, self._speed = ahead_s, speed
        self._told = _Told(self._lives.clock_told, self.targets, speed)

    def apply(self) -> None:
        for name in self.targets:
            self._lives.set_clock(name, self._ahead_s, self._speed)

    def proof(self) -> Proof:
        self._told.look()
        words = self._told.words()
        return Proof(
            bool(words), f"{', '.join(self.targets)}: {words or _NOT_TOLD}", self._told.details()
        )

    def heal(self) -> None:
        for name in self.targets:
            self._lives.set_clock(name, 0.0)

    def is_undone(self) -> bool:
        return all(self._told.is_right(name) for name in self.targets)

    def missing(self) -> str:
        wrong = [name for name in self.targets if not self._told.is_right(name)]
        return f"{wrong[0]} still gets another time" if wrong else ""

    def confirmed_acks(self) -> ConfirmedAcks:
        """Nothing happens to a broker."""
        return "kept"


class _ClockFault(ResourceFault[C]):
    abilities = (HasClocks, Killable, HasPlacement)
    needs = frozenset({OWN_CLOCKS})

    @abstractmethod
    def setting(self, params: C) -> tuple[float, float]:
        """How far ahead, s, and how fast."""

    def complete(self, params: C, inventory: Inventory) -> C:
        if not is_client(params.target):
            return super().complete(params, inventory)
        refuse_clients(params.target, inventory, inventory.clockless)
        return params

    def needs_for(self, params: C) -> frozenset[str]:
        return frozenset({CLIENT_CLOCKS}) if is_client(params.target) else self.needs

    def abilities_for(self, params: C) -> tuple[type, ...]:
        return () if is_client(params.target) else super().abilities_for(params)

    def part(self, params: C, inventory: Inventory) -> str:
        return "" if is_client(params.target) else super().part(params, inventory)

    def _commands(self, what: str, params: C, inventory: Inventory) -> list[str]:
        who = params.target if is_client(params.target) else target_text(params.target, inventory)
        return [f"wall clock of {who}: {what}", f"after {params.for_:g} s: the machine's again"]

    def prepare(self, params: C, view: ClusterView, draw: int) -> Injection:
        if not is_client(params.target):
            return super().prepare(params, view, draw)
        return ClientClockSet(
            view, clients_of_run(params.target, view), params, *self.setting(params)
        )

    def injection(self, view: ClusterView, targets: tuple[str, ...], params: C) -> ClockSet:
        return ClockSet(view, targets, params, *self.setting(params))


class ClockJump(_ClockFault[ClockJumpParams]):
    """Set the wall clock of a node or client forward or back for `for`; monotonic clocks do not
    change."""

    kind = "clock-jump"
    params = ClockJumpParams

    def commands(self, params: ClockJumpParams, inventory: Inventory) -> list[str]:
        return self._commands(f"{params.by:g} s {params.way}", params, inventory)

    def setting(self, params: ClockJumpParams) -> tuple[float, float]:
        return (params.by if params.way == "forward" else -params.by), 1.0


class ClockDrift(_ClockFault[ClockDriftParams]):
    """Make the wall clock of a node or client too fast or too slow for `for`; monotonic clocks stay
    right."""

    kind = "clock-drift"
    params = ClockDriftParams

    def commands(self, params: ClockDriftParams, inventory: Inventory) -> list[str]:
        return self._commands(f"{params.speed:g} times as fast", params, inventory)

    def setting(self, params: ClockDriftParams) -> tuple[float, float]:
        return 0.0, params.speed
