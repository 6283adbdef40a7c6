"""One round as the history keeps it, and how it is read from a finished run.

What a run did not measure is None (an empty mapping, where there are several), never zero: a
missing latency must not look like a fast one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

from analysis.findings import Finding, Result
from analysis.report.documents import read_result
from harness.contracts import read_document, read_rows
from harness.contracts.plan import Plan
from harness.contracts.rows import Manifest, MetricRow
from harness.errors import UsageError
from harness.rundir import RunDir, read_json, reading


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A class that a round shows, with its earliest witness (empty where there is none)."""

    cls: str
    status: str  # analysis.findings.Status
    count: int
    episodes: int = 0
    sentence: str = ""
    message: str = ""  # "<instance>/<lane>/<seq>"; `trace` takes it
    where: str = ""
    said: str = ""  # the witness in one line

    @classmethod
    def from_finding(cls, finding: Finding) -> Found:
        first = min(finding.witnesses, key=lambda witness: witness.t_s, default=None)
        return cls(
            cls=finding.cls,
            status=finding.status.value,
            count=finding.count,
            episodes=finding.episodes,
            sentence=finding.sentence,
            message=first.message if first else "",
            where=first.where if first else "",
            said=first.sentence if first else "",
        )


#: Among the exposure counters of a hunt: its rounds. Only the row of a hunt has it.
HUNT_JUDGED: Final = "hunt_judged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """The labels that the suite gives a round; a single run cannot know them.

    ``night``: text that sorts by time, the same for all rounds of a night. ``cell``: the stable
    name of what is repeated each night; it holds no resolved version, or each release would begin a
    cell of its own.
    """

    night: str
    suite: str
    cell: str
    round: int = 1  # from 1, within night and cell
    # what the cell sets besides the scenario
    settings: Mapping[str, Any] = field(default_factory=dict)
    is_sticky: bool = False  # repeats the seed of an earlier red round: no fresh sample
    is_control: bool = False  # a cell that shows what the machine does


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One row of the history. Times are UTC in ISO 8601; None = not known, or not measured.

    ``key`` names the round for good: the start of its load by the wall clock and its run id, so
    that a run that is judged or imported again stays one row.
    """

    key: str
    night: str
    suite: str
    cell: str
    scenario: str
    variant: str = ""
    expect: str = ""  # "clean", a class, or nothing expected
    # of the workers under load, e.g. "confluent-kafka"; several are joined by ", "
    client: str = ""
    client_version: str | None = None  # as resolved
    system: str = ""
    broker_version: str | None = None
    runtime: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    round: int = 1
    seed: int | None = None
    is_sticky: bool = False
    is_control: bool = False
    folder: str = ""  # of the run; empty where it never came to one
    started: str | None = None
    ended: str | None = None
    duration_s: float | None = None  # of the whole round, judging included
    verdict: Literal["pass", "fail", "unknown"] | None = None  # None: it was not judged
    exit_code: int | None = None  # None: it did not finish
    reasons: list[str] = field(default_factory=list)
    found: list[Found] = field(default_factory=list)
    # class -> why nothing found proves nothing
    untested: dict[str, str] = field(default_factory=dict)
    sends: dict[str, int] = field(default_factory=dict)
    exposure: dict[str, int] = field(default_factory=dict)
    rate_asked_per_s: float | None = None  # None: as fast as the client can
    rate_held_per_s: float | None = None
    # p50, p90, p99, p999, max, send_delay_p99
    latency_ms: dict[str, float] = field(default_factory=dict)
    outages_s: list[float] = field(default_factory=list)  # of each fault that has one
    longest_outage_s: float | None = None
    # of each fault that was healed and recovered
    recoveries_s: list[float] = field(default_factory=list)
    faults_fired: int | None = None
    faults_effective: int | None = None
    cpu_clients_s: float | None = None
    cpu_brokers_s: float | None = None
    machine: str | None = None  # fingerprint: a figure of another machine is not a trend
    versions: dict[str, str] = field(default_factory=dict)
    command: str = ""  # repeats the round

    @property
    def is_judged(self) -> bool:
        """Whether the round says something of the classes: *unknown* could not have shown a
        failure."""
        return self.verdict in ("pass", "fail")


