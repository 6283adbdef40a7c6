"""io-error: a disk on which some reads, writes or syncs fail."""

from __future__ import annotations

from pydantic import Field

from faults.kit.cluster_view import ClusterView
from faults.kit.disks import DiskFault, DisksDisturbed, OperationParams
from faults.kit.params import Inventory
from harness.protocols.disturbed_disks import Disturbance, Errno


class IoErrorParams(OperationParams):
    errno: Errno = Field("EIO", description="error that these operations end with")


class DisksFailing(DisksDisturbed):
    """Nodes on whose disks operations fail. Kafka takes its log dir offline and ends; heal starts
    it."""

    params: IoErrorParams
    may_give_up = True

    def consequence(self) -> str:
        return f"ended with {self.params.errno}"


class IoError(DiskFault[IoErrorParams]):
    """Let a share of the reads, writes or syncs of a node's files fail for `for`."""

    kind = "io-error"
    params = IoErrorParams

    def commands(self, params: IoErrorParams, inventory: Inventory) -> list[str]:
        return [
            f"{params.errno} for {params.which}, {self.where(params, inventory)}",
            f"after {params.for_:g} s: no errors; start the node again if it died or does not get "
            "in sync",
        ]

    def seeded(
        self, view: ClusterView, targets: tuple[str, ...], params: IoErrorParams, seed: int
    ) -> DisksFailing:
        disturbance = Disturbance(
            "error", params.operation, params.files, params.share, errno=params.errno, seed=seed
        )
        return DisksFailing(view, targets, params, disturbance)
