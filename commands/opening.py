"""On which runtime a cluster is opened, and opening it there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from harness.errors import ScenarioError

if TYPE_CHECKING:
    from faults import Timeline
    from harness.clusters.runtime_choice import Choice
    from harness.plan.model import Plan
    from harness.progress.view import BaseProgress
    from harness.protocols.cluster import Cluster
    from harness.rundir import RunDir


class RuntimeChoice:
    """What ``--runtime`` means for the clusters of one command, decided once a cluster and told.

    Args:
        wanted: "auto", "process" or "docker".
        tell: gets one line when it was for us to decide.
    """

    def __init__(
        self, wanted: str, needs: frozenset[str], *, offline: bool, tell: Callable[[str], None]
    ) -> None:
        self._wanted = wanted
        self._needs = needs
        self._offline = offline
        self._tell = tell
        self._made: dict[tuple[str, str, str], Choice] = {}

    def rather_processes(self, system: str, version: str, topology: str, why: str) -> bool:
        """Take back what was decided for containers; False when it was not for us to decide."""
        from harness.clusters.runtime_choice import (
            AUTO,
            DOCKER,
            PROCESS,
            Choice,
        )

        key = (system, version, topology)
        if self._wanted != AUTO or self._made[key].runtime != DOCKER:
            return False
        self._made[key] = Choice(PROCESS, why)
        self._tell(f"runtime {self._made[key]}")
        return True

    def of(self, system: str, version: str, topology: str) -> Choice:
        from harness.clusters import spec_of
        from harness.clusters.runtime_choice import AUTO, choose

        key = (system, version, topology)
        if key not in self._made:
            choice = choose(self._wanted, spec_of(*key), needs=self._needs, offline=self._offline)
            self._made[key] = choice
            if self._wanted == AUTO:
                self._tell(f"runtime {choice}")
        return self._made[key]


class Opening:
    """Opens the clusters of one command.

    Args:
        runtime: "auto", "process" or "docker".
        needs: what the faults of all plans need of a cluster's start.
    """

    def __init__(self, runtime: str, needs: frozenset[str], *, offline: bool, progress: BaseProgress) -> None:
        self._chosen = RuntimeChoice(runtime, needs, offline=offline, tell=progress.note)
        self._needs = needs
        self._offline = offline
        self._progress = progress

    def open(self, plan: Plan, timeline: Timeline, root: RunDir) -> Cluster:
        """A cluster for a plan that is not up yet.

        Raises:
            ScenarioError: a fault of the timeline needs what no runtime that may be taken has.
            UsageError, EnvironmentNotReady: as `harness.clusters.cluster.open_cluster`.
        """
        import faults
        from harness.clusters import open_cluster

        choice = self._chosen.of(plan.system, plan.version, plan.topology)
        cluster = open_cluster(
            plan.system,
            run_id=root.run_id,
            folder=root.cluster,
            version=plan.version,
            topology=plan.topology,
            broker_config=plan.broker_config,
            runtime=choice.runtime,
            needs=self._needs,
            offline=self._offline,
            on_progress=self._progress.download,
        )
        cluster.facts = {"runtime": str(choice)}
        try:
            faults.refuse_unsupported(timeline, cluster)
        except ScenarioError as error:
            cluster.down()  # nothing runs, but its addresses are taken
            if not self._chosen.rather_processes(plan.system, plan.version, plan.topology, str(error)):
                raise
            return self.open(plan, timeline, root)
        return cluster
