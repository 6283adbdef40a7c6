"""kill: a crash."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from faults.kit.node_loss import NodeFault, NodeLoss
from faults.kit.params import NodeParams, Shape
from faults.kit.site import Site
from faults.kit.targets import target_text
from harness.durations import Seconds
from harness.faultlog import ConfirmedAcks
from harness.protocols.cluster import HasPlacement, Killable


class KillParams(NodeParams):
    for_: Seconds = Field(5.0, alias="for", gt=0, description="start it again after this long")


class Killed(NodeLoss):
    """SIGKILLed nodes; heal starts them."""

    _gone: bool = False

    def apply(self) -> None:
        for node in self.targets:
            self.site.killable.kill(node)
        self._gone = not any(self.site.killable.is_running(node) for node in self.targets)

    def process_evidence(self) -> str:
        return "process gone" if self._gone else ""

    def heal(self) -> None:
        for node in self.targets:
            self.site.killable.start(node)

    def is_undone(self) -> bool:
        return all(self.site.killable.is_running(node) for node in self.targets)

    def confirmed_acks(self) -> ConfirmedAcks:
        return "at-risk" if self.hits_broker() else "unknown"

    def ledger_entry(self) -> dict[str, Any]:
        return {"down": list(self.targets)}


class Kill(NodeFault[KillParams]):
    """SIGKILL a node and start it again after `for`."""

    kind = "kill"
    abilities = (Killable, HasPlacement)
    params = KillParams

    def lasts_s(self, params: KillParams) -> float | None:
        return params.for_

    def commands(self, params: KillParams, shape: Shape) -> list[str]:
        return [f"SIGKILL {target_text(params.target, shape)}", f"after {params.for_:g} s: start it again"]

    def injection(self, site: Site, targets: tuple[str, ...], params: KillParams) -> Killed:
        return Killed(site, targets, params.model_dump(mode="json", by_alias=True))
