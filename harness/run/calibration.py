"""Measures what this machine keeps of a rate, before the first round of a campaign.

A load with ``load.rate: {at_most: N}`` asks for N messages per second and claims nothing. The
clients of each variant send for a few seconds through the cluster that is up, on topics of their
own, without faults and at more than the rate asked about (`HEADROOM`): after an outage a client has
to make up for it. Held is what was acknowledged in full, with neither lateness nor sends piling up;
else the next step is lower. One rate is then decided for all variants, the lowest that any of them
keeps, because loads of different rates cannot be compared. Nothing of the schedules is changed on
the way: the rate is in the plan before they begin.
"""

from __future__ import annotations

import json
import math
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from harness.contracts.plan import Plan, RateStep
from harness.errors import BrokerstormError, WorkerError
from harness.plan.build import with_tag
from harness.plan.rates import at_rate, decided, is_open
from harness.protocols.cluster import Cluster
from harness.run.lifecycle import RunContext
from harness.run.manifest import ManifestFile, library_versions
from harness.run.place import RunPlace
from harness.run.topics import drop_topics, make_topics
from harness.run.worker_pool import WorkerPool
from harness.run.worker_process import WorkerProcess
from harness.run.worker_specs import Endpoints
from harness.rundir import RunDir
from harness.waiting import wait_until

#: Sent at this multiple of the rate that is asked about. A leader is away for 3 to 5 s of half a
#: minute, and a broker that starts again takes a core for some seconds.
HEADROOM: Final = 1.5
#: A cold client is slow for a moment; what follows is measured.
SETTLE_S: Final = 2.0
MEASURED_S: Final = 4.0
#: The share of messages due that was acknowledged during the measurement; the rest were under way
#: at its ends.
HELD_SHARE: Final = 0.97
#: Later, or with more of it under way at the end, a load is only kept up on paper.
MOST_LATE_S: Final = 1.0
MOST_OPEN_S: Final = 1.0
#: A further step goes at least this much lower, and no more than so many are made for a variant.
NEXT_SHARE: Final = 0.8
MOST_STEPS: Final = 4
START_DELAY_NS: Final = 300_000_000
_TICK_S: Final = 0.2

#: Plan, rate -> what came of it.
Measure = Callable[[Plan, int], RateStep]
#: What two plans must share to be measured once.
_MEASURED: Final = {
    "system",
    "version",
    "topology",
    "broker_config",
    "topics",
    "producers",
    "consumers",
    "payload_bytes",
    "payload_max_bytes",
    "payload_sizes",
    "payload_compressible",
    "payload_template",
    "payload_charset",
    "rate_choice",
}


def with_rates(plans: Sequence[Plan], measure: Measure) -> list[Plan]:
    """Every plan with its rate; those that leave it open get one that each of them keeps.

    The clients of the first plan are measured last, so that its cluster is the one that is up then.
    """
    distinct = {_clients(plan): plan for plan in plans if is_open(plan)}
    limit, steps = math.inf, []
    for plan in reversed(distinct.values()):
        assert plan.rate_choice is not None
        start = int(min(limit, plan.rate_choice.at_most_per_s))
        kept, made = _kept(plan, max(start, plan.rate_choice.at_least_per_s), measure)
        steps += made
        if kept < plan.rate_choice.at_most_per_s:
            limit = min(limit, kept)
    if not steps:
        return list(plans)
    return [
        decided(plan, int(min(limit, plan.rate_per_s)), steps) if is_open(plan) else plan
        for plan in plans
    ]


def _clients(plan: Plan) -> str:
    """Return the key of a measurement: all that it depends on. A topic's address is left out,
    because it has the tag of its run.
    """
    document = plan.model_dump(mode="json", include=_MEASURED)
    for topic in document["topics"]:
        del topic["address"]
    return json.dumps(document, sort_keys=True)


def _kept(plan: Plan, rate: int, measure: Measure) -> tuple[int, list[RateStep]]:
    """The rate that a plan's clients keep, and the steps on the way there, from ``rate``
    downwards."""
    assert plan.rate_choice is not None
    least = plan.rate_choice.at_least_per_s
    steps: list[RateStep] = []
    while len(steps) < MOST_STEPS:
        step = measure(plan, rate)
        steps.append(step)
        if step.held or rate <= least:
            break
        rate = max(least, rounded(min(step.acked_per_s / HEADROOM, NEXT_SHARE * rate)))
    return rate, steps


def rounded(rate: float) -> int:
    """Down to two digits: ``31234`` -> ``31000``. More would claim a precision that there is
    not."""
    digits = max(0, len(str(int(rate))) - 2)
    step = int(10**digits)
    return int(rate) // step * step


