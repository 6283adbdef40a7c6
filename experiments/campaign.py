"""Rounds and variants of a scenario on one cluster, one Spark session, fresh topics each.

Rounds of the variants are interleaved (a, b, a, b ...), so that a machine that gets slower hits both alike.
A cluster serves every round with the same version and broker settings; when they change, the next one
takes its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from harness.contracts import read_document
from harness.contracts.plan import Plan, RateStep
from harness.contracts.rows import Manifest
from harness.errors import NO_SPACE, BrokerstormError, EnvironmentNotReady, HealError
from harness.plan.rates import is_open, rate_words
from harness.protocols.cluster import Cluster, Progress
from harness.protocols.faulting import FaultInjector
from harness.protocols.versions import HasVersions
from harness.run.calibration import Calibration, step_words, with_rates
from harness.run.hosts import Hosts
from harness.run.interrupts import Interrupts
from harness.run.lifecycle import LiveRun, OnPhase, RunOutcome
from harness.run.topics import drop_topics
from harness.rundir import RunDir
from harness.seal.seal import drop_segments, seal
from harness.toolchains.own_builds import in_words

if TYPE_CHECKING:
    from analysis.findings import Result


@dataclass(frozen=True, slots=True)
class CampaignHooks:
    """Functions that a campaign is given, so that it needs no fault kind and no Spark.

    Attributes:
        open_cluster: plan and folder -> a cluster that is not up yet.
        injector: the faults of a round.
        judge: sealed run -> result.
        on_phase: told of every phase of every round.
        load: where the load of a round comes from; None = this machine.
    """

    open_cluster: Callable[[Plan, RunDir], Cluster]
    injector: Callable[[Plan, Cluster, RunDir], FaultInjector]
    judge: Callable[[RunDir], Result]
    on_phase: OnPhase
    load: Callable[[RunDir], AbstractContextManager[RoundLoad | None]] = lambda run: nullcontext()


class RoundLoad(Hosts, Protocol):
    """The machines that the load of a round comes from."""

    def seal(self, run: RunDir, plan: Plan) -> None:
        """Seal what was captured there and here."""


class CampaignRunner:
    """Runs the rounds. ``close`` (or leaving the ``with`` block of `opened`) ends the cluster."""

    def __init__(
        self,
        root: RunDir,
        hooks: CampaignHooks,
        *,
        progress: Progress,
        interrupts: Interrupts,
        command: str,
        offline: bool = False,
        keep_up: bool = False,
        judges_cut: bool = False,
    ) -> None:
        """``judges_cut``: a round whose load a signal shortens is audited and judged, too."""
        self._judges_cut = judges_cut
        self._root = root
        self._hooks = hooks
        self._progress = progress
        self._interrupts = interrupts
        self._command = command
        self._offline = offline
        self._keep_up = keep_up
        self._cluster: Cluster | None = None
        self._key: tuple[Any, ...] = ()
        self._measured = 0
        self._is_cold = True

    @property
    def is_stopped(self) -> bool:
        """A signal came: the round that it cut was the last one."""
        return self._interrupts.stop.is_set()

    def with_rates(self, plans: Sequence[Plan], root: RunDir) -> list[Plan]:
        """The plans with the rate that this machine keeps, where they leave it open; one for all of them.

        What was measured leaves its logs below ``root``.

        Raises:
            BrokerstormError: as `LiveRun.execute`.
        """
        measured = with_rates(plans, partial(self._measure, root))
        chosen = {rate_words(new) for old, new in zip(plans, measured, strict=True) if is_open(old)}
        for rate in sorted(chosen):
            self._progress.note(
                f"load: {rate}, the most that this machine sustains, in every variant and round"
            )
        return measured

    def _measure(self, root: RunDir, plan: Plan, rate: int) -> RateStep:
        cluster = self._cluster_for(plan)
        who = plan.variant or plan.scenario
        self._progress.phase("calibration", f"{who}: does this machine keep {rate:,} msg/s?")
        self._measured += 1
        calibration = Calibration(
            plan,
            rate,
            root.calibration(f"{who}-{self._measured}"),
            cluster,
            progress=self._progress,
            interrupts=self._interrupts,
            command=self._command,
            offline=self._offline,
            is_cold=self._is_cold,
        )
        self._is_cold = False
        step = calibration.measure()
        self._progress.note(step_words(step))
        return step

    def run_round(self, plan: Plan, run: RunDir, *, is_last: bool = False, command: str = "") -> Result:
        """Run one plan in the folder ``run`` and judge it; ``is_last``: the cluster is not needed after it.

        ``command`` repeats it; empty = the campaign's own.

        Raises:
            BrokerstormError: as `LiveRun.execute`, or `Interrupted` after a round that was cut short and is
                not to be judged (its capture is sealed and can be analysed).
        """
        with self._to_its_end(run):
            return self._run_round(plan, run, is_last=is_last, command=command)

    def resume_round(self, plan: Plan, run: RunDir, cluster: Cluster, *, goes_on: bool) -> Result:
        """As `run_round`, of a round that another harness began, on the cluster that it left. ``goes_on``:
        with its load, too."""
        self._cluster, self._key = cluster, _key_of(plan)
        before = read_document(run.manifest, Manifest)
        with self._to_its_end(run):
            return self._run_round(plan, run, is_last=True, command="", before=before, goes_on=goes_on)

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
        with self._hooks.load(run) as load:
            live = LiveRun(
                plan,
                run,
                cluster,
                self._hooks.injector(plan, cluster, run),
                progress=self._progress,
                interrupts=self._interrupts,
                command=command or self._command,
                on_phase=self._hooks.on_phase,
                offline=self._offline,
                judges_cut=self._judges_cut,
                hosts=load,
                before=before,
            )
            outcome = live.resume(goes_on=goes_on) if before else live.execute()
            self._end_on_cluster(plan, outcome, is_last=is_last)
            if not self._interrupts.hurry.is_set():  # else `analyze` does it
                self._progress.phase("seal", "raw rows to Parquet")
                self._hooks.on_phase("seal")
                (load.seal if load else seal)(run, plan)
        if self._interrupts.gives_up.is_set() and outcome.not_healed:
            raise HealError(
                f"stopped, and still applied: {'; '.join(outcome.not_healed)}",
                hint=f"`brokerstorm clean {self._root.run_id}` ends the rest",
            )
        self._interrupts.raise_if_stopped()
        self._progress.phase("judge", "Spark")
        self._hooks.on_phase("judge")
        try:
            result = self._hooks.judge(run)
        except Exception:
            # A signal to the whole group ends the JVM too; what then fails first need not be our own stop.
            self._interrupts.raise_if_stopped()
            raise
        drop_segments(run)  # every row is in the sealed form, at a twentieth of the size
        return result

    @contextmanager
    def _to_its_end(self, run: RunDir) -> Iterator[None]:
        """Of a round: what ends it early is told in a line, and what it captured stays."""
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
        """The cores are the judge's now; and the next round must not begin where this one broke something."""
        keeps = self._keep_up if is_last else outcome.is_restored and not self._is_changed()
        if self._interrupts.stop.is_set() or not keeps:
            self.close()
        elif not is_last:
            self._delete_topics(plan)

    def _is_changed(self) -> bool:
        """Whether its nodes are no longer of the version with which a round begins."""
        runtime = self._cluster.runtime if self._cluster else None
        return isinstance(runtime, HasVersions) and runtime.is_changed()

    def _cluster_for(self, plan: Plan) -> Cluster:
        key = _key_of(plan)
        if self._cluster is not None and key == self._key:
            return self._cluster
        self.close()
        nodes = f"topology {plan.topology}" if plan.topology else "three nodes"
        ours = f"{in_words(plan.version)}, {nodes}"
        self._progress.phase("up", f"{plan.system} {plan.external.words if plan.external else ours}")
        self._key = key
        self._cluster = self._hooks.open_cluster(plan, self._root)
        self._is_cold = True
        self._cluster.up(timeout_s=plan.limits["ready"])
        return self._cluster

    def _delete_topics(self, plan: Plan) -> None:
        """The next round gets fresh topics; a cluster that cannot delete is reported by the next round."""
        assert self._cluster is not None
        try:
            drop_topics(self._cluster.admin, plan)
        except BrokerstormError as error:
            self._progress.note(f"could not delete the topics of {plan.variant or plan.scenario}: {error}")

    def close(self) -> None:
        """End the cluster. Idempotent."""
        if self._cluster is not None:
            with self._interrupts.deferred():
                self._cluster.down()
            self._cluster = None

    def release(self) -> Cluster | None:
        """Leave the cluster up (``--keep-up``) and hand it over."""
        cluster, self._cluster = self._cluster, None
        return cluster

    @contextmanager
    def opened(self) -> Iterator[CampaignRunner]:
        try:
            yield self
        except BaseException:
            try:
                self.close()
            except BrokerstormError as error:  # what ended it is what the user has to know
                self._progress.note(str(error))
            raise
        self.close()


def _key_of(plan: Plan) -> tuple[Any, ...]:
    """The same for rounds that one cluster can serve."""
    return plan.system, plan.version, plan.topology, tuple(sorted(plan.broker_config.items()))
