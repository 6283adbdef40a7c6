"""Runs the rounds of a command: clusters on the chosen runtime, one Spark session, one live view."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from experiments.campaign import CampaignHooks, CampaignRunner
from experiments.context import CommandContext
from experiments.judging import judge_run
from experiments.plans import cluster_of, needs_of, refuse_impossible, timeline_of
from experiments.windows import WindowJudge, WindowRequest
from harness.clusters import BrokerCluster, open_cluster, spec_of
from harness.clusters.runtime_choice import AUTO, DOCKER, PROCESS, RuntimeChoice, choose
from harness.errors import BrokerstormError
from harness.rundir import RunDir, point_latest
from harness.telemetry.request import MetricsRequest, metrics_request, opened_telemetry

if TYPE_CHECKING:
    from analysis.findings import Result
    from analysis.spark.session import WarmSession
    from experiments.load_request import LoadRequest
    from harness.clusters.external import External
    from harness.contracts.plan import Plan
    from harness.progress.view import BaseProgress
    from harness.protocols.cluster import Cluster
    from harness.protocols.faulting import FaultInjector
    from harness.telemetry.telemetry import Telemetry


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


@dataclass(frozen=True, slots=True)
class RoundOptions:
    """`RunOptions` of what leaves no cluster."""

    runtime: str
    offline: bool
    keep_up: bool = False
    master: str | None = None


@contextmanager
def opened_campaign(
    context: CommandContext,
    options: RunOptions,
    root: RunDir,
    plans: Sequence[Plan],
    command: str,
    *,
    replay: RunDir | None = None,
    session: WarmSession | None = None,
    external: External | None = None,
    metrics: MetricsRequest | None = None,
    secure: bool = False,
    judges_cut: bool = False,
    is_latest: bool = False,
    load: LoadRequest | None = None,
    windows: WindowRequest | None = None,
) -> Iterator[tuple[CampaignRunner, BaseProgress]]:
    """A campaign to play ``plans`` in, and its live view; everything is ended after it, whatever happened.
    With ``--keep-up`` the cluster stays when all went well.

    Args:
        replay: whose fault times and targets are used.
        external: the cluster; None = one that we start.
        secure: clusters have TLS and users.
        session: of a night of several campaigns, which leaves it open.
        is_latest: ``latest`` names the folder, once there is something to show.
        metrics: where metrics of the runs go; None = as the environment says.
        judges_cut: a round whose load a signal shortens is judged, too.
        windows: how a round is judged while it goes on; None = only in the end.
        load: the load comes from the executors of a Spark cluster; None = from here.
    """
    from analysis.spark.session import WarmSession

    with ExitStack() as stack:
        progress = stack.enter_context(closing(context.progress()))
        telemetry = stack.enter_context(_telemetry(metrics, progress))
        spark = session or stack.enter_context(WarmSession(load.master if load else options.master))
        opener = _opener(options, plans, external, progress, secure=secure)
        judging = stack.enter_context(_Judging(context, None if load else windows, spark, progress.note))
        parts = (context, opener, progress, spark, root, replay, telemetry, judging)
        hooks = _hooks(*parts, is_latest=is_latest, judges_cut=judges_cut)
        campaign: CampaignRunner = CampaignRunner(
            root,
            _from_elsewhere(hooks, load, spark, root, progress, options, external) if load else hooks,
            progress=progress,
            interrupts=context.interrupts,
            command=command,
            offline=options.offline,
            keep_up=options.keep_up,
            judges_cut=judges_cut,
        )
        with campaign.opened():
            yield campaign, progress
            if options.keep_up:
                _keep(campaign)


def _telemetry(asked: MetricsRequest | None, progress: BaseProgress) -> AbstractContextManager[Telemetry]:
    return opened_telemetry(asked or metrics_request(None, None), progress.note)


def _from_elsewhere(
    hooks: CampaignHooks,
    load: LoadRequest,
    spark: WarmSession,
    root: RunDir,
    progress: BaseProgress,
    options: RunOptions,
    external: External | None,
) -> CampaignHooks:
    """The hooks of a campaign whose load comes from other machines."""
    from experiments.spark_load import SparkLoad

    spark.start()  # while the cluster comes up
    connection = external.connection if external else None
    rounds = SparkLoad(
        load, spark, root.root.parent, progress.note, offline=options.offline, connection=connection
    )
    return replace(hooks, judge=rounds.judged(hooks.judge), load=rounds.round)


def _opener(
    options: RunOptions,
    plans: Sequence[Plan],
    external: External | None,
    progress: BaseProgress,
    *,
    secure: bool,
) -> ClusterOpener | ExternalOpener:
    if external:
        return ExternalOpener(external)
    runtime = process_if(secure, options.runtime)
    return ClusterOpener(runtime, plans, offline=options.offline, secure=secure, progress=progress)


def _keep(campaign: CampaignRunner) -> None:
    """Leave the cluster running."""
    cluster = campaign.release()
    if isinstance(cluster, BrokerCluster):
        cluster.keep()


def _hooks(
    context: CommandContext,
    opener: ClusterOpener | ExternalOpener,
    progress: BaseProgress,
    session: WarmSession,
    root: RunDir,
    replay: RunDir | None,
    telemetry: Telemetry,
    judging: _Judging,
    *,
    is_latest: bool,
    judges_cut: bool,
) -> CampaignHooks:
    """Cluster, faults and judging of a campaign."""
    import faults

    # Once set, heals no longer get their time.
    given_up = context.interrupts.hurry if judges_cut else context.interrupts.stop

    def injector(plan: Plan, cluster: Cluster, run: RunDir) -> FaultInjector:
        words = [plan.scenario, plan.variant, f"seed {plan.seed}"]
        progress.begin(
            " · ".join(word for word in words if word),
            rate_per_s=plan.rate_per_s,
            warm_up_s=plan.warm_up_s,
            load_s=plan.load_s,
            at_most_per_s=plan.rate_choice.at_most_per_s if plan.rate_choice else 0.0,
            profile=plan.profile,
            judges_cut=judges_cut,
        )
        timeline = timeline_of(plan) if replay is None else faults.load_replay(replay)
        telemetry.begin(plan, run, run.root.relative_to(root.root.parent).as_posix())
        judging.begin(plan, run)
        progress.plan_faults([(t_s, text) for t_s, firing, text in faults.described(timeline) if firing])
        hurry = context.interrupts.hurry
        return faults.Injector(
            timeline, cluster, run, on_event=progress.fault, stopping=given_up, hurry=hurry
        )

    def on_phase(name: str) -> None:
        telemetry.phase(name)
        judging.phase(name)
        if name == "ready" and is_latest:
            point_latest(root)  # from here on there is something to show
        if name == "drain":
            session.start()

    def judge(run: RunDir) -> Result:
        telemetry.end()
        return judge_run(context, run, session, in_campaign=run.root != root.root)

    return CampaignHooks(opener.open, injector, judge, on_phase)


class _Judging:
    """The windows of each round of a campaign, one round after the other."""

    def __init__(
        self,
        context: CommandContext,
        asked: WindowRequest | None,
        session: WarmSession,
        tell: Callable[[str], None],
    ) -> None:
        self._enough = context.interrupts.enough
        self._asked, self._session, self._tell = asked, session, tell
        self._windows: WindowJudge | None = None

    def __enter__(self) -> _Judging:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def begin(self, plan: Plan, run: RunDir) -> None:
        self._enough.clear()
        self._windows = None
        if self._asked and 0 < self._asked.window_s < plan.load_s:
            self._windows = WindowJudge(
                plan, run, self._session, self._asked, tell=self._tell, enough=self._enough
            )

    def phase(self, name: str) -> None:
        if self._windows and name == "load":
            self._windows.start()
        if self._windows and name == "recovery":
            self._windows.end()
        if name == "seal":
            self.stop()

    def stop(self) -> None:
        if self._windows:
            self._windows.stop()


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


class ExternalOpener:
    """Opens the cluster of a connection file, for the rounds of one command."""

    def __init__(self, external: External) -> None:
        self._external = external

    def open(self, plan: Plan, root: RunDir) -> Cluster:
        """The cluster, on which nothing is made yet."""
        return self._external.cluster(root.run_id, root.root)


def process_if(secure: bool, runtime: str) -> str:
    """The runtime that is wanted: only processes can be secure."""
    return "process" if secure and runtime == "auto" else runtime


class ClusterOpener:
    """Opens the clusters of one command; each has what the faults of all plans need.

    Args:
        runtime: "auto", "process" or "docker".
    """

    def __init__(
        self, runtime: str, plans: Sequence[Plan], *, offline: bool, secure: bool, progress: BaseProgress
    ) -> None:
        self._wanted = runtime
        self._plans = plans
        self._needs = needs_of(plans)
        self._offline = offline
        self._secure = secure
        self._progress = progress
        self._choices: dict[tuple[str, str, str], RuntimeChoice] = {}

    def open(self, plan: Plan, root: RunDir) -> Cluster:
        """A cluster for a plan that is not up yet.

        Raises:
            UsageError, EnvironmentNotReady: as `harness.clusters.cluster.open_cluster`.
        """
        choice = self._choice(plan)
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
            secure=self._secure,
            on_progress=self._progress.download,
        )
        cluster.facts = {**cluster.facts, "runtime": str(choice)}
        return cluster

    def _choice(self, plan: Plan) -> RuntimeChoice:
        """Made once for each cluster, for all plans that it serves."""
        cluster = cluster_of(plan)
        if cluster not in self._choices:
            served = [each for each in self._plans if cluster_of(each) == cluster]

            def refuse(runtime: str) -> None:
                for each in served:
                    refuse_impossible(timeline_of(each), cluster, runtime, each.broker_config)

            self._choices[cluster] = choose_runtime(
                self._wanted,
                cluster,
                self._needs,
                offline=self._offline,
                tell=self._progress.note,
                refuse=refuse,
            )
        return self._choices[cluster]
