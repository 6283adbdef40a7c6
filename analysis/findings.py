"""What judging says: findings, witnesses, faults and the verdict, as they stand in result.json.

`Result.document()` is the public JSON (schema_version 1). The terminal, the HTML page, JUnit, `trace`
and `compare` are made from it and from nothing else, so whatever one of them shows, a script can read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

SCHEMA_VERSION = 1
#: Witnesses kept of a class, the earliest of the largest episodes first.
MAX_WITNESSES = 20


class Status(StrEnum):
    """What a class means in this run. ``SUSPECT`` = evidence incomplete; it counts as unknown."""

    VIOLATION = "violation"
    PERMITTED = "permitted"
    APPLICATION_ERROR = "application-error"
    SUSPECT = "suspect"
    INFO = "info"


class Verdict(StrEnum):
    PASS = "pass"
    FAIL = "fail"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Near:
    """The fault nearest in time: ``delta_ms`` after its inject (negative: before)."""

    fault: int
    kind: str
    target: str
    delta_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One element of the sequence around a witness, in log (or delivery) order.

    ``mark``: "" as expected, ``!`` the witness itself, ``+`` a repeat, ``-`` missing (no position).
    """

    seq: int
    attempt: int
    position: str
    mark: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """One concrete message (or call, or window) that shows the class."""

    message: str  # "<instance>/<lane>/<seq>" or with ".<attempt>"; `trace` takes it
    where: str  # lane text and stream, e.g. "orders-3"
    sentence: str  # one line for people
    outcome: str
    error: str
    acked_position: str
    t_s: float  # since start of load
    around: tuple[Step, ...] = ()
    near: Near | None = None
    symptoms: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """Share of a class's episodes inside a fault kind's windows, beside chance.

    ``p_value``: share of 1,000 circular shifts of the schedule with at least as many episodes inside;
    None with ``not_attributable`` (the windows cover more than half of the run).
    """

    kind: str
    inside: int
    episodes: int
    chance_share: float
    p_value: float | None
    not_attributable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A class with everything found of it."""

    cls: str
    status: Status
    count: int
    sentence: str
    promise: str  # the promise it breaks and where that promise comes from
    evidence: str  # what was checked, or what is missing when suspect
    episodes: int = 0
    split: dict[str, int] = field(default_factory=dict)  # e.g. prefix/middle/tail, or by cause
    attribution: tuple[Attribution, ...] = ()
    witnesses: tuple[Witness, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRow:
    id: int
    kind: str
    target: str
    t_s: float
    until_s: float | None
    effective: bool
    healed: bool
    evidence: str
    outage_s: float | None = None  # longest gap without an ok that overlaps it
    recovery_s: float | None = None  # from heal to the first ok on every stream again
    skipped: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HangRow:
    """A worker that was seen to hang, stall or not end while the run went on, with the call that waits."""

    worker: str
    kind: str  # hang, stall, stuck
    t_s: float  # when it was noticed
    text: str
    where: str = ""  # the innermost call into the client, with file and line
    thread: str = ""
    stack: list[str] = field(default_factory=list)
    stacks: str = ""  # file with every stack, in the run's folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Series of ``step_s``-wide windows from ``start_s``; latency in ms from the intended time."""

    start_s: float
    step_s: float
    intended: list[int] = field(default_factory=list)
    ok: list[int] = field(default_factory=list)
    fail: list[int] = field(default_factory=list)
    info: list[int] = field(default_factory=list)
    delivered: list[int] = field(default_factory=list)
    p50_ms: list[float | None] = field(default_factory=list)
    p99_ms: list[float | None] = field(default_factory=list)
    delay_p99_ms: list[float | None] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Everything said of a run."""

    run_id: str
    scenario: str
    variant: str
    seed: int
    verdict: Verdict
    exit_code: int
    reasons: list[str]
    sends: dict[str, int]  # attempted, ok, fail, info, info_stored, info_not_stored, open
    rate: dict[str, float]  # target_per_s, achieved_per_s, offered_per_s
    latency_ms: dict[str, float]  # p50, p90, p99, p999, max; send_delay_p99
    percentiles: list[tuple[float, float]]  # (quantile, ms)
    findings: list[Finding]
    faults: list[FaultRow]
    hangs: list[HangRow] = field(default_factory=list)
    timeline: Timeline
    coverage: list[dict[str, Any]]  # {name, ok, text}
    rows: dict[str, int]  # sends, log, deliveries
    exposure: dict[str, int] = field(default_factory=dict)  # docs/reference/exposure.md
    duration_s: dict[str, float]  # phases, judging
    environment: dict[str, str]
    command: str

    def document(self) -> dict[str, Any]:
        """The public JSON document."""
        document: dict[str, Any] = {"schema_version": SCHEMA_VERSION, **asdict(self)}
        for finding in document["findings"]:
            finding["class"] = finding.pop("cls")
        return document

    def violations(self) -> list[Finding]:
        """What made the verdict *fail*, in the order of the findings."""
        return [f for f in self.findings if f.status is Status.VIOLATION and f.count]

    def excused(self) -> list[Finding]:
        """What happened and is not the broker's or the client's fault: permitted, or the application's."""
        return [f for f in self.findings if f.status in _EXCUSED and f.count]


