"""Plays the rounds that a strategy asks for in a folder of their own, and continues them after a
kill.

A strategy is a generator: it yields the round that it wants, is sent what came out of it, and
returns its answer. It knows no cluster, folder, lock, budget or signal. Its rounds are in
``rounds.jsonl``, a line each, synced as soon as a round is judged. To continue, a fresh strategy is
sent the kept outcomes, and the first round that has none is played: so a strategy has no clock and
no random source of its own.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from analysis.report.documents import finite, read_result
from experiments.campaign import CampaignRunner
from experiments.folders import ROUNDS, KeptOutcome, close_run_folder, kept, make_room
from experiments.judging import RoundOutcome, TellStopped, outcome_of, summarize
from experiments.plans import for_a_new_run
from harness.contracts import read_document
from harness.contracts.plan import Plan
from harness.errors import BrokerstormError, EnvironmentNotReady, HealError, Interrupted, UsageError
from harness.plan.rates import as_recorded, is_open
from harness.rundir import RunDir, append_jsonl, write_json

if TYPE_CHECKING:
    from analysis.findings import Result
    from analysis.verdict.campaign import Campaign, Question
    from analysis.verdict.reproduction import RoundQuestion
    from experiments.context import CommandContext
    from experiments.resolved import Resolved

#: In the folder of an experiment: the rate that was measured.
RATE = "rate.json"

AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The next request of a strategy.

    Attributes:
        name: of its folder, below the experiment's; empty = the folder itself, of the only round.
        key: what is asked, as `key_of` makes it: what was kept of something else is refused.
        expected_s: time that must be left of the budget.
        told: what came out in a line, empty = nothing is shown.
    """

    name: str
    key: str
    expected_s: float = 0.0
    told: Callable[[Any], str] = field(default=lambda outcome: "")


RequestT = TypeVar("RequestT", bound=Request)
OutcomeT = TypeVar("OutcomeT", bound=KeptOutcome)


