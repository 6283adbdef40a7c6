"""Decides from as few rounds as possible whether a version or a scenario shows a class: Wald's
sequential probability ratio test, for a class that shows up in some rounds only. Pure.

Each round that counts adds the logarithm of how much likelier it is at the rate `shows_at_least`
than at `absent_at_most`. The test ends where the sum leaves (log `error_present`, -log
`error_absent`). By Wald's inequalities those bounds keep both errors at most as large as stated;
his usual bounds, (1 - b) / a and b / (1 - a), keep them only about so.

A. Wald, Sequential Tests of Statistical Hypotheses, Ann. Math. Statist. 16(2), 1945, section 3.2.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from math import exp, inf, log
from typing import Final

_NUMBER: Final = re.compile(r"[\d,.]*\d")


class SequentialDecision(StrEnum):
    """The result of the rounds so far. ``UNDECIDED`` is not an answer, whatever the number of
    rounds."""

    SHOWN = "shown"
    NOT_SHOWN = "not shown"
    UNDECIDED = "undecided"


@dataclass(slots=True, kw_only=True)
class SequentialTest:
    """One question, answered round by round: ``while not test.is_over:
    test.add(shows(play_round()))``.

    The errors are stated for a class whose rate is at or beyond one of the two rates. One in
    between may end either way, or undecided at `most_rounds`.

    Attributes:
        shows_at_least: rate (share of rounds) from which on the class is called present.
        absent_at_most: rate up to which it is called absent; 0 = one round that shows it settles
            it.
        error_present: chance at most of `NOT_SHOWN` though present.
        error_absent: chance at most of `SHOWN` though absent.
        most_rounds: counted rounds after which the question is given up, undecided.
        most_left_out: rounds that do not count after which it is given up, undecided: to continue
            until some count would choose them by their outcome.
        shown, counted: rounds that showed the class, among those that count.
        left_out: of each round that does not count, why.

    Raises:
        ValueError: rates or errors that no test has.
    """

    shows_at_least: float = 0.5
    absent_at_most: float = 0.02
    error_present: float = 0.01
    error_absent: float = 0.01
    most_rounds: int = 40
    most_left_out: int = 4
    shown: int = field(default=0, init=False)
    counted: int = field(default=0, init=False)
    left_out: list[str] = field(default_factory=list, init=False)
    _log_ratio: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        if not 0 <= self.absent_at_most < self.shows_at_least <= 1:
            raise ValueError(
                f"absent at most {self.absent_at_most}, shows at least {self.shows_at_least}"
            )
        if not (0 < self.error_present < 0.5 and 0 < self.error_absent < 0.5):
            raise ValueError(
                f"errors {self.error_present} and {self.error_absent}: between 0 and 0.5"
            )
        if self.most_rounds < 1 or self.most_left_out < 0:
            raise ValueError(f"{self.most_rounds} rounds, {self.most_left_out} left out")

    def add(self, shown: bool) -> SequentialDecision:
        """A round that could have shown the class, and whether it did; the decision after it.

        Raises:
            ValueError: the test is over.
        """
        self._refuse_if_over()
        self.counted += 1
        if shown:
            self.shown += 1
            self._log_ratio += _log(self.shows_at_least) - _log(self.absent_at_most)
        else:
            self._log_ratio += _log(1 - self.shows_at_least) - _log(1 - self.absent_at_most)
        return self.decision

    def leave_out(self, why: str) -> None:
        """A round that does not count: no fault took effect, the exposure was too low, the verdict
        unknown.

        Raises:
            ValueError: the test is over.
        """
        self._refuse_if_over()
        self.left_out.append(why)

    @property
    def decision(self) -> SequentialDecision:
        """Return what the rounds so far show: the effect, its absence, or neither yet."""
        if self._log_ratio >= -log(self.error_absent):
            return SequentialDecision.SHOWN
        if self._log_ratio <= log(self.error_present):
            return SequentialDecision.NOT_SHOWN
        return SequentialDecision.UNDECIDED

    @property
    def is_over(self) -> bool:
        """Decided, or given up."""
        given_up = self.counted >= self.most_rounds or len(self.left_out) > self.most_left_out
        return given_up or self.decision is not SequentialDecision.UNDECIDED

    @property
    def error(self) -> float | None:
        """Chance at most that the decision is wrong; None while there is none."""
        errors = {
            SequentialDecision.SHOWN: self.error_absent,
            SequentialDecision.NOT_SHOWN: self.error_present,
        }
        return errors.get(self.decision)

    @property
    def p_value(self) -> float | None:
        """Chance at most of rounds at least as telling if the decision were wrong; None while there
        is none.

        It holds wherever the test stops (Ville's inequality), which Fisher's exact test does not.
        """
        return None if self.error is None else exp(-abs(self._log_ratio))

    def __str__(self) -> str:
        """``shown in 2 of 3 rounds (error at most 1 %), 1 did not count: no fault took effect``."""
        text = f"{self.decision} in {self.shown} of {self.counted} rounds"
        if self.decision is SequentialDecision.NOT_SHOWN and not self.shown:
            text = f"not shown in {self.counted} rounds"
        if self.error is not None:
            text += f" (error at most {100 * self.error:.2g} %)"
        if self.left_out:
            text += f", {len(self.left_out)} did not count: {'; '.join(one_of_each(self.left_out))}"
        return text

    def _refuse_if_over(self) -> None:
        if self.is_over:
            raise ValueError(f"the test is over: {self}")


def one_of_each(reasons: Iterable[str]) -> list[str]:
    """Reasons of rounds without their repetitions, which differ in numbers only."""
    kinds: dict[str, str] = {}
    for reason in reasons:
        kinds.setdefault(_NUMBER.sub("", reason), reason)
    return [*kinds.values()]


def _log(rate: float) -> float:
    return log(rate) if rate > 0 else -inf