_EXCUSED = (Status.PERMITTED, Status.APPLICATION_ERROR)
CLEAN = "clean"
#: Exit codes of a run that stand for a whole campaign, the most urgent first; see docs/reference.
URGENT_EXITS = (5, 70, 130, 143, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """One run of a campaign: what the side-by-side view needs without opening its result.json."""

    run_id: str
    path: str  # folder, relative to the campaign's
    round: int  # from 1
    verdict: Verdict
    exit_code: int
    reasons: list[str]
    sends: dict[str, int]
    rate: dict[str, float]
    latency_ms: dict[str, float]
    violations: dict[str, int]  # class -> count
    excused: dict[str, int]  # class -> count: permitted, or an application error
    faults: dict[str, int]  # fired, effective
    exposure: dict[str, int] = field(default_factory=dict)  # docs/reference/exposure.md
    witnesses: dict[str, Witness]  # class -> its earliest; a violation's where there is one
    not_counted: str = ""  # of a known bug: why the round proves nothing; empty = it counts

    @classmethod
    def of(cls, result: Result, *, path: str, round_number: int) -> RunSummary:
        told = [*result.excused(), *result.violations()]  # of one class, the violation's stays
        shown = [(f.cls, min(f.witnesses, key=_time)) for f in told if f.witnesses]
        fired = [fault for fault in result.faults if not fault.skipped]
        return cls(
            run_id=result.run_id,
            path=path,
            round=round_number,
            verdict=result.verdict,
            exit_code=result.exit_code,
            reasons=result.reasons,
            sends=result.sends,
            rate=result.rate,
            latency_ms=result.latency_ms,
            violations={finding.cls: finding.count for finding in result.violations()},
            excused={finding.cls: finding.count for finding in result.excused()},
            faults={"fired": len(fired), "effective": sum(fault.effective for fault in fired)},
            exposure=result.exposure,
            witnesses=dict(shown),
        )

    def shows(self, expect: str) -> bool:
        """The expected class showed up, be it permitted; for *clean*: there was a violation."""
        if expect == CLEAN:
            return bool(self.violations)
        return expect in self.violations or expect in self.excused

    def first_witness(self, expect: str) -> tuple[str, Witness] | None:
        """Class and witness to show first: of the expected class, else the earliest of any violation."""
        if expect in self.witnesses:
            return expect, self.witnesses[expect]
        violated = ((cls, w) for cls, w in self.witnesses.items() if cls in self.violations)
        return min(violated, key=lambda pair: _time(pair[1]), default=None)


def _time(witness: Witness) -> float:
    return witness.t_s


class Expectation(StrEnum):
    """What a variant showed against what it was expected to show."""

    MET = "as expected"
    NOT_MET = "not as expected"
    UNDECIDED = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Share of rounds with a hit, and its exact 95 % interval (Clopper-Pearson)."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantResult:
    """All rounds of a variant.

    ``hits``: rounds that show the expected class (a permitted one too: some bugs break no promise); for a
    variant expected *clean*, rounds with any violation. ``first_witness_s``: time into the load of the
    first hit's earliest witness, None if none.
    """

    name: str
    expect: str
    about: str
    outcome: Expectation
    as_expected: bool
    rounds: int
    hits: int
    first_witness_s: float | None
    runs: list[RunSummary]
    version: str = ""  # of the client under test, where the scenario names one
    role: str = ""  # of a known bug: affected or fixed
    counted: int = 0  # rounds that count; without a bug, all of them
    rate: Rate | None = None  # hits among the counted; only where the number of rounds was fixed beforehand
    witness_times_s: list[float] = field(default_factory=list)  # into the load, of each hit

    @classmethod
    def of(cls, name: str, expect: str, runs: Sequence[RunSummary], *, about: str = "") -> VariantResult:
        """Judge the rounds of a variant; a variant without a finished round is undecided."""
        hit = [run for run in runs if run.shows(expect)]
        times = [first[1].t_s for run in hit if (first := run.first_witness(expect)) is not None]
        unsure = not runs or any(run.verdict is Verdict.UNKNOWN for run in runs)
        if expect == CLEAN:
            outcome = Expectation.UNDECIDED if unsure else Expectation.MET
            outcome = Expectation.NOT_MET if hit else outcome
        else:
            outcome = Expectation.UNDECIDED if unsure else Expectation.NOT_MET
            outcome = Expectation.MET if hit else outcome
        return cls(
            name=name,
            expect=expect,
            about=about,
            outcome=outcome,
            as_expected=outcome is Expectation.MET,
            rounds=len(runs),
            hits=len(hit),
            first_witness_s=times[0] if times else None,
            runs=list(runs),
            counted=len(runs),
            witness_times_s=times,
        )


class Proved(StrEnum):
    """What comparing the affected with the fixed version has shown; ``SEEN`` only of an early stop."""

    REPRODUCED = "reproduced"
    SEEN = "seen"
    NOT_REPRODUCED = "not reproduced"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What `repro` was asked, written down before the first round.

    ``rounds``: counted rounds of each arm. ``quick``: stop at the first affected hit and one fixed round.
    """

    bug: str
    report: str
    pair: str
    expect: str  # the class of the bug
    affected: str  # variants
    fixed: str
    counter: str
    floor: int
    rounds: int
    quick: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduction:
    """The answer. ``p_value``: two-sided, Fisher's exact test; None when the rounds are not complete."""

    question: Question
    outcome: Proved
    why: str
    p_value: float | None

    @property
    def reproduced(self) -> bool | None:
        """None: it could not be decided."""
        decided = {Proved.REPRODUCED: True, Proved.NOT_REPRODUCED: False}
        return decided.get(self.outcome)


_PROVED_EXIT = {Proved.REPRODUCED: 0, Proved.SEEN: 0, Proved.NOT_REPRODUCED: 1, Proved.UNKNOWN: 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """A scenario with variants or rounds: campaign.json once it is judged.

    ``reproduction``: of a known bug.
    """

    campaign_id: str
    scenario: str
    about: str
    seed: int
    variants: list[VariantResult]
    duration_s: dict[str, float]
    command: str
    reproduction: Reproduction | None = None

    @property
    def exit_code(self) -> int:
        """0 when every variant came out as expected, 1 when one did not, 3 when one is undecided; of a
        known bug 0 when it is reproduced (or was seen, in an early stop), 1 when not, 3 when undecided;
        a run that could not be healed, crashed or had no cluster outranks them."""
        codes = {run.exit_code for variant in self.variants for run in variant.runs}
        urgent = next((code for code in URGENT_EXITS if code in codes), None)
        if urgent is not None:
            return urgent
        if self.reproduction is not None:
            return _PROVED_EXIT[self.reproduction.outcome]
        outcomes = {variant.outcome for variant in self.variants}
        if Expectation.NOT_MET in outcomes:
            return 1
        return 3 if Expectation.UNDECIDED in outcomes or not outcomes else 0

    def document(self) -> dict[str, Any]:
        """The public JSON document; ``runs`` names every run's folder, as `RunDir.rounds` reads it."""
        every = [run for variant in self.variants for run in variant.runs]
        runs = [run.path for run in sorted(every, key=lambda run: run.round)]
        document = {"schema_version": SCHEMA_VERSION, "exit_code": self.exit_code, **asdict(self)}
        found = self.reproduction
        if found is None:
            del document["reproduction"]
        else:
            document |= {"bug": found.question.bug, "reproduced": found.reproduced, "p_value": found.p_value}
        return {**document, "runs": runs}
