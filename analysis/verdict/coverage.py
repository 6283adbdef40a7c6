"""Validity checks: whether the run could have shown a failure. A clean result rests on them.

A run without anomalies proves something only if faults took effect while messages flowed at the
rate asked for, and if everything was recorded and read back. Each check is one sentence, whether it
holds or not; one that does not hold makes the verdict *unknown* (unless a violation was found all
the same).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from analysis.findings import Finding, Status, ValidityCheck
from analysis.series import Grid, Series
from analysis.verdict.cores import CpuShares
from analysis.verdict.rate import Rate
from harness.contracts.plan import Plan
from harness.contracts.rows import BESIDE, EVERY_REPLICA, Bounds, Manifest, ReplicaRow, WorkerRow
from harness.faultlog import FaultRecord

#: Where some stream is out nearly always, the streams must at least be up this share of their time.
MIN_UP_SHARE = 0.5
#: A generator this late did not test what was asked. Hiccups of a busy machine stay well below.
SATURATED_NS = 1_000_000_000
#: Said of a load that fell short without claiming a rate.
SHORT = "; the load fell short, and what happened to each message was judged all the same"
_NAMES_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """Everything the checks look at."""

    manifest: Manifest
    plan: Plan
    faults: Sequence[FaultRecord]
    bounds: Sequence[Bounds]  # log_bounds.jsonl
    replicas: Sequence[ReplicaRow] = ()  # replicas.jsonl
    streams: Sequence[str]  # every stream of the plan
    series: Series
    grid: Grid
    rate: Rate
    findings: Sequence[Finding] = ()
    errors: Sequence[str] = field(default=())  # of judging, a line each
    # by producer, RunFiles.lateness_ns
    lateness_ns: Mapping[str, int] = field(default_factory=dict)
    missing: Sequence[str] = field(default=())  # parts of the capture that are not there
    contradictions: Sequence[str] = field(default=())  # in what the audit recorded
    acked_unread: int = 0  # acknowledged messages whose place the audit did not read
    acked_undecided: int = 0  # acknowledged messages whose transaction's end was not read
    outputs: Mapping[str, int] = field(default_factory=dict)  # by application, that name an input
    redelivered: Mapping[str, int] = field(default_factory=dict)  # by group, Partial.redelivered
    moved: Mapping[str, int] = field(default_factory=dict)  # by group, Partial.moved of all buckets
    cpu: CpuShares | None = None  # over the load


def coverage(facts: RunFacts) -> list[ValidityCheck]:
    """Every check, in the order in which a reader wants them."""
    checks: dict[str, Callable[[RunFacts], ValidityCheck | None]] = {
        "analysis": _analysis,
        "run": _run,
        "capture": _capture,
        "machines": _machines,
        "traffic": _traffic,
        "faults": _faults,
        "rate": _rate,
        "generator": _generator,
        "readiness": _readiness,
        "drain": _drain,
        "audit": _audit,
        "applications": _applications,
        "transactions": _transactions,
        "replicas": _replicas,
        "evidence": _evidence,
    }
    if facts.missing and not facts.series.totals.get(
        "attempted"
    ):  # nothing was judged: nothing else is known
        checks = {name: checks[name] for name in ("analysis", "run", "capture", "machines")}
    found = (_of_import(facts, name, make) for name, make in checks.items())
    return [check for check in found if check is not None]


def _of_import(
    facts: RunFacts, name: str, make: Callable[[RunFacts], ValidityCheck | None]
) -> ValidityCheck | None:
    """Return the check, or the import's own statement instead: no harness watched its recording."""
    stated = facts.manifest.checks
    if name not in stated:
        return make(facts)
    if name == "capture" and facts.missing:  # of the files that the import has become
        return make(facts)
    said = stated[name]
    return ValidityCheck(name, said.ok, said.text) if said else None


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMES_SHOWN])
    return shown + (f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else "")


def _analysis(facts: RunFacts) -> ValidityCheck:
    if facts.errors:
        return ValidityCheck("analysis", False, f"judging failed: {_some(facts.errors)}")
    return ValidityCheck("analysis", True, "every bucket was judged")


def _run(facts: RunFacts) -> ValidityCheck:
    status = facts.manifest.status
    if status == "interrupted":
        return _cut(facts)
    text = {
        "complete": "the run went through all its phases",
        "running": "the run never ended: its harness was killed",
    }.get(status, f"the run ended with status {status!r}")
    resumed = "".join(
        f"; {each}, and it continued" for each in facts.manifest.problems_of("resumed")
    )
    return ValidityCheck("run", status == "complete", text + resumed)