def broken_round(
    labels: Labels, *, scenario: str, exit_code: int, reason: str, **known: Any
) -> Round:
    """A round that ended without a result (exit codes 4, 5, 70 ...); ``known``: fields of
    `Round`."""
    key = f"{labels.night} {labels.suite} {labels.cell} {labels.round}"
    facts = {"key": key, "scenario": scenario, "exit_code": exit_code, "reasons": [reason], **known}
    return Round(**asdict(labels), **facts)


def rounds_of(run: RunDir, labels: Labels) -> list[Round]:
    """Every judged round of a run folder; a campaign has one a variant and round.

    A variant's cell is named ``<cell>/<variant>`` where the campaign has several.

    Raises:
        UsageError: the run is not judged yet, or its files are damaged.
    """
    if not run.campaign.exists():
        return [round_of(run, labels)]
    runs = [each for each in run.rounds() if each.result.exists()]
    if not runs:
        raise UsageError(
            f"{run.root} has not been judged", hint=f"`brokerstorm analyze {run.root}` judges it"
        )
    variants = [read_document(each.plan, Plan).variant for each in runs]
    several = len(set(variants)) > 1
    numbers: dict[str, int] = defaultdict(lambda: labels.round - 1)
    counted = _as_counted(run)
    made = []
    for each, variant in zip(runs, variants, strict=True):
        numbers[variant] += 1
        cell = f"{labels.cell}/{variant}" if several and variant else labels.cell
        row = round_of(each, labels, cell=cell, number=numbers[variant])
        made.append(counted(each.run_id, row))
    return made


def _as_counted(campaign: RunDir) -> Callable[[str, Round], Round]:
    """(run id, row) -> the row as the campaign of a known bug counts it: a round that does not
    count proves nothing, and a class without the text that tells the bug is another one's."""
    document = read_json(campaign.campaign)
    with reading(campaign):
        bug_class = ((document.get("reproduction") or {}).get("question") or {}).get("expect", "")
        runs = [run for variant in document.get("variants") or () for run in variant["runs"]]
        told = {str(run["path"]): run for run in runs} if bug_class else {}

    def counted(run_id: str, row: Round) -> Round:
        why = str(told.get(run_id, {}).get("not_counted") or "")
        if not why and told.get(run_id, {}).get("sighted") != "":
            return row
        row = replace(row, found=[found for found in row.found if found.cls != bug_class])
        return replace(row, verdict="unknown", exit_code=3, reasons=[why]) if why else row

    return counted


def round_of(run: RunDir, labels: Labels, *, cell: str = "", number: int = 0) -> Round:
    """A judged run as a row of the history; ``cell`` and ``number`` instead of the labels'.

    Raises:
        UsageError: the run is not judged yet, or its files are damaged.
    """
    result, manifest = read_result(run), read_document(run.manifest, Manifest)
    plan = read_document(run.plan, Plan)
    labels = replace(labels, cell=cell or labels.cell, round=number or labels.round)
    with reading(run):
        row = _judged(_identified(labels, run, result, manifest, plan), result)
        return _with_cpu(row, read_rows(run.metrics, MetricRow))


def derived_labels(run: RunDir) -> Labels:
    """Labels for a run that no suite started: the night is the day it began, the cell its scenario,
    client, broker and runtime.

    Raises:
        UsageError: the run's files are damaged.
    """
    first = next(iter(run.rounds()), run)
    manifest, plan = read_document(first.manifest, Manifest), read_document(first.plan, Plan)
    with reading(first):
        clients, _ = _clients(manifest, plan)
        parts = [plan.scenario, clients, plan.system, _runtime(manifest)]
        return Labels(
            night=manifest.epoch_wall[:10], suite="imported", cell=" ".join(filter(None, parts))
        )


