"""Ends what runs whose harness is gone left on this machine."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.rundir import RunDir

if TYPE_CHECKING:
    from harness.clusters.leftovers import Leftover


def end_leftovers(run_id: str) -> None:
    """End what a run of this id left behind.

    Raises:
        HealError, EnvironmentNotReady: as `harness.clusters.leftovers.remove`.
    """
    from harness.clusters import leftovers

    remove(leftovers.find(run_id))


def remove(found: Sequence[Leftover]) -> None:
    """Continue what is paused, end every process, drop the brokers' data; logs and captures stay."""
    import faults
    from harness.clusters import leftovers

    # What needs no Docker engine first, to its end: there may be none any more.
    for group in ([one for one in found if not one.is_in_engine], [one for one in found if one.is_in_engine]):
        leftovers.remove(group)
        for folder in {Path(claim.folder) for one in group for claim in one.claims}:
            faults.heal_from_ledger(None, RunDir(folder.parent))
            for data in folder.glob("*/data"):
                shutil.rmtree(data, ignore_errors=True)
