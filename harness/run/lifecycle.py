"""One run on a cluster that is up: ready, warm-up, load + faults, heal, recover, drain, audit.

Knows neither Spark nor a fault kind: it is handed a `FaultInjector`, and it tells `on_phase` where
it is so that the caller can do other things meanwhile (warm the Spark session on ``drain``). All a
run leaves is in its folder; judging reads nothing else.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from harness.contracts.plan import ConsumerPlan, Plan
from harness.contracts.rows import BESIDE, Manifest
from harness.contracts.worker import StatsLine
from harness.errors import (
    NO_SPACE,
    EnvironmentNotReady,
    HealError,
    Interrupted,
    WorkerError,
    unexpected_text,
)
from harness.faultlog import may_lack_what_was_read, read_faults, remade_topics
from harness.owners import other_runs
from harness.plan.hours import audit_follows
from harness.protocols.clocks import CLIENT_CLOCKS, HasClocks
from harness.protocols.cluster import Cluster, HasHighWatermark, Progress
from harness.protocols.faulting import FaultInjector
from harness.protocols.network import GivesWires
from harness.protocols.versions import HasVersions
from harness.run.applications import Applications, RunLives
from harness.run.committed import record_committed
from harness.run.draining import DrainCheck, stages
from harness.run.hosts import Hosts, OneMachine
from harness.run.interrupts import Interrupts
from harness.run.leaderships import LeaderWatch
from harness.run.liveness import CHECK_EVERY_S
from harness.run.lives import CLOSE_S, ComingAndGoing, WorkerLives
from harness.run.manifest import ManifestFile, library_versions, own_builds
from harness.run.metering import Meter
from harness.run.outputs import record_outputs
from harness.run.periodic import PeriodicThread
from harness.run.place import RunPlace
from harness.run.replicas import record_replicas
from harness.run.sealing import Sealing
from harness.run.stalls import StallMonitor
from harness.run.topics import enter_topics, make_topics
from harness.run.transactions import record_transactions
from harness.run.worker_pool import WorkerPool
from harness.run.worker_process import WorkerProcess
from harness.run.worker_specs import Endpoints
from harness.rundir import RunDir, append_jsonl, write_json
from harness.systems import SYSTEMS
from harness.waiting import wait_until

OnPhase = Callable[[str], None]
_LOG = logging.getLogger(__name__)

#: Between the `start` line and the first due message, so that every worker has read it.
START_DELAY_NS = 300_000_000
#: A producer stops by itself after its last due message; one that is this late is asked to stop.
OFFER_SLACK_NS = 500_000_000
TICK_S = 0.2
#: A worker told to drain by a deadline may need this long past it to say so.
DRAIN_SLACK_S = 5.0
#: A pipeline has settled everything when it is asked to end; what is not answered then may take it
#: so long.
PIPELINE_END_S = 10.0
#: What is still applied or asked at the very end gets this long; when the user is in a hurry, the
#: other.
CLOSING_S, HURRIED_S = 10.0, 1.0


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """How a run ended; the capture says what happened in it. ``is_restored``: the cluster was whole
    again."""

    status: str  # complete, interrupted
    not_healed: Sequence[str] = field(default_factory=tuple)
    is_restored: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """The things that the runs of one command share.

    Attributes:
        command: repeats the run.
        on_phase: gets the name of each phase as it begins.
        offline: nothing is downloaded.
        judges_cut: the first signal shortens the load, and the run continues to its audit.
    """

    progress: Progress
    interrupts: Interrupts
    command: str
    on_phase: OnPhase = lambda _name: None
    offline: bool = False
    judges_cut: bool = False


class LiveRun:
    """Interprets a plan. Use once: `execute`."""

    def __init__(
        self,
        plan: Plan,
        run: RunDir,
        cluster: Cluster,
        injector: FaultInjector,
        context: RunContext,
        *,
        hosts: Hosts | None = None,
        before: Manifest | None = None,
    ) -> None:
        """``hosts``: of the clients; None = this machine. ``before``: of a run to `resume`."""
        self._hosts = hosts or OneMachine()
        self._plan = plan
        self._judges_cut = context.judges_cut
        self._run = run.create()
        self._cluster = cluster
        self._injector = injector
        self._progress = context.progress
        self._interrupts = context.interrupts
        self._on_phase = context.on_phase
        self._manifest = _manifest(plan, run, cluster, context.command, before)
        place = RunPlace(
            plan=plan,
            run=run,
            where=Endpoints.from_cluster(cluster),
            manifest=self._manifest,
            progress=context.progress,
            owner=cluster.runtime.run_id,
            offline=context.offline,
            own_clocks=CLIENT_CLOCKS in getattr(cluster.runtime, "needs", ()),
        )
        self._pool = WorkerPool(place, self._hosts)
        self._applications = Applications(place, cluster.admin, _network_of(cluster))
        self._lives = WorkerLives(plan, self._pool)
        died = partial(self._manifest.problem, "worker-died")
        self._coming = ComingAndGoing(plan, self._lives, died)
        self._hangs = PeriodicThread(
            "hangs", self._pool.end_hanging_producers, period_s=CHECK_EVERY_S
        )
        stalls = StallMonitor(plan, run, lambda: cluster.admin, self._pool)
        self._stalls = PeriodicThread("stalls", stalls.check_now, period_s=CHECK_EVERY_S)
        self._leaders = LeaderWatch(plan, run, lambda: cluster.admin)
        self._sealing = Sealing(plan, run, self._not_sealed)
        self._meter = Meter(run, workers=self._metric_sources, nodes=self._nodes)
        self._not_healed: Sequence[str] = ()
        self._is_restored, self._epoch_ns = False, 0

    def _not_sealed(self, text: str) -> None:
        self._progress.note(text)
        append_jsonl(
            self._run.events, {"t_ns": time.monotonic_ns(), "kind": "not-sealed", "text": text}
        )

    def _metric_sources(self) -> dict[str, tuple[int | None, StatsLine]]:
        """Return the processes of clients and applications that run now, with their counters."""
        own = {name: (pid, StatsLine()) for name, pid in self._applications.pids().items()}
        return {**self._pool.metric_sources(), **own}

    def _nodes(self) -> dict[str, tuple[int | None, StatsLine]]:
        runtime = self._cluster.runtime
        return {node.name: (runtime.pid(node.name), StatsLine()) for node in runtime.nodes}

    def execute(self) -> RunOutcome:
        """Run to the end of the audit.

        Raises:
            EnvironmentNotReady, WorkerError: it could not start; nothing was judged.
            Interrupted: a signal before load began (later ones end the run as ``interrupted``).
        """
        write_json(self._run.plan, self._plan.model_dump(mode="json"))
        return self._carried_out(self._prepare, self._load)

    def resume(self, *, goes_on: bool) -> RunOutcome:
        """Go on with a run whose harness is gone, on the cluster that it left: with the rest of its
        load, by next lives of its clients, or with what comes after the load. As `execute`; no
        worker of it runs."""
        return self._carried_out(self._take_over, self._go_on if goes_on else lambda: False)

    def _carried_out(self, prepare: Callable[[], None], load: Callable[[], bool]) -> RunOutcome:
        status = "error"
        try:
            prepare()
            with self._interrupts.deferred():
                if self._judges_cut:
                    self._interrupts.begin_finishing()
                is_whole = load()
                self._heal()
                self._drain()
                record_committed(
                    self._plan, self._run, self._cluster.admin, timeout_s=self._budget_s("audit")
                )
                self._audit()
                record_outputs(
                    self._plan,
                    self._run,
                    self._applications.sources,
                    self._manifest,
                    timeout_s=self._budget_s("audit"),
                )
                for record in (record_transactions, record_replicas):
                    record(
                        self._plan,
                        self._run,
                        self._cluster.admin,
                        timeout_s=self._budget_s("audit"),
                    )
                self._leaders.record(has_times=not _clocks_set(self._cluster))
            status = (
                "complete" if is_whole and not self._interrupts.gives_up.is_set() else "interrupted"
            )
        except BaseException as error:
            with self._interrupts.deferred():
                try:
                    self._close(status)
                except Exception as later:  # noqa: BLE001 - the first error is the one to report
                    _LOG.warning("closing the run: %s", later)
                self._refuse_not_healed(error)
            raise
        with self._interrupts.deferred():
            try:
                self._close(status)
            except Exception as error:
                self._refuse_not_healed(error)
                raise
        return RunOutcome(status, tuple(self._not_healed), self._is_restored)

    def _phase(self, name: str, note: str = "") -> None:
        self._manifest.begin_phase(name)
        self._progress.phase(name, note)
        self._on_phase(name)

    def _prepare(self) -> None:
        self._phase("ready", "topics, workers, a probe through every partition")
        make_topics(self._cluster.admin, self._plan)
        self._hosts.open(self._plan, self._run)
        # who is killed now leaves their rows there
        self._manifest.update(executors=self._hosts.rows())
        self._pool.start_clients(follow=True)
        self._applications.start()

    def _load(self) -> bool:
        """Offer the load; whether all of it, before a signal came."""
        plan, pool = self._plan, self._pool
        self._meter.start()
        self._leaders.start()
        t0_ns = time.monotonic_ns() + START_DELAY_NS
        self._epoch_ns = t0_ns + int(plan.warm_up_s * 1e9)
        self._manifest.set_epoch(self._epoch_ns)
        if plan.warm_up_s:
            self._phase("warm-up")
        pool.command([*pool.readers, *pool.producers], f"start {t0_ns}")
        self._watch_clients()
        self._watch_until(self._epoch_ns)
        self._phase("load")
        self._note_other_runs()
        self._lives.start(self._epoch_ns)
        is_whole = self._offer()
        self._note_other_runs()
        return is_whole

    def _note_other_runs(self) -> None:
        """Say which runs share the cores of this machine: a rate that is not reached may be
        theirs."""
        for other in sorted(other_runs(self._cluster.runtime.run_id)):
            text = f"run {other} was on this machine at the same time, and took a share of it"
            if text not in self._manifest.content.problems_of(BESIDE):
                self._progress.note(f"another run is measured on this machine: {other}")
                self._manifest.problem(BESIDE, text)

    def _watch_clients(self) -> None:
        self._hangs.start()
        self._stalls.start()
        if isinstance(self._hosts, OneMachine):  # others seal what they have
            self._sealing.start()

    def _take_over(self) -> None:
        """Have what a harness that is gone has left: a cluster that works, topics, folders."""
        plan, manifest = self._plan, self._manifest
        self._epoch_ns = manifest.content.epoch_ns
        self._pool.take_over()
        ended_ns = max(
            worker.t_end_ns for worker in self._pool.all_workers if worker.role != "audit"
        )
        manifest.end_phase(ended_ns)
        at_s = (ended_ns - self._epoch_ns) / 1e9
        manifest.problem(
            "resumed", f"the harness was killed {at_s:.1f} s into the load, with all clients"
        )
        self._phase("ready", "the cluster works again")
        enter_topics(self._cluster.admin, plan)
        names = [topic.name for topic in plan.topics]
        self._cluster.admin.wait_ready(
            names, timeout_s=plan.limits["recovery"], run_tag=plan.run_tag
        )

    def _go_on(self) -> bool:
        """Offer what is left of the load; whether all of that, before a signal came."""
        self._meter.start()
        self._leaders.start()
        self._lives.begin_all(self._epoch_ns)
        self._applications.start(is_new=False)
        self._pool.follow_again()
        self._watch_clients()
        self._phase("load")
        self._manifest.go_on_with_load()
        return self._offer(since_s=(time.monotonic_ns() - self._epoch_ns) / 1e9)

    def _offer(self, *, since_s: float = 0.0) -> bool:
        """Watch the load to its end, with the faults that are due from then on; whether no signal
        cut it."""
        plan, pool = self._plan, self._pool
        self._coming.start(self._epoch_ns)
        lives = RunLives(self._lives, self._applications)
        self._injector.start(self._epoch_ns, self._pids, lives, since_s=since_s)
        self._watch_until(self._epoch_ns + int(plan.load_s * 1e9) + OFFER_SLACK_NS)
        is_whole = not self._interrupts.stop.is_set()
        if not is_whole and self._judges_cut:
            self._progress.note(
                "stopping: faults are undone, then drain, audit and verdict follow; Ctrl-C again "
                "ends at once"
            )
        pool.stop_load()
        self._coming.stop(CLOSE_S + DRAIN_SLACK_S)
        return is_whole

    def _pids(self) -> dict[str, int]:
        """The processes that faults may end or freeze, by name."""
        return {**self._pool.pids(), **self._applications.pids()}

    def _watch_until(self, end_ns: int) -> None:
        def is_over() -> bool:
            if self._interrupts.enough.is_set() or not self._pool.is_producing:
                return True
            self._tick()
            self._pool.start_late_consumers((time.monotonic_ns() - self._epoch_ns) / 1e9)
            return False

        left_s = (end_ns - time.monotonic_ns()) / 1e9
        wait_until(is_over, left_s, every_s=TICK_S, stop=self._interrupts.stop)

    def _tick(self) -> None:
        elapsed_s = (time.monotonic_ns() - self._epoch_ns) / 1e9 if self._epoch_ns else 0.0
        self._progress.update(elapsed_s=elapsed_s, **self._pool.totals())
        self._pool.report_deaths()

    def _budget_s(self, name: str) -> float:
        """The phase's limit, cut short when the user wants to stop."""
        now = time.monotonic()
        left_s = self._interrupts.cut(now + self._plan.limits[name]) - now
        return max(left_s, HURRIED_S)

    def _heal(self) -> None:
        self._phase("recovery", "healing every fault, waiting until the cluster works again")
        self._injector.stop()
        self._not_healed = self._injector.heal_all(self._budget_s("recovery"))
        for text in self._not_healed:
            self._manifest.problem("not-healed", text)
        self._prove_restored(self._cluster.admin.wait_ready, self._budget_s("recovery"))

    def _prove_restored(self, question: Callable[..., None], limit_s: float) -> None:
        """Whether the cluster works again, as far as a question to its admin proves it."""
        names = [topic.name for topic in self._plan.topics]
        self._is_restored = False
        try:
            with self._interrupts.raising():  # only questions: a signal may end them anywhere
                question(names, timeout_s=limit_s, run_tag=self._plan.run_tag)
            self._is_restored = True
        except Interrupted:
            pass  # it stays unproved
        except EnvironmentNotReady as error:
            self._manifest.problem("recovery", str(error))
            self._progress.note(str(error))
        self._manifest.update(readiness_restored=self._is_restored)

    def _drain(self) -> None:
        self._phase("drain", "waiting for outcomes and for the consumers to catch up")
        budget_s = self._budget_s("drain")
        pool = self._pool
        pool.command(pool.scheduled, f"drain {time.monotonic_ns() + int(budget_s * 1e9)}")
        end = time.monotonic() + budget_s + DRAIN_SLACK_S
        self._see_ended(
            pool.scheduled, end, f"did not end {DRAIN_SLACK_S:.0f} s after its drain deadline"
        )
        self._pass_high_watermark()
        drained = self._drain_pipelines()
        self._applications.drain(
            self._cluster.admin, self._budget_s("drain"), self._interrupts.gives_up.is_set
        )
        self._applications.end()
        self._hangs.stop()
        pool.report_deaths()
        drained = self._wait_read(pool.readers, self._plan.readers) and drained
        self._stalls.stop()
        if not drained:
            self._manifest.problem(
                "drain", "consumers did not reach the end of every partition in time"
            )
        pool.command(pool.readers, "stop")
        end = time.monotonic() + DRAIN_SLACK_S
        for worker in pool.readers:
            self._wait_done(worker, end)
        self._manifest.update(drained=drained)

    def _drain_pipelines(self) -> bool:
        """See every pipeline settle all of its input, those that read what others make after these;
        whether each did."""
        drained = True
        for stage in stages(self._plan.pipelines):
            names, sessions = {m.name for m in stage}, {m.session for m in stage}
            workers = [w for w in self._pool.pipelines if w.plan_name in names]
            halves = [consumer for consumer in self._plan.consumers if consumer.session in sessions]
            drained = self._wait_read(workers, halves) and drained
            self._pool.command(workers, "stop")
            end = time.monotonic() + PIPELINE_END_S
            self._see_ended(
                workers, end, f"did not end {PIPELINE_END_S:.0f} s after it was asked to"
            )
            self._pass_high_watermark()
        return drained

    def _see_ended(self, workers: Sequence[WorkerProcess], end: float, otherwise: str) -> None:
        """Wait for workers that were asked to end; one that does not end is killed, with its stacks
        kept."""
        for worker in workers:
            if (
                not self._wait_done(worker, end)
                and worker.is_alive
                and not self._interrupts.gives_up.is_set()
            ):
                self._pool.end_stuck(worker, otherwise)

    def _pass_high_watermark(self) -> None:
        admin = self._cluster.admin
        if self._is_restored and isinstance(admin, HasHighWatermark):
            self._prove_restored(admin.pass_high_watermark, self._budget_s("drain"))

    def _wait_done(self, worker: WorkerProcess, end: float) -> bool:
        def is_over() -> bool:
            self._tick()
            return not worker.is_alive or time.monotonic() >= self._interrupts.cut(end)

        wait_until(is_over, end - time.monotonic(), every_s=TICK_S, stop=worker.done)
        return worker.wait_done(0.0)

    def _wait_read(
        self, consumers: Sequence[WorkerProcess], planned: Sequence[ConsumerPlan]
    ) -> bool:
        """Wait until these consumers have seen all that is stored; whether they did."""
        if not consumers:
            return True
        end = time.monotonic() + self._budget_s("drain")
        of_these = self._plan.model_copy(update={"consumers": planned})
        stored, remade = self._pool.totals()["ok"], remade_topics(read_faults(self._run.faults))
        drain = DrainCheck(of_these, self._cluster.admin, stored=stored, remade=remade)

        def ended() -> str:
            if drain.is_done([worker.stats for worker in consumers]):
                return "drained"
            self._tick()
            if all(worker.client_died for worker in consumers):
                return "died"
            if time.monotonic() >= self._interrupts.cut(end):
                return "stopped"
            return "" if all(worker.is_alive for worker in consumers) else "died"

        return wait_until(ended, end - time.monotonic(), every_s=TICK_S) == "drained"

    def _audit(self) -> None:
        if self._interrupts.gives_up.is_set():
            return
        self._phase("audit", "reading every partition to its end")
        pool = self._pool
        if audit_follows(self._plan):
            self._leaders.record(has_times=not _clocks_set(self._cluster))
        try:
            faults, can_go_back = (
                read_faults(self._run.faults),
                SYSTEMS[self._plan.system].has_offsets,
            )
            if audit_follows(self._plan) and not can_go_back and not self._leaders.has_told:
                text = "it is not known which ledgers hold the messages read during the load"
                self._manifest.problem("audit", text)
            anew = not can_go_back and may_lack_what_was_read(faults)
            pool.start_audit(self._leaders.epochs(faults), anew=anew)
        except WorkerError as error:
            self._manifest.problem("audit", str(error))
            return
        end = time.monotonic() + self._budget_s("audit")
        for worker in pool.auditors:
            if not self._wait_done(worker, end):
                self._manifest.problem(
                    "audit", f"reader {worker.name} did not reach the end in time"
                )

    def _refuse_not_healed(self, error: BaseException) -> None:
        """Report faults that are still applied after a run that an error ended: they are more
        urgent.

        Raises:
            HealError: there are some.
        """
        if self._not_healed:
            is_full = isinstance(error, OSError) and error.errno in NO_SPACE
            reason = unexpected_text(error) if is_full else str(error)
            clean = f"`brokerstorm clean {self._cluster.runtime.run_id}` ends the rest"
            raise HealError(
                f"{reason}; still applied: {'; '.join(self._not_healed)}",
                hint=f"free some space, then {clean}" if is_full else clean,
            ) from error

    def _close(self, status: str) -> None:
        """Leave nothing running and nothing unsaved, whatever happened before.

        Raises:
            Exception: the first one of a step that failed; every later step was taken all the same.
        """
        failures: list[Exception] = []
        for step in (
            self._injector.stop,
            self._heal_the_rest,
            partial(self._injector.join, CLOSING_S),
            partial(self._coming.stop, CLOSING_S),
            self._hangs.stop,
            self._stalls.stop,
            self._leaders.stop,
            self._sealing.stop,
            self._end_workers,
            self._meter.stop,
            self._note_not_healed,
            self._pool.record,
            partial(self._finish_manifest, status),
        ):
            try:
                step()
            except Exception as error:  # noqa: BLE001 - a full disk must not leave workers running
                failures.append(error)
        if failures:
            raise failures[0]

    def _heal_the_rest(self) -> None:
        self._not_healed = self._injector.heal_all(CLOSING_S)

    def _note_not_healed(self) -> None:
        for text in self._not_healed:
            self._manifest.problem("not-healed", text)

    def _end_workers(self) -> None:
        if self._interrupts.hurry.is_set():
            self._pool.kill()
            self._applications.kill_all()
        self._applications.end()
        self._pool.stop()

    def _finish_manifest(self, status: str) -> None:
        self._manifest.update(executors=self._hosts.rows(), applications=self._applications.rows())
        if changed := _changed_versions(self._cluster):
            self._manifest.update(
                machine={**self._manifest.content.machine, "brokers at the end": changed}
            )
        self._manifest.finish(status)


def _manifest(
    plan: Plan, run: RunDir, cluster: Cluster, command: str, before: Manifest | None
) -> ManifestFile:
    libraries = SYSTEMS[cluster.system].harness_libraries
    versions = {**library_versions("pyspark", *libraries), cluster.system: cluster.version}
    return ManifestFile(
        run,
        command=command,
        versions=versions,
        facts=cluster.facts,
        builds=own_builds(plan),
        before=before,
    )


def _clocks_set(cluster: Cluster) -> bool:
    return isinstance(cluster.runtime, HasClocks) and cluster.runtime.were_clocks_set()


def _network_of(cluster: Cluster) -> GivesWires | None:
    """The part of a cluster that gives instances of applications wires of their own."""
    detours = getattr(cluster.runtime, "detours", None)
    return detours if isinstance(detours, GivesWires) else None


def _changed_versions(cluster: Cluster) -> str:
    """Return the version that each node had at the end, if some node ended with another version
    than it began with.
    """
    runtime = cluster.runtime
    if not isinstance(runtime, HasVersions) or not runtime.is_changed():
        return ""
    return ", ".join(f"{node.name} {runtime.version(node.name)}" for node in runtime.nodes)