def _identified(
    labels: Labels, run: RunDir, result: Result, manifest: Manifest, plan: Plan
) -> Round:
    clients, versions = _clients(manifest, plan)
    epoch = datetime.fromisoformat(manifest.epoch_wall).astimezone(UTC)
    ended = [phase for phase in manifest.phases if phase.end_ns]
    start = min((phase.start_ns for phase in ended), default=None)
    return Round(
        **asdict(labels),
        key=f"{epoch.isoformat()} {result.run_id}",
        scenario=result.scenario,
        variant=result.variant,
        expect=plan.expect,
        client=clients,
        client_version=versions or None,
        system=plan.system,
        broker_version=manifest.versions.get(plan.system) or plan.version or None,
        runtime=_runtime(manifest),
        seed=result.seed,
        folder=str(run.root),
        started=_wall(epoch, manifest.epoch_ns, start),
        ended=_wall(epoch, manifest.epoch_ns, manifest.last_ns or None),
        duration_s=round(sum(result.duration_s.values()), 3) if result.duration_s else None,
        machine=fingerprint(manifest.machine),
        versions=dict(manifest.versions),
        command=result.command,
    )


def _judged(row: Round, result: Result) -> Round:
    fired = [fault for fault in result.faults if not fault.skipped]
    return replace(
        row,
        verdict=result.verdict.value,
        exit_code=result.exit_code,
        reasons=list(result.reasons),
        found=[Found.from_finding(finding) for finding in result.findings if finding.count],
        untested=dict(result.untested),
        sends=dict(result.sends),
        exposure=dict(result.exposure),
        faults_fired=len(fired),
        faults_effective=sum(fault.effective for fault in fired),
        outages_s=[fault.outage_s for fault in fired if fault.outage_s is not None],
        recoveries_s=[fault.recovery_s for fault in fired if fault.recovery_s is not None],
        rate_asked_per_s=result.rate.get("target_per_s") or None,
        rate_held_per_s=result.rate.get("achieved_per_s"),
        latency_ms=dict(result.latency_ms),
        longest_outage_s=result.rate.get("longest_outage_s") if result.latency_ms else None,
    )


def _with_cpu(round_: Round, metrics: Sequence[MetricRow]) -> Round:
    """Return the round with the CPU seconds of all workers and of all nodes. The counter of a
    process that is restarted begins at 0.
    """
    sums: dict[str, float] = {}
    last: dict[tuple[str, str], float] = {}
    for row in metrics:
        if row.cpu_s is None or not (row.worker or row.node):
            continue
        kind = "worker" if row.worker else "node"
        who, seconds = (kind, row.worker or row.node), row.cpu_s
        before = last.get(who, 0.0)
        sums[kind] = sums.get(kind, 0.0) + (seconds - before if seconds >= before else seconds)
        last[who] = seconds
    cpu_s = {kind: round(sums[kind], 3) if kind in sums else None for kind in ("worker", "node")}
    return replace(round_, cpu_clients_s=cpu_s["worker"], cpu_brokers_s=cpu_s["node"])


def _clients(manifest: Manifest, plan: Plan) -> tuple[str, str]:
    """Clients and versions under load; the audit's reader is none of them."""
    loaded = [(w.client, w.client_version) for w in manifest.workers if w.role != "audit"]
    loaded = loaded or [(each.client, each.client_version) for each in plan.producers]
    loaded = loaded or [(each.client, each.client_version) for each in plan.consumers]
    pairs = dict.fromkeys(loaded)
    names = ", ".join(dict.fromkeys(client for client, _ in pairs if client))
    return names, ", ".join(version for _, version in pairs if version)


def _runtime(manifest: Manifest) -> str:
    """``process`` or ``docker``, without how it was chosen."""
    return str(manifest.machine.get("runtime") or "").partition(" ")[0]


def fingerprint(machine: Mapping[str, Any]) -> str | None:
    """A machine in one line, from the manifest; None where the run does not say."""
    if not machine:
        return None
    memory = machine.get("memory_bytes")
    parts = [
        f"{machine.get('system', '')} {machine.get('kernel', '')}".strip(),
        f"{machine['cpus']} CPUs" if machine.get("cpus") else "",
        f"{int(memory) / 2**30:.1f} GiB" if memory else "",
        f"Python {machine['python']}" if machine.get("python") else "",
    ]
    return ", ".join(filter(None, parts)) or None


def _wall(epoch: datetime, epoch_ns: int, t_ns: int | None) -> str | None:
    return (
        None
        if t_ns is None
        else (epoch + timedelta(microseconds=(t_ns - epoch_ns) / 1e3)).isoformat()
    )
