"""disk-full: no block is left on the volume where a node keeps its data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pydantic import Field

from faults.kit.cluster_view import ClusterView
from faults.kit.node_loss import changes_text
from faults.kit.params import Inventory, NodeParams
from faults.kit.resources import LimitedUntilWhole, ResourceFault
from faults.kit.targets import target_text
from harness.durations import Seconds
from harness.protocols.cluster import HasPlacement
from harness.protocols.limits import FillsDisk
from harness.protocols.nodes import Killable

_PROBE_BYTES: Final = 65_536


class DiskFullParams(NodeParams):
    for_: Seconds = Field(10.0, alias="for", gt=0, description="the space is freed after this time")


class DiskFilled(LimitedUntilWhole):
    """Nodes whose volume holds a ballast file and no free block. Kafka takes its log dir offline
    and ends.

    What a survivor maps into memory it could not write (SIGBUS, in a JVM an InternalError): Kafka
    gives such a partition up until its next start.
    """

    may_give_up = True

    def __init__(self, view: ClusterView, targets: Sequence[str], params: DiskFullParams) -> None:
        super().__init__(view, targets, params)
        self._disk = view.ability(FillsDisk)
        self._said = ""

    def apply(self) -> None:
        for node in self.targets:
            self._disk.fill_disk(node)
        self.note()

    def look(self) -> None:
        for node in self.targets:
            if not self._said and self._disk.is_filled(node):
                self._said = self._disk.try_write(node, _PROBE_BYTES)[0]
                if not self._said:  # the node gave blocks back, as Kafka does when it ends
                    self._disk.fill_disk(node)

    def shortage(self) -> str:
        """A write of ours failed, and the node shows that its own do. Nodes below the brokers lead
        nothing: of them the failing write is all there is to see."""
        if self._said != "ENOSPC":
            return ""
        below = not set(self.targets) & set(self.view.brokers)
        noticed = below or self._died or changes_text(self._changed)
        return "no space left on its data volume (a write got ENOSPC)" if noticed else ""

    def no_effect(self) -> str:
        if self._said == "ENOSPC":
            return "no space left on its data volume, but it has not tried to write"
        return f"its data volume can be written to{f' ({self._said})' if self._said else ''}"

    def restore(self, node: str) -> None:
        self._disk.free_disk(node)

    def is_restored(self, node: str) -> bool:
        return not self._disk.is_filled(node)


class DiskFull(ResourceFault[DiskFullParams]):
    """Fill the data volume of a node to the last block, and give the space back after `for`."""

    kind = "disk-full"
    abilities = (FillsDisk, Killable, HasPlacement)
    needs = frozenset({"data-volume"})
    params = DiskFullParams
    injects = DiskFilled

    def commands(self, params: DiskFullParams, inventory: Inventory) -> list[str]:
        return [
            f"fallocate a ballast file until ENOSPC, data volume of {target_text(params.target, inventory)}",
            f"after {params.for_:g} s: delete it; start the node again if it died or does not get in sync",
        ]
