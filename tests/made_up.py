"""Rounds that come out as a test says: no broker, no worker, no Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

from analysis.findings import Result
from analysis.verdict.campaign import RunSummary
from experiments.experiment import Budget, RoundRequest, Rounds, Strategy
from experiments.judging import RoundOutcome
from harness.rundir import RunDir

AnswerT = TypeVar("AnswerT")
#: What comes out of a round, without the name and the key of its request. It may raise.
Script = Callable[[RoundRequest], RoundOutcome]


def judged(result: Result, **outcome: Any) -> RoundOutcome:
    """A round that was played."""
    return RoundOutcome(run=RunSummary.from_result(result, path="", round_number=1), **outcome)


def unusable(why: str) -> RoundOutcome:
    """One of what cannot be run."""
    return RoundOutcome(why_not=why, is_unusable=True)


def answered(strategy: Strategy[AnswerT], script: Script) -> AnswerT:
    """The answer of a strategy, of which nothing is kept."""
    try:
        request = next(strategy)
        while True:
            outcome = replace(script(request), name=request.name, key=request.key)
            request = strategy.send(outcome)
    except StopIteration as end:
        return cast("AnswerT", end.value)


class MadeUp(Rounds):
    """The rounds of a folder; ``requests`` are those that this one has played.

    Args:
        stops_after: as many rounds it raises ``stops_with``.
    """

    def __init__(
        self,
        folder: Path,
        script: Script,
        *,
        budget_s: float | None = None,
        stops_after: int = 100_000,
        stops_with: BaseException | None = None,
        **more: Any,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.now_s = 0.0
        budget = Budget(budget_s, clock=lambda: self.now_s)
        super().__init__(RunDir(folder), cast("Any", None), budget=budget, **more)
        self.requests: list[RoundRequest] = []
        self._script = script
        self._stops_after = stops_after
        self._stops_with = stops_with or KeyboardInterrupt()

    def _play(self, request: RoundRequest) -> RoundOutcome:
        if len(self.requests) >= self._stops_after:
            raise self._stops_with
        outcome = self._script(request)
        self.requests.append(request)
        self.now_s += outcome.duration_s
        return replace(outcome, name=request.name, key=request.key)
