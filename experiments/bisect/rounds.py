"""`brokerstorm bisect`: plays the rounds and says where a class begins or ends."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.verdict.bisection import (
    EXIT,
    Answer,
    ErrorBudget,
    Evidence,
    Examiner,
    Look,
    Outcome,
    Rates,
    UnusableVersionError,
    confirm_ends,
    expected_answers,
    search,
)
from analysis.verdict.sequential import Decision
from experiments.bisect.commits import Commits
from experiments.bisect.question import BisectQuestion, BisectRequest, VersionPlans, label_of, question_of
from experiments.bisect.state import BisectDir
from experiments.context import Context
from experiments.experiment import playing
from experiments.judging import sighting_of
from experiments.plans import for_a_new_run, read_plan, read_scenario
from harness.errors import BrokerstormError, EnvironmentNotReady, HealError, Interrupted
from harness.rundir import RunDir, new_run

if TYPE_CHECKING:
    from experiments.campaign import Campaign
    from harness.contracts.plan import Plan
    from harness.progress.view import BaseProgress


class OutOfTimeError(Exception):
    """The budget is used up; what is known is kept."""


# ----- before anything is started ---------------------------------------------------------------------


def begin(context: Context, request: BisectRequest, tell: Callable[[str], None]) -> BisectDir:
    """Check what is asked and make its folder.

    Raises:
        BrokerstormError: it could not be started, and there is no folder of it.
    """
    from experiments.preflight import preflight

    scenario = read_scenario(request.scenario, request.overrides)
    question = question_of(context, request, scenario, tell)
    plans = VersionPlans(question)
    if not question.repo:
        ends = [plans.plan(label_of(end, False), end, 1) for end in (question.bad, question.good)]
        for text in preflight(ends, context.run_dir, request.runtime).require().warnings:
            tell(f"warning: {text}")
    made = BisectDir(new_run(context.run_dir.resolve(), f"bisect-{scenario.name}"), question, [])
    made.root.scenario.write_text(scenario.text)
    made.save(0.0)
    return made


# ----- the rounds -------------------------------------------------------------------------------------


class LiveLooks:
    """Plays rounds that are not kept yet, on one cluster.

    Args:
        client_version: of a version as it is asked, what a scenario would name.
        budget_s: seconds after which no round begins; None = no limit.
    """

    def __init__(
        self,
        kept: BisectDir,
        plans: VersionPlans,
        campaign: Campaign,
        progress: BaseProgress,
        client_version: Callable[[str], str],
        *,
        offline: bool,
        budget_s: float | None,
    ) -> None:
        self._kept = kept
        self._plans = plans
        self._campaign = campaign
        self._progress = progress
        self._client_version = client_version
        self._offline = offline
        self._budget_s = budget_s
        self._began = time.monotonic()
        self._ready = ""
        # Every round goes at the rate of the first one, where the scenario leaves that to the machine.
        played = kept.looks[:1]
        self._measured = read_plan(RunDir(kept.root.root / played[0].folder)) if played else None

    @property
    def spent_s(self) -> float:
        return time.monotonic() - self._began

    def play(self, version: str, number: int) -> Look:
        """The kept round, or one that is played now.

        Raises:
            UnusableVersionError: the version cannot be had, does not build or does not run.
            OutOfTimeError: the budget is used up.
            BrokerstormError: interrupted, not healed, or the very first round could not start.
        """
        known = self._kept.look(version, number)
        if known is not None:
            return known
        if self._budget_s is not None and self.spent_s >= self._budget_s:
            raise OutOfTimeError
        label = label_of(version, bool(self._kept.question.repo))
        began = time.monotonic()
        plan = self._planned(version, label, number)
        run = self._kept.fresh_folder(f"{label}-{number}")
        look = self._look(plan, run, version, number, began)
        self._kept.keep(look, self.spent_s)
        self._progress.note(_line(look, self._kept.question, label))
        return look

    def _planned(self, version: str, label: str, number: int) -> Plan:
        from harness.plan.rates import as_recorded

        try:
            plan = for_a_new_run(self._plans.plan(label, self._client_version(version), number))
            if self._ready != version:
                self._make_ready(plan)
                self._ready = version
        except (Interrupted, HealError):
            raise
        except BrokerstormError as error:
            raise UnusableVersionError(_one_line(error)) from error
        if self._measured is not None:
            return as_recorded(plan, self._measured)
        (self._measured,) = self._campaign.with_rates([plan], self._kept.root)
        return self._measured

    def _make_ready(self, plan: Plan) -> None:
        """Fetch or build the client."""
        from harness.workers import launch, load_worker

        worker = load_worker(self._kept.question.client, plan.workers)
        producers = [each.client_version for each in plan.producers if each.client == worker.library]
        consumers = [each.client_version for each in plan.consumers if each.client == worker.library]
        for version in dict.fromkeys([*producers, *consumers]):
            launch(worker, version, offline=self._offline, on_progress=self._progress.download)

    def _look(self, plan: Plan, run: RunDir, version: str, number: int, began: float) -> Look:
        from analysis.verdict.campaign import RunSummary
        from analysis.verdict.reproduction import why_not_counted
        from experiments.campaign import try_round

        question = self._kept.question
        shown, why, met = False, "", None
        try:
            played = try_round(
                self._campaign, plan, run, command=question.command, is_first=not self._kept.looks
            )
        except (Interrupted, HealError, EnvironmentNotReady):
            raise
        except BrokerstormError as error:
            raise UnusableVersionError(f"it does not run: {_one_line(error)}") from error
        if isinstance(played, str):
            why = played
        else:
            sighting = sighting_of(played, question)
            summary = RunSummary.of(played.result, path=run.run_id, round_number=number, sighting=sighting)
            shown, why = summary.shows(question.expect), why_not_counted(summary, question)
            met = summary.exposure.get(question.counter)
        return Look(
            version=version,
            number=number,
            seed=plan.seed,
            folder=run.run_id,
            shown=shown,
            not_counted=why,
            met=met,
            duration_s=round(time.monotonic() - began, 1),
        )


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def _line(look: Look, question: BisectQuestion, label: str) -> str:
    """``2.8.1, round 2: premature-then-repeat``."""
    if look.not_counted:
        return f"{label}, round {look.number}: not counted: {look.not_counted}"
    what = "a violation" if question.expect == "clean" else question.expect
    return f"{label}, round {look.number}: {what if look.shown else f'no {what}'}"


# ----- from the first round to the answer -------------------------------------------------------------


def play(context: Context, kept: BisectDir, *, offline: bool, budget_s: float | None) -> dict[str, Any]:
    """Ask until there is an answer or no time is left; the document.

    Raises:
        BrokerstormError: interrupted, not healed, or the very first round could not start.
    """
    with playing(kept.root, f"brokerstorm bisect --resume {kept.root.run_id}"):
        return _play(context, kept, offline=offline, budget_s=budget_s)


def _play(context: Context, kept: BisectDir, *, offline: bool, budget_s: float | None) -> dict[str, Any]:
    from analysis.spark.session import WarmSession
    from experiments.player import Options, opened_campaign

    question = kept.question
    plans = VersionPlans(question)
    options = Options(question.runtime, offline, master=question.master)
    commits = commits_of(kept) if question.repo else None
    first = plans.plan("first", question.bad if commits is None else "", 1)
    with (
        WarmSession(question.master) as session,
        opened_campaign(
            context, options, kept.root, [first], question.command, session=session
        ) as (campaign, progress),
    ):  # fmt: skip
        looks = LiveLooks(
            kept,
            plans,
            campaign,
            progress,
            commits.client_version if commits else lambda version: version,
            offline=offline,
            budget_s=budget_s,
        )
        return conclude(kept, looks.play, progress.note, commits, lambda: looks.spent_s)


def commits_of(kept: BisectDir) -> Commits:
    """Of a bisection over commits: their clone."""
    question = kept.question
    old, new = question.versions
    folder = kept.root.root / "checkout"
    return Commits(Path(question.repo), (old, new), is_fix=question.is_fix, folder=folder)


def conclude(
    kept: BisectDir,
    play_round: Callable[[str, int], Look],
    tell: Callable[[str], None],
    commits: Commits | None = None,
    spent_s: Callable[[], float] = lambda: 0.0,
) -> dict[str, Any]:
    """Search with rounds that are kept or played; writes and returns the document."""
    question = kept.question
    count = len(question.versions) if commits is None else commits.count + 1
    examiner = Examiner(
        ErrorBudget(question.error, expected_answers(count)),
        Rates(shows_at_least=question.rate),
        play_round,
        lambda step: tell(_step_line(step, examiner, commits is not None)),
    )
    try:
        answer = confirm_ends(examiner, question.bad, question.good)
        if answer is None and commits is not None:
            answer = commits.search(examiner, kept.root.root / "git-bisect.log")
        elif answer is None:
            answer = _searched(examiner, question)
    except OutOfTimeError:
        answer = Answer(outcome=Outcome.UNKNOWN, why="the budget is used up; --resume goes on")
    told = _told(question, examiner, answer, commits)
    document = kept.save(spent_s(), told)
    if commits is not None and answer.outcome in (Outcome.FOUND, Outcome.NARROWED):
        shutil.rmtree(kept.root.root / "checkout", ignore_errors=True)
    return document


def _searched(examiner: Examiner, question: BisectQuestion) -> Answer:
    versions = question.versions

    def is_new(index: int) -> bool | None:
        decision = examiner.ask(versions[index])
        return None if decision is Decision.UNDECIDED else (decision is Decision.SHOWN) != question.is_fix

    low, high = search(len(versions), is_new)
    between = versions[low + 1 : high]
    outcome = Outcome.NARROWED if between else Outcome.FOUND
    return Answer(outcome=outcome, why="", before=versions[low], first=versions[high], between=between)


def _step_line(step: Evidence, examiner: Examiner, is_commit: bool) -> str:
    """``step 3 of about 6: 2.8.1: ...``; more than was expected where versions are skipped."""
    took_s = sum(look.duration_s for look in step.looks)
    number = len(examiner.steps)
    expected = f" of about {examiner.budget.answers}" if number <= examiner.budget.answers else ""
    return f"step {number}{expected}: {label_of(step.version, is_commit)}: {step.text}, {took_s:.0f} s"


def _told(
    question: BisectQuestion, examiner: Examiner, answer: Answer, commits: Commits | None
) -> dict[str, Any]:
    """The answer as a document; its keys: docs/reference/json.md."""
    sides = [
        step for name in (answer.before, answer.first) for step in examiner.steps if step.version == name
    ]
    looks = [look for step in examiner.steps for look in step.looks]
    return {
        "exit_code": EXIT[answer.outcome],
        "outcome": str(answer.outcome),
        "why": answer.why,
        "direction": question.direction,
        "first": answer.first,
        "before": answer.before,
        "between": list(answer.between),
        "error": round(examiner.budget.spent, 6),
        "release_notes": _notes(question, answer, commits),
        "sides": [step.document() for step in sides],
        "steps": [step.document() for step in examiner.steps],
        "cost": {
            "rounds": len(looks),
            "counted": sum(not look.not_counted for look in looks),
            "rounds_s": round(sum(look.duration_s for look in looks), 1),
        },
    }


def _notes(question: BisectQuestion, answer: Answer, commits: Commits | None) -> str:
    """The link to the release notes of the first version, or the subject of the first commit."""
    from harness.workers import load_worker

    if not answer.first:
        return ""
    if commits is not None:
        return commits.subject(answer.first)
    worker = load_worker(question.client, VersionPlans(question).scenario.worker_folders)
    return worker.release_notes_of(answer.first)
