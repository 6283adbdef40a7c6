"""Summarises several runs: the rounds of a scenario's variants, and whether a known bug was
reproduced.

`Campaign.document()` is campaign.json, the public JSON (schema_version 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum

from analysis.findings import SCHEMA_VERSION, Result, Verdict, Witness
from harness.rundir import Document

CLEAN = "clean"
#: Exit codes of a run that count for a whole campaign, the most urgent first; see docs/reference.
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
    exposure: dict[str, int] = field(default_factory=dict)  # docs/explanation/anomalies.md
    witnesses: dict[str, Witness]  # class -> its earliest; a violation's where there is one
    missed: list[str] = field(default_factory=list)  # thresholds that were not held
    # of a bug with a witness text: what has it; empty = nothing, None = not asked
    sighted: str | None = None
    unread: str = ""  # of a bug with a witness text: what might have it and could not be read
    not_counted: str = ""  # of a known bug: why the round proves nothing; empty = it counts

    @classmethod
    def from_result(
        cls,
        result: Result,
        *,
        path: str,
        round_number: int,
        sighting: tuple[str, str] | None = None,
    ) -> RunSummary:
        """Return the summary of a round from its result."""
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
            missed=[each.title for each in result.missed()],
            sighted=None if sighting is None else sighting[0],
            unread="" if sighting is None else sighting[1],
        )

    def shows(self, expect: str) -> bool:
        """The expected class showed up, be it permitted, and the witness text of the bug where it
        has one; for *clean*: there was a violation, or a threshold was missed."""
        if expect == CLEAN:
            return bool(self.violations or self.missed)
        return self.sighted != "" and self.has(expect)

    def has(self, expect: str) -> bool:
        """The class showed up, whichever bug it was."""
        return expect in self.violations or expect in self.excused

    def first_witness(self, expect: str) -> tuple[str, Witness] | None:
        """Class and witness to show first: of the expected class, else the earliest of any
        violation."""
        if expect in self.witnesses:
            return expect, self.witnesses[expect]
        violated = ((cls, w) for cls, w in self.witnesses.items() if cls in self.violations)
        return min(violated, key=lambda pair: _time(pair[1]), default=None)


def _time(witness: Witness) -> float:
    return witness.t_s


class Expectation(StrEnum):
    """The comparison of what a variant showed with what it was expected to show."""

    MET = "as expected"
    NOT_MET = "not as expected"
    UNDECIDED = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class HitRate:
    """Share of rounds with a hit, and its exact 95 % interval (Clopper-Pearson)."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantResult:
    """All rounds of a variant.

    ``hits``: rounds that show the expected class (a permitted one too: some bugs break no promise);
    for a variant expected *clean*, rounds with any violation or a missed threshold.
    ``first_witness_s``: time into the load of the first hit's earliest witness, None if none.
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
    rate: HitRate | None = (
        None  # hits among the counted; only where the number of rounds was fixed beforehand
    )
    witness_times_s: list[float] = field(default_factory=list)  # into the load, of each hit
    # folders of the rounds that it never came to
    not_played: list[str] = field(default_factory=list)

    @classmethod
    def from_runs(
        cls,
        name: str,
        expect: str,
        runs: Sequence[RunSummary],
        *,
        about: str = "",
        not_played: Sequence[str] = (),
    ) -> VariantResult:
        """Judge the rounds of a variant. Without a finished round it is undecided, and so is what
        was not found while rounds are missing."""
        hit = [run for run in runs if run.shows(expect)]
        times = [first[1].t_s for run in hit if (first := run.first_witness(expect)) is not None]
        unsure = not runs or bool(not_played) or any(run.verdict is Verdict.UNKNOWN for run in runs)
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
            not_played=list(not_played),
        )


class Proved(StrEnum):
    """The result of comparing the affected version with the fixed one; ``SEEN`` only after an early
    stop."""

    REPRODUCED = "reproduced"
    SEEN = "seen"
    NOT_REPRODUCED = "not reproduced"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The question of `repro`, written down before the first round.

    ``counter``: of the exposure, empty = none is needed. ``rounds``: counted rounds of each arm.
    ``quick``: stop at the first affected hit and one fixed round. ``until_hit``: only the affected
    version, with fresh seeds until it shows; ``rounds`` then says nothing. ``overrides``: KEY=VALUE
    of everything that was set over the bug file.
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
    witness: str = ""  # what tells the bug from another one of its class; empty = the class does
    until_hit: bool = False
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduction:
    """The answer. ``p_value``: two-sided, Fisher's exact test; None when the rounds are not
    complete."""

    question: Question
    outcome: Proved
    why: str
    p_value: float | None

    @property
    def reproduced(self) -> bool | None:
        """Return whether the bug was reproduced; None if this could not be decided."""
        decided = {Proved.REPRODUCED: True, Proved.NOT_REPRODUCED: False}
        return decided.get(self.outcome)


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedReproduction:
    """A `Reproduction` without its answer."""

    question: Question


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunCampaign:
    """campaign.json from before the first round on; a judged one, which can be read as this, says
    more.

    ``runs``: folders, in order of start. ``bug``, ``seed``, ``exit_code``: of a judged one.
    """

    schema_version: int = SCHEMA_VERSION
    runs: list[str] = field(default_factory=list)
    command: str = ""
    about: str = ""
    bug: str = ""
    seed: int | None = None
    exit_code: int | None = None
    reproduction: AskedReproduction | None = None

    @property
    def question(self) -> Question | None:
        """Return the question of `repro`; None if the campaign belongs to another command."""
        return self.reproduction.question if self.reproduction else None


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
        """0 when every variant came out as expected, 1 when one did not, 3 when one is undecided;
        of a known bug 0 when it is reproduced (or was seen, in an early stop), 1 when not, 3 when
        undecided; a run that could not be healed, crashed or had no cluster outranks them."""
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

    def document(self) -> Document:
        """The public JSON document; ``runs`` names every run's folder, as `RunDir.rounds` reads
        it."""
        every = [run for variant in self.variants for run in variant.runs]
        runs = [run.path for run in sorted(every, key=lambda run: run.round)]
        document = {"schema_version": SCHEMA_VERSION, "exit_code": self.exit_code, **asdict(self)}
        found = self.reproduction
        if found is None:
            del document["reproduction"]
        else:
            document |= {
                "bug": found.question.bug,
                "reproduced": found.reproduced,
                "p_value": found.p_value,
            }
        return {**document, "runs": runs}
