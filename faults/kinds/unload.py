"""unload: a broker closes topics and disconnects their clients; the next lookup decides who owns
them."""

from __future__ import annotations

import random

from pydantic import Field

from faults.kit.bundles import ServiceUnit, choose_unit, parse_unit, unload_requests
from faults.kit.cluster_view import ClusterView
from faults.kit.injection import FaultKind
from faults.kit.params import Inventory, Params
from faults.kit.reload import Reload
from harness.protocols.cluster import HasBundles


class UnloadParams(Params):
    target: str = Field(
        "random",
        description="`topic:NAME`, `bundle-of:TOPIC`, `bundle:RANGE`, `namespace` or `random` (a topic)",
    )


class Unloaded(Reload):
    """One unload of a topic, a bundle or the namespace."""

    def __init__(self, view: ClusterView, unit: ServiceUnit, params: UnloadParams) -> None:
        super().__init__(view, unit.targets(view), unit.streams(view), params)
        self.unit = unit

    def apply(self) -> None:
        self.unit.unload(self.view)
        self.done = 1


class Unload(FaultKind[UnloadParams]):
    """Unload a topic, a bundle or the namespace; its clients must look up the owner and connect
    again."""

    kind = "unload"
    abilities = (HasBundles,)
    params = UnloadParams

    def complete(self, params: UnloadParams, inventory: Inventory) -> UnloadParams:
        parse_unit(params.target, inventory, extra=("random",))
        return params

    def commands(self, params: UnloadParams, inventory: Inventory) -> list[str]:
        return unload_requests(params.target, inventory)

    def prepare(self, params: UnloadParams, view: ClusterView, draw: int) -> Unloaded:
        unit = choose_unit(params.target, view, random.Random(draw))
        return Unloaded(view, unit, UnloadParams(target=str(unit)))