def _cut(facts: RunFacts) -> ValidityCheck:
    """One whose load was cut short is whole but for the load that it lacks."""
    ended = {phase.name: phase.end_ns for phase in facts.manifest.phases}
    if "audit" not in ended:
        return ValidityCheck("run", False, "the run was interrupted before its audit")
    loaded_s = max(0, ended.get("load", 0) - facts.manifest.epoch_ns) / 1e9
    text = f"the load was stopped after {loaded_s:.1f} s of {facts.plan.load_s:.1f} s"
    return ValidityCheck("run", False, f"{text}; the rest was not tested")


def _capture(facts: RunFacts) -> ValidityCheck:
    workers = facts.manifest.workers
    stuck = [w.name for w in workers if w.stuck and not w.done]
    gone = [
        w.name + (f" (exit code {w.exit_code})" if w.exit_code is not None else "")
        for w in workers
        if not _is_recorded(w) and not w.stuck
    ]
    killed = [w.name for w in workers if w.killed]
    hung = [w.name for w in workers if w.hung and not w.done]
    if facts.missing:
        return ValidityCheck("capture", False, f"records are missing: {_some(facts.missing)}")
    if gone:
        return ValidityCheck(
            "capture",
            False,
            f"worker died before it was done: {_some(gone)}; records may be missing",
        )
    if stuck:
        text = f"{_some(stuck)} did not end when asked to, and was killed by the run"
        return ValidityCheck("capture", False, f"{text}; its last records are missing")
    crashed = [w.name for w in workers if w.crashed]
    ended = f"; {_some(hung)} hung and was ended, every row kept" if hung else ""
    by = "" if facts.manifest.problems_of("resumed") else " by a fault"
    ended += f"; {_some(killed)} killed{by}, every row kept" if killed else ""
    ended += f"; {_some(crashed)} crashed, every row kept" if crashed else ""
    return ValidityCheck("capture", True, f"{len(workers)} workers recorded everything{ended}")


def _machines(facts: RunFacts) -> ValidityCheck | None:
    """Check how far the times of several machines can be compared; None for a load from one
    machine."""
    machines = facts.manifest.executors
    if not machines:
        return None
    if lost := [each.lost for each in machines if each.lost]:
        return ValidityCheck("machines", False, f"{_some(lost)}: what ran there was cut short")
    if left := [
        f"task {each.number} on {each.host}: {each.left}" for each in machines if each.left
    ]:
        return ValidityCheck("machines", False, f"captured and not in the run: {_some(left)}")
    if unmeasured := [each.host for each in machines if not each.bound_ns]:
        return ValidityCheck(
            "machines", False, f"the clock was never measured: {_some(unmeasured)}"
        )
    bound = facts.manifest.clock_bound_ns / 1e6
    return ValidityCheck(
        "machines",
        True,
        f"load from {len(machines)} tasks, their times within {bound:.3g} ms of each other; what happened on "
        "two of them closer together than that counts as in no order",
    )


def _is_recorded(worker: WorkerRow) -> bool:
    """Every row is there: it said so, or it was ended, or crashed, and its rows lie on mapped
    pages."""
    return worker.done or worker.hung or worker.killed or worker.crashed


def _applications(facts: RunFacts) -> ValidityCheck | None:
    """Whether every application finished its input, and all of its outputs were read and name an
    input."""
    planned, manifest = facts.plan.applications, facts.manifest
    if not planned:
        return None
    done = {row.application for row in manifest.applications if row.drained}
    unfinished = [each.name for each in planned if each.name not in done]
    unknown = manifest.problems_of("outputs")
    unknown += [
        f"{each.name}: not read" for each in planned if each.name not in manifest.outputs_read
    ]
    if unfinished:
        why = "; ".join([*(manifest.problems_of("application") or unfinished), *unknown])
        return ValidityCheck("applications", False, f"input was not processed to its end: {why}")
    if unknown:
        return ValidityCheck("applications", False, f"outputs are not known: {'; '.join(unknown)}")
    if silent := [each.name for each in planned if not facts.outputs.get(each.name)]:
        text = f"no output was found, so nothing is known about inputs: {_some(silent)}"
        return ValidityCheck("applications", False, text)
    names = _some([each.name for each in planned])
    return ValidityCheck(
        "applications", True, f"{names}: all input was processed, and every output was read"
    )


