"""kill: a crash."""

from __future__ import annotations

from pydantic import Field

from faults.kit.node_loss import NodeFault, NodeLoss
from faults.kit.params import Inventory, NodeParams
from faults.kit.targets import target_text
from harness.contracts.ledger import LedgerEntry
from harness.durations import Seconds
from harness.faultlog import ConfirmedAcks
from harness.protocols.cluster import HasPlacement
from harness.protocols.nodes import Killable


class KillParams(NodeParams):
    for_: Seconds = Field(
        5.0, alias="for", gt=0, description="the process restarts after this time"
    )


class Killed(NodeLoss):
    """SIGKILLed nodes; heal starts them."""

    _gone: bool = False

    def apply(self) -> None:
        for node in self.targets:
            self.view.ability(Killable).kill(node)
        self._gone = not any(self.view.is_running(node) for node in self.targets)

    def process_evidence(self) -> str:
        return self.view.seen.gone if self._gone else ""

    def heal(self) -> None:
        for node in self.targets:
            self.view.start(node)

    def is_undone(self) -> bool:
        return all(self.view.is_running(node) for node in self.targets)

    def confirmed_acks(self) -> ConfirmedAcks:
        return "at-risk" if self.hits_broker() else "unknown"

    def ledger_entry(self) -> LedgerEntry:
        return LedgerEntry(down=tuple(self.targets))


class Kill(NodeFault[KillParams]):
    """SIGKILL a node and start it again after `for`."""

    kind = "kill"
    abilities = (Killable, HasPlacement)
    params = KillParams
    injects = Killed

    def commands(self, params: KillParams, inventory: Inventory) -> list[str]:
        return [
            f"SIGKILL {target_text(params.target, inventory)}",
            f"after {params.for_:g} s: start it again",
        ]
