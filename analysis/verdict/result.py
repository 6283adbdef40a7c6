"""Puts the result of a run together, from the buckets' reports and the files of the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from analysis.capture.capture import Capture
from analysis.capture.context import Context
from analysis.capture.producers import producers_of
from analysis.findings import Finding, Result, TimeSeries
from analysis.histogram import Histogram
from analysis.kernels.applications import flow_grid
from analysis.kernels.bucket_report import BucketReport
from analysis.kernels.exposure import exposure_of
from analysis.kernels.partial import Episode
from analysis.series import Grid, Series
from analysis.verdict.applications import application_results
from analysis.verdict.attribution import RunSpan
from analysis.verdict.cores import cpu_use, usage_of
from analysis.verdict.coverage import RunFacts, coverage
from analysis.verdict.fault_rows import fault_row
from analysis.verdict.intended import Absence, absences_of, intended_of
from analysis.verdict.merge import findings_of
from analysis.verdict.rate import rate_of
from analysis.verdict.stalls import judged_hangs
from analysis.verdict.thresholds import thresholds
from analysis.verdict.untested import untested
from analysis.verdict.verdict import EXIT, decide
from harness.contracts.plan import Plan
from harness.contracts.rows import Bounds, EventRow, Manifest, MetricRow
from harness.errors import Exit
from harness.faultlog import FaultRecord, missing_rows

QUANTILES = (0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9995, 0.9999, 0.99999, 1.0)
_NAMED = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999, "max": 1.0}
_DELAYS = {"p50": 0.5, "p99": 0.99, "max": 1.0}
_SENDS = ("attempted", "ok", "fail", "info", "aborted", "open", "warm_up")
_LOOKED_UP = ("info_stored", "info_not_stored")  # only the log tells


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFiles:
    """The small files of a run, read."""

    manifest: Manifest
    plan: Plan
    bounds: Sequence[Bounds]
    faults: Sequence[FaultRecord]
    metrics: Sequence[MetricRow] = ()
    events: Sequence[EventRow] = ()

    def missing_faults(self) -> list[str]:
        """Return what faults.jsonl lacks of the planned faults, in sentences."""
        is_complete = self.manifest.status == "complete"
        return missing_rows(self.faults, len(self.plan.faults), is_complete=is_complete)

    def load_end_ns(self, context: Context) -> int:
        """When messages stopped being due: as planned, or earlier if the load was cut short."""
        ends = [p.end_ns for p in self.manifest.phases if p.name == "load" and p.end_ns]
        return min([context.load_end_ns, *ends])

    def lateness_ns(self, context: Context) -> dict[str, int]:
        """By producer, how late the generator itself was in the worst tenth of the load's seconds,
        at least.

        Not the maximum: while a broker is away the client's own threads take the cores for a second
        or two. A generator that is too slow for its rate falls behind for ever.
        """
        seconds: dict[str, list[int]] = {}
        for row in self.metrics:
            if row.late_max_ns is not None and context.epoch_ns <= row.t_ns <= self.load_end_ns(
                context
            ):
                seconds.setdefault(row.worker, []).append(row.late_max_ns)
        return {name: sorted(late)[int(0.9 * (len(late) - 1))] for name, late in seconds.items()}


def grid_of(files: RunFiles, context: Context) -> Grid:
    """From warm-up to the end of the drain; what is later falls into the last step."""
    zero = context.epoch_ns
    phases = files.manifest.phases
    warm_up = [p.start_ns for p in phases if p.name == "warm-up" and p.start_ns]
    over = [p.end_ns for p in phases if p.name != "audit" and p.end_ns]
    return Grid.over(min([zero, *warm_up]), max([context.load_end_ns, zero, *over]), zero)


def result_of(
    files: RunFiles,
    context: Context,
    capture: Capture,
    grid: Grid,
    reports: Sequence[BucketReport],
    judging_s: float,
) -> Result:
    """Merge, attribute, decide. Pure: the same reports give the same result."""
    rows = _summed(r.rows for r in reports)
    damage = list(dict.fromkeys(text for r in reports for text in r.damage))
    errors = [r.error for r in reports if r.error]
    missing = damage or ([] if errors else capture.missing(rows))
    reports = trusted(reports, capture)
    series = Series.merged([r.series for r in reports if r.series], grid)
    load_end_ns = files.load_end_ns(context)
    rate = rate_of(
        series,
        grid,
        load_end_ns,
        files.plan.rate_per_s,
        streams=len(context.streams),
        choice=files.plan.rate_choice,
        profile=files.plan.profile,
        absences=_absences(files, grid, load_end_ns),
    )
    findings = _findings(files, context, load_end_ns, reports)
    counts = _summed(r.partial.counts for r in reports if r.partial)
    facts = RunFacts(
        manifest=files.manifest,
        plan=files.plan,
        faults=files.faults,
        bounds=files.bounds,
        replicas=context.replicas,
        streams=context.streams,
        series=series,
        grid=grid,
        rate=rate,
        findings=findings,
        errors=errors,
        lateness_ns=files.lateness_ns(context),
        missing=[*missing, *capture.torn()],
        acked_unread=counts.get("acked_unread", 0),
        acked_undecided=counts.get("acked_undecided", 0),
        contradictions=list(dict.fromkeys(text for r in reports for text in r.contradictions)),
        outputs=_summed(r.partial.outputs for r in reports if r.partial),
        moved=_summed(r.partial.moved for r in reports if r.partial),
        redelivered=_most(r.partial.redelivered for r in reports if r.partial),
        cpu=cpu_use(files.metrics, context.epoch_ns, load_end_ns),
    )
    return _assembled(files, context, reports, facts, rows, judging_s)


def trusted(reports: Sequence[BucketReport], capture: Capture) -> Sequence[BucketReport]:
    """The reports, without their findings if rows are missing and it is unknown which: a missing
    row looks like a missing message."""
    if capture.checksums or any(r.damage or r.error for r in reports):
        return reports
    if not capture.missing(_summed(r.rows for r in reports)):
        return reports
    return [replace(report, partial=None) for report in reports]


def _assembled(
    files: RunFiles,
    context: Context,
    reports: Sequence[BucketReport],
    facts: RunFacts,
    rows: dict[str, int],
    judging_s: float,
) -> Result:
    """Return the verdict and everything that is reported with it."""
    series, findings = facts.series, list(facts.findings)
    checks = coverage(facts)
    limits = thresholds(facts, {check.name: check.ok for check in checks})
    verdict, reasons = decide(findings, checks, limits)
    counts = _summed(r.partial.counts for r in reports if r.partial)
    if "log_rows" in counts and all(r.partial for r in reports):
        rows = rows | {"log": counts["log_rows"]}  # a place that was read twice is one
    not_tested = untested(context, counts, {finding.cls for finding in findings if finding.count})
    applied = files.manifest.problems_of("not-healed")
    faults = [fault_row(each, series.outages, context.epoch_ns) for each in files.faults]
    return Result(
        run_id=context.run_id,
        scenario=files.plan.scenario,
        variant=files.plan.variant,
        seed=files.plan.seed,
        verdict=verdict,
        exit_code=int(Exit.NOT_HEALED if applied else EXIT[verdict]),
        reasons=[f"a fault could not be undone: {text}" for text in applied] + reasons,
        sends=_sends(series, reports),
        transactions=context.transactions.figures(),
        rate=facts.rate.document(),
        latency_ms=_latency_ms(series),
        no_intended_times=context.unstated.get("intended-times", ""),
        percentiles=_percentiles(series),
        findings=findings,
        faults=faults,
        untested=not_tested,
        hangs=judged_hangs(files.events, context, _episodes(reports), not_tested),
        timeline=_timeline(series, facts.grid, files, files.load_end_ns(context)),
        coverage=checks,
        thresholds=limits,
        rows=rows | {"log_probes": counts.get("log_probes", 0)},
        given=_summed(r.partial.given for r in reports if r.partial),
        given_again=_summed(r.partial.given_again for r in reports if r.partial),
        given_delay_ms=_delays_ms([r.partial.delays for r in reports if r.partial]),
        applications=application_results(
            files.plan.applications,
            files.manifest,
            [r.partial for r in reports if r.partial],
            _delays_ms([r.partial.output_delays for r in reports if r.partial]),
            flow_grid(context),
            faults,
        ),
        usage=usage_of(files.metrics, context.epoch_ns),
        exposure=exposure_of(
            (r.partial.counts for r in reports if r.partial), files.faults, files.manifest.workers
        ),
        duration_s=_durations_s(files) | {"judging": round(judging_s, 3)},
        environment=_environment(files.manifest) | producers_of(files.plan, files.manifest),
        command=files.manifest.command,
        about=files.plan.about,
        started=files.manifest.epoch_wall,
    )


def _findings(
    files: RunFiles, context: Context, load_end_ns: int, reports: Sequence[BucketReport]
) -> list[Finding]:
    end_ns = max([load_end_ns, *(f.over_ns for f in context.faults)])
    return findings_of(
        _episodes(reports), context, RunSpan(context.epoch_ns, end_ns), files.plan.seed
    )


def _episodes(reports: Sequence[BucketReport]) -> list[Episode]:
    return [episode for r in reports if r.partial for episode in r.partial.episodes]


def _delays_ms(parts: Sequence[Mapping[str, Histogram]]) -> dict[str, dict[str, float]]:
    """By group or application, how long after they were due messages were handed to it, or had an
    output. One without any is left out."""
    found = {}
    for group in sorted({name for part in parts for name in part}):
        merged = Histogram.merged([part[group] for part in parts if group in part])
        values = merged.quantiles(list(_DELAYS.values()))
        if values:
            found[group] = {name: _ms(ns) for name, ns in zip(_DELAYS, values, strict=True)}
    return found


def _most(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The highest count of each name."""
    found: dict[str, int] = {}
    for each in counts:
        for name, count in each.items():
            found[name] = max(found.get(name, 0), count)
    return found


