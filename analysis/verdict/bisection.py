"""Finds where a class begins or ends among ordered versions, though it shows in some rounds only.
Pure.

Each version is asked by a sequential test. The chance that any answer is wrong is at most the sum
of the chances of all answers (Boole's inequality), whatever the rounds have to do with each other:
the allowed error is shared out so that the sum never exceeds it. As with ``git bisect``, one change
is assumed between the ends; of several, one is found.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from enum import StrEnum
from math import ceil, log, log2
from typing import Any, TypeVar

from analysis.verdict.sequential import SequentialDecision, SequentialTest
from harness.rundir import Document

#: Rounds that do not count after which a version is skipped.
MOST_LEFT_OUT = 3


class UnusableVersionError(Exception):
    """A version is not available, does not build or does not run; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One round of one version.

    Attributes:
        number: from 1 within the version.
        folder: folder of the run, below the bisection's folder.
        not_counted: why it proves nothing; empty = it counts.
        met: the exposure counter; None where there is none.
    """

    version: str
    number: int
    seed: int
    folder: str
    shown: bool
    not_counted: str = ""
    met: int | None = None
    duration_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The result of the rounds of one version.

    Attributes:
        text: the decision in a line; of a skipped version, why.
        error: chance at most that the decision is wrong; None = there is none.
        p_value: as of `SequentialTest.p_value`.
    """

    version: str
    decision: SequentialDecision
    text: str
    error: float | None = None
    p_value: float | None = None
    looks: tuple[Look, ...] = ()

    @property
    def counted(self) -> int:
        """The number of rounds that count as evidence."""
        return sum(not look.not_counted for look in self.looks)

    @property
    def shown(self) -> int:
        """The number of counted rounds that showed the class."""
        return sum(look.shown for look in self.looks if not look.not_counted)

    @property
    def met(self) -> list[int]:
        """The exposure of each round that counts."""
        return [look.met for look in self.looks if look.met is not None and not look.not_counted]

    def document(self) -> Document:
        """Return the JSON form that a bisection's result has."""
        return {
            "version": self.version,
            "decision": str(self.decision),
            "text": self.text,
            "rounds": len(self.looks),
            "counted": self.counted,
            "shown": self.shown,
            "exposure": self.met,
            "error": self.error,
            "p_value": self.p_value,
            "runs": [look.folder for look in self.looks],
            "duration_s": round(sum(look.duration_s for look in self.looks), 1),
        }


@dataclass(slots=True)
class ErrorBudget:
    """Shares an allowed error out: equal shares for the expected answers, half of what is left for
    others.

    Attributes:
        total: never exceeded by `spent`.
        answers: expected.
    """

    total: float
    answers: int
    spent: float = field(default=0.0, init=False)
    _given: int = field(default=0, init=False)

    def share(self) -> float:
        """Return the error that the next answer may have."""
        if self._given < self.answers:
            return self.total / (self.answers + 1)
        return (self.total - self.spent) / 2

    def spend(self, error: float) -> None:
        """An answer was given, with this error at most."""
        self.spent += error
        self._given += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """The rates that count as present and as absent; see `SequentialTest`."""

    shows_at_least: float = 0.5
    absent_at_most: float = 0.02


AnswerT = TypeVar("AnswerT")
#: Asks for rounds, whatever a request and an outcome are, and returns.
Asking = Generator[Any, Any, AnswerT]
#: Asks for a round: version and number, from 1 -> what it showed. Raises `UnusableVersionError`.
Play = Callable[[str, int], Asking[Look]]


