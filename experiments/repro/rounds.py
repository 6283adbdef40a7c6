"""`brokerstorm repro`: a known bug, the affected version against the fixed one on the same cluster.

Both arms of round n have the same seed and so the same faults. A round that does not count (its
exposure is below the floor, or it could not have shown the bug) is run again, a few times; then the
whole is unknown, because to continue until it fits would choose the rounds by their outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.report.documents import begin_campaign
from analysis.verdict.campaign import AskedReproduction, BegunCampaign, Question
from analysis.verdict.statistics import ALPHA, fewest_rounds
from experiments.context import CommandContext
from experiments.experiment import OutOfBudget, Prepared, RoundRequest, Strategy
from experiments.judging import RoundOutcome, answer_of, arm_versions
from experiments.plans import drawn, read_scenario, with_jars
from experiments.preflight import preflight
from experiments.repro.request import ReproRequest, refuse_mixture, replaced_versions
from experiments.resolved import Resolved, key_of
from harness.errors import EnvironmentNotReady, UsageError, did_you_mean
from harness.plan.build import build_plans
from harness.rundir import RunDir, new_run
from harness.scenario.bundled import bundled_bugs, bundled_scenarios

if TYPE_CHECKING:
    from analysis.verdict.campaign import VariantResult
    from harness.contracts.plan import Plan
    from harness.scenario.model import Scenario

#: Counted rounds an arm, unless the bug file or --rounds says otherwise.
DEFAULT_ROUNDS = 10
#: Times that a round which does not count is run again.
MOST_AGAIN = 2
#: Rounds of a hunt in a row that do not count after which it ends.
MOST_IDLE = 10


# ----- before anything is started -----------------------------------------------------------------


def prepare_repro(
    context: CommandContext, request: ReproRequest, root: RunDir | None = None
) -> Prepared:
    """Everything that is decided before anything is started; ``root``: its folder, None = a new
    one.

    Raises:
        BrokerstormError: it could not be started, and it has no folder.
    """
    _find(request.bug)
    scenario = read_scenario(request.bug, request.overrides)
    question = _question(scenario, request)
    if replaced := [*replaced_versions(scenario, question, request)]:
        question = replace(question, overrides=(*request.overrides, *replaced))
        scenario = read_scenario(request.bug, question.overrides)
    seed = drawn(request.seed)
    # Refused before a folder is made.
    pairs = _plans(scenario, question, seed, request.client_jars)
    plans = [plan for pair in pairs for plan in pair]
    resolved = Resolved(plans=plans, options=request.options(), scenario=scenario, seed=seed)
    warnings = preflight(resolved, context.run_dir).require().warnings
    root = root.create() if root else new_run(context.run_dir, scenario.name)
    root.scenario.write_text(scenario.text)
    command = _repeated(context, request, question, seed)
    asked = PairRounds(
        question, pairs, command, partial(_save, root, command, scenario.about, question)
    )
    if question.until_hit:
        asked.further = lambda number: _plans(
            scenario, question, seed + number - 1, request.client_jars
        )[0]
    asked.begin([])
    return Prepared(
        root=root,
        resolved=resolved,
        plans=plans,
        about=scenario.about,
        command=command,
        warnings=warnings,
        strategy=asked.rounds(),
        question=question,
        max_time_s=request.max_time_s,
    )


def _save(root: RunDir, command: str, about: str, question: Question, names: list[str]) -> None:
    asked = AskedReproduction(question=question)
    begin_campaign(
        root, BegunCampaign(runs=names, command=command, about=about, reproduction=asked)
    )


def _find(name: str) -> None:
    """Refuse a name that is neither a bug, a scenario nor a file, with the bugs there are."""
    known = bundled_bugs()
    if name in known or name in bundled_scenarios() or Path(name).exists():
        return
    if Path(name).suffix in (".yaml", ".yml") or "/" in name:
        raise UsageError(
            f"no such file: {name!r}", hint="`brokerstorm list bugs` shows those that have a name"
        )
    raise UsageError(f"no such bug: {name!r}", hint=did_you_mean(name, known, label="known bugs"))


def _question(scenario: Scenario, request: ReproRequest) -> Question:
    bug = scenario.bug
    if bug is None:
        raise UsageError(
            f"{request.bug} is a scenario and no known bug: it has no `bug` key",
            hint="`brokerstorm list bugs` shows them; docs/howto/reproduce-a-bug.md says how to write one",
        )
    pair = request.pair or next(iter(bug.pairs))
    if pair not in bug.pairs:
        raise UsageError(
            f"{scenario.name} has no pair {pair!r}", hint=f"its pairs: {', '.join(bug.pairs)}"
        )
    refuse_mixture(request)
    usual = scenario.rounds if scenario.rounds > 1 else DEFAULT_ROUNDS
    rounds = 1 if request.until_hit else request.rounds or usual
    is_early = request.quick or request.until_hit
    if not is_early and rounds < fewest_rounds():
        raise UsageError(
            f"--rounds {rounds}: even all against none would not reach p <= {ALPHA}",
            hint=f"at least {fewest_rounds()}, or --quick for one look at each version",
        )
    arms = bug.pairs[pair]
    return Question(
        bug=scenario.name,
        report=bug.report,
        pair=pair,
        expect=scenario.variants[arms.affected].expect,
        affected=arms.affected,
        fixed=arms.fixed,
        counter=bug.exposure.counter if bug.exposure else "",
        floor=bug.exposure.floor if bug.exposure else 0,
        rounds=rounds,
        quick=is_early,
        witness=bug.witness,
        until_hit=request.until_hit,
        overrides=request.overrides,
    )


def _plans(
    scenario: Scenario, question: Question, seed: int, client_jars: Path | None
) -> list[tuple[Plan, Plan]]:
    """Affected and fixed of every round, with the same seed."""
    wanted = scenario.model_copy(update={"rounds": question.rounds})
    plans = build_plans(wanted, seed=seed)
    affected, fixed = (
        [with_jars(plan, client_jars) for plan in plans if plan.variant == name]
        for name in (question.affected, question.fixed)
    )
    return list(zip(affected, fixed, strict=True))


def _repeated(context: CommandContext, request: ReproRequest, question: Question, seed: int) -> str:
    return context.repeat_command(
        "repro",
        request,
        pair=question.pair,
        seed=seed,
        rounds=None if question.quick else question.rounds,
        quick=question.quick and not question.until_hit,
    )


# ----- the rounds ---------------------------------------------------------------------------------


@dataclass(slots=True)
class PairRounds:
    """Asks for the rounds of one reproduction.

    Attributes:
        pairs: round -> affected and fixed, with the same seed.
        begin: gets the folders of all rounds so far, before each of them is played.
        further: of a hunt, the plans of round n, from 1.
    """

    question: Question
    pairs: list[tuple[Plan, Plan]]
    command: str
    begin: Callable[[list[str]], None]
    further: Callable[[int], tuple[Plan, Plan]] | None = None
    outcomes: list[RoundOutcome] = field(default_factory=list)

    def rounds(self) -> Strategy[None]:
        """Both arms in turn, or one until it hits."""
        with suppress(OutOfBudget):
            yield from (
                self._hunt()
                if self.further
                else self._quick()
                if self.question.quick
                else self._all()
            )

    def _all(self) -> Strategy[None]:
        for number, pair in enumerate(self.pairs, start=1):
            for plan in pair:
                if not (yield from self._count_one(number, plan)):
                    return

    def _quick(self) -> Strategy[None]:
        """Until the affected version hits, and then one round of the fixed one."""
        for number, (affected, fixed) in enumerate(self.pairs, start=1):
            if not (yield from self._count_one(number, affected)):
                return
            if self._arm(affected).hits:
                yield from self._count_one(number, fixed)
                return

    def _hunt(self) -> Strategy[None]:
        """Rounds of the affected version, each with a fresh seed, until one shows the bug.

        One that does not count is not run again: which seeds count was not decided by what they
        showed.
        """
        assert self.further is not None
        number, idle, plan = 1, 0, self.pairs[0][0]
        while idle < MOST_IDLE and not (self.outcomes and self._arm(plan).hits):
            plan = self.further(number)[0]
            why = yield from self._attempt(number, plan, f"{plan.variant}-{number}")
            idle = idle + 1 if why else 0
            number += 1

    def _count_one(self, number: int, plan: Plan) -> Strategy[bool]:
        """Ask for a round until it counts; False when it did not in `MOST_AGAIN` more attempts."""
        for attempt in range(MOST_AGAIN + 1):
            name = f"{plan.variant}-{number}" + (f"-again-{attempt}" if attempt else "")
            if not (yield from self._attempt(number, plan, name)):
                return True
        return False

    def _attempt(self, number: int, plan: Plan, name: str) -> Strategy[str]:
        """Ask for a round; why it does not count, or nothing."""
        self.begin([*(each.name for each in self.outcomes), name])
        outcome = yield RoundRequest(
            name=name,
            key=key_of(plan),
            plan=plan,
            number=number,
            command=self.command,
            question=self.question,
            tolerates=(EnvironmentNotReady,),
            told=partial(self._line, number, plan),
        )
        self.outcomes.append(outcome)
        return self._why_not(plan, outcome)

    def _arm(self, plan: Plan, outcomes: Sequence[RoundOutcome] | None = None) -> VariantResult:
        """The arm of a plan, as far as it was played."""
        plans = [each for pair in self.pairs for each in pair]
        arms = answer_of(self.question, plans, self.outcomes if outcomes is None else outcomes).arms
        return next(arm for arm in arms if arm.name == plan.variant)

    def _why_not(self, plan: Plan, outcome: RoundOutcome) -> str:
        return outcome.why_not or self._arm(plan, [outcome]).runs[-1].not_counted

    def _line(self, number: int, plan: Plan, outcome: RoundOutcome) -> str:
        """``round 3 of 10 · affected 2.8.1 · premature-then-repeat 37, first after 0.7 s``."""
        question = self.question
        role = "affected" if plan.variant == question.affected else "fixed"
        version = arm_versions(*self.pairs[0])[role == "fixed"]
        of = "" if question.until_hit else f" of {question.rounds}"
        head = f"round {number}{of} · {role} {version or plan.variant} · "
        if why := self._why_not(plan, outcome):
            return f"{head}not counted: {why}"
        run = self._arm(plan, [outcome]).runs[-1]
        if not run.shows(question.expect):
            another = (
                f", but another one, without {question.witness!r}"
                if run.has(question.expect)
                else ""
            )
            return f"{head}no {question.expect}{another}"
        found = run.violations.get(question.expect) or run.excused.get(question.expect, 0)
        first = run.witnesses.get(question.expect)
        return f"{head}{question.expect} {found:,}" + (
            f", first after {first.t_s:.1f} s" if first else ""
        )
