"""Base of the faults on single operations of a node's disk: the files they are about, and the
counts of the disk that prove them."""

from __future__ import annotations

import uuid
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, Generic, TypeVar

from pydantic import Field

from faults.kit.cluster_view import ClusterView
from faults.kit.errors import StepProblem
from faults.kit.params import Inventory, Share
from faults.kit.resources import LimitedUntilWhole, ResourceFault
from faults.kit.several import SeveralNodesFault, SeveralNodesParams
from harness.durations import Seconds
from harness.errors import did_you_mean
from harness.protocols.cluster import Details, HasPlacement
from harness.protocols.disturbed_disks import Disturbance, Disturbed, DisturbsDisks, Operation
from harness.protocols.files import FileKind
from harness.protocols.nodes import Killable
from harness.systems import SYSTEMS

_NAMED: Final = 2
_PLURAL: Final[Mapping[str, str]] = {"read": "reads", "write": "writes", "fsync": "syncs"}


class DiskParams(SeveralNodesParams):
    """Keys of a fault on operations of disks."""

    share: Share = Field(
        1.0, description="share of these operations that are met; 0.1 is one in ten"
    )
    files: FileKind = Field(
        "any", description="kind of files that are met: `log`, those with messages, others, or all"
    )
    for_: Seconds = Field(
        10.0, alias="for", gt=0, description="the disk works again after this time"
    )


class OperationParams(DiskParams):
    """Keys of a fault on chosen operations of disks."""

    operation: tuple[Operation, ...] = Field(
        ("write", "fsync"),
        min_length=1,
        description="operations that are met; where these are reads, the page cache is emptied",
    )

    @property
    def which(self) -> str:
        """The operations that are met, in words."""
        kinds = "/".join(self.operation)
        return f"each {kinds}" if self.share == 1 else f"{self.share:.0%} of {kinds}"


D = TypeVar("D", bound=DiskParams)


class Disturbances:
    """The disturbance of the disks of some nodes. The counts stay known when it is undone."""

    def __init__(self, view: ClusterView, nodes: Sequence[str], disturbance: Disturbance) -> None:
        self._disks = view.ability(DisturbsDisks)
        self._nodes = tuple(nodes)
        self._disturbance = disturbance
        self._name = f"{disturbance.act}-{uuid.uuid4().hex[:8]}"
        self._counts: dict[str, Disturbed] = {}

    def begin(self) -> None:
        for node in self._nodes:
            self._disks.disturb_disk(node, self._name, self._disturbance)

    def calm(self, node: str) -> None:
        """Undo the disturbance of a node. Idempotent."""
        met = self._disks.calm_disk(node, self._name)
        if met.seen:
            self._counts = {**self._counts, node: met}

    def is_calm(self, node: str) -> bool:
        return self._disks.disk_disturbed(node, self._name) is None

    def look(self) -> dict[str, Disturbed]:
        """Return the counts of each node, the last ones once it is undone."""
        for node in self._nodes:
            if met := self._disks.disk_disturbed(node, self._name):
                self._counts = {**self._counts, node: met}
        return self._counts

    def sentence(self, then: str) -> str:
        """``12 of 40 writes and syncs ended with EIO (orders-0/0.log ...)``; empty if nothing was
        met."""
        counts = self.look()
        met = sum(sum(each.met.values()) for each in counts.values())
        if not met:
            return ""
        files = [file for each in counts.values() for file in each.files][:_NAMED]
        shown = f" ({', '.join(files)} ...)" if files else ""
        return f"{met:,} of {self.seen:,} {self.operations} {then}{shown}"

    @property
    def seen(self) -> int:
        """Operations that the disturbance might have met."""
        return sum(each.seen for each in self._counts.values())

    @property
    def operations(self) -> str:
        """The operations, as a text."""
        return " and ".join(_PLURAL[each] for each in self._disturbance.operations)

    def details(self) -> dict[str, Any]:
        """Counts by node, for the row of the fault's effect."""
        return {node: {"seen": each.seen, **dict(each.met)} for node, each in self._counts.items()}


class DisksDisturbed(LimitedUntilWhole):
    """Nodes on whose disks some operations fail or take long. Nodes that die of it are started
    when it is undone."""

    looks_last = True

    def __init__(
        self,
        view: ClusterView,
        targets: Sequence[str],
        params: OperationParams,
        disturbance: Disturbance,
    ) -> None:
        super().__init__(view, targets, params)
        self._disks = Disturbances(view, targets, disturbance)

    @abstractmethod
    def consequence(self) -> str:
        """What happened to the operations, to follow their number in a sentence."""

    def apply(self) -> None:
        self._disks.begin()
        self.note()

    def shortage(self) -> str:
        return self._disks.sentence(self.consequence())

    def no_effect(self) -> str:
        return f"none of {self._disks.seen:,} {self._disks.operations} was met"

    def details(self) -> Details:
        return {**super().details(), "operations": self._disks.details()}

    def restore(self, node: str) -> None:
        self._disks.calm(node)

    def is_restored(self, node: str) -> bool:
        return self._disks.is_calm(node)


class DiskFault(SeveralNodesFault[D], ResourceFault[D], Generic[D]):
    """Base of the kinds on operations of disks: several nodes at once, on disks that need a file
    system of their own."""

    silences: ClassVar[bool] = False
    abilities = (DisturbsDisks, Killable, HasPlacement)
    needs = frozenset({"synced-disk"})

    def complete(self, params: D, inventory: Inventory) -> D:
        kinds = [kind for kind in SYSTEMS[inventory.system].file_kinds if kind != "unused"]
        if params.files not in (*kinds, "any"):
            close = did_you_mean(params.files, [*kinds, "any"], label="allowed")
            raise StepProblem("files", f"{inventory.system} has no files {params.files!r}; {close}")
        return super().complete(params, inventory)

    def where(self, params: D, inventory: Inventory) -> str:
        """The files and nodes, for `commands`."""
        files = "all files" if params.files == "any" else f"files of kind {params.files}"
        return f"{files} of {self.who(params, inventory)}"