class Examiner:
    """Asks versions, each once; ``steps`` keeps them in their order.

    Args:
        tell: gets the evidence of each version as soon as it is decided or skipped.
    """

    def __init__(
        self, budget: ErrorBudget, rates: Rates, play: Play, tell: Callable[[Evidence], None]
    ) -> None:
        self.budget = budget
        self.steps: list[Evidence] = []
        self._rates = rates
        self._play = play
        self._tell = tell

    def ask(self, version: str) -> Asking[SequentialDecision]:
        """Ask for rounds of a version until its test is over; `UNDECIDED` = it is to be skipped."""
        known = next((step for step in self.steps if step.version == version), None)
        if known is None:
            known = yield from self._examined(version)
            if known.error is not None:
                self.budget.spend(known.error)
            self.steps.append(known)
            self._tell(known)
        return known.decision

    def _examined(self, version: str) -> Asking[Evidence]:
        share = self.budget.share()
        test = SequentialTest(
            shows_at_least=self._rates.shows_at_least,
            absent_at_most=self._rates.absent_at_most,
            error_present=share,
            error_absent=share,
            most_rounds=_most_rounds(self._rates, share),
            most_left_out=MOST_LEFT_OUT,
        )
        looks: list[Look] = []
        while not test.is_over:
            try:
                look = yield from self._play(version, len(looks) + 1)
            except UnusableVersionError as error:
                return Evidence(
                    version=version,
                    decision=SequentialDecision.UNDECIDED,
                    text=f"skipped: {error}",
                    looks=tuple(looks),
                )
            looks.append(look)
            if look.not_counted:
                test.leave_out(look.not_counted)
            else:
                test.add(look.shown)
        return Evidence(
            version=version,
            decision=test.decision,
            text=f"skipped: {test}" if test.decision is SequentialDecision.UNDECIDED else str(test),
            error=test.error,
            p_value=test.p_value,
            looks=tuple(looks),
        )


def _most_rounds(rates: Rates, error: float) -> int:
    """Four times what an absent class takes that never shows: only a rate in between needs more."""
    each = (
        log((1 - rates.absent_at_most) / (1 - rates.shows_at_least))
        if rates.shows_at_least < 1
        else 1.0
    )
    return 4 * ceil(-log(error) / each)


def expected_answers(count: int) -> int:
    """Answers that it takes to search ``count`` ordered versions, the two ends included."""
    return 2 + (ceil(log2(count - 1)) if count > 2 else 0)


def search(count: int, is_new: Callable[[int], Asking[bool | None]]) -> Asking[tuple[int, int]]:
    """Return the last of ``count`` on the old side and the first on the new one; everything in
    between was skipped.

    Args:
        is_new: of an index between the ends, which are known; None = skip it: its neighbours are
            tried.
    """
    low, high = 0, count - 1
    skipped: set[int] = set()
    while untried := [index for index in range(low + 1, high) if index not in skipped]:
        middle = (low + high) / 2
        index = min(untried, key=lambda each: abs(each - middle))
        side = yield from is_new(index)
        if side is None:
            skipped.add(index)
        elif side:
            high = index
        else:
            low = index
    return low, high


class BisectionOutcome(StrEnum):
    """How a bisection ended; `NARROWED`: skipped versions lie between the two sides."""

    FOUND = "found"
    NARROWED = "narrowed"
    NOT_CONFIRMED = "not confirmed"
    UNKNOWN = "unknown"


#: The same codes as `repro`: 1 = the bug is not where it was reported.
EXIT = {
    BisectionOutcome.FOUND: 0,
    BisectionOutcome.NOT_CONFIRMED: 1,
    BisectionOutcome.NARROWED: 3,
    BisectionOutcome.UNKNOWN: 3,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Where the change is.

    Attributes:
        before, first: versions of the two sides next to each other; empty = not known.
        between: skipped, so that any of them may be the first.
    """

    outcome: BisectionOutcome
    why: str
    before: str = ""
    first: str = ""
    between: tuple[str, ...] = ()


def confirm_ends(examiner: Examiner, bad: str, good: str) -> Asking[Answer | None]:
    """Ask both ends, the bad one first (a hit is soon seen); an answer if there is nothing to
    search."""
    for version, wanted in ((bad, SequentialDecision.SHOWN), (good, SequentialDecision.NOT_SHOWN)):
        found = yield from examiner.ask(version)
        text = f"{version}: {examiner.steps[-1].text}"
        if found is SequentialDecision.UNDECIDED:
            return Answer(
                outcome=BisectionOutcome.UNKNOWN, why=f"an end could not be decided: {text}"
            )
        if found is not wanted:
            side = "bad" if version == bad else "good"
            return Answer(
                outcome=BisectionOutcome.NOT_CONFIRMED, why=f"the {side} end is not {side}: {text}"
            )
    return None