def _transactions(facts: RunFacts) -> ValidityCheck | None:
    """Without the markers it is unknown which messages of a transaction can be seen."""
    if not any(producer.transactions for producer in facts.plan.producers):
        if not facts.acked_undecided:
            return None
        return ValidityCheck(
            "transactions",
            False,
            f"the ends of transactions of acknowledged messages were not read: {facts.acked_undecided:,}",
        )
    best = {each.stream: each for each in facts.bounds if each.is_marked}
    unread = [stream for stream in facts.streams if stream not in best]
    if unread:
        return ValidityCheck(
            "transactions",
            False,
            f"markers of transactions were not read to the end: {_some(unread)}",
        )
    torn = [stream for stream, each in best.items() if each.disagree]
    if torn:
        text = f"markers and the brokers' list of aborted transactions disagree: {_some(torn)}"
        return ValidityCheck("transactions", False, text)
    held = [stream for stream, each in best.items() if each.is_held]
    text = "every marker was read"
    return ValidityCheck(
        "transactions", True, text + (f"; still open: {_some(held)}" if held else "")
    )


def _traffic(facts: RunFacts) -> ValidityCheck:
    attempted, ok = facts.series.totals.get("attempted", 0), facts.series.totals.get("ok", 0)
    if not attempted:
        return ValidityCheck("traffic", False, "no message was sent")
    if not ok:
        return ValidityCheck("traffic", False, f"none of {attempted:,} sends was acknowledged")
    return ValidityCheck("traffic", True, f"{ok:,} of {attempted:,} sends acknowledged")


def _faults(facts: RunFacts) -> ValidityCheck | None:
    """A planned set of faults of which none took effect during traffic shows nothing."""
    if not facts.plan.faults:
        return None
    injected = [f for f in facts.faults if f.inject_ns is not None]
    effective = [f for f in injected if f.effective]
    hit = {f.id for f in effective if _during_traffic(f, facts)}
    if hit:
        vacuous = [f"{f.kind} #{f.id}" for f in injected if f.id not in hit]
        tail = f"; without effect: {_some(vacuous)}" if vacuous else ""
        return ValidityCheck(
            "faults", True, f"{len(hit)} of {len(injected)} injected faults hit live traffic{tail}"
        )
    if not injected:
        never_ended = facts.manifest.status == "running"
        untold = "the run ended before" if never_ended else "faults.jsonl tells of none"
        why = _some(sorted({f.skipped for f in facts.faults if f.skipped})) or untold
        return ValidityCheck("faults", False, f"no planned fault was injected: {why}")
    if not effective:
        return ValidityCheck(
            "faults", False, f"none of {len(injected)} injected faults had an effect"
        )
    return ValidityCheck(
        "faults", False, f"none of {len(effective)} effective faults met a message in flight"
    )


def _during_traffic(fault: FaultRecord, facts: RunFacts) -> bool:
    """Whether a message was due, or given an outcome, from a step before inject to a step after
    heal."""
    assert fault.inject_ns is not None
    end_ns = fault.end_ns if fault.end_ns is not None else facts.grid.end_ns
    if fault.inject_ns >= facts.grid.end_ns or end_ns < facts.grid.start_ns:
        return False
    first, last = facts.grid.step(np.array([fault.inject_ns, end_ns]))
    near = slice(max(first - 1, 0), last + 2)
    series = facts.series
    return any(counts[near].any() for counts in (series.due, series.ok, series.fail, series.info))


def _rate(facts: RunFacts) -> ValidityCheck:
    check = _rate_kept(facts)
    beside = facts.manifest.problems_of(BESIDE)
    return replace(check, text="; ".join([check.text, *beside])) if beside else check


def _rate_kept(facts: RunFacts) -> ValidityCheck:
    rate, wanted = facts.rate, facts.plan.rate_ratio
    if rate.is_measured:
        return _measured_rate(rate)
    if not rate.target_per_s:
        return ValidityCheck(
            "rate", True, f"{rate.achieved_per_s:,.0f}/s acknowledged, no target set"
        )
    if not wanted:
        return ValidityCheck(
            "rate", True, f"{rate.achieved_per_s:,.0f}/s acknowledged, and no rate is required"
        )
    if rate.is_without_calm:
        return _rate_without_calm(facts)
    share = rate.ratio or 0.0
    text = (
        f"{rate.calm_per_s:,.0f}/s outside outages, {share:.1%} of {rate.calm_target_per_s:,.0f}/s"
    )
    text += " that was due then" if rate.peak_per_s else ""
    if share < wanted:
        return ValidityCheck(
            "rate", False, f"rate not reached: {text}, {wanted:.1%} required{_cpu(facts)}"
        )
    return ValidityCheck("rate", True, text)


