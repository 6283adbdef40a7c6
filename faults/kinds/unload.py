"""unload: a broker closes topics and disconnects their clients; the next lookup decides who owns them."""

from __future__ import annotations

import random
from typing import Any

from pydantic import Field

from faults.kit.bundles import ServiceUnit, choose_unit, parse_unit, unload_requests
from faults.kit.injection import FaultKind
from faults.kit.params import Params, Shape
from faults.kit.reload import Reload
from faults.kit.site import Site
from harness.protocols.cluster import HasBundles


class UnloadParams(Params):
    target: str = Field(
        "random",
        description="`topic:NAME`, `bundle-of:TOPIC`, `bundle:RANGE`, `namespace` or `random` (a topic)",
    )


class Unloaded(Reload):
    """One unload of a topic, a bundle or the namespace."""

    def __init__(self, site: Site, unit: ServiceUnit, params: dict[str, Any]) -> None:
        super().__init__(site, unit.targets(site), unit.streams(site), params)
        self.unit = unit

    def apply(self) -> None:
        self.unit.unload(self.site)
        self.done = 1


class Unload(FaultKind[UnloadParams]):
    """Unload a topic, a bundle or the namespace: its clients must look up the owner and connect again."""

    kind = "unload"
    abilities = (HasBundles,)
    params = UnloadParams

    def complete(self, params: UnloadParams, shape: Shape) -> UnloadParams:
        parse_unit(params.target, shape, extra=("random",))
        return params

    def target(self, params: UnloadParams) -> str:
        return params.target

    def commands(self, params: UnloadParams, shape: Shape) -> list[str]:
        return unload_requests(params.target, shape)

    def prepare(self, params: UnloadParams, site: Site, draw: int) -> Unloaded:
        unit = choose_unit(params.target, site, random.Random(draw))
        return Unloaded(site, unit, {"target": str(unit)})
