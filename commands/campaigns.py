"""Runs the rounds of a command: clusters on the chosen runtime, one Spark session, one live view."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Protocol

from commands.console import Settings
from commands.plans import needs_of, timeline_of
from commands.summaries import judge_run
from harness.errors import ScenarioError
from harness.rundir import RunDir, point_latest

if TYPE_CHECKING:
    from analysis.findings import Result
    from analysis.spark.session import WarmSession
    from faults import Timeline
    from harness.clusters.runtime_choice import Choice
    from harness.plan.model import Plan
    from harness.progress.view import BaseProgress
    from harness.protocols.cluster import Cluster, FaultStorm
    from harness.run.campaign import Campaign, CampaignHooks


class RunOptions(Protocol):
    """How the rounds are run: options that `run` and `repro` share."""

    @property
    def keep_up(self) -> bool: ...
    @property
    def offline(self) -> bool: ...
    @property
    def runtime(self) -> str: ...
    @property
    def master(self) -> str | None: ...


@contextmanager
def opened_campaign(
    settings: Settings,
    options: RunOptions,
    root: RunDir,
    plans: Sequence[Plan],
    command: str,
    *,
    replay: RunDir | None = None,
) -> Iterator[tuple[Campaign[Result], BaseProgress]]:
    """A campaign to play ``plans`` in, and its live view; everything is ended after it, whatever happened.

    With ``--keep-up`` the cluster stays when all went well.
    """
    from analysis.spark.session import WarmSession
    from harness.run.campaign import Campaign

    with closing(settings.progress()) as progress, WarmSession(options.master) as session:
        hooks = _hooks(settings, options, progress, session, root, plans, replay)
        campaign: Campaign[Result] = Campaign(
            root,
            hooks,
            progress=progress,
            interrupts=settings.interrupts,
            command=command,
            offline=options.offline,
            keep_up=options.keep_up,
        )
        with campaign.opened():
            yield campaign, progress
            if options.keep_up:
                _keep(campaign)


def _keep(campaign: Campaign[Result]) -> None:
    """Leave the cluster running."""
    from harness.clusters import BrokerCluster

    cluster = campaign.release()
    if isinstance(cluster, BrokerCluster):
        cluster.keep()


def _hooks(
    settings: Settings,
    options: RunOptions,
    progress: BaseProgress,
    session: WarmSession,
    root: RunDir,
    plans: Sequence[Plan],
    replay: RunDir | None,
) -> CampaignHooks[Result]:
    """Cluster, faults and judging of a campaign; a cluster has what the faults of all plans need."""
    import faults
    from harness.run.campaign import CampaignHooks

    opener = ClusterOpener(options.runtime, needs_of(plans), offline=options.offline, progress=progress)

    def open_cluster(plan: Plan, root: RunDir) -> Cluster:
        return opener.open(plan, timeline_of(plan), root)

    def storm(plan: Plan, cluster: Cluster, run: RunDir) -> FaultStorm:
        words = [plan.scenario, plan.variant, f"seed {plan.seed}"]
        progress.begin(
            " · ".join(word for word in words if word),
            rate_per_s=plan.rate_per_s,
            warm_up_s=plan.warm_up_s,
            load_s=plan.load_s,
        )
        timeline = timeline_of(plan) if replay is None else faults.load_replay(replay)
        stopping, hurry = settings.interrupts.stop, settings.interrupts.hurry
        return faults.Storm(timeline, cluster, run, on_event=progress.fault, stopping=stopping, hurry=hurry)

    def on_phase(name: str) -> None:
        if name == "ready":
            point_latest(root)  # from here on there is something to show
        if name == "drain":
            session.start()

    def judge(run: RunDir) -> Result:
        return judge_run(run, session, in_campaign=run.root != root.root)

    return CampaignHooks(open_cluster, storm, judge, on_phase)


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

    def fall_back_to_processes(self, system: str, version: str, topology: str, why: str) -> bool:
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


class ClusterOpener:
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
            if not self._chosen.fall_back_to_processes(plan.system, plan.version, plan.topology, str(error)):
                raise
            return self.open(plan, timeline, root)
        return cluster
