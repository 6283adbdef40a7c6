"""disk-full: no block is left on the volume where a node keeps its data."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from pydantic import Field

from faults.kit.cluster_view import ClusterView, Snapshot
from faults.kit.node_loss import changes_text
from faults.kit.params import Inventory, NodeParams
from faults.kit.resources import ResourceFault, ResourceLimited, ability
from faults.kit.targets import target_text
from harness.durations import Seconds
from harness.faultlog import ConfirmedAcks
from harness.protocols.cluster import HasPlacement
from harness.protocols.limits import FillsDisk
from harness.protocols.nodes import Killable

_PROBE_BYTES: Final = 65_536
#: A replica that no longer fetches is in sync until this long after its last fetch (replica.lag.time.max.ms,
#: 5 s in our clusters, looked at every half of it).
_NOTICED_S: Final = 8.0
#: A follower with room again is in sync within a second or two; one that is not by then never will be.
_CATCH_UP_S: Final = 10.0


class DiskFullParams(NodeParams):
    for_: Seconds = Field(10.0, alias="for", gt=0, description="the space is given back after this long")


class DiskFilled(ResourceLimited):
    """Nodes whose volume holds a ballast file and no free block. Kafka takes its log dir offline and ends."""

    def __init__(self, view: ClusterView, targets: Sequence[str], params: DiskFullParams) -> None:
        super().__init__(view, targets, params)
        self._disk: FillsDisk = ability(view, FillsDisk)
        self._said = ""
        self._freed_s: float | None = None
        self._restarted = False

    def apply(self) -> None:
        for node in self.targets:
            self._disk.fill_disk(node)
        self.note()

    def note(self) -> None:
        if self._freed_s is not None:
            return  # a node that is down now did not die of it
        super().note()
        for node in self.targets:
            if not self._said and self._disk.is_filled(node):
                self._said = self._disk.try_write(node, _PROBE_BYTES)[0]

    def _note_change(self, now: Snapshot | None) -> None:
        if not self._restarted:
            super()._note_change(now)

    def confirmed_acks(self) -> ConfirmedAcks:
        """A survivor that does not recover is killed by the heal."""
        return "at-risk" if self._restarted and self.hits_broker() else super().confirmed_acks()

    def shortage(self) -> str:
        """A write of ours failed, and the node shows that its own do. Nodes below the brokers lead nothing:
        of them the failing write is all there is to see."""
        if self._said != "ENOSPC":
            return ""
        below = not set(self.targets) & set(self.view.brokers)
        noticed = below or self._died or changes_text(self._changed)
        return "no space left on its data volume (a write got ENOSPC)" if noticed else ""

    def no_effect(self) -> str:
        if self._said == "ENOSPC":
            return "no space left on its data volume, but it has not tried to write"
        return f"its data volume can be written to{f' ({self._said})' if self._said else ''}"

    def heal(self) -> None:
        """Give the space back, start crashed nodes, restart survivors that do not recover."""
        if self._is_stuck():
            self._note_change(self.view.snapshot())
            self._restarted = True  # what changes from here on is our doing
            for node in set(self.targets) - set(self._died):
                self.view.killable.kill(node)
        super().heal()
        self._freed_s = self._freed_s or time.monotonic()

    def is_undone(self) -> bool:
        return super().is_undone() and not self._is_stuck()

    def missing(self) -> str:
        """Also of a node that survived: whether the cluster would have noticed that it gave something up."""
        if missing := super().missing():
            return missing
        survivors = set(self.targets) - set(self._died)
        if survivors and not self._restarted and self._since_freed_s() <= _NOTICED_S:
            return f"too early to tell whether {', '.join(sorted(survivors))} stays in sync"
        return ""

    def _since_freed_s(self) -> float:
        return time.monotonic() - self._freed_s if self._freed_s is not None else 0.0

    def _is_stuck(self) -> bool:
        """Whether a node that survived is still not whole. What it maps into memory it could not write
        (SIGBUS, in a JVM an InternalError): Kafka gives such a partition up until its next start.
        """
        if self._restarted or set(self.targets) <= set(self._died):
            return False
        return self._since_freed_s() > _CATCH_UP_S and bool(super().missing())

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

    def lasts_s(self, params: DiskFullParams) -> float | None:
        return params.for_

    def commands(self, params: DiskFullParams, inventory: Inventory) -> list[str]:
        return [
            f"fallocate a ballast file until ENOSPC, data volume of {target_text(params.target, inventory)}",
            f"after {params.for_:g} s: delete it; start the node again if it died or does not get in sync",
        ]

    def injection(self, view: ClusterView, targets: tuple[str, ...], params: DiskFullParams) -> DiskFilled:
        return DiskFilled(view, targets, params)
