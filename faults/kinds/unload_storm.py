"""unload-storm: unloads in quick succession, alone or in pairs around the clients' reconnects."""

from __future__ import annotations

import random
import time
from typing import Final, Self

from pydantic import Field, model_validator

from faults.kit.bundles import ServiceUnit, parse_unit, unload_requests, used_bundles
from faults.kit.cluster_view import ClusterView
from faults.kit.errors import FiringSkipped
from faults.kit.injection import FaultKind
from faults.kit.params import Inventory, Params
from faults.kit.reload import Reload
from harness.durations import Seconds
from harness.errors import BrokerstormError, EnvironmentNotReady
from harness.protocols.cluster import HasBundles, Proof

_ALL: Final = ("topics", "bundles")


class UnloadStormParams(Params):
    target: str = Field(
        "topics",
        description=(
            "`topics` or `bundles` (all, one after the other in random order), `topic:NAME` or "
            "`namespace`"
        ),
    )
    times: int = Field(
        20, ge=1, le=100_000, description="number of unloads, or of pairs of unloads"
    )
    gap: tuple[Seconds, Seconds] = Field(
        (0.02, 0.2), description="shortest and longest time from the end of one unload to the next"
    )
    pairs: bool = Field(
        False,
        description="each unload is followed by a second one of the same target, after `pair_gap`",
    )
    pair_gap: tuple[Seconds, Seconds] = Field(
        (0.02, 0.15),
        description=(
            "shortest and longest time from the end of the first unload to the second; clients "
            "connect in this time"
        ),
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        for key, (shortest, longest) in (("gap", self.gap), ("pair_gap", self.pair_gap)):
            if shortest > longest:
                raise ValueError(f"{key}: the shortest comes first, such as [20ms, 200ms]")
        return self


class Stormed(Reload):
    """Many unloads; each choice and each gap is the seed's."""

    params: UnloadStormParams

    def __init__(
        self, view: ClusterView, units: list[ServiceUnit], draw: int, params: UnloadStormParams
    ) -> None:
        self._random = random.Random(draw)
        self._order = self._rounds(units, params.times)
        # What is not unloaded is not looked at.
        streams = list(
            dict.fromkeys(stream for unit in self._order for stream in unit.streams(view))
        )
        targets = units[0].targets(view) if len(units) == 1 else [params.target]
        super().__init__(view, targets, streams, params)
        self._took_s: float | None = None

    def apply(self) -> None:
        start = time.monotonic()
        for unit in self._order:
            self._unload(unit)
            if self.params.pairs and not self._pause(self.params.pair_gap):
                self._unload(unit)
            if self._pause(self.params.gap):
                break
        self._took_s = time.monotonic() - start
        if not self.done and self.failed:
            raise EnvironmentNotReady(f"none of {self.failed} unloads was carried out: {self.why}")

    def proof(self) -> Proof:
        """Return the proof of a reload after the last unload: before it, the counts do not include
        the whole storm.
        """
        if self._took_s is None:
            return Proof(False, f"{self.done} unloads so far")
        proof = super().proof()
        return Proof(
            proof.effective, proof.evidence, {**proof.details, "took_s": round(self._took_s, 2)}
        )

    def _rounds(self, units: list[ServiceUnit], times: int) -> list[ServiceUnit]:
        """Rounds over all units, each round shuffled."""
        order: list[ServiceUnit] = []
        while len(order) < times:
            order += self._random.sample(units, len(units))
        return order[:times]

    def _pause(self, gap: tuple[float, float]) -> bool:
        """Wait for a gap; True when everything must be healed."""
        return self.view.stopping.wait(self._random.uniform(*gap))

    def _unload(self, unit: ServiceUnit) -> None:
        try:
            unit.unload(self.view)
            self.done += 1
        except BrokerstormError as error:  # one that fails must not end the storm
            self.failed, self.why = self.failed + 1, str(error)


class UnloadStorm(FaultKind[UnloadStormParams]):
    """Unload topics or the namespace again and again, alone or in pairs around the clients'
    reconnects."""

    kind = "unload-storm"
    abilities = (HasBundles,)
    params = UnloadStormParams

    def complete(self, params: UnloadStormParams, inventory: Inventory) -> UnloadStormParams:
        parse_unit(params.target, inventory, extra=_ALL)
        return params

    said = FaultKind.said | {"times", "pairs"}

    def choices(self, params: UnloadStormParams) -> list[str]:
        return [f"{params.times} {'pairs' if params.pairs else 'times'}"]

    def ends_within_s(self, params: UnloadStormParams) -> float | None:
        """How long the brokers take for each unload is theirs."""
        return None

    def commands(self, params: UnloadStormParams, inventory: Inventory) -> list[str]:
        what = {"topics": "random", "bundles": "bundle:random"}.get(params.target, params.target)
        times = f"{params.times} times, {params.gap[0]:g} to {params.gap[1]:g} s apart"
        again = ""
        if params.pairs:
            again = f"; each again {params.pair_gap[0]:g} to {params.pair_gap[1]:g} s later"
        return [f"{request} ({times}{again})" for request in unload_requests(what, inventory)]

    def prepare(self, params: UnloadStormParams, view: ClusterView, draw: int) -> Stormed:
        unit = parse_unit(params.target, view.inventory, extra=_ALL)
        if unit:
            units = [unit]
        elif params.target == "bundles":
            units = [ServiceUnit("bundle", name) for name in used_bundles(view)]
        else:
            units = [ServiceUnit("topic", topic.name) for topic in view.inventory.topics]
        if not units:
            raise FiringSkipped("there are no topics")
        return Stormed(view, units, draw, params)
