"""Rounds and variants of a scenario on one cluster, one Spark session, fresh topics each.

Rounds of the variants are interleaved (a, b, a, b ...), so that a machine that gets slower hits
both alike. A cluster serves every round with the same version and broker settings; when they
change, the next one takes its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from experiments.context import CommandContext
from experiments.judging import judge_run
from experiments.opening import ClusterOpener
from experiments.resolved import Resolved
from experiments.windows import WindowJudge
from harness.clusters import BrokerCluster
from harness.contracts import read_document
from harness.contracts.plan import Plan, RateStep
from harness.contracts.rows import Manifest
from harness.errors import NO_SPACE, BrokerstormError, EnvironmentNotReady, HealError, WorkerError
from harness.plan.rates import is_open, rate_words
from harness.protocols.cluster import Cluster
from harness.protocols.faulting import FaultInjector
from harness.protocols.versions import HasVersions
from harness.run.calibration import Calibration, step_words, with_rates
from harness.run.lifecycle import LiveRun, RunContext, RunOutcome
from harness.run.topics import drop_topics
from harness.rundir import RunDir, point_latest
from harness.seal.seal import drop_segments, seal
from harness.telemetry.request import metrics_request, opened_telemetry
from harness.toolchains.own_builds import in_words

if TYPE_CHECKING:
    from analysis.findings import Result
    from analysis.spark.session import WarmSession
    from experiments.spark_load import SparkLoad, SparkRound
    from harness.progress.view import BaseProgress
    from harness.telemetry.telemetry import Telemetry


class CampaignRunner:
    """Plays rounds on clusters that it opens. Use it as a ``with`` block: the clusters, Spark and
    the live view end with it, whatever happened; with ``keep_up``, the last cluster stays if all
    went well.

    Args:
        resolved: all rounds that can be foreseen; a cluster is started with what the faults of all
            need.
        root: the folder of the command.
        command: repeats all of it.
        session: the Spark session of several campaigns, which stays open; None = an own one.
        is_latest: ``latest`` names the folder, once there is something to show.

    Attributes:
        progress: the live view.
    """

    progress: BaseProgress
    _telemetry: Telemetry
    _session: WarmSession
    _opener: ClusterOpener

    def __init__(
        self,
        context: CommandContext,
        resolved: Resolved,
        root: RunDir,
        command: str,
        *,
        session: WarmSession | None = None,
        is_latest: bool = False,
    ) -> None:
        self._context = context
        self._interrupts = context.interrupts
        self._resolved = resolved
        self._options = resolved.options
        self._root = root
        self._command = command
        self._shared_session = session
        self._is_latest = is_latest
        self._open = ExitStack()
        self._spark_load: SparkLoad | None = None
        self._windows: WindowJudge | None = None
        self._cluster: Cluster | None = None
        self._key: tuple[Any, ...] = ()
        self._measured = 0
        self._is_cold = True

    def __enter__(self) -> CampaignRunner:
        from analysis.spark.session import WarmSession

        options = self._options
        with ExitStack() as stack:
            self.progress = stack.enter_context(closing(self._context.progress()))
            asked = options.metrics or metrics_request(None, None)
            self._telemetry = stack.enter_context(opened_telemetry(asked, self.progress.note))
            if self._shared_session:
                self._session = self._shared_session
            else:
                master = options.load.master if options.load else options.master
                self._session = stack.enter_context(WarmSession(master))
            self._opener = ClusterOpener(self._resolved, self.progress)
            if options.load:
                from experiments.spark_load import SparkLoad

                self._session.start()  # while the cluster comes up
                self._spark_load = SparkLoad(
                    options.load,
                    self._session,
                    self._root.root.parent,
                    self.progress.note,
                    offline=options.offline,
                    connection=options.external.connection if options.external else None,
                )
            stack.callback(self._stop_windows)
            self._open = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._open:
            if error is not None:
                try:
                    self.close()
                except BrokerstormError as later:  # what ended it is what the user has to know
                    self.progress.note(str(later))
                return
            if self._options.keep_up and isinstance(self._cluster, BrokerCluster):
                self._cluster.keep()
                self._cluster = None
            self.close()

    @property
    def is_stopped(self) -> bool:
        """A signal came: the round that it cut was the last one."""
        return self._interrupts.stop.is_set()

    def with_rates(self, plans: Sequence[Plan], root: RunDir) -> list[Plan]:
        """The plans with the rate that this machine keeps, where they leave it open; one for all of
        them.

        What was measured leaves its logs below ``root``.

        Raises:
            BrokerstormError: as `LiveRun.execute`.
        """
        measured = with_rates(plans, partial(self._measure, root))
        chosen = {rate_words(new) for old, new in zip(plans, measured, strict=True) if is_open(old)}
        for rate in sorted(chosen):
            self.progress.note(
                f"load: {rate}, the most that this machine sustains, in every variant and round"
            )
        return measured

    def _measure(self, root: RunDir, plan: Plan, rate: int) -> RateStep:
        cluster = self._cluster_for(plan)
        who = plan.variant or plan.scenario
        self.progress.phase("calibration", f"{who}: does this machine keep {rate:,} msg/s?")
        self._measured += 1
        calibration = Calibration(
            plan,
            rate,
            root.calibration(f"{who}-{self._measured}"),
            cluster,
            self._run_context(self._command),
            is_cold=self._is_cold,
        )
        self._is_cold = False
        step = calibration.measure()
        self.progress.note(step_words(step))
        return step

    def run_round(
        self, plan: Plan, run: RunDir, *, is_last: bool = False, command: str = ""
    ) -> Result:
        """Run one plan in the folder ``run`` and judge it; ``is_last``: the cluster is not needed
        after it.

        ``command`` repeats it; empty = the campaign's own.

        Raises:
            BrokerstormError: as `LiveRun.execute`, or `Interrupted` after a round that was cut
                short and is not to be judged (its capture is sealed and can be analysed).
        """
        with self._to_its_end(run):
            return self._run_round(plan, run, is_last=is_last, command=command)

    def resume_round(self, plan: Plan, run: RunDir, cluster: Cluster, *, goes_on: bool) -> Result:
        """Run the rest of a round that another harness began, on the cluster that it left; see
        `run_round`. ``goes_on``: with its load, too."""
        self._cluster, self._key = cluster, _key_of(plan)
        before = read_document(run.manifest, Manifest)
        with self._to_its_end(run):
            return self._run_round(
                plan, run, is_last=True, command="", before=before, goes_on=goes_on
            )

    def _run_round(
        self,
        plan: Plan,
        run: RunDir,
        *,
        is_last: bool,
        command: str,
        before: Manifest | None = None,
        goes_on: bool = False,
    ) -> Result:
        cluster = self._cluster_for(plan)
        with self._load_of(run) as load:
            live = LiveRun(
                plan,
                run,
                cluster,
                self._injector(plan, cluster, run),
                self._run_context(command or self._command),
                hosts=load,
                before=before,
            )
            try:
                outcome = live.resume(goes_on=goes_on) if before else live.execute()
            except WorkerError:
                if not is_last:  # a hunt plays another round after a client that refuses to start
                    self._delete_topics(plan)
                raise
            self._end_on_cluster(plan, outcome, is_last=is_last)
            if not self._interrupts.hurry.is_set():  # else `analyze` does it
                self.progress.phase("seal", "raw rows to Parquet")
                self._on_phase("seal")
                (load.seal if load else seal)(run, plan)
        if self._interrupts.gives_up.is_set() and outcome.not_healed:
            raise HealError(
                f"stopped, and still applied: {'; '.join(outcome.not_healed)}",
                hint=f"`brokerstorm clean {self._root.run_id}` ends the rest",
            )
        self._interrupts.raise_if_stopped()
        self.progress.phase("judge", "" if self._options.brief else "Spark")
        self._on_phase("judge")
        try:
            result = self._judge(run)
        except Exception:
            # A signal to the whole group ends the JVM too; what then fails first need not be our
            # own stop.
            self._interrupts.raise_if_stopped()
            raise
        drop_segments(run)  # every row is in the sealed form, at a twentieth of the size
        return result

    @contextmanager
    def _to_its_end(self, run: RunDir) -> Iterator[None]:
        """Report in one line why a round ended early; its captured data is kept."""
        try:
            yield
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            raise EnvironmentNotReady(
                f"no space left on the disk of {run.root}: the run ended there",
                hint=f"its captured data is kept: free some space, then `brokerstorm analyze {run.root}`",
            ) from error
        finally:
            self._interrupts.end_finishing()

    def _end_on_cluster(self, plan: Plan, outcome: RunOutcome, *, is_last: bool) -> None:
        """The cores are the judge's now; and the next round must not begin where this one broke
        something."""
        keeps = self._options.keep_up if is_last else outcome.is_restored and not self._is_changed()
        if self._interrupts.stop.is_set() or not keeps:
            self.close()
        elif not is_last:
            self._delete_topics(plan)

    def _is_changed(self) -> bool:
        """Whether its nodes are not of the version any more with which a round begins."""
        runtime = self._cluster.runtime if self._cluster else None
        return isinstance(runtime, HasVersions) and runtime.is_changed()

    def _cluster_for(self, plan: Plan) -> Cluster:
        key = _key_of(plan)
        if self._cluster is not None and key == self._key:
            return self._cluster
        self.close()
        nodes = f"topology {plan.topology}" if plan.topology else "three nodes"
        ours = f"{in_words(plan.version)}, {nodes}"
        self.progress.phase("up", f"{plan.system} {plan.external.words if plan.external else ours}")
        self._key = key
        self._cluster = self._open_cluster(plan)
        self._is_cold = True
        self._cluster.up(timeout_s=plan.limits["ready"])
        return self._cluster

    def _delete_topics(self, plan: Plan) -> None:
        """The next round gets fresh topics; a cluster that cannot delete is reported by the next
        round."""
        assert self._cluster is not None
        try:
            drop_topics(self._cluster.admin, plan)
        except BrokerstormError as error:
            self.progress.note(
                f"could not delete the topics of {plan.variant or plan.scenario}: {error}"
            )

    def close(self) -> None:
        """End the cluster. Idempotent."""
        if self._cluster is not None:
            with self._interrupts.deferred():
                self._cluster.down()
            self._cluster = None

    def _run_context(self, command: str) -> RunContext:
        return RunContext(
            progress=self.progress,
            interrupts=self._interrupts,
            command=command,
            on_phase=self._on_phase,
            offline=self._options.offline,
            judges_cut=self._options.judges_cut,
        )

    # ----- the parts of a round -------------------------------------------------------------------

    def _open_cluster(self, plan: Plan) -> Cluster:
        return self._opener.open(plan, self._root)

    def _load_of(self, run: RunDir) -> AbstractContextManager[SparkRound | None]:
        """The machines that the load of a round comes from; None = this machine."""
        return self._spark_load.round(run) if self._spark_load else nullcontext()

    def _injector(self, plan: Plan, cluster: Cluster, run: RunDir) -> FaultInjector:
        """The faults of a round. The view, the metrics and the windows of the round begin, too."""
        import faults

        options, progress = self._options, self.progress
        words = [plan.scenario, plan.variant, f"seed {plan.seed}"]
        progress.begin(
            " · ".join(word for word in words if word),
            rate_per_s=plan.rate_per_s,
            warm_up_s=plan.warm_up_s,
            load_s=plan.load_s,
            at_most_per_s=plan.rate_choice.at_most_per_s if plan.rate_choice else 0.0,
            profile=plan.profile,
            judges_cut=options.judges_cut,
        )
        timeline = (
            faults.load_replay(options.replay) if options.replay else self._resolved.timeline(plan)
        )
        self._telemetry.begin(plan, run, run.root.relative_to(self._root.root.parent).as_posix())
        self._begin_windows(plan, run)
        progress.plan_faults(
            [(t_s, text) for t_s, firing, text in faults.described(timeline) if firing]
        )
        hurry = self._interrupts.hurry
        # Once it is set, faults do not get their time to be undone.
        given_up = hurry if options.judges_cut else self._interrupts.stop
        return faults.Injector(
            timeline, cluster, run, on_event=progress.fault, stopping=given_up, hurry=hurry
        )

    def _begin_windows(self, plan: Plan, run: RunDir) -> None:
        asked = None if self._options.load else self._options.windows
        self._interrupts.enough.clear()
        self._windows = None
        if asked and 0 < asked.window_s < plan.load_s:
            self._windows = WindowJudge(
                plan,
                run,
                self._session,
                asked,
                tell=self.progress.note,
                enough=self._interrupts.enough,
            )

    def _stop_windows(self) -> None:
        if self._windows:
            self._windows.stop()

    def _on_phase(self, name: str) -> None:
        """Begin and end what goes along with a round."""
        self._telemetry.phase(name)
        if self._windows and name == "load":
            self._windows.start()
        if self._windows and name == "recovery":
            self._windows.end()
        if name == "seal":
            self._stop_windows()
        if name == "ready" and self._is_latest:
            point_latest(self._root)  # from here on there is something to show
        if name == "drain" and not self._options.brief:
            self._session.start()

    def _judge(self, run: RunDir) -> Result:
        self._telemetry.end()
        result = judge_run(
            self._context,
            run,
            self._session,
            in_campaign=run.root != self._root.root,
            brief=self._options.brief,
        )
        if self._spark_load:
            self._spark_load.store_judged(run)
        return result


def _key_of(plan: Plan) -> tuple[Any, ...]:
    """The same for rounds that one cluster can serve."""
    return plan.system, plan.version, plan.topology, tuple(sorted(plan.broker_config.items()))
