"""slow-disk: a disk that is wearing out, a volume whose credits are used up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pydantic import Field

from faults.kit.cluster_view import ClusterView
from faults.kit.params import Inventory, NodeParams
from faults.kit.resources import ResourceFault, ResourceLimited
from faults.kit.targets import target_text
from harness.durations import Seconds
from harness.protocols.cluster import Details, HasPlacement
from harness.protocols.limits import SlowsDisk
from harness.protocols.nodes import Killable
from harness.sizes import Size, in_units

_PROBE_BYTES: Final = 131_072
#: A synced write that takes so much longer than before, and at least this long, is slow.
_FACTOR, _SLOW_S = 5.0, 0.05
#: A node that wrote less than this wrote a few lines of its log.
_WRITES: Final = 65_536


class SlowDiskParams(NodeParams):
    rate: Size = Field(
        1_000_000, ge=4096, description="bytes per second for reads, and the same for writes"
    )
    for_: Seconds = Field(
        10.0, alias="for", gt=0, description="the limit is removed after this time"
    )


class DiskSlowed(ResourceLimited):
    """Nodes whose volume is throttled."""

    params: SlowDiskParams

    def __init__(self, view: ClusterView, targets: Sequence[str], params: SlowDiskParams) -> None:
        super().__init__(view, targets, params)
        self._disk = view.ability(SlowsDisk)
        self._before_s = max(self._disk.try_write(node, _PROBE_BYTES)[1] for node in targets)
        self._longest_s = 0.0
        self._written = {node: self._disk.written(node) for node in targets}

    def apply(self) -> None:
        for node in self.targets:
            self._disk.slow_disk(node, self.params.rate)

    def shortage(self) -> str:
        """A synced write of ours takes long, and the node writes too."""
        for node in self.targets:
            if self._disk.is_slowed(node):
                self._longest_s = max(self._longest_s, self._disk.try_write(node, _PROBE_BYTES)[1])
        if (
            self._longest_s < max(_SLOW_S, _FACTOR * self._before_s)
            or self._by_the_node() < _WRITES
        ):
            return ""
        slow = f"{self._longest_s:.2f} s for a synced write of {in_units(_PROBE_BYTES)}"
        return f"{in_units(self.params.rate)}/s at most: {slow}, {self._before_s:.3f} s before"

    def _by_the_node(self) -> int:
        """Bytes that the nodes wrote meanwhile. The page cache counts: a slow disk is felt when it
        fills up, and until then the disk itself sees nothing of them."""
        return sum(
            max(0, self._disk.written(node) - before) for node, before in self._written.items()
        )

    def no_effect(self) -> str:
        if self._longest_s >= max(_SLOW_S, _FACTOR * self._before_s):
            return "its disk is slow, but it wrote nothing meanwhile"
        return f"a synced write took {self._longest_s:.3f} s, {self._before_s:.3f} s before"

    def details(self) -> Details:
        row = {"write_s": round(self._longest_s, 3), "write_before_s": round(self._before_s, 3)}
        return {**super().details(), **row, "written_by_node": self._by_the_node()}

    def restore(self, node: str) -> None:
        if self._disk.is_slowed(node):
            self._disk.slow_disk(node, None)

    def is_restored(self, node: str) -> bool:
        return not self._disk.is_slowed(node)


class SlowDisk(ResourceFault[SlowDiskParams]):
    """Throttle the data volume of a node to `rate` bytes per second for `for`."""

    kind = "slow-disk"
    abilities = (SlowsDisk, Killable, HasPlacement)
    needs = frozenset({"slow-volume"})
    params = SlowDiskParams
    injects = DiskSlowed

    def commands(self, params: SlowDiskParams, inventory: Inventory) -> list[str]:
        device = f"the device of the data volume of {target_text(params.target, inventory)}"
        return [
            f"throttle {device} to {in_units(params.rate)}/s, reading and writing",
            f"after {params.for_:g} s: full speed",
        ]
