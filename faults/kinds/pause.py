"""pause: a freeze, as a long garbage collection, a stolen CPU or a stuck disk shows from
outside."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from faults.kit.cluster_view import ClusterView
from faults.kit.identity import process_of
from faults.kit.node_loss import NodeFault, NodeLoss
from faults.kit.params import Inventory, NodeParams
from faults.kit.targets import target_text
from harness.contracts.ledger import LedgerEntry
from harness.durations import Seconds
from harness.protocols.cluster import HasPlacement, Proof
from harness.protocols.nodes import Pausable, TellsRunning


class PauseParams(NodeParams):
    for_: Seconds = Field(
        5.0, alias="for", gt=0, description="the node is resumed (SIGCONT) after this time"
    )


class Paused(NodeLoss):
    """SIGSTOPped nodes: sockets stay open, nothing answers."""

    def __init__(self, view: ClusterView, targets: Sequence[str], params: PauseParams) -> None:
        super().__init__(view, targets, params)
        self._stopped = False
        self._silent = False

    def apply(self) -> None:
        for node in self.targets:
            self.view.ability(Pausable).pause(node)
        self._stopped = all(self.view.ability(Pausable).is_paused(node) for node in self.targets)

    def process_evidence(self) -> str:
        return self.view.seen.paused if self._stopped else ""

    def proof(self) -> Proof:
        """A freeze shorter than the session timeout moves nothing: then, at its end, an unanswered
        request proves it."""
        # Asked first: when every node is frozen, the look at the cluster lasts longer than the
        # freeze.
        self._silent = self._silent or (self._stopped and self._nobody_answers())
        proof = super().proof()
        if proof.effective or not self._stopped:
            return proof
        if self._silent and self.is_undone():
            return Proof(
                True,
                f"{', '.join(self.targets)}: {self.process_evidence()}; a request got no answer",
            )
        return proof

    def is_silent(self, nodes: Sequence[str]) -> bool:
        """Asked already, while they were stopped."""
        return self._silent

    def _nobody_answers(self) -> bool:
        """Asked of a stopped process only: the silence of one that was just resumed proves
        nothing."""
        if not all(self.view.ability(Pausable).is_paused(node) for node in self.targets):
            return False
        silent = [self.view.answers(node) is False for node in self.targets]
        return all(silent) and all(
            self.view.ability(Pausable).is_paused(node) for node in self.targets
        )

    def heal(self) -> None:
        for node in self.targets:
            self.view.ability(Pausable).resume(node)

    def is_undone(self) -> bool:
        return not any(self.view.ability(Pausable).is_paused(node) for node in self.targets)

    def missing(self) -> str:
        paused = [node for node in self.targets if self.view.ability(Pausable).is_paused(node)]
        return f"{', '.join(paused)} still stopped" if paused else super().missing()

    def ledger_entry(self) -> LedgerEntry:
        """Nodes that somebody else started have no process here."""
        runtime = self.view.cluster.runtime
        return LedgerEntry(
            paused=tuple(process_of(node, runtime.pid(node)) for node in self.targets)
        )


class Pause(NodeFault[PauseParams]):
    """Freeze a node (SIGSTOP) and resume it (SIGCONT) after `for`."""

    kind = "pause"
    abilities = (Pausable, TellsRunning, HasPlacement)
    params = PauseParams
    injects = Paused

    def commands(self, params: PauseParams, inventory: Inventory) -> list[str]:
        return [
            f"SIGSTOP {target_text(params.target, inventory)}",
            f"after {params.for_:g} s: SIGCONT",
        ]
