"""The figures of applications under test, for the report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final

import numpy as np

from analysis.findings import (
    ApplicationFlow,
    ApplicationRecovery,
    ApplicationResult,
    FaultRow,
)
from analysis.histogram import Histogram
from analysis.kernels.partial import Partial
from analysis.series import Grid
from harness.contracts.plan import ApplicationPlan
from harness.contracts.rows import Manifest

#: A delay is usual up to so many times the median before the first fault, and so much more.
USUAL_TIMES: Final = 2.0
USUAL_MORE_MS: Final = 100.0
#: Fewer steps with outputs before the first fault do not show what is usual.
LEAST_STEPS: Final = 5


def application_results(
    planned: Sequence[ApplicationPlan],
    manifest: Manifest,
    partials: Sequence[Partial],
    delay_ms: Mapping[str, Mapping[str, float]],
    grid: Grid,
    faults: Sequence[FaultRow],
) -> list[ApplicationResult]:
    """Sums over the buckets, and what became of the instances.

    Args:
        delay_ms: by application, quantiles of the time from when an input was due until its first
            output.
        grid: of `analysis.kernels.applications.flow_grid`.
        faults: the faults of the run, by time.
    """
    made = []
    for each in planned:
        lives = [row for row in manifest.applications if row.application == each.name]
        own = ApplicationResult(
            name=each.name,
            source=each.source,
            to=each.output_text,
            instances=each.instances,
            promise=each.promise,
            makes=each.makes,
            outputs=sum(part.outputs.get(each.name, 0) for part in partials),
            outputs_again=sum(part.outputs_again.get(each.name, 0) for part in partials),
            nameless=manifest.nameless_outputs.get(each.name, 0),
            delay_ms=dict(delay_ms.get(each.name, {})),
            lives=len(lives),
            killed=sum(row.killed for row in lives),
            ended_by_itself=sum(row.ended_by_itself for row in lives),
            drained=bool(lives) and all(row.drained for row in lives),
            flow=_flow(each, partials, grid, faults),
        )
        made.append(own)
    return made


def _flow(
    application: ApplicationPlan,
    partials: Sequence[Partial],
    grid: Grid,
    faults: Sequence[FaultRow],
) -> ApplicationFlow:
    """The backlog and the delay of an application over time, up to its last output."""
    name = application.name
    delays = [part.output_delays[name] for part in partials if name in part.output_delays]
    merged = Histogram.merged(delays) if delays else Histogram(np.zeros(0), np.zeros(0))
    (p99_ns,) = merged.quantiles_per_step([0.99], grid.steps)
    last = max((step for step, value in enumerate(p99_ns) if value is not None), default=-1)
    p99_ms = [None if value is None else round(value / 1e6, 3) for value in p99_ns[: last + 1]]
    flows = [part.flows[name] for part in partials if name in part.flows]
    backlog: list[int] = []
    if flows and application.makes == "one" and all(len(flow) == grid.steps for flow in flows):
        backlog = np.cumsum(np.sum(flows, axis=0))[: last + 1].tolist()
    step_s = grid.step_ns / 1e9
    fired = sorted((fault for fault in faults if fault.effective), key=lambda fault: fault.t_s)
    usual_ms = _usual_ms(p99_ms, step_s, fired[0].t_s) if fired else None
    recoveries = [
        ApplicationRecovery(
            fault=fault.id,
            recovery_s=_recovery_s(p99_ms, step_s, usual_ms, fault.t_s, until_s),
        )
        for fault, until_s in zip(
            fired, [*(fault.t_s for fault in fired[1:]), math.inf], strict=False
        )
    ]
    return ApplicationFlow(
        step_s=round(step_s, 3),
        backlog=backlog,
        p99_ms=p99_ms,
        usual_ms=usual_ms,
        recoveries=recoveries,
    )


def _usual_ms(p99_ms: Sequence[float | None], step_s: float, until_s: float) -> float | None:
    """The largest usual delay, from the steps before the first fault; None if too few of them have
    outputs. The median leaves out how the application began."""
    calm = [
        value
        for step, value in enumerate(p99_ms)
        if value is not None and (step + 1) * step_s <= until_s
    ]
    if len(calm) < LEAST_STEPS:
        return None
    return round(USUAL_TIMES * median(calm) + USUAL_MORE_MS, 3)


def _recovery_s(
    p99_ms: Sequence[float | None],
    step_s: float,
    usual_ms: float | None,
    from_s: float,
    until_s: float,
) -> float | None:
    """Time from a fault until the delay is usual for good, before the next fault; to one step."""
    own = [
        (step, value)
        for step, value in enumerate(p99_ms)
        if value is not None and from_s < (step + 1) * step_s <= until_s
    ]
    if usual_ms is None or not own or own[-1][1] > usual_ms:
        return None
    late = [step for step, value in own if value > usual_ms]
    return round(max(0.0, (late[-1] + 1) * step_s - from_s), 3) if late else 0.0
