"""Base of the faults on CPU, memory and disk: a node continues with less of it, and may die of
that."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Final, Generic, TypeVar

from faults.kit.cluster_view import ClusterView, Snapshot
from faults.kit.node_loss import NodeFault, NodeLoss, changes_text
from faults.kit.params import NodeParams
from harness.contracts.ledger import LedgerEntry
from harness.faultlog import ConfirmedAcks
from harness.protocols.cluster import Cluster, Details, Proof
from harness.protocols.nodes import Killable

N = TypeVar("N", bound=NodeParams)
#: A node is whole again within a second or two; one that is not by then never will be.
_CATCH_UP_S: Final = 10.0
#: A replica that no longer fetches is in sync until this long after its last fetch
#: (replica.lag.time.max.ms, 5 s in our clusters, looked at every half of it).
_NOTICED_S: Final = 8.0


class ResourceFault(NodeFault[N], Generic[N]):
    """Base of the kinds that take a resource away: refused on a cluster that was not started for
    them."""

    def refusal(self, params: N, cluster: Cluster) -> str:
        given: frozenset[str] = getattr(cluster.runtime, "needs", frozenset())
        lacking = sorted(self.needs_for(params) - given)
        return f"it was started without {', '.join(lacking)}" if lacking else ""


class ResourceLimited(NodeLoss):
    """Limits a resource of its targets. Heal lifts the limit and starts nodes that died of it.

    Like a node that is away, a limited one is claimed: taking another away could lose data by
    design.
    """

    def __init__(self, view: ClusterView, targets: Sequence[str], params: NodeParams) -> None:
        super().__init__(view, targets, params)
        self._died: list[str] = []

    @abstractmethod
    def shortage(self) -> str:
        """The shortage as the machine shows it, beyond our having asked for it; empty: not seen
        yet."""

    @abstractmethod
    def restore(self, node: str) -> None:
        """Give back what was taken. Idempotent."""

    @abstractmethod
    def is_restored(self, node: str) -> bool: ...

    def process_evidence(self) -> str:
        return self.shortage()

    def proof(self) -> Proof:
        """Effective when the machine shows the shortage; the cluster's reaction is reported as
        well."""
        self._note_change(self.view.snapshot())
        self.note()
        shown, who = self.shortage(), ", ".join(self.targets)
        if not shown:
            return Proof(False, f"{who}: {self.no_effect()}")
        died = f"{', '.join(self._died)} died of it" if self._died else ""
        parts = [shown, died, changes_text(self._changed)]
        return Proof(True, f"{who}: {'; '.join(part for part in parts if part)}", self.details())

    def no_effect(self) -> str:
        """Why it is not proved."""
        return "no effect was observed"

    def details(self) -> Details:
        return {**self._changed, **({"died": self._died} if self._died else {})}

    def note(self) -> None:
        """Remember what is seen only while it lasts. Also asked before the heal: who looks at the
        cluster may have to wait for its answer until all is over."""
        for node in self.targets:
            if node not in self._died and not self.view.is_running(node):
                self._died.append(node)

    def heal(self) -> None:
        self.note()
        for node in self.targets:
            self.restore(node)
            if not self.view.is_running(node):
                self.view.start(node)

    def is_undone(self) -> bool:
        return all(self.is_restored(node) and self.view.is_running(node) for node in self.targets)

    def missing(self) -> str:
        held = [node for node in self.targets if not self.is_restored(node)]
        return f"{', '.join(held)} still limited" if held else super().missing()

    def confirmed_acks(self) -> ConfirmedAcks:
        is_dead = not set(self._died).isdisjoint(self.view.brokers)
        return "at-risk" if is_dead else super().confirmed_acks()

    def ledger_entry(self) -> LedgerEntry:
        return LedgerEntry(limited=tuple(self.targets), down=tuple(self.targets))


class LimitedUntilWhole(ResourceLimited):
    """One whose survivors are restarted if they are not whole again some time after it was
    lifted."""

    #: Whether a survivor may give something up, which the cluster notices some seconds later.
    may_give_up: ClassVar[bool] = False

    def __init__(self, view: ClusterView, targets: Sequence[str], params: NodeParams) -> None:
        super().__init__(view, targets, params)
        self._lifted_s: float | None = None
        self._restarted = False

    def look(self) -> None:
        """Remember what is seen only while it lasts. Default: nothing more than who died of it."""

    def note(self) -> None:
        """A node that is down later did not die of it."""
        if self._lifted_s is None:
            super().note()
            self.look()

    def _note_change(self, now: Snapshot | None) -> None:
        if not self._restarted:  # what changes from there on is our doing
            super()._note_change(now)

    def confirmed_acks(self) -> ConfirmedAcks:
        """A survivor that does not recover is killed by the heal."""
        return "at-risk" if self._restarted and self.hits_broker() else super().confirmed_acks()

    def heal(self) -> None:
        """Lift it, start crashed nodes, restart survivors that do not recover."""
        if self._is_stuck():
            self._note_change(self.view.snapshot())
            self._restarted = True
            for node in self._not_whole():
                self.view.ability(Killable).kill(node)
        super().heal()
        self._lifted_s = self._lifted_s or time.monotonic()

    def missing(self) -> str:
        """Also of a node that survived: whether the cluster would have noticed that it gave
        something up."""
        if missing := super().missing():
            return missing
        survivors = self._survivors()
        is_early = self.may_give_up and self._since_lifted_s() <= _NOTICED_S
        if survivors and not self._restarted and is_early:
            return f"too early to tell whether {', '.join(survivors)} stays in sync"
        return ""

    def is_undone(self) -> bool:
        return super().is_undone() and not self._is_stuck()

    def _since_lifted_s(self) -> float:
        return time.monotonic() - self._lifted_s if self._lifted_s is not None else 0.0

    def _is_stuck(self) -> bool:
        """Whether a node that survived is still not whole."""
        if self._restarted or not self._survivors():
            return False
        return self._since_lifted_s() > _CATCH_UP_S and bool(super().missing())

    def _survivors(self) -> list[str]:
        return [node for node in self.targets if node not in self._died]

    def _not_whole(self) -> list[str]:
        """Survivors that are not registered, or not in sync for a stream; all if it is unknown
        which."""
        now = self.view.snapshot()
        behind = {node for nodes in now.shrunk().values() for node in nodes} if now else set()
        away = behind | (set(self.targets) - now.registered if now else set())
        return [node for node in self._survivors() if node in away] or self._survivors()
