"""The search for the smallest scenario that still shows a class, round by round.

Groups of parts, the one that saves most first: each by delta debugging, every question of it by a sequential
test over rounds. Then every part that is left once more by itself, until none of them can go. What was played
is in the `Record`, so a search that goes on after it was cut off asks nothing twice.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from analysis.verdict.sequential import Decision, SequentialTest, one_of_each
from experiments.shrink.ddmin import ddmin, single
from experiments.shrink.record import Record, Seen, Step, key_of
from experiments.shrink.reductions import Group, Reduction, Shape, cost
from experiments.shrink.words import changes

#: A candidate is *shown* after two rounds that show the class, *not shown* after three without. A class that
#: shows in 60 % of the rounds is missed in at most 10 % of the questions: that leaves a part in that is not
#: needed. One that shows in 10 % is taken in at most 5 %: that would make a scenario of little use.
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


class Candidates(Protocol):
    """What plays candidates (`experiments.shrink.rounds.LiveCandidates`)."""

    def refusal(self, candidate: Mapping[str, Any]) -> str:
        """Why a candidate cannot be run, in one line; empty if it can. Starts nothing."""

    def play(self, candidate: Mapping[str, Any], seed: int) -> Seen:
        """One round of a candidate that is not refused.

        Raises:
            BrokerstormError: interrupted, or the first cluster could not start.
        """


class TimeIsOver(Exception):
    """The budget has no time for another round."""


@dataclass(slots=True)
class Search:
    """One search.

    Attributes:
        cls: of the anomaly; empty until the first round has shown which.
        seed: of the first round of every candidate; the next ones count up.
        budget_s: time for all rounds; None = as long as it takes.
        tell: gets one line a step.
        on_better: called with every smaller scenario that shows the class, as soon as it does.
        applied: the reductions of the smallest scenario so far.
        is_whole: nothing was left untried.
    """

    shape: Shape
    player: Candidates
    record: Record
    cls: str
    seed: int
    budget_s: float | None
    tell: Callable[[str], None] = lambda text: None
    on_better: Callable[[], None] = lambda: None
    clock: Callable[[], float] = time.monotonic
    applied: frozenset[Reduction] = frozenset()
    is_whole: bool = False
    shows: bool = False
    _began: float = 0.0
    _overhead_s: float = 0.0
    _decided: dict[str, bool] = field(default_factory=dict)

    def run(self) -> bool:
        """Search; whether the scenario that it began with shows the class.

        Raises:
            BrokerstormError: as `Candidates.play`; what was found until then is in ``applied``.
        """
        self._began = self.clock()
        try:
            self.shows = self._is_shown(self.applied)
            if self.shows:
                self._note_when()
                self._search()
                self.is_whole = True
        except TimeIsOver:
            self.tell(f"the time is over: {self._left_text()}")
        return self.shows

    @property
    def smallest(self) -> dict[str, Any]:
        """The data of the smallest scenario so far."""
        return self.shape.without(self.applied)

    def answer(self, reduction: Reduction) -> Step | None:
        """What was said of the smallest scenario with one reduction more; None = it was not asked."""
        return self.record.steps.get(key_of(self.shape.without(self.applied | {reduction})))

    # ----- the order ----------------------------------------------------------------------------------

    def _search(self) -> None:
        waiting = set(Group)
        while waiting:
            group = max(waiting, key=lambda each: self._gain(self._left_of(each)))
            waiting.remove(group)
            parts = self._left_of(group)
            ddmin(parts, partial(self._suffices, parts, self.applied))
        parts = self._by_gain(self.shape.left(self.applied))
        single(parts, partial(self._suffices, parts, self.applied))

    def _note_when(self) -> None:
        """Rounds of the scenario as it is say after how many seconds of load the class first showed."""
        rounds = self.record.rounds(key_of(self.shape.data))
        first_s = max(seen.first_s.get(self.cls, math.inf) for seen in rounds if self._counts(seen))
        if first_s < math.inf:
            self.shape = self.shape.shown_by(first_s)

    def _left_of(self, group: Group) -> list[Reduction]:
        return self._by_gain([each for each in self.shape.left(self.applied) if each.group is group])

    def _by_gain(self, parts: list[Reduction]) -> list[Reduction]:
        """The longest gains first; of the same gain as the scenario has them."""
        return sorted(parts, key=lambda each: self._gain([each]), reverse=True)

    def _gain(self, parts: Collection[Reduction]) -> tuple[float, float, int]:
        """Seconds and messages of a round that these reductions save, and how many they are."""
        seconds, messages = cost(self.smallest)
        less_s, fewer = cost(self.shape.without(self.applied | set(parts)))
        return seconds - less_s, messages - fewer, len(parts)

    def _suffices(self, parts: list[Reduction], base: frozenset[Reduction], kept: list[Reduction]) -> bool:
        """Whether the scenario still shows the class with no more of the parts than these."""
        applied = base | (set(parts) - set(kept))
        if self._decided.get(key_of(self.shape.without(applied))) or self._is_shown(applied):
            self.applied = applied
            self.on_better()
            return True
        return False

    # ----- one question -------------------------------------------------------------------------------

    def _is_shown(self, applied: frozenset[Reduction]) -> bool:
        """Ask, unless it was asked before; one line says what came out.

        Raises:
            TimeIsOver: there is no time left for the next round.
        """
        candidate = self.shape.without(applied)
        key = key_of(candidate)
        if key not in self._decided:
            self._decided[key] = self._ask(key, candidate, applied)
        return self._decided[key]

    def _ask(self, key: str, candidate: Mapping[str, Any], applied: frozenset[Reduction]) -> bool:
        tried = changes(self.shape, self.applied, applied) or "as it is"
        test, rounds = question(), self.record.rounds(key)
        refused = "" if rounds else self.player.refusal(candidate)
        for seen in rounds:
            if not test.is_over:
                test.add(self._counts(seen))
        while not refused and not test.is_over:
            self._require_time(candidate)
            seen = self._play(key, candidate, self.seed + test.counted)
            test.add(self._counts(seen))
        shown = test.decision is Decision.SHOWN
        step = self.record.add_step(key, tried, self._said(test, refused, key), shown=shown)
        saved = self._saved_text(candidate) if shown and applied else ""
        words = [f"step {step.number}", tried, step.said, saved, self._left_text()]
        self.tell(" · ".join(word for word in words if word))
        return shown

    def _play(self, key: str, candidate: Mapping[str, Any], seed: int) -> Seen:
        began = self.clock()
        seen = self.player.play(candidate, seed)
        self._overhead_s = max(0.0, self.clock() - began - cost(candidate)[0])
        self.record.add_round(key, seen)
        return seen

    def _counts(self, seen: Seen) -> bool:
        """Whether a round shows the class; the first one that shows any says which it is about."""
        self.cls = self.cls or seen.only_class()
        return not seen.why_not and self.cls in seen.classes

    def _said(self, test: SequentialTest, refused: str, key: str) -> str:
        if refused:
            return f"cannot be run: {refused}"
        reasons = one_of_each(seen.why_not for seen in self.record.rounds(key) if seen.why_not)
        told = str(test)
        if test.shown and test.decision is Decision.NOT_SHOWN:
            told = told.replace("not shown in", "not shown: only in")
        return told + "".join(f"; {reason}" for reason in reasons)

    # ----- time ---------------------------------------------------------------------------------------

    def _left_s(self) -> float | None:
        return None if self.budget_s is None else self.budget_s - (self.clock() - self._began)

    def _require_time(self, candidate: Mapping[str, Any]) -> None:
        left_s = self._left_s()
        if left_s is not None and cost(candidate)[0] + self._overhead_s > left_s:
            raise TimeIsOver

    def _left_text(self) -> str:
        left_s = self._left_s()
        if left_s is None:
            return ""
        minutes, seconds = divmod(max(0, round(left_s)), 60)
        return f"{minutes}:{seconds:02d} left"

    def _saved_text(self, candidate: Mapping[str, Any]) -> str:
        (seconds, messages), (less_s, fewer) = cost(self.smallest), cost(candidate)
        if messages == fewer:
            return ""
        shorter = f"{seconds - less_s:.3g} s and " if seconds > less_s else ""
        return f"saves {shorter}{messages - fewer:,} messages a round"
