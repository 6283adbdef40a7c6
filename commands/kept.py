"""Clusters that were left running: finding, healing and stopping them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import EnvironmentNotReady, HealError, UsageError

if TYPE_CHECKING:
    from harness.clusters.layout.addresses import Claim
if TYPE_CHECKING:
    from harness.clusters.layout.addresses import Claim


def kept_clusters() -> list[Claim]:
    """Clusters that were left running on purpose, oldest first."""
    from harness.clusters.layout import addresses

    return sorted((claim for claim in addresses.claims() if claim.kept), key=lambda claim: claim.run_id)


def _heal_kept(claim: Claim) -> bool:
    """Heal the faults still applied to a cluster that goes on running; False if there was none.

    Raises:
        HealError: one could not be healed.
    """
    import faults
    from harness.clusters import attach_cluster
    from harness.rundir import RunDir

    run = RunDir(Path(claim.folder).parent)
    if not any(run.ledger.glob("*.json")):
        return False
    failures = faults.heal_from_ledger(attach_cluster(Path(claim.folder)), run)
    if failures:
        raise HealError("; ".join(failures), hint=f"`brokerstorm clean {claim.run_id}` removes the cluster")
    return True


def stop_kept(claim: Claim) -> None:
    """Stop a kept cluster; what is paused is continued first, a stopped process cannot end."""
    import faults
    from harness.clusters import attach_cluster, leftovers
    from harness.rundir import RunDir

    folder = Path(claim.folder)
    faults.heal_from_ledger(None, RunDir(folder.parent))
    try:
        attach_cluster(folder).down()
    except (
        UsageError,
        EnvironmentNotReady,
    ):  # its folder or its Java is gone: processes and claim still know
        leftovers.remove(leftovers.find(claim.run_id))
