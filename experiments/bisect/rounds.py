"""`brokerstorm bisect`: plays the rounds and says where a class begins or ends."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from analysis.findings import SCHEMA_VERSION
from analysis.verdict.bisection import (
    EXIT,
    MOST_LEFT_OUT,
    Answer,
    BisectionOutcome,
    ErrorBudget,
    Evidence,
    Examiner,
    Look,
    Rates,
    UnusableVersionError,
    confirm_ends,
    expected_answers,
    search,
)
from analysis.verdict.reproduction import why_not_counted
from analysis.verdict.sequential import SequentialDecision
from experiments.bisect.commits import Commits
from experiments.bisect.question import (
    BisectQuestion,
    BisectRequest,
    VersionPlans,
    label_of,
    question_of,
)
from experiments.campaign import CampaignRunner
from experiments.context import CommandContext
from experiments.experiment import Budget, OutOfBudget, RoundRequest, Rounds, Strategy
from experiments.folders import ASIDE, begun, keep_asked, kept, play_again, playing
from experiments.judging import RoundOutcome
from experiments.plans import read_scenario
from experiments.preflight import preflight
from experiments.resolved import Resolved, RoundOptions
from harness.errors import BrokerstormError, UsageError
from harness.rundir import Document, RunDir, new_run, read_json, resolved, write_json
from harness.workers import launch, load_worker

if TYPE_CHECKING:
    from harness.contracts.plan import Plan
    from harness.progress.view import BaseProgress

#: What the folder holds of the answer; what was asked is in `harness.rundir.ASKED`.
FILE: Final = "bisect.json"
KIND: Final = "bisection"


# ----- before anything is started -----------------------------------------------------------------


def begin(
    context: CommandContext, request: BisectRequest, tell: Callable[[str], None]
) -> tuple[RunDir, BisectQuestion]:
    """Check what is asked and make its folder.

    Raises:
        BrokerstormError: it could not be started, and it has no folder.
    """
    scenario = read_scenario(request.scenario, request.overrides)
    question = question_of(context, request, scenario, tell)
    plans = VersionPlans(question)
    if not question.repo:
        ends = [plans.plan(label_of(end, False), end, 1) for end in (question.bad, question.good)]
        options = RoundOptions(runtime=request.runtime, offline=request.offline)
        checked = preflight(
            Resolved(plans=ends, options=options), context.run_dir, ask_indexes=False
        )
        for text in checked.require().warnings:
            tell(f"warning: {text}")
    root = new_run(resolved(context.run_dir), f"bisect-{scenario.name}")
    root.scenario.write_text(scenario.text)
    keep_asked(root, KIND, question)
    return root, question


def resumed(run_dir: Path, name: str) -> tuple[RunDir, BisectQuestion]:
    """One to continue: an id below the folder of runs, or a path. What was skipped is asked again.

    Raises:
        UsageError: there is none, or its scenario has changed.
    """
    root, question = begun(run_dir, name, KIND, BisectQuestion)
    now = read_scenario(question.scenario, question.overrides).text
    if now != root.scenario.read_text():
        raise UsageError(
            f"{question.scenario} has changed since {root.run_id} was started",
            hint="restore the file, or start a new search without --resume",
        )
    ask_again(root, question)
    return root, question


def ask_again(root: RunDir, question: BisectQuestion) -> None:
    """Let the rounds be played again for which a version was skipped: the machine may be calmer
    now. They have the same seeds. An answer that was found stays.
    """
    answer = root.root / FILE
    if answer.exists() and read_json(answer).get("outcome") == BisectionOutcome.FOUND:
        return
    idle = Counter(
        _version_of(each) for each in kept(root, RoundOutcome) if not_counted(each, question)
    )

    def again(each: RoundOutcome) -> bool:
        why = not_counted(each, question)
        return each.is_unusable or bool(why and idle[_version_of(each)] > MOST_LEFT_OUT)

    play_again(root, again)


# ----- the rounds ---------------------------------------------------------------------------------


def not_counted(outcome: RoundOutcome, question: BisectQuestion) -> str:
    """Why a round proves nothing about its version; empty if it counts."""
    return outcome.why_not if outcome.run is None else why_not_counted(outcome.run, question)


def look_of(outcome: RoundOutcome, question: BisectQuestion) -> Look:
    """A round as evidence about its version."""
    run = outcome.run
    number = outcome.key.rpartition(" ")[2]
    return Look(
        version=_version_of(outcome),
        number=int(number),
        seed=question.seed + int(number) - 1,
        folder=outcome.name,
        shown=run is not None and run.shows(question.expect),
        not_counted=not_counted(outcome, question),
        met=run.exposure.get(question.counter) if run else None,
        duration_s=outcome.duration_s,
    )


def _version_of(outcome: RoundOutcome) -> str:
    return outcome.key.rpartition(" ")[0]


class Bisection:
    """Asks for the rounds of one bisection.

    Args:
        plan: of a version and the number of a round.
        tell: gets a line of each version that was decided.
        commits: None = releases.
    """

    def __init__(
        self,
        question: BisectQuestion,
        plan: Callable[[str, int], Plan],
        tell: Callable[[str], None] = lambda text: None,
        commits: Commits | None = None,
    ) -> None:
        self.question = question
        self.commits = commits
        self._plan = plan
        self._tell = tell
        count = len(question.versions) if commits is None else commits.count + 1
        self.examiner = Examiner(
            ErrorBudget(question.error, expected_answers(count)),
            Rates(shows_at_least=question.rate),
            self._look,
            lambda step: self._tell(_step_line(step, self.examiner, commits is not None)),
        )

    def rounds(self, log: Path) -> Strategy[Answer]:
        """Ask until there is an answer or no time is left.

        Args:
            log: of commits: gets what git prints.
        """
        question = self.question
        try:
            answer = yield from confirm_ends(self.examiner, question.bad, question.good)
            if answer is None and self.commits is not None:
                answer = yield from self.commits.search(self.examiner, log)
            elif answer is None:
                answer = yield from _searched(self.examiner, question)
        except OutOfBudget:
            answer = Answer(
                outcome=BisectionOutcome.UNKNOWN, why="the budget is used up; --resume continues"
            )
        return answer

    def _look(self, version: str, number: int) -> Strategy[Look]:
        """Raises: UnusableVersionError: it is not available, does not build or does not run."""
        label = label_of(version, self.commits is not None)
        outcome = yield RoundRequest(
            name=f"{label}-{number}",
            key=f"{version} {number}",
            plan=partial(self._plan, version, number),
            number=number,
            command=self.question.command,
            question=self.question,
            tolerates=(BrokerstormError,),
            told=lambda outcome: self._line(outcome, f"{label}, round {number}"),
        )
        if outcome.is_unusable:
            raise UnusableVersionError(outcome.why_not)
        return look_of(outcome, self.question)

    def _line(self, outcome: RoundOutcome, head: str) -> str:
        """``2.8.1, round 2: premature-then-repeat``."""
        if why := not_counted(outcome, self.question):
            return "" if outcome.is_unusable else f"{head}: not counted: {why}"
        what = "a violation" if self.question.expect == "clean" else self.question.expect
        shown = outcome.run is not None and outcome.run.shows(self.question.expect)
        return f"{head}: {what if shown else f'no {what}'}"


# ----- from the first round to the answer ---------------------------------------------------------


def play(
    context: CommandContext,
    root: RunDir,
    question: BisectQuestion,
    *,
    offline: bool,
    budget_s: float | None,
) -> Bisected:
    """Ask until there is an answer or no time is left.

    Raises:
        BrokerstormError: interrupted, not healed, or the very first round could not start.
    """
    plans = VersionPlans(question)
    options = RoundOptions(runtime=question.runtime, offline=offline, master=question.master)
    with playing(root, f"brokerstorm bisect --resume {root.run_id}"):
        commits = commits_of(root, question) if question.repo else None
        first = plans.plan("first", question.bad if commits is None else "", 1)
        resolved = Resolved(plans=[first], options=options, seed=question.seed)
        with CampaignRunner(context, resolved, root, question.command) as campaign:
            progress = campaign.progress
            ready = partial(_ready, plans, commits, offline=offline, progress=progress)
            bisection = Bisection(question, ready, progress.note, commits)
            experiment = Rounds(root, campaign, budget=Budget(budget_s), tell=progress.note)
            return conclude(experiment, bisection)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bisected:
    """A bisection with its answer.

    Attributes:
        steps: of every version that was asked, in that order.
        error: chance at most that any answer is wrong.
        release_notes: the link to the notes of the first version, or the subject of the first
            commit.
        looks, set_aside: rounds that counted, and those that were asked again after a ``--resume``.
        spent_s: rounds that were of no use, too.
    """

    bisect_id: str
    question: BisectQuestion
    answer: Answer
    steps: list[Evidence]
    error: float
    release_notes: str
    looks: list[Look]
    set_aside: list[Look]
    spent_s: float

    @property
    def exit_code(self) -> int:
        """Return the exit code of the command."""
        return EXIT[self.answer.outcome]

    @property
    def sides(self) -> list[Evidence]:
        """Return the evidence for the versions on both sides of the change."""
        around = (self.answer.before, self.answer.first)
        return [step for name in around for step in self.steps if step.version == name]

    @property
    def rounds(self) -> int:
        """Return the number of rounds that were played."""
        return sum(len(step.looks) for step in self.steps)

    @property
    def counted(self) -> int:
        """Return the number of rounds that counted."""
        return sum(step.counted for step in self.steps)

    def document(self) -> Document:
        """The content of bisect.json; its keys: docs/reference/json.md."""
        answer = self.answer
        return {
            "schema_version": SCHEMA_VERSION,
            "kind": "bisect",
            "bisect_id": self.bisect_id,
            "exit_code": self.exit_code,
            **asdict(answer),
            "between": list(answer.between),
            "direction": self.question.direction,
            "error": self.error,
            "release_notes": self.release_notes,
            "sides": [step.document() for step in self.sides],
            "steps": [step.document() for step in self.steps],
            "cost": {
                "rounds": self.rounds,
                "counted": self.counted,
                "rounds_s": round(
                    sum(look.duration_s for step in self.steps for look in step.looks), 1
                ),
            },
            "question": asdict(self.question),
            "looks": [asdict(look) for look in self.looks],
            "set_aside": [asdict(look) for look in self.set_aside],
            "spent_s": self.spent_s,
        }


def conclude(experiment: Rounds, bisection: Bisection) -> Bisected:
    """Play the rounds, and write what came out."""
    root, question, commits = experiment.root, bisection.question, bisection.commits
    answer = experiment.run(bisection.rounds(root.root / "git-bisect.log"))
    kept = [each for each in experiment.outcomes if not each.is_unusable]
    looks = [look_of(each, question) for each in kept]
    found = Bisected(
        bisect_id=root.run_id,
        question=question,
        answer=answer,
        steps=bisection.examiner.steps,
        error=round(bisection.examiner.budget.spent, 6),
        release_notes=_notes(question, answer, commits),
        looks=[look for look in looks if f"-{ASIDE}-" not in look.folder],
        set_aside=[look for look in looks if f"-{ASIDE}-" in look.folder],
        spent_s=round(sum(each.duration_s for each in experiment.outcomes), 1),
    )
    write_json(root.root / FILE, found.document())
    if commits is not None and answer.outcome in (
        BisectionOutcome.FOUND,
        BisectionOutcome.NARROWED,
    ):
        shutil.rmtree(root.root / "checkout", ignore_errors=True)
    return found


def _ready(
    plans: VersionPlans,
    commits: Commits | None,
    version: str,
    number: int,
    *,
    offline: bool,
    progress: BaseProgress,
) -> Plan:
    """The plan of a round, with its client fetched or built."""
    client_version = commits.client_version(version) if commits else version
    plan = plans.plan(label_of(version, commits is not None), client_version, number)
    worker = load_worker(plans.question.client, plan.workers)
    used = [each.client_version for each in plan.producers if each.client == worker.library]
    used += [each.client_version for each in plan.consumers if each.client == worker.library]
    for each in dict.fromkeys(used) if number == 1 else ():
        launch(worker, each, offline=offline, on_progress=progress.download)
    return plan


def commits_of(root: RunDir, question: BisectQuestion) -> Commits:
    """Return the clone of a bisection over commits."""
    old, new = question.versions
    folder = root.root / "checkout"
    return Commits(Path(question.repo), (old, new), is_fix=question.is_fix, folder=folder)


def _searched(examiner: Examiner, question: BisectQuestion) -> Strategy[Answer]:
    versions = question.versions

    def is_new(index: int) -> Strategy[bool | None]:
        decision = yield from examiner.ask(versions[index])
        return (
            None
            if decision is SequentialDecision.UNDECIDED
            else (decision is SequentialDecision.SHOWN) != question.is_fix
        )

    low, high = yield from search(len(versions), is_new)
    between = versions[low + 1 : high]
    outcome = BisectionOutcome.NARROWED if between else BisectionOutcome.FOUND
    return Answer(
        outcome=outcome, why="", before=versions[low], first=versions[high], between=between
    )


def _step_line(step: Evidence, examiner: Examiner, is_commit: bool) -> str:
    """``step 3 of about 6: 2.8.1: ...``; more than was expected where versions are skipped."""
    took_s = sum(look.duration_s for look in step.looks)
    number = len(examiner.steps)
    expected = f" of about {examiner.budget.answers}" if number <= examiner.budget.answers else ""
    return (
        f"step {number}{expected}: {label_of(step.version, is_commit)}: {step.text}, {took_s:.0f} s"
    )


def _notes(question: BisectQuestion, answer: Answer, commits: Commits | None) -> str:
    """The link to the release notes of the first version, or the subject of the first commit."""
    if not answer.first:
        return ""
    if commits is not None:
        return commits.subject(answer.first)
    worker = load_worker(question.client, VersionPlans(question).scenario.worker_folders)
    return worker.release_notes_of(answer.first)
