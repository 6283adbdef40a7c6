"""Judges runs: the result of one, or of several, written next to the capture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from analysis.report.documents import read_result, write_campaign
from analysis.report.junit import write_campaign_xml, write_run_xml
from analysis.verdict.campaign import Campaign, RunSummary, VariantResult
from analysis.verdict.reproduction import answer
from analysis.verdict.sightings import look_for
from experiments.context import CommandContext
from harness.rundir import RunDir
from harness.toolchains.own_builds import own_build

if TYPE_CHECKING:
    from analysis.findings import Result
    from analysis.spark.session import WarmSession
    from analysis.verdict.campaign import Question
    from analysis.verdict.reproduction import ReproductionAnswer, RoundQuestion
    from harness.contracts.plan import Plan

#: Of sealed files: about a million messages, which one process judges in a second or two.
_SMALL_BYTES: Final = 16 << 20
#: Folder and summary of rounds that were stopped before their end.
TellStopped: TypeAlias = "Callable[[RunDir, Campaign], None]"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundOutcome:
    """The outcome of a requested round.

    Attributes:
        name: of its folder, below the experiment's.
        key: what was asked (`experiments.resolved.key_of`).
        variant, seed: of its plan.
        run: what judging found; None = it was not played.
        why_not: it was not played.
        is_unusable: what it asks cannot be run; else the cluster was in trouble.
        features: what its request wanted to know of it.
    """

    name: str = ""
    key: str = ""
    variant: str = ""
    seed: int = 0
    run: RunSummary | None = None
    why_not: str = ""
    is_unusable: bool = False
    duration_s: float = 0.0
    features: list[str] = field(default_factory=list)


def outcome_of(
    plan: Plan, run: RunDir, result: Result, *, number: int, question: RoundQuestion | None = None
) -> RoundOutcome:
    """Return the outcome of a judged round.

    Args:
        number: from 1, as people count.
        question: of a known bug: what is asked of the round.
    """
    sighting = sighting_of(run, result, question)
    summary = RunSummary.from_result(
        result, path=run.run_id, round_number=number, sighting=sighting
    )
    return RoundOutcome(name=run.run_id, variant=plan.variant, seed=plan.seed, run=summary)


def judge_run(
    context: CommandContext,
    run: RunDir,
    session: WarmSession,
    *,
    in_campaign: bool = False,
    hits: Path | None = None,
    brief: bool = False,
) -> Result:
    """Judge a sealed run; writes result.json, report.html and junit.xml, and every hit to
    ``hits``.

    Args:
        brief: a small run is judged in this process, and report.html is not written:
            `brokerstorm show --html` writes it.
    """
    from analysis.spark.judge import judge

    if not brief:  # before the wait for the session: it imports Bokeh
        from analysis.report.html import write_run_page
    spark = None if brief and _is_small(run) else session.get()
    result = judge(run, spark, hits=hits, stopped=context.interrupts.raise_if_stopped)
    if not brief:
        write_run_page(run, result, up="../report.html" if in_campaign else "")
    write_run_xml(run, result)
    return result


def _is_small(run: RunDir) -> bool:
    """Whether judging a run takes less time than a Spark job."""
    files = run.sealed.rglob("*.parquet")
    return sum(file.stat().st_size for file in files) <= _SMALL_BYTES


def summarize(
    root: RunDir,
    plans: Sequence[Plan],
    judged: Sequence[RoundOutcome],
    *,
    command: str,
    about: str,
    duration_s: float,
    names: Sequence[str] = (),
    question: Question | None = None,
) -> Campaign:
    """All rounds of all variants; writes campaign.json, report.html and junit.xml.

    Args:
        plans: what was asked for, also rounds that were never run.
        names: the folder of each plan, by which the ones that were not played are recognised;
            without a question.
        question: of a known bug: what `repro` was asked.
    """
    from analysis.report.html import write_campaign_page

    found = answer_of(question, plans, judged) if question else None
    campaign = Campaign(
        campaign_id=root.run_id,
        scenario=plans[0].scenario,
        about=about,
        seed=min(plan.seed for plan in plans),
        variants=_arms_of(found, question)
        if found and question
        else _variants(plans, judged, names),
        duration_s={"all": round(duration_s, 3)},
        command=command,
        reproduction=found.reproduction if found else None,
    )
    results = {each.name: read_result(RunDir(root.root / each.name)) for each in judged if each.run}
    write_campaign(root, campaign)
    write_campaign_page(root, campaign, results)
    write_campaign_xml(
        root,
        campaign,
        [(each.variant, results[each.name]) for each in judged if each.name in results],
    )
    return campaign


def _arms_of(found: ReproductionAnswer, question: Question) -> list[VariantResult]:
    """The arms that were asked for: a hunt has no fixed one."""
    return list(found.arms)[: 1 if question.until_hit else None]


def _variants(
    plans: Sequence[Plan], judged: Sequence[RoundOutcome], names: Sequence[str]
) -> list[VariantResult]:
    variants = []
    played = {each.name for each in judged}
    folders = zip(plans, names, strict=True) if names else ()
    missing = [(plan.variant, folder) for plan, folder in folders if folder not in played]
    for name in dict.fromkeys(plan.variant for plan in plans):
        plan = next(plan for plan in plans if plan.variant == name)
        left = [folder for variant, folder in missing if variant == name]
        runs = runs_of(judged, name)
        variants.append(
            VariantResult.from_runs(name, plan.expect, runs, about=plan.about, not_played=left)
        )
    return variants


def runs_of(judged: Sequence[RoundOutcome], variant: str) -> list[RunSummary]:
    """Return the judgements of a variant's rounds."""
    return [each.run for each in judged if each.run and each.variant == variant]


