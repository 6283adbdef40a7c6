"""Ends what runs whose harness is gone left on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import UsageError
from harness.rundir import RunDir

if TYPE_CHECKING:
    from harness.clusters.layout.addresses import Claim
    from harness.clusters.leftovers import Leftover


def end_leftovers(run_id: str) -> None:
    """End what a run of this id left over.

    Raises:
        HealError, EnvironmentNotReady: as `harness.clusters.leftovers.remove`.
    """
    from harness.clusters import leftovers

    remove(leftovers.find(run_id))


def remove(found: Sequence[Leftover]) -> None:
    """End every process, continue what is paused, drop the brokers' data; logs and captures stay.

    Raises:
        HealError, EnvironmentNotReady: as `harness.clusters.leftovers.remove`.
    """
    from harness.clusters import leftovers

    # What needs no Docker engine first, to its end: there may be none any more.
    for group in (
        [one for one in found if not one.is_in_engine],
        [one for one in found if one.is_in_engine],
    ):
        leftovers.remove(group, _heal)


def _heal(claim: Claim) -> list[str]:
    """Heal what the run of a claim left applied, without its cluster; returns what could not be
    healed."""
    import faults

    try:
        return faults.heal_from_ledger(None, RunDir(Path(claim.folder).parent), claim.run_id)
    except UsageError:
        # a damaged run folder: its processes are gone, and with them what could be paused
        return []