def _cpu(facts: RunFacts) -> str:
    return f"; {facts.cpu.text()}" if facts.cpu else ""


def _measured_rate(rate: Rate) -> ValidityCheck:
    """A load that claims no rate: whether enough was sent for faults to meet it. A shortfall
    against the machine's measured rate is reported, and changes nothing of what is known of each
    message."""
    where = ", outages included," if rate.is_without_calm else " outside outages"
    kept = f"{rate.kept_per_s:,.0f}/s acknowledged{where}"
    if rate.kept_per_s < rate.at_least_per_s:
        text = (
            f"too little load for faults to meet: {kept.rstrip(',')}, {rate.at_least_per_s:,.0f}/s "
            "required"
        )
        return ValidityCheck("rate", False, text)
    target = f"{rate.target_per_s:,.0f}/s"
    if rate.peak_per_s:
        chosen = f"of {rate.kept_target_per_s:,.0f}/s that was due then"
        if rate.target_per_s < rate.at_most_per_s:
            share = rate.target_per_s / rate.at_most_per_s
            chosen += f"; this machine was measured to keep {share:.1%} of the rates asked for"
    elif rate.target_per_s >= rate.at_most_per_s:
        chosen = f"of the {target} asked for"
    else:
        asked = f"{rate.at_most_per_s:,.0f}/s was asked for at most"
        chosen = f"of {target}, what this machine was measured to keep; {asked}"
    short = SHORT if rate.is_short else ""
    return ValidityCheck("rate", True, f"{kept} {chosen}{short}")


def _rate_without_calm(facts: RunFacts) -> ValidityCheck:
    """Some stream was nearly always out. Then what was due in outages counts too, or, where most
    streams were up, the time of all of them together."""
    rate, wanted = facts.rate, facts.plan.rate_ratio
    whole = rate.achieved_per_s / rate.target_per_s
    if whole >= wanted:
        text = f"{rate.achieved_per_s:,.0f}/s, {whole:.1%} of {rate.target_per_s:,.0f}/s, outages included"
        return ValidityCheck("rate", True, text)
    if rate.up_share < MIN_UP_SHARE:
        calm = f"some stream was out for all but {rate.calm_s:.1f} s of {rate.load_s:.1f} s of load"
        return ValidityCheck("rate", False, f"{calm}: the rate cannot be judged")
    share = rate.up_ratio or 0.0
    text = (
        f"{rate.achieved_per_s:,.0f}/s, {share:.1%} of {rate.target_per_s:,.0f}/s for streams that were up "
        f"{rate.up_share:.1%} of the time"
    )
    if share < wanted:
        return ValidityCheck(
            "rate", False, f"rate not reached: {text}, {wanted:.1%} required{_cpu(facts)}"
        )
    return ValidityCheck("rate", True, text)


def generator_problems(facts: RunFacts) -> list[str]:
    """Lateness of the generator itself: without the time in which the client blocked or was
    frozen."""
    late = [
        f"{worker} was {late_ns / 1e9:.1f} s late or more in a tenth of the load"
        for worker, late_ns in sorted(facts.lateness_ns.items(), key=lambda item: -item[1])
        if late_ns >= SATURATED_NS
    ]
    return [*late, *facts.manifest.problems_of("saturated")]


def _generator(facts: RunFacts) -> ValidityCheck:
    if problems := generator_problems(facts):
        text = f"the load generator was saturated: {_some(problems)}"
        if facts.rate.is_measured and facts.rate.kept_per_s >= facts.rate.at_least_per_s:
            return ValidityCheck(
                "generator", True, f"{text}{SHORT}; latencies are measured on this machine"
            )
        return ValidityCheck("generator", False, f"{text}{_cpu(facts)}")
    return ValidityCheck("generator", True, "the load generator kept up")


def _reached(facts: RunFacts, said: bool | None) -> bool:
    """A complete run must say so; one that was cut off before it could has its reason already."""
    return facts.manifest.status != "complete" if said is None else said