def _summed(counts: Any) -> dict[str, int]:
    total: Counter[str] = Counter()
    for part in counts:
        total.update(part)
    return dict(total)


def _sends(series: Series, reports: Sequence[BucketReport]) -> dict[str, int]:
    looked_up = _summed(r.partial.counts for r in reports if r.partial)
    return {name: series.totals.get(name, 0) for name in _SENDS} | {
        name: looked_up.get(name, 0) for name in _LOOKED_UP
    }


def _ms(value_ns: float) -> float:
    return round(value_ns / 1e6, 3)


def _latency_ms(series: Series) -> dict[str, float]:
    named = dict(
        zip(_NAMED, map(_ms, series.latency.quantiles(list(_NAMED.values()))), strict=False)
    )
    delay = series.delay.quantiles([0.99])
    return named | ({"send_delay_p99": _ms(delay[0])} if delay else {})


def _percentiles(series: Series) -> list[tuple[float, float]]:
    return list(zip(QUANTILES, map(_ms, series.latency.quantiles(QUANTILES)), strict=False))


def _timeline(series: Series, grid: Grid, files: RunFiles, load_end_ns: int) -> TimeSeries:
    p50, p99 = series.latency.quantiles_per_step([0.5, 0.99], grid.steps)
    (delay,) = series.delay.quantiles_per_step([0.99], grid.steps)
    return TimeSeries(
        start_s=round((grid.start_ns - grid.zero_ns) / 1e9, 3),
        step_s=round(grid.step_ns / 1e9, 3),
        intended=_intended(series, grid, files, load_end_ns),
        ok=series.ok.tolist(),
        fail=series.fail.tolist(),
        info=series.info.tolist(),
        delivered=series.delivered.tolist(),
        p50_ms=[None if v is None else _ms(v) for v in p50],
        p99_ms=[None if v is None else _ms(v) for v in p99],
        delay_p99_ms=[None if v is None else _ms(v) for v in delay],
    )


def _absences(files: RunFiles, grid: Grid, load_end_ns: int) -> list[Absence]:
    return absences_of(files.plan, files.manifest.workers, grid.zero_ns, load_end_ns)


def _intended(series: Series, grid: Grid, files: RunFiles, load_end_ns: int) -> list[int]:
    """Messages the plan wanted in each step, offered or not; without a rate, those that were
    sent."""
    if not files.plan.rate_per_s:
        return [int(n) for n in series.due]
    borders = grid.start_ns + np.arange(grid.steps + 1, dtype=np.int64) * grid.step_ns
    intended = intended_of(
        files.plan, grid.zero_ns, load_end_ns, _absences(files, grid, load_end_ns)
    )
    wanted = np.floor(intended.due_by(borders) + 1e-6)
    return [int(n) for n in np.diff(wanted)]


def _durations_s(files: RunFiles) -> dict[str, float]:
    return {
        p.name: round((p.end_ns - p.start_ns) / 1e9, 3) for p in files.manifest.phases if p.end_ns
    }


def _environment(manifest: Manifest) -> dict[str, str]:
    return {name: str(value) for name, value in {**manifest.versions, **manifest.machine}.items()}