class OutOfBudget(Exception):
    """No further round is played: the time is used up, or the user stopped it. The text says
    which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRequest(Request):
    """The next round that a strategy wants.

    Attributes:
        plan: or what makes it once the round is to be played; that it cannot be made is an outcome.
        number: of the round, from 1, for people.
        command: repeats it.
        question: of a known bug: the text that distinguishes it from others.
        scenario: text of the file that the folder keeps; None = the experiment's.
        tolerates: errors that are an outcome too; any other one ends the experiment.
        is_last: the cluster is not needed after it.
        features: what else the outcome holds of a judged round; None = nothing.
    """

    plan: Plan | Callable[[], Plan]
    number: int = 1
    command: str = ""
    question: RoundQuestion | None = None
    scenario: Callable[[], str] | None = None
    tolerates: tuple[type[BrokerstormError], ...] = ()
    is_last: bool = False
    features: Callable[[RunDir, Result], list[str]] | None = None


#: Yields requests, is sent their outcomes, returns its answer. `OutOfBudget` is raised in it for
#: every request that can no longer be played.
Strategy = Generator[RoundRequest, RoundOutcome, AnswerT]


class Budget:
    """Time for all rounds of a process, from its first one on; None = as long as it takes."""

    def __init__(
        self,
        budget_s: float | None,
        *,
        spent_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._budget_s = budget_s
        self._spent_s = spent_s
        self._clock = clock
        self._began: float | None = None

    @property
    def left_s(self) -> float:
        """Seconds; infinite without a budget."""
        if self._began is None:
            self._began = self._clock()
        if self._budget_s is None:
            return math.inf
        return self._budget_s - self._spent_s - (self._clock() - self._began)

    @property
    def left_text(self) -> str:
        """`` · 12:30 left``, after a line; empty without a budget."""
        if self._budget_s is None:
            return ""
        minutes, seconds = divmod(max(0, round(self.left_s)), 60)
        return f" · {minutes}:{seconds:02d} left"

    def require(self, expected_s: float) -> None:
        """Raises: OutOfBudget: less is left."""
        left_s = self.left_s
        if left_s < expected_s:
            raise OutOfBudget(
                f"takes about {expected_s:.0f} s, and {max(0.0, left_s):.0f} s of the budget are "
                "left"
            )


class Experiment(ABC, Generic[RequestT, OutcomeT]):
    """The requests of one folder: finished ones are kept, the others are played.

    Args:
        outcome: class of what is kept.
        tell: gets a line of each request that is played.
    """

    def __init__(
        self, root: RunDir, outcome: type[OutcomeT], budget: Budget, tell: Callable[[str], None]
    ) -> None:
        self.root = root
        self.budget = budget
        self.tell = tell
        self._kept = {each.name: each for each in kept(root, outcome)}

    @property
    def outcomes(self) -> list[OutcomeT]:
        """All so far, in the order in which they were played."""
        return [*self._kept.values()]

    def run(self, strategy: Generator[RequestT, OutcomeT, AnswerT]) -> AnswerT:
        """Play what a strategy asks for; its answer.

        Raises:
            BrokerstormError: as of the round that was played; those before it are kept.
            UsageError: what is kept is not what is asked for.
        """
        try:
            request = next(strategy)
            while True:
                try:
                    outcome = self._outcome(request)
                except OutOfBudget as error:
                    request = strategy.throw(error)
                else:
                    request = strategy.send(outcome)
        except StopIteration as end:
            answer: AnswerT = end.value
            return answer
        finally:
            strategy.close()

    def _outcome(self, request: RequestT) -> OutcomeT:
        outcome = self._kept.get(request.name)
        if outcome is None:
            outcome = self._played_before(request)
            if outcome is None:
                self.budget.require(request.expected_s)
                outcome = self._play(request)
            self._kept[request.name] = outcome
            append_jsonl(self.root.root / ROUNDS, finite(asdict(outcome)), sync=True)
            if line := request.told(outcome):
                self.tell(line)
        elif outcome.key != request.key:
            raise UsageError(
                f"{self.root.run_id}: {request.name} was played of something else",
                hint="the request has changed since: start again, or restore the files",
            )
        return outcome

    def _played_before(self, request: RequestT) -> OutcomeT | None:
        """Return the outcome of a request that was played to its end but not kept; None if there is
        none."""
        return None

    @abstractmethod
    def _play(self, request: RequestT) -> OutcomeT:
        """Raises: OutOfBudget: nothing more is played."""


class Rounds(Experiment[RoundRequest, RoundOutcome]):
    """The rounds in one folder.

    Args:
        campaign: plays them.
        goes_on: others are played after these on the same cluster.
    """

    def __init__(
        self,
        root: RunDir,
        campaign: CampaignRunner,
        *,
        budget: Budget | None = None,
        tell: Callable[[str], None] = lambda text: None,
        goes_on: bool = False,
    ) -> None:
        super().__init__(root, RoundOutcome, budget or Budget(None), tell)
        self._campaign = campaign
        self._goes_on = goes_on
        self._has_judged = False

    def at_its_rate(self, *plans: Plan) -> list[Plan]:
        """The plans with the rate that the machine keeps, where they leave it open: measured once,
        then kept.

        Raises:
            BrokerstormError: as `LiveRun.execute`.
        """
        path = self.root.root / RATE
        if not any(map(is_open, plans)):
            return list(plans)
        if not path.exists():
            measured = self._campaign.with_rates(plans, self.root)
            write_json(
                path, next(plan for plan in measured if plan.rate_choice).model_dump(mode="json")
            )
            return measured
        recorded = read_document(path, Plan)
        return [as_recorded(plan, recorded) for plan in plans]

    def _play(self, request: RoundRequest) -> RoundOutcome:
        if self._campaign.is_stopped:
            raise OutOfBudget("was stopped")
        began = time.monotonic()

        def ended(outcome: RoundOutcome) -> RoundOutcome:
            took_s = round(time.monotonic() - began, 3)
            return replace(outcome, name=request.name, key=request.key, duration_s=took_s)

        try:
            asked = request.plan if isinstance(request.plan, Plan) else request.plan()
        except BrokerstormError as error:
            return ended(
                RoundOutcome(why_not=_tolerated(error, BrokerstormError), is_unusable=True)
            )
        (plan,) = self.at_its_rate(for_a_new_run(asked))
        run = RunDir(self.root.root / request.name)
        if request.name:
            make_room(run)
        if request.scenario:
            run.create().scenario.write_text(request.scenario())
        try:
            result = self._campaign.run_round(
                plan, run, is_last=request.is_last and not self._goes_on, command=request.command
            )
        except EnvironmentNotReady as error:
            if not self._has_judged:
                raise
            why = _tolerated(error, *request.tolerates)
            self._campaign.close()
            return ended(RoundOutcome(why_not=f"the cluster was not ready: {why}"))
        except BrokerstormError as error:
            why = _tolerated(error, *request.tolerates)
            return ended(RoundOutcome(why_not=f"it does not run: {why}", is_unusable=True))
        self._has_judged = True
        outcome = outcome_of(plan, run, result, number=request.number, question=request.question)
        if request.features:
            outcome = replace(outcome, features=request.features(run, result))
        return ended(outcome)


def _tolerated(error: BrokerstormError, *kinds: type[BrokerstormError]) -> str:
    """Return an error's text in one line if a strategy can do without the round; else raise it."""
    if not isinstance(error, kinds) or isinstance(error, Interrupted | HealError):
        raise error
    return " ".join(str(error).split())


