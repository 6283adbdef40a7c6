"""fsync-lies: a disk says that it synced, and did not."""

from __future__ import annotations

from collections.abc import Sequence

from faults.kit.cluster_view import ClusterView
from faults.kit.disks import DiskFault, DiskParams, Disturbances
from faults.kit.injection import Injection
from faults.kit.params import Inventory
from harness.contracts.ledger import LedgerEntry
from harness.faultlog import ConfirmedAcks
from harness.protocols.cluster import Proof
from harness.protocols.disturbed_disks import Disturbance


class DisksLying(Injection):
    """Nodes whose disks only say that they synced. The nodes serve, and their power may be cut
    meanwhile, so they are not claimed. Heal writes out what the disks hold back."""

    looks_last = True

    def __init__(
        self,
        view: ClusterView,
        targets: Sequence[str],
        params: DiskParams,
        disturbance: Disturbance,
    ) -> None:
        super().__init__(view, targets, params)
        self._disks = Disturbances(view, targets, disturbance)

    def apply(self) -> None:
        self._disks.begin()

    def proof(self) -> Proof:
        """Effective when a disk said that it synced, and did not. A node cannot see it."""
        said = self._disks.sentence("were only said to be done")
        who = ", ".join(self.targets)
        none = f"none of {self._disks.seen:,} syncs was met"
        return Proof(bool(said), f"{who}: {said or none}", {"operations": self._disks.details()})

    def heal(self) -> None:
        for node in self.targets:
            self._disks.calm(node)

    def is_undone(self) -> bool:
        return all(self._disks.is_calm(node) for node in self.targets)

    def missing(self) -> str:
        lying = [node for node in self.targets if not self._disks.is_calm(node)]
        return f"the disk of {', '.join(lying)} still lies" if lying else ""

    def confirmed_acks(self) -> ConfirmedAcks:
        """A loss of power that takes them away is a fault of its own."""
        return "kept"

    def ledger_entry(self) -> LedgerEntry:
        return LedgerEntry(limited=tuple(self.targets))


class FsyncLies(DiskFault[DiskParams]):
    """Let disks say that they synced, and not do it: a `power-loss` meanwhile takes this away.

    Alone it changes nothing that a client or a node can see."""

    kind = "fsync-lies"
    samples = ()  # a loss of power meanwhile removes what was acknowledged
    takes_nodes = False
    params = DiskParams

    def commands(self, params: DiskParams, inventory: Inventory) -> list[str]:
        share = "syncs" if params.share == 1 else f"{params.share:.0%} of syncs"
        return [
            f"say that {share} are done, and do not do them, {self.where(params, inventory)}",
            f"after {params.for_:g} s: write out what was held back",
        ]

    def seeded(
        self, view: ClusterView, targets: tuple[str, ...], params: DiskParams, seed: int
    ) -> DisksLying:
        disturbance = Disturbance("lie", ("fsync",), params.files, params.share, seed=seed)
        return DisksLying(view, targets, params, disturbance)