def number_of(plan: Plan, plans: Sequence[Plan]) -> int:
    """Rounds count from 1; the seed of a round tells which it is, also when it was run again."""
    return plan.seed - min(each.seed for each in plans) + 1


def sighting_of(
    run: RunDir, result: Result, question: RoundQuestion | None
) -> tuple[str, str] | None:
    """Where the witness text of a bug is, and what could not be read; None: it has none."""
    if question is None or not question.witness:
        return None
    told = {finding.cls for finding in (*result.violations(), *result.excused())}
    if question.expect not in told:  # nothing was found that could be another bug
        return "", ""
    found = look_for(run, question.witness)
    return found.where, found.unread


def answer_of(
    question: Question, plans: Sequence[Plan], judged: Sequence[RoundOutcome]
) -> ReproductionAnswer:
    """Return the answer of the rounds so far about a known bug."""
    first = {plan.variant: plan for plan in reversed(plans)}
    bad = first[question.affected]
    good = first.get(question.fixed, bad)  # of an early stop there may be none
    # Without a line of its own, an arm has the scenario's.
    about = (bad.about, good.about) if bad.about != good.about else ("", "")
    affected, fixed = (runs_of(judged, name) for name in (question.affected, question.fixed))
    return answer(question, affected, fixed, versions=arm_versions(bad, good), about=about)


def client_version(plan: Plan) -> str:
    """The versions of client libraries that a plan names: ``2.8.1``; empty when it names none."""
    named = [p.client_version for p in plan.producers] + [c.client_version for c in plan.consumers]
    return ", ".join(dict.fromkeys(_shown(version) for version in named if version))


def _shown(version: str) -> str:
    own = own_build(version)
    return own.short if own else version


def arm_versions(affected: Plan, fixed: Plan) -> tuple[str, str]:
    """Return the arms' versions of the clients, or of the brokers where only these differ."""
    clients = client_version(affected), client_version(fixed)
    if clients[0] == clients[1] and affected.version != fixed.version:
        return (
            f"{affected.system} {_shown(affected.version)}",
            f"{fixed.system} {_shown(fixed.version)}",
        )
    return clients