# ----- run and repro ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A `run` or a `repro` before anything is started.

    Attributes:
        resolved: the rounds that can be foreseen, as they were checked.
        plans: the same rounds; the rounds of a strategy that asks for more are added while it
            plays.
        about: the purpose of the scenario.
        command: repeats all of it.
        strategy: asks for the rounds.
        names: the folders of the rounds, where they are known; otherwise ``question`` is.
        question: the question of `repro`; None = a `run`.
        max_time_s: no round begins after this time; None = no limit.
    """

    root: RunDir
    resolved: Resolved
    plans: list[Plan]
    about: str
    command: str
    warnings: tuple[str, ...]
    strategy: Strategy[None]
    names: Sequence[str] = ()
    question: Question | None = None
    max_time_s: float | None = None

    def summary(self, outcomes: Sequence[RoundOutcome], duration_s: float) -> Campaign:
        """Write the summary of all rounds into the folder, and return it."""
        return summarize(
            self.root,
            self.plans,
            outcomes,
            command=self.command,
            about=self.about,
            duration_s=duration_s,
            names=self.names,
            question=self.question,
        )

    def play(self, campaign: CampaignRunner, *, goes_on: bool = False) -> Result | Campaign:
        """Play all rounds: the result of the only one, or the summary of several.

        Args:
            goes_on: others are played after these on the same cluster.

        Raises:
            BrokerstormError: interrupted, or it could not be run; what is finished can be analysed.
        """
        began = time.monotonic()
        for text in self.warnings:
            campaign.progress.note(f"warning: {text}")
        budget = Budget(self.max_time_s)
        experiment = Rounds(
            self.root, campaign, budget=budget, tell=campaign.progress.note, goes_on=goes_on
        )
        experiment.at_its_rate(*self.plans)
        experiment.run(self.strategy)
        if not self.root.campaign.exists():
            return read_result(self.root)
        return self.summary(experiment.outcomes, time.monotonic() - began)


def play(
    context: CommandContext, prepared: Prepared, tell_stopped: TellStopped
) -> Result | Campaign:
    """Play the rounds on clusters of their own; see `Prepared.play`.

    Args:
        tell_stopped: gets what the finished rounds had found when the rest could not be played.
    """
    began, root = time.monotonic(), prepared.root
    try:
        with CampaignRunner(
            context, prepared.resolved, root, prepared.command, is_latest=True
        ) as campaign:
            return prepared.play(campaign)
    except BrokerstormError as error:
        outcomes = kept(root, RoundOutcome)
        if root.campaign.exists() and outcomes:
            tell_stopped(root, prepared.summary(outcomes, time.monotonic() - began))
        close_run_folder(root, error)
        raise
