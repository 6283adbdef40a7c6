"""scale: instances of an application come and go, as an autoscaler lets them."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import cast

from pydantic import Field

from faults.kit.clients import NO_RUN, is_target
from faults.kit.cluster_view import POLL_S, ClusterView
from faults.kit.errors import FiringSkipped, StepProblem
from faults.kit.injection import FaultKind, Injection
from faults.kit.params import Inventory, Params
from harness.contracts.plan import MOST_INSTANCES
from harness.durations import Seconds
from harness.errors import EnvironmentNotReady
from harness.faultlog import ConfirmedAcks
from harness.protocols.cluster import Proof
from harness.protocols.faulting import InstanceLives
from harness.waiting import wait_while


class ScaleParams(Params):
    target: str = Field(
        "client:application",
        description="an application, such as `client:billing`; the only one if it is left out",
    )
    to: int = Field(
        ge=0, le=MOST_INSTANCES, description="number of instances that run while the fault lasts"
    )
    stop_within: Seconds = Field(
        10.0, gt=0, description="an instance that has not stopped in this time gets SIGKILL"
    )
    ready_within: Seconds = Field(
        60.0, gt=0, description="time in which the instances that it starts must be ready"
    )
    for_: Seconds = Field(
        10.0,
        alias="for",
        gt=0,
        description="time from then until the former number of instances is restored",
    )


class Scaled(Injection):
    """Instances that were started in addition, or stopped; heal does the reverse."""

    params: ScaleParams

    def __init__(
        self, view: ClusterView, added: Sequence[str], removed: Sequence[str], params: ScaleParams
    ) -> None:
        super().__init__(view, [*added, *removed], params)
        self._added, self._removed = tuple(added), tuple(removed)
        self._was_ready: set[str] = set()
        self._ended: dict[str, bool] = {}

    @property
    def lives(self) -> InstanceLives:
        return cast("InstanceLives", self.view.lives)

    def apply(self) -> None:
        for name in self._added:
            self.lives.begin(name)
        self._ended.update(self._stop(self._removed))
        # a slow start must not use up the time for which they run together
        limit_s, stop = self.params.ready_within, self.view.stopping
        late = wait_while(self._late, limit_s, every_s=POLL_S, stop=stop)
        if late and not stop.is_set():
            raise EnvironmentNotReady(f"{', '.join(late)} not ready {limit_s:g} s after the start")

    def _late(self) -> list[str]:
        """The added instances that were not ready yet."""
        self._was_ready |= {name for name in self._added if self.lives.is_ready(name)}
        return [name for name in self._added if name not in self._was_ready]

    def _stop(self, names: Sequence[str]) -> dict[str, bool]:
        """Stop instances, all at once; whether each ended by itself."""
        if not names:
            return {}
        with ThreadPoolExecutor(len(names)) as pool:
            ended = pool.map(lambda name: self.lives.stop(name, self.params.stop_within), names)
            return dict(zip(names, ended, strict=True))

    def proof(self) -> Proof:
        """Effective when every added instance became ready and every removed one is gone."""
        late = self._late()
        told = [f"{name} {'not ready' if name in late else 'ready'}" for name in self._added]
        told += [
            f"{name} {'stopped' if by_itself else 'killed'}"
            for name, by_itself in self._ended.items()
        ]
        is_done = not late and set(self._ended) == set(self._removed)
        return Proof(
            is_done,
            f"now {self.params.to}: {', '.join(told) or 'no instance changed yet'}",
            {"added": sorted(self._was_ready), "removed": sorted(self._ended)},
        )

    def heal(self) -> None:
        for name in self._removed:
            self.lives.begin(name)
        live = self.view.clients()
        self._stop([name for name in self._added if name in live])

    def is_undone(self) -> bool:
        live = self.view.clients()
        return all(name in live for name in self._removed) and not live.keys() & set(self._added)

    def missing(self) -> str:
        late = [self.lives.life(name) for name in self._removed if not self.lives.is_ready(name)]
        return f"{', '.join(late)} not ready" if late else ""

    def confirmed_acks(self) -> ConfirmedAcks:
        """Nothing happens to a broker."""
        return "kept"


def _instances(target: str, inventory: Inventory) -> Sequence[str]:
    """The planned instances of the one application that a target means; none if it means a part of
    one, or several."""
    found = [
        names
        for names in inventory.applications.values()
        if any(is_target(target, name) for name in names)
    ]
    is_whole = len(found) == 1 and all(is_target(target, name) for name in found[0])
    return found[0] if is_whole else ()


class Scale(FaultKind[ScaleParams]):
    """Run another number of instances of an application for `for`: more, or fewer."""

    kind = "scale"
    abilities = ()
    params = ScaleParams

    def complete(self, params: ScaleParams, inventory: Inventory) -> ScaleParams:
        if not inventory.client_roles:
            return params  # a replay, or no run: not known
        chosen = _instances(params.target, inventory)
        if not chosen:
            known = ", ".join(chain.from_iterable(inventory.applications.values())) or "none"
            raise StepProblem(
                "target", f"{params.target} is not an application; instances: {known}"
            )
        if params.to == len(chosen):
            raise StepProblem("to", f"is {params.to}, as many instances as there are")
        return params

    def ends_within_s(self, params: ScaleParams) -> float | None:
        """Return the longest time, starts and stops included."""
        return params.ready_within + params.stop_within + params.for_

    def choices(self, params: ScaleParams) -> list[str]:
        return [f"to {params.to}"]

    def commands(self, params: ScaleParams, inventory: Inventory) -> list[str]:
        return [
            f"start or stop instances of {params.target}, so that {params.to} run; "
            f"wait until they are ready, {params.ready_within:g} s at most",
            f"after {params.for_:g} s: the reverse",
        ]

    def prepare(self, params: ScaleParams, view: ClusterView, draw: int) -> Scaled:
        lives = view.lives
        chosen = _instances(params.target, view.inventory)
        if not isinstance(lives, InstanceLives) or not chosen:
            raise FiringSkipped(NO_RUN)
        wanted = lives.instances(chosen[0], params.to)
        running = view.clients()
        # by name: a producer may be named like the application
        live = [name for name in lives.instances(chosen[0], MOST_INSTANCES) if name in running]
        added = [name for name in wanted if name not in live]
        removed = [name for name in live if name not in wanted]
        if not added and not removed:
            raise FiringSkipped(f"{params.to} instances of {params.target} run already")
        scaled = Scaled(view, added, removed, params)
        # Each fault undoes its own instances: two at once would leave another number than before.
        name, _, _ = lives.instances(chosen[0], 2)[1].rpartition("-")
        scaled.held = (f"the number of {name}",)
        return scaled
