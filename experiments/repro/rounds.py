"""`brokerstorm repro`: a known bug, the affected version against the fixed one on the same cluster.

Both arms of round n have the same seed and so the same faults. A round that does not count (its exposure
is below the floor, or it could not have shown the bug) is run again, a few times; then the whole is
unknown, because to go on until it fits would choose the rounds by their outcome.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.context import Context
from experiments.judging import RoundOutcome, answer_of, arm_versions, summarize
from experiments.plans import drawn, for_a_new_run, read_scenario, with_jars
from experiments.preflight import preflight
from experiments.repro.request import ReproRequest, refuse_mixture, replaced_versions
from harness.errors import UsageError, did_you_mean
from harness.rundir import RunDir, new_run, write_json

if TYPE_CHECKING:
    from analysis.verdict.campaign import Campaign as Summary
    from analysis.verdict.campaign import Question, VariantResult
    from experiments.campaign import Campaign
    from harness.contracts.plan import Plan
    from harness.progress.view import BaseProgress
    from harness.scenario.model import Scenario

#: Counted rounds an arm, unless the bug file or --rounds says otherwise.
DEFAULT_ROUNDS = 10
#: Times that a round which does not count is run again.
MOST_AGAIN = 2
#: Rounds of a hunt in a row that do not count after which it ends.
MOST_IDLE = 10


@dataclass(slots=True)
class Reproduction:
    """One reproduction: what was asked, and the rounds so far.

    Attributes:
        plans: round -> affected and fixed, with the same seed.
        names: folders of the rounds that were begun, in their order.
        further: of a hunt, the plans of round n, from 1.
        max_time_s: of a hunt, time after which no round begins; None = no limit.
    """

    root: RunDir
    question: Question
    plans: list[tuple[Plan, Plan]]
    about: str
    command: str
    warnings: tuple[str, ...] = ()
    judged: list[RoundOutcome] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    further: Callable[[int], tuple[Plan, Plan]] | None = None
    max_time_s: float | None = None

    def every_plan(self) -> list[Plan]:
        return [plan for pair in self.plans for plan in pair]

    def save(self) -> None:
        """Said before it is done: a reproduction that is cut short can be analysed."""
        begun = {"schema_version": 1, "runs": self.names, "command": self.command, "about": self.about}
        write_json(self.root.campaign, {**begun, "reproduction": {"question": asdict(self.question)}})

    def arms(self) -> tuple[VariantResult, VariantResult]:
        return answer_of(self.question, self.every_plan(), self.judged).arms

    def play(self, campaign: Campaign, progress: BaseProgress, *, goes_on: bool) -> None:
        """Both arms in turn, or one until it hits; the cluster stays whether others follow or not."""
        _play(campaign, self, progress)

    def summary(self, duration_s: float) -> Summary:
        return summarize(
            self.root,
            self.every_plan(),
            self.judged,
            command=self.command,
            about=self.about,
            duration_s=duration_s,
            question=self.question,
        )


# ----- before anything is started ---------------------------------------------------------------------


def prepare(context: Context, request: ReproRequest, root: RunDir | None = None) -> Reproduction:
    """Everything that is decided before anything is started; ``root``: its folder, None = a new one.

    Raises:
        BrokerstormError: it could not be started, and there is no folder of it.
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
    warnings = preflight(plans, context.run_dir, request.runtime).require().warnings
    root = root.create() if root else new_run(context.run_dir, scenario.name)
    root.scenario.write_text(scenario.text)
    asked = Reproduction(
        root=root,
        question=question,
        plans=[(for_a_new_run(affected), for_a_new_run(fixed)) for affected, fixed in pairs],
        about=scenario.about,
        command=_repeated(context, request, question, seed),
        warnings=warnings,
        max_time_s=request.max_time_s,
    )
    if question.until_hit:
        asked.further = lambda number: _plans(scenario, question, seed + number - 1, request.client_jars)[0]
    asked.save()
    return asked


def _find(name: str) -> None:
    """Refuse a name that is neither a bug, a scenario nor a file, with the bugs there are."""
    from harness.scenario.bundled import bundled_bugs, bundled_scenarios

    known = bundled_bugs()
    if name in known or name in bundled_scenarios() or Path(name).exists():
        return
    if Path(name).suffix in (".yaml", ".yml") or "/" in name:
        raise UsageError(
            f"no such file: {name!r}", hint="`brokerstorm list bugs` shows those that have a name"
        )
    raise UsageError(f"no such bug: {name!r}", hint=did_you_mean(name, known, label="known bugs"))


