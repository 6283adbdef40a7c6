"""What faults on resources share: a node goes on with less, and may die of it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from faults.kit.node_loss import (
    NodeFault,
    NodeLoss,
    as_text,
)
from faults.kit.params import NodeParams
from faults.kit.site import Site, find_ability
from harness.protocols.cluster import Cluster, Proof

N = TypeVar("N", bound=NodeParams)


def ability(site: Site, kind: type) -> Any:
    """The part of the cluster that has an ability; the engine refused clusters without it."""
    return find_ability(site.cluster, kind)


class StarvingFault(NodeFault[N], Generic[N]):
    """Base of the kinds that take a resource away: refused on a cluster that was not started for them."""

    def refusal(self, params: N, cluster: Cluster) -> str:
        given: frozenset[str] = getattr(cluster.runtime, "needs", frozenset())
        lacking = sorted(self.needs - given)
        return f"it was started without {', '.join(lacking)}" if lacking else ""


class Starved(NodeLoss):
    """Takes something from its targets. Heal gives it back and starts who died of it.

    Like a node that is away, a starved one is claimed: taking another away could lose data by design.
    """

    def __init__(self, site: Site, targets: Sequence[str], params: dict[str, Any]) -> None:
        super().__init__(site, targets, params)
        self._died: list[str] = []

    @abstractmethod
    def bit(self) -> str:
        """What the machine shows of the shortage, beyond our having asked for it; empty = nothing yet."""

    @abstractmethod
    def lift(self, node: str) -> None:
        """Give back what was taken. Idempotent."""

    @abstractmethod
    def is_lifted(self, node: str) -> bool: ...

    def happened(self) -> str:
        return self.bit()

    def proof(self) -> Proof:
        """Effective when the machine shows the shortage; what the cluster made of it stands beside."""
        self._note_change()
        self.note()
        shown, who = self.bit(), ", ".join(self.targets)
        if not shown:
            return Proof(False, f"{who}: {self.nothing()}")
        died = f"{', '.join(self._died)} died of it" if self._died else ""
        parts = [shown, died, as_text(self._changed)]
        return Proof(True, f"{who}: {'; '.join(part for part in parts if part)}", self.details())

    def nothing(self) -> str:
        """Why it is not proved."""
        return "nothing was seen of it"

    def details(self) -> dict[str, Any]:
        return {**self._changed, **({"died": self._died} if self._died else {})}

    def note(self) -> None:
        """Remember what is seen only while it lasts. Also asked before the heal: who looks at the cluster may
        have to wait for its answer until all is over."""
        for node in self.targets:
            if node not in self._died and not self.site.killable.is_running(node):
                self._died.append(node)

    def heal(self) -> None:
        self.note()
        for node in self.targets:
            self.lift(node)
            if not self.site.killable.is_running(node):
                self.site.killable.start(node)

    def is_undone(self) -> bool:
        return all(self.is_lifted(node) and self.site.killable.is_running(node) for node in self.targets)

    def missing(self) -> str:
        held = [node for node in self.targets if not self.is_lifted(node)]
        return f"{', '.join(held)} still limited" if held else super().missing()

    def ledger_entry(self) -> dict[str, Any]:
        return {"limited": list(self.targets), "down": list(self.targets)}
