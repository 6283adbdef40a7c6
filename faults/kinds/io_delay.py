"""io-delay: a disk on which some reads, writes or syncs take long."""

from __future__ import annotations

from pydantic import Field

from faults.kit.cluster_view import ClusterView
from faults.kit.disks import DiskFault, DisksDisturbed, OperationParams
from faults.kit.params import Inventory
from harness.durations import Seconds
from harness.protocols.disturbed_disks import Disturbance


class IoDelayParams(OperationParams):
    delay: Seconds = Field(0.1, gt=0, le=600, description="delay of each of these operations")


class DisksLate(DisksDisturbed):
    """Nodes on whose disks operations take long."""

    params: IoDelayParams

    def consequence(self) -> str:
        return f"came {self.params.delay:g} s late"


class IoDelay(DiskFault[IoDelayParams]):
    """Delay a share of the reads, writes or syncs of a node's files for `for`."""

    kind = "io-delay"
    params = IoDelayParams

    def commands(self, params: IoDelayParams, inventory: Inventory) -> list[str]:
        return [
            f"delay {params.which} by {params.delay:g} s, {self.where(params, inventory)}",
            f"after {params.for_:g} s: no delay",
        ]

    def seeded(
        self, view: ClusterView, targets: tuple[str, ...], params: IoDelayParams, seed: int
    ) -> DisksLate:
        disturbance = Disturbance(
            "delay", params.operation, params.files, params.share, delay_s=params.delay, seed=seed
        )
        return DisksLate(view, targets, params, disturbance)
