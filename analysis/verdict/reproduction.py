"""Is a known bug reproduced? The affected version against the fixed one, round by round. Pure.

*Reproduced* needs all of: as many counted rounds of each arm as were asked for beforehand, the
class of the bug in the affected arm, none of it in the fixed arm, and a two-sided p of Fisher's
exact test of at most 0.05. A round counts when its exposure counter reached the floor and it could
have shown the class. An early stop (``quick``) has no rate and no p: where to stop was decided by
what was seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from analysis.findings import Verdict
from analysis.verdict.campaign import (
    CLEAN,
    HitRate,
    Proved,
    Question,
    Reproduction,
    RunSummary,
    VariantResult,
)
from analysis.verdict.sequential import one_of_each
from analysis.verdict.statistics import (
    ALPHA,
    CONFIDENCE,
    clopper_pearson,
    fisher_exact,
    highest_rate,
)

AFFECTED, FIXED = "affected", "fixed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReproductionAnswer:
    """The result of the rounds: one for each arm, the affected one first."""

    arms: tuple[VariantResult, VariantResult]
    reproduction: Reproduction


class RoundQuestion(Protocol):
    """The question to a round: the class, and the exposure that it needs; no counter means that it
    needs none.
    """

    @property
    def expect(self) -> str:
        """Return the class that the bug is expected to show."""

    @property
    def counter(self) -> str:
        """Return the exposure counter that must be reached; empty if there is none."""

    @property
    def floor(self) -> int:
        """Return the value that the counter must reach."""

    @property
    def witness(self) -> str:
        """Return the text that a message or error must have to count as the bug; empty if any
        does."""


def why_not_counted(run: RunSummary, question: RoundQuestion) -> str:
    """Why a round proves nothing about its version; empty if it counts."""
    met = run.exposure.get(question.counter, 0 if not question.counter else None)
    if met is None:
        return f"no worker reports {question.counter}"
    if question.counter and met < question.floor:
        return f"{question.counter} {met:,}, at least {question.floor:,} needed"
    if run.sighted == "" and run.unread and run.has(question.expect):
        return f"{question.expect} found; it is not known whether {question.witness!r} is in it: {run.unread}"
    if run.verdict is Verdict.UNKNOWN and not run.shows(question.expect):
        return "could not have shown it: " + (
            run.reasons[0] if run.reasons else "the verdict is unknown"
        )
    return ""


def answer(
    question: Question,
    affected: Sequence[RunSummary],
    fixed: Sequence[RunSummary],
    *,
    versions: tuple[str, str] = ("", ""),
    about: tuple[str, str] = ("", ""),
) -> ReproductionAnswer:
    """Judge the rounds of both arms, in the order in which they were run."""
    bad = _arm(question, AFFECTED, affected, versions[0], about[0])
    good = _arm(question, FIXED, fixed, versions[1], about[1])
    proved, why = _proved(question, bad, good)
    p_value = None
    if not question.quick and _is_complete(question, bad, good):
        p_value = fisher_exact(bad.hits, bad.counted, good.hits, good.counted)
        bad, good = (replace(arm, rate=_rate(arm)) for arm in (bad, good))
    reproduction = Reproduction(question=question, outcome=proved, why=why, p_value=p_value)
    return ReproductionAnswer(arms=(bad, good), reproduction=reproduction)


def _arm(
    question: Question, role: str, runs: Sequence[RunSummary], version: str, about: str
) -> VariantResult:
    """An arm; its counted rounds decide its outcome, and a hit is one that shows the class of the
    bug."""
    name = question.affected if role == AFFECTED else question.fixed
    judged = [replace(run, not_counted=why_not_counted(run, question)) for run in runs]
    counted = [run for run in judged if not run.not_counted]
    result = VariantResult.from_runs(
        name, question.expect if role == AFFECTED else CLEAN, counted, about=about
    )
    hits = [run for run in counted if run.shows(question.expect)]
    times = [run.witnesses[question.expect].t_s for run in hits if question.expect in run.witnesses]
    return replace(
        result,
        role=role,
        version=version,
        rounds=len(judged),
        counted=len(counted),
        hits=len(hits),
        first_witness_s=times[0] if times else None,
        witness_times_s=times,
        runs=judged,
    )


def _is_complete(question: Question, bad: VariantResult, good: VariantResult) -> bool:
    return bad.counted == good.counted == question.rounds


def _proved(question: Question, bad: VariantResult, good: VariantResult) -> tuple[Proved, str]:
    if question.until_hit:
        return _hunted(question, bad)
    if question.quick:
        return _seen(question, bad, good)
    if not _is_complete(question, bad, good):
        return Proved.UNKNOWN, _what_is_missing(question, bad, good)
    p = fisher_exact(bad.hits, bad.counted, good.hits, good.counted)
    found = f"{bad.hits} of {bad.counted} against {good.hits} of {good.counted}"
    if good.hits:
        return Proved.NOT_REPRODUCED, f"{question.expect} in the fixed version too: {found}"
    if not bad.hits:
        return Proved.NOT_REPRODUCED, f"no {question.expect} in the affected version: {found}"
    if p > ALPHA:
        return Proved.NOT_REPRODUCED, f"{found} may be chance: p {p:.3f} is above {ALPHA}"
    return Proved.REPRODUCED, found


def _hunted(question: Question, bad: VariantResult) -> tuple[Proved, str]:
    """Decide after rounds with fresh seeds of the affected version: where the bug was shown, or the
    bound on its rate if it was not.
    """
    counted = [run for run in bad.runs if not run.not_counted]
    if not counted:
        reasons = one_of_each(run.not_counted for run in bad.runs)
        return Proved.UNKNOWN, "; ".join(reasons) or "no round was run"
    met = sum(run.exposure.get(question.counter, 0) for run in counted)
    exposed = f" with {question.counter} {met:,}" if question.counter else ""
    if bad.hits:
        before = (
            f"after {bad.counted - 1} without it" if bad.counted > 1 else "the first that counts"
        )
        return Proved.SEEN, f"seen in round {counted[-1].round}, {before}{exposed}"
    return Proved.NOT_REPRODUCED, (
        f"not seen in {bad.counted} round{'s' if bad.counted > 1 else ''}{exposed}: "
        f"rate below {100 * highest_rate(bad.counted):.2g} % with {100 * CONFIDENCE:.0f} %"
    )


def _seen(question: Question, bad: VariantResult, good: VariantResult) -> tuple[Proved, str]:
    """Decide after an early stop: one hit and one clean round are an observation, and no proof."""
    if good.hits:
        return Proved.NOT_REPRODUCED, f"{question.expect} in the fixed version too"
    if bad.hits and good.counted:
        return Proved.SEEN, "seen in the affected version and not in one round of the fixed one"
    if bad.counted >= question.rounds:
        return (
            Proved.NOT_REPRODUCED,
            f"no {question.expect} in {bad.counted} rounds of the affected version",
        )
    return Proved.UNKNOWN, _what_is_missing(question, bad, good)


def _what_is_missing(question: Question, bad: VariantResult, good: VariantResult) -> str:
    wanted = 1 if question.quick else question.rounds
    short = [arm for arm in (bad, good) if arm.counted < wanted]
    reasons = [run.not_counted for arm in short for run in arm.runs if run.not_counted]
    texts = [f"{arm.counted} of {wanted} rounds of {arm.name} count" for arm in short]
    return "; ".join([", ".join(texts) or "it was stopped early", *one_of_each(reasons)])


def _rate(arm: VariantResult) -> HitRate:
    low, high = clopper_pearson(arm.hits, arm.counted)
    return HitRate(value=arm.hits / arm.counted, low=low, high=high)
