"""The search for the smallest scenario that still shows a class, round by round.

Groups of parts, the one that saves most first: each by delta debugging, every question of it by a
sequential test over rounds. Then every part that is left once more by itself, until none of them
can go.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial

from analysis.findings import Verdict
from analysis.verdict.campaign import RunSummary
from analysis.verdict.sequential import SequentialDecision, SequentialTest, one_of_each
from experiments.experiment import OutOfBudget, RoundRequest, Strategy
from experiments.judging import RoundOutcome
from experiments.resolved import key_of
from experiments.shrink.ddmin import ddmin, single
from experiments.shrink.reductions import Group, Reduction, Shape, cost
from experiments.shrink.words import changes, file_text
from harness.contracts.plan import Plan
from harness.errors import EnvironmentNotReady, UsageError
from harness.rundir import Document

#: A candidate is *shown* after two rounds that show the class, *not shown* after three without. A
#: class that shows in 60 % of the rounds is missed in at most 10 % of the questions: that leaves a
#: part in that is not needed. One that shows in 10 % is taken in at most 5 %: that would make a
#: scenario of little use.
SHOWS_AT_LEAST, ABSENT_AT_MOST, ERROR_PRESENT, ERROR_ABSENT = 0.6, 0.1, 0.1, 0.05
_MOST_ROUNDS = 12


def question() -> SequentialTest:
    """One question: does this candidate show the class?"""
    return SequentialTest(
        shows_at_least=SHOWS_AT_LEAST,
        absent_at_most=ABSENT_AT_MOST,
        error_present=ERROR_PRESENT,
        error_absent=ERROR_ABSENT,
        most_rounds=_MOST_ROUNDS,
    )


@dataclass(frozen=True, slots=True)
class ShrinkStep:
    """One question: what was tried and what came out."""

    number: int
    tried: str
    said: str
    shown: bool


@dataclass(frozen=True, slots=True)
class Wanted:
    """The result that a round must show: the class, and the witness text of a known bug."""

    expect: str
    witness: str = ""
    counter: str = ""
    floor: int = 0


@dataclass(slots=True)
class Search:
    """One search.

    Attributes:
        plan: of a candidate and a seed; raises a `BrokerstormError` for what cannot be run.
        wanted: the class is empty until the first round has shown which.
        seed: of the first round of every candidate; the next ones count up.
        command: repeats the search.
        tell: gets one line a step.
        on_better: called with every smaller scenario that shows the class, as soon as it does.
        applied: the reductions of the smallest scenario so far.
        is_whole: nothing was left untried.
    """

    shape: Shape
    plan: Callable[[Document, int], Plan]
    wanted: Wanted
    seed: int
    command: str = ""
    tell: Callable[[str], None] = lambda text: None
    on_better: Callable[[], None] = lambda: None
    applied: frozenset[Reduction] = frozenset()
    is_whole: bool = False
    shows: bool = False
    steps: dict[str, ShrinkStep] = field(default_factory=dict)
    played: dict[str, list[RoundOutcome]] = field(default_factory=dict)
    _overhead_s: float = 0.0

    @property
    def cls(self) -> str:
        """Return the anomaly class."""
        return self.wanted.expect

    def rounds(self) -> Strategy[None]:
        """Search; what was found until the time is over is in ``applied``."""
        try:
            self.shows = yield from self._is_shown(self.applied)
            if self.shows:
                self._note_when()
                yield from self._search()
                self.is_whole = True
        except OutOfBudget as error:
            self.tell(f"the time is over: the next round {error}")

    @property
    def smallest(self) -> Document:
        """The data of the smallest scenario so far."""
        return self.shape.without(self.applied)

    def answer(self, reduction: Reduction) -> ShrinkStep | None:
        """Return the answer about the smallest scenario with one more reduction; None if it was not
        asked."""
        return self.steps.get(key_of(self.shape.without(self.applied | {reduction})))

    # ----- the order ------------------------------------------------------------------------------

    def _search(self) -> Strategy[None]:
        waiting = set(Group)
        while waiting:
            group = max(waiting, key=lambda each: self._gain(self._left_of(each)))
            waiting.remove(group)
            parts = self._left_of(group)
            yield from ddmin(parts, partial(self._suffices, parts, self.applied))
        parts = self._by_gain(self.shape.left(self.applied))
        yield from single(parts, partial(self._suffices, parts, self.applied))

    def _note_when(self) -> None:
        """Rounds of the scenario as it is say after how many seconds of load the class first
        showed."""
        rounds = self.played[key_of(self.smallest)]
        shown = [each.run for each in rounds if self._counts(each, self.shape.data)]
        times = [run.witnesses[self.cls].t_s for run in shown if run and self.cls in run.witnesses]
        if times and len(times) == len(shown):
            self.shape = self.shape.shown_by(max(times))

    def _left_of(self, group: Group) -> list[Reduction]:
        return self._by_gain(
            [each for each in self.shape.left(self.applied) if each.group is group]
        )

    def _by_gain(self, parts: list[Reduction]) -> list[Reduction]:
        """The longest gains first; of the same gain as the scenario has them."""
        return sorted(parts, key=lambda each: self._gain([each]), reverse=True)

    def _gain(self, parts: Collection[Reduction]) -> tuple[float, float, int]:
        """Seconds and messages of a round that these reductions save, and how many they are."""
        seconds, messages = cost(self.smallest)
        less_s, fewer = cost(self.shape.without(self.applied | set(parts)))
        return seconds - less_s, messages - fewer, len(parts)

    def _suffices(
        self, parts: list[Reduction], base: frozenset[Reduction], kept: list[Reduction]
    ) -> Strategy[bool]:
        """Whether the scenario still shows the class with no more of the parts than these."""
        applied = base | (set(parts) - set(kept))
        if not (yield from self._is_shown(applied)):
            return False
        self.applied = applied
        self.on_better()
        return True

    # ----- one question ---------------------------------------------------------------------------

    def _is_shown(self, applied: frozenset[Reduction]) -> Strategy[bool]:
        """Ask, unless it was asked before; one line says what came out."""
        candidate = self.shape.without(applied)
        key = key_of(candidate)
        if key not in self.steps:
            yield from self._ask(key, candidate, applied)
        return self.steps[key].shown

    def _ask(self, key: str, candidate: Document, applied: frozenset[Reduction]) -> Strategy[None]:
        tried = changes(self.shape, self.applied, applied) or "as it is"
        test, rounds = question(), self.played.setdefault(key, [])
        while not test.is_over:
            outcome = yield self._request(key, candidate, test.counted)
            rounds.append(outcome)
            if outcome.is_unusable:
                break
            self._overhead_s = max(0.0, outcome.duration_s - cost(candidate)[0])
            test.add(self._counts(outcome, candidate))
        shown = test.decision is SequentialDecision.SHOWN
        step = ShrinkStep(len(self.steps) + 1, tried, self._said(test, rounds, candidate), shown)
        saved = self._saved_text(candidate) if shown and applied else ""
        words = [f"step {step.number}", tried, step.said, saved]
        self.steps[key] = step
        self.tell(" · ".join(word for word in words if word))

    def _request(self, key: str, candidate: Document, asked_before: int) -> RoundRequest:
        seed = self.seed + asked_before
        return RoundRequest(
            name=f"round-{sum(map(len, self.played.values())) + 1:03d}",
            key=f"{key} {seed}",
            plan=partial(self.plan, candidate, seed),
            number=asked_before + 1,
            command=self.command,
            question=self.wanted,
            scenario=partial(file_text, candidate, [], {}),
            expected_s=cost(candidate)[0] + self._overhead_s,
            tolerates=(EnvironmentNotReady,),
        )

    def _counts(self, outcome: RoundOutcome, candidate: Document) -> bool:
        """Whether a round shows the class; the first one that shows any says which it is about."""
        if outcome.run is None or self._why_nothing(outcome, candidate):
            return False
        if not self.cls:
            self.wanted = Wanted(only_class(outcome.run))
        return bool(self.cls) and outcome.run.has(self.cls)

    def _why_nothing(self, outcome: RoundOutcome, candidate: Document) -> str:
        if outcome.run is None:
            return outcome.why_not
        return why_nothing(outcome.run, self.wanted, has_faults=bool(candidate.get("faults")))

    def _said(self, test: SequentialTest, rounds: list[RoundOutcome], candidate: Document) -> str:
        if rounds[-1].is_unusable:
            return f"cannot be run: {rounds[-1].why_not}"
        said = (self._why_nothing(each, candidate) for each in rounds)
        told = str(test)
        if test.shown and test.decision is SequentialDecision.NOT_SHOWN:
            told = told.replace("not shown in", "not shown: only in")
        return told + "".join(f"; {reason}" for reason in one_of_each(why for why in said if why))

    def _saved_text(self, candidate: Document) -> str:
        (seconds, messages), (less_s, fewer) = cost(self.smallest), cost(candidate)
        if messages == fewer:
            return ""
        shorter = f"{seconds - less_s:.3g} s and " if seconds > less_s else ""
        return f"saves {shorter}{messages - fewer:,} messages a round"


def why_nothing(run: RunSummary, wanted: Wanted, *, has_faults: bool) -> str:
    """Why a round shows nothing whatever it found: it is unknown, no fault took effect, it is
    another bug."""
    if run.verdict is Verdict.UNKNOWN:
        return "unknown: " + (run.reasons[0] if run.reasons else "no reason is given")
    if has_faults and not run.faults["effective"]:
        return "no fault took effect"
    if run.has(wanted.expect) and run.sighted == "":
        return f"nothing has the text of the bug: {wanted.witness}"
    return ""


def only_class(run: RunSummary) -> str:
    """The class that a round shows; empty = none.

    Raises:
        UsageError: several; which is the search about?
    """
    found = [*dict.fromkeys((*run.violations, *run.excused))]
    if len(found) > 1:
        raise UsageError(
            f"it shows several classes: {', '.join(found)}",
            hint="--class selects the class to keep",
        )
    return next(iter(found), "")
