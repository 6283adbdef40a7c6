"""A run and what its processes are connected to, for everything that starts them."""

from __future__ import annotations

from dataclasses import dataclass

from harness.contracts.plan import Plan
from harness.protocols.cluster import Progress
from harness.run.manifest import ManifestFile
from harness.run.worker_specs import Endpoints
from harness.rundir import RunDir


@dataclass(frozen=True, slots=True)
class RunPlace:
    """A run, and what its processes are connected to.

    Attributes:
        where: the addresses of the brokers.
        owner: the run id of the cluster: by it `clean` finds the processes of every round of a
            campaign.
        offline: download nothing.
        own_clocks: faults set the wall clocks of clients and applications.
    """

    plan: Plan
    run: RunDir
    where: Endpoints
    manifest: ManifestFile
    progress: Progress
    owner: str
    offline: bool = False
    own_clocks: bool = False