def _question(scenario: Scenario, request: ReproRequest) -> Question:
    from analysis.verdict.campaign import Question
    from analysis.verdict.statistics import ALPHA, fewest_rounds

    bug = scenario.bug
    if bug is None:
        raise UsageError(
            f"{request.bug} is a scenario and no known bug: it has no `bug` key",
            hint="`brokerstorm list bugs` shows them; docs/howto/reproduce-a-bug.md says how to write one",
        )
    pair = request.pair or next(iter(bug.pairs))
    if pair not in bug.pairs:
        raise UsageError(f"{scenario.name} has no pair {pair!r}", hint=f"its pairs: {', '.join(bug.pairs)}")
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
    from harness.plan.build import build_plans

    wanted = scenario.model_copy(update={"rounds": question.rounds})
    plans = build_plans(wanted, seed=seed)
    affected, fixed = (
        [with_jars(plan, client_jars) for plan in plans if plan.variant == name]
        for name in (question.affected, question.fixed)
    )
    return list(zip(affected, fixed, strict=True))


def _repeated(context: Context, request: ReproRequest, question: Question, seed: int) -> str:
    return context.repeat_command(
        "repro",
        request,
        pair=question.pair,
        seed=seed,
        rounds=None if question.quick else question.rounds,
        quick=question.quick and not question.until_hit,
    )


# ----- the rounds -------------------------------------------------------------------------------------


def _play(campaign: Campaign, asked: Reproduction, progress: BaseProgress) -> None:
    plans = campaign.with_rates(asked.every_plan(), asked.root)
    asked.plans = list(zip(plans[::2], plans[1::2], strict=True))
    if asked.further is not None:
        _hunt(campaign, asked, progress)
        return
    for number, plan in _agenda(asked):
        if not _count_one(campaign, asked, number, plan, progress):
            break


def _agenda(asked: Reproduction) -> Iterator[tuple[int, Plan]]:
    """(round, plan) in the order to run; an early stop looks at what came out so far."""
    if not asked.question.quick:
        for number, pair in enumerate(asked.plans, start=1):
            yield from ((number, plan) for plan in pair)
        return
    for number, (affected, fixed) in enumerate(asked.plans, start=1):
        yield number, affected
        if asked.arms()[0].hits:
            yield number, fixed
            return


def _hunt(campaign: Campaign, asked: Reproduction, progress: BaseProgress) -> None:
    """Rounds of the affected version, each with a fresh seed, until one shows the bug or the time is over.

    One that does not count is not run again: which seeds count was not decided by what they showed.
    """
    from harness.plan.rates import as_recorded

    assert asked.further is not None
    began, idle = time.monotonic(), 0
    while idle < MOST_IDLE and not asked.arms()[0].hits:
        if asked.max_time_s is not None and asked.names and time.monotonic() - began >= asked.max_time_s:
            return
        number = len(asked.names) + 1
        if number > 1:
            affected, fixed = (as_recorded(plan, asked.plans[0][0]) for plan in asked.further(number))
            asked.plans.append((for_a_new_run(affected), for_a_new_run(fixed)))
        plan = asked.plans[-1][0]
        why = _attempt(campaign, asked, plan, f"{plan.variant}-{number}")
        progress.note(_line(asked, number, plan, why))
        idle = idle + 1 if why else 0


def _count_one(
    campaign: Campaign, asked: Reproduction, number: int, plan: Plan, progress: BaseProgress
) -> bool:
    """Run a round until it counts; False when it did not in `MOST_AGAIN` more attempts."""
    for attempt in range(MOST_AGAIN + 1):
        name = f"{plan.variant}-{number}" + (f"-again-{attempt}" if attempt else "")
        why = _attempt(campaign, asked, for_a_new_run(plan) if attempt else plan, name)
        progress.note(_line(asked, number, plan, why))
        if not why:
            return True
    return False


def _attempt(campaign: Campaign, asked: Reproduction, plan: Plan, name: str) -> str:
    """Run a round; why it does not count, or nothing. A cluster in trouble is replaced for the next one.

    Raises:
        BrokerstormError: interrupted, or the very first round could not start.
    """
    from experiments.campaign import try_round

    asked.names.append(name)
    asked.save()
    run = RunDir(asked.root.root / name)
    played = try_round(campaign, plan, run, command=asked.command, is_first=not asked.judged)
    if isinstance(played, str):
        return played
    asked.judged.append(played)
    arm = next(arm for arm in asked.arms() if arm.name == plan.variant)
    return arm.runs[-1].not_counted


def _line(asked: Reproduction, number: int, plan: Plan, why: str) -> str:
    """``round 3 of 10 · affected 2.8.1 · premature-then-repeat 37, first after 0.7 s``."""
    question = asked.question
    role = "affected" if plan.variant == question.affected else "fixed"
    version = arm_versions(*asked.plans[0])[role == "fixed"]
    of = "" if question.until_hit else f" of {question.rounds}"
    head = f"round {number}{of} · {role} {version or plan.variant} · "
    if why:
        return f"{head}not counted: {why}"
    run = next(arm for arm in asked.arms() if arm.name == plan.variant).runs[-1]
    if not run.shows(question.expect):
        another = f", but another one, without {question.witness!r}" if run.has(question.expect) else ""
        return f"{head}no {question.expect}{another}"
    found = run.violations.get(question.expect) or run.excused.get(question.expect, 0)
    first = run.witnesses.get(question.expect)
    return f"{head}{question.expect} {found:,}" + (f", first after {first.t_s:.1f} s" if first else "")