def _readiness(facts: RunFacts) -> ValidityCheck:
    if _reached(facts, facts.manifest.readiness_restored):
        return ValidityCheck("readiness", True, "the cluster was whole again before the drain")
    return ValidityCheck(
        "readiness",
        False,
        f"the cluster did not recover: {_some(facts.manifest.problems_of('recovery')) or 'no reason kept'}",
    )


def _drain(facts: RunFacts) -> ValidityCheck:
    if not _reached(facts, facts.manifest.drained):
        problems = _some(facts.manifest.problems_of("drain"))
        return ValidityCheck("drain", False, f"drain incomplete: {problems or 'deadline passed'}")
    if waiting := _undecided(facts):
        text = f"{waiting:,} sends were open when the drain ended, and not past their deadline yet"
        return ValidityCheck("drain", False, f"{text}: raise limits.drain, or lower limits.call")
    return ValidityCheck("drain", True, "producers closed and consumers drained")


def _undecided(facts: RunFacts) -> int:
    """Sends without an outcome that were not open for long enough to be a hang, of producers that a
    drain was waited for."""
    workers = facts.manifest.workers
    if not all(map(_is_recorded, workers)):
        return 0  # died: the check of the capture tells
    if not all(p.call_deadline_s for p in facts.plan.producers):
        return 0  # imported: how long its clients may take is unknown
    hanging = sum(f.split.get("never completed", 0) for f in facts.findings if f.cls == "hang")
    ended = sum(w.open_sends for w in workers)  # by a fault: no client waited for them
    return max(0, facts.series.totals.get("open", 0) - hanging - ended)


def _audit(facts: RunFacts) -> ValidityCheck:
    """Every stream read to the end that was fixed after the producers were gone; of several readers
    of it the one that got furthest counts."""
    read = {b.stream: b for b in sorted(facts.bounds, key=lambda bounds: bounds.read_to)}
    unread = [s for s in facts.streams if s not in read]
    # A partition that a topic was not given holds nothing: no reader has a position in it.
    short = [
        f"{s} at {b.read_to} of {b.end} ({b.why})"
        for s, b in read.items()
        if b.read_to < b.end and b.begin < b.end
    ]
    unknown = (
        f"; {facts.acked_unread:,} acknowledged messages not read" if facts.acked_unread else ""
    )
    if not read and facts.streams:
        return ValidityCheck(
            "audit",
            False,
            f"no audit: none of {len(facts.streams)} streams was read to its end{unknown}",
        )
    if unread:
        return ValidityCheck("audit", False, f"audit incomplete: {_some(unread)} not read{unknown}")
    if facts.contradictions:
        return ValidityCheck(
            "audit", False, f"the audit contradicts itself: {_some(facts.contradictions)}"
        )
    if short:
        return ValidityCheck("audit", False, f"audit incomplete: {_some(short)}{unknown}")
    return ValidityCheck("audit", True, f"{len(read)} streams read back to their end")


def _replicas(facts: RunFacts) -> ValidityCheck | None:
    """Every replica read to the end, or refused; one that is out of sync was not compared."""
    if facts.plan.audit != EVERY_REPLICA:
        return None
    read = {row.stream for row in facts.replicas} | {
        b.stream for b in facts.bounds if b.end <= b.begin
    }
    if unread := [stream for stream in facts.streams if stream not in read]:
        return ValidityCheck("replicas", False, f"replicas were not read: {_some(unread)}")
    short = [
        f"{row.stream} on {row.node} at {row.read_to} of {row.end}"
        + (f" ({row.why})" if row.why else "")
        for row in facts.replicas
        if not row.is_read
    ]
    behind = [f"{row.stream} on {row.node}" for row in facts.replicas if not row.in_sync]
    if short:
        return ValidityCheck("replicas", False, f"replicas not read to the end: {_some(short)}")
    if behind:
        return ValidityCheck("replicas", False, f"replicas out of sync: {_some(behind)}")
    return ValidityCheck("replicas", True, f"{len(facts.replicas)} replicas read, all in sync")


def _evidence(facts: RunFacts) -> ValidityCheck | None:
    suspects = [
        f"{f.count:,} {f.cls}" for f in facts.findings if f.status is Status.SUSPECT and f.count
    ]
    if suspects:
        return ValidityCheck("evidence", False, f"suspected but not proved: {_some(suspects)}")
    return None
