"""Opens the clusters of a command: on the runtime that is wanted or available, or an existing
cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from experiments.resolved import Resolved, cluster_of, refuse_impossible
from harness.clusters import open_cluster, spec_of
from harness.clusters.runtime_choice import AUTO, DOCKER, PROCESS, RuntimeChoice, choose
from harness.errors import BrokerstormError

if TYPE_CHECKING:
    from harness.contracts.plan import Plan
    from harness.progress.view import BaseProgress
    from harness.protocols.cluster import Cluster
    from harness.rundir import RunDir


def choose_runtime(
    wanted: str,
    cluster: tuple[str, str, str],
    needs: frozenset[str],
    *,
    offline: bool,
    tell: Callable[[str], None],
    refuse: Callable[[str], None] = lambda runtime: None,
) -> RuntimeChoice:
    """The runtime of a cluster (system, version, topology).

    Args:
        wanted: "auto", "process" or "docker".
        needs: what faults need of the cluster's start.
        tell: gets one line when it was for us to decide.
        refuse: raises for a runtime that cannot do what is to be done; then "auto" means processes.
    """
    choice = choose(wanted, spec_of(*cluster), needs=needs, offline=offline)
    if wanted != AUTO:
        return choice
    if choice.runtime == DOCKER:
        try:
            refuse(DOCKER)
        except BrokerstormError as error:
            choice = RuntimeChoice(PROCESS, str(error))
    tell(f"runtime {choice}")
    return choice


def process_if(secure: bool, runtime: str) -> str:
    """The runtime that is wanted: only processes can be secure."""
    return PROCESS if secure and runtime == AUTO else runtime


class ClusterOpener:
    """Opens the clusters of one command; each has what the faults of all plans need.

    Args:
        progress: shows downloads, and why a runtime was chosen.
    """

    def __init__(self, resolved: Resolved, progress: BaseProgress) -> None:
        self._resolved = resolved
        self._progress = progress
        self._choices: dict[tuple[str, str, str], RuntimeChoice] = {}

    def open(self, plan: Plan, root: RunDir) -> Cluster:
        """A cluster for a plan that is not up yet; on an existing cluster, nothing is created yet.

        Raises:
            UsageError, EnvironmentNotReady: as `harness.clusters.cluster.open_cluster`.
        """
        options = self._resolved.options
        if options.external:
            return options.external.cluster(root.run_id, root.root)
        choice = self._choice(plan)
        cluster = open_cluster(
            plan.system,
            run_id=root.run_id,
            folder=root.cluster,
            version=plan.version,
            topology=plan.topology,
            broker_config=plan.broker_config,
            runtime=choice.runtime,
            needs=self._resolved.needs,
            offline=options.offline,
            secure=options.secure,
            on_progress=self._progress.download,
        )
        cluster.facts = {**cluster.facts, "runtime": str(choice)}
        return cluster

    def _choice(self, plan: Plan) -> RuntimeChoice:
        """Made once for each cluster, for all plans that it serves."""
        cluster = cluster_of(plan)
        if cluster not in self._choices:
            options = self._resolved.options
            self._choices[cluster] = choose_runtime(
                process_if(options.secure, self._resolved.runtime),
                cluster,
                self._resolved.needs,
                offline=options.offline,
                tell=self._progress.note,
                refuse=lambda runtime: self._refuse(cluster, runtime),
            )
        return self._choices[cluster]

    def _refuse(self, cluster: tuple[str, str, str], runtime: str) -> None:
        """Raise for a runtime that cannot do what the plans of a cluster ask."""
        for plan, timeline in zip(self._resolved.plans, self._resolved.timelines, strict=True):
            if cluster_of(plan) == cluster:
                refuse_impossible(timeline, cluster, runtime, plan.broker_config)