def step_words(step: RateStep) -> str:
    """``safe: 52,310 of 75,000/s acknowledged, 0.4 s late: this machine does not keep
    50,000/s``."""
    late = f", {step.late_s:.1f} s late" if step.late_s >= 0.1 else ""
    who = f"{step.variant}: " if step.variant else ""
    verb = "keeps" if step.held else "does not keep"
    return (
        f"{who}{step.acked_per_s:,} of {step.tried_per_s:,}/s acknowledged{late}: "
        f"this machine {verb} {step.rate_per_s:,}/s"
    )


class Calibration:
    """One measurement on a cluster that is up. Use once: `measure`."""

    def __init__(
        self,
        plan: Plan,
        rate: int,
        run: RunDir,
        cluster: Cluster,
        context: RunContext,
        *,
        is_cold: bool = False,
    ) -> None:
        """``is_cold``: nothing was sent through this cluster yet; it gets the warm-up of the
        scenario."""
        self._asked = rate
        self._settle_s = max(SETTLE_S, plan.warm_up_s if is_cold else 0.0)
        tag = zlib.crc32(f"{plan.run_tag}/{run.run_id}".encode()) or 1
        # All of the rate all the time: what a profile asks for at most.
        timed = {"warm_up_s": self._settle_s, "load_s": MEASURED_S, "profile": []}
        self._plan = at_rate(with_tag(plan, tag), math.ceil(rate * HEADROOM)).model_copy(
            update=timed
        )
        self._run = run.create()
        self._cluster = cluster
        self._interrupts = context.interrupts
        self._pool = WorkerPool(
            RunPlace(
                plan=self._plan,
                run=run,
                where=Endpoints.from_cluster(cluster),
                manifest=ManifestFile(run, command=context.command, versions=library_versions()),
                progress=context.progress,
                owner=cluster.runtime.run_id,
                offline=context.offline,
            )
        )

    def measure(self) -> RateStep:
        """Send, and say what came of it; workers, topics and rows are gone after it.

        Raises:
            EnvironmentNotReady, WorkerError: it could not start, or a producer died.
            Interrupted: a signal.
        """
        admin = self._cluster.admin
        try:
            make_topics(admin, self._plan)
            self._pool.start_clients()
            return self._send()
        finally:
            with self._interrupts.deferred():
                self._pool.stop()
                for path in self._run.raw.glob("*/*.seg"):
                    path.unlink()
                with suppress(BrokerstormError):  # the round that needs their names says so
                    drop_topics(admin, self._plan)

    def _send(self) -> RateStep:
        pool, plan = self._pool, self._plan
        t0_ns = time.monotonic_ns() + START_DELAY_NS
        pool.command([*pool.readers, *pool.producers], f"start {t0_ns}")
        self._wait_until(t0_ns + int(self._settle_s * 1e9))
        before = [_Count.counted_by(worker, t0_ns) for worker in pool.scheduled]
        self._wait_until(t0_ns + int((self._settle_s + MEASURED_S) * 1e9))
        after = [_Count.counted_by(worker, t0_ns) for worker in pool.scheduled]
        acked = sum(new.per_second_since(old) for old, new in zip(before, after, strict=True))
        late_s = max(worker.stats.late_max_ns for worker in pool.scheduled) / 1e9
        open_ = sum(worker.stats.open for worker in pool.scheduled)
        tried = int(plan.rate_per_s)
        return RateStep(
            variant=plan.variant,
            rate_per_s=self._asked,
            tried_per_s=tried,
            acked_per_s=int(acked),
            late_s=round(late_s, 3),
            open=open_,
            held=acked >= HELD_SHARE * tried
            and late_s < MOST_LATE_S
            and open_ < MOST_OPEN_S * tried,
        )

    def _wait_until(self, end_ns: int) -> None:
        """Wait; a producer that dies meanwhile measures nothing.

        Raises:
            WorkerError: one died; in its own words.
        """

        def dead() -> WorkerProcess | None:
            return next((worker for worker in self._pool.producers if not worker.is_alive), None)

        left_s = (end_ns - time.monotonic_ns()) / 1e9
        if (worker := wait_until(dead, left_s, every_s=_TICK_S)) is not None:
            text = f"worker {worker.name} died while the rate was measured: {worker.why()}"
            raise WorkerError(text, hint=f"its log: {worker.folder / 'stderr.log'}")


@dataclass(frozen=True, slots=True)
class _Count:
    """The latest count of a producer, and when it was reported."""

    t_ns: int
    ok: int

    @classmethod
    def counted_by(cls, worker: WorkerProcess, t0_ns: int) -> _Count:
        """Return what a worker counted until its last stats line; 0 at ``t0_ns`` without one."""
        return cls(worker.stats.t_ns or t0_ns, worker.stats.ok + worker.stats.aborted)

    def per_second_since(self, before: _Count) -> float:
        """0 when it said nothing meanwhile."""
        return (
            (self.ok - before.ok) * 1e9 / (self.t_ns - before.t_ns)
            if self.t_ns > before.t_ns
            else 0.0
        )
