"""Sentences and tables about the rounds of a `run` or a `repro`: the same on the terminal and in
the page."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from analysis.classes import CLASSES
from analysis.findings import Witness
from analysis.report import words
from analysis.report.result_words import faults_counted
from analysis.verdict.campaign import (
    CLEAN,
    Campaign,
    Expectation,
    Question,
    Reproduction,
    RunSummary,
    VariantResult,
)

GLYPH = {Expectation.MET: "✓", Expectation.NOT_MET: "✗", Expectation.UNDECIDED: "?"}


def outcome_of(campaign: Campaign) -> Expectation:
    """One word for all variants: the worst of them."""
    outcomes = {variant.outcome for variant in campaign.variants}
    if Expectation.NOT_MET in outcomes:
        return Expectation.NOT_MET
    return (
        Expectation.UNDECIDED
        if Expectation.UNDECIDED in outcomes or not outcomes
        else Expectation.MET
    )


def found(variant: VariantResult) -> str:
    """``acked-lost 1,486, write-duplicate 12`` over all rounds, or ``clean``, or ``nothing
    proved``."""
    return _found(variant, lambda cls: "")


def _found(variant: VariantResult, more: Callable[[str], str]) -> str:
    """Return the classes that were found, with ``more`` after the number of each class; see
    `found`."""
    totals: dict[str, int] = {}
    for run in variant.runs:
        for cls, number in run.violations.items():
            totals[cls] = totals.get(cls, 0) + number
        if variant.expect not in run.violations and variant.expect in run.excused:
            allowed = f"{variant.expect} (no violation)"
            totals[allowed] = totals.get(allowed, 0) + run.excused[variant.expect]
    told = [f"{cls} {words.count(number)}{more(cls)}" for cls, number in totals.items()]
    told += [
        f"{name} missed"
        for name in dict.fromkeys(name for run in variant.runs for name in run.missed)
    ]
    if told:
        return ", ".join(told)
    if not variant.runs:
        return "no round was finished"
    return "nothing proved" if variant.outcome is Expectation.UNDECIDED else CLEAN


def answer(campaign: Campaign) -> str:
    """Return what each variant showed: ``unsafe: acked-lost 1,486 (acknowledged, and not in the
    log); safe: clean``.

    The sentence of a class follows its first number. Empty without a variant.
    """
    explained: set[str] = set()

    def sentence(cls: str) -> str:
        if cls in explained or cls not in CLASSES:
            return ""
        explained.add(cls)
        return f" ({CLASSES[cls].sentence})"

    return "; ".join(
        f"{variant.name}: {_found(variant, sentence)}" for variant in campaign.variants
    )


def first_witness(variant: VariantResult) -> tuple[RunSummary, str, Witness] | None:
    """The first round that has a witness to show, the class and the witness."""
    for run in variant.runs:
        if (first := run.first_witness(variant.expect)) is not None:
            return run, *first
    return None


def comparison_rows(variants: list[VariantResult]) -> list[tuple[str, list[str]]]:
    """Label and one cell a variant: the table of the console and of the page."""
    table = [
        ("expected", [v.expect for v in variants]),
        ("found", [found(v) for v in variants]),
        ("result", [f"{GLYPH[v.outcome]} {v.outcome.value}" for v in variants]),
        ("hits", [f"{v.hits} of {words.plural(v.rounds, 'round')}" for v in variants]),
        ("first after", [words.seconds(v.first_witness_s) for v in variants]),
    ]
    if any(v.not_played for v in variants):
        table.append(("not played", [", ".join(v.not_played) or "–" for v in variants]))
    last = [v.runs[-1] if v.runs else None for v in variants]
    table += [
        ("acked", [words.count(run.sends.get("ok", 0)) if run else "–" for run in last]),
        ("rate", [_rate(run.rate) if run else "–" for run in last]),
        ("p99", [words.millis(run.latency_ms.get("p99")) if run else "–" for run in last]),
        ("faults", [faults_counted(run.faults) if run else "–" for run in last]),
    ]
    return table


def _rate(rate: dict[str, float]) -> str:
    achieved = words.per_second(rate.get("achieved_per_s", 0.0))
    return f"{achieved} of {words.target(rate)}" if rate.get("target_per_s") else achieved


#: Why `--quick` shows neither rate nor p.
QUICK = "stopped early, so neither rate nor p; run it without --quick for a proof"


def sentences(campaign: Campaign, reproduction: Reproduction) -> list[str]:
    """The bug, its report, and the outcome of the rounds."""
    question = reproduction.question
    told = [campaign.about, question.report, reproduction.why]
    return [
        text for text in (*told, QUICK if question.quick and not question.until_hit else "") if text
    ]


def reproduction_rows(
    campaign: Campaign, reproduction: Reproduction
) -> list[tuple[str, list[str]]]:
    """Label and one cell an arm: the table of the console and of the page."""
    question, arms = reproduction.question, campaign.variants
    table = [
        ("version", [_version(arm, question) for arm in arms]),
        ("expected", [question.expect, f"no {question.expect}"]),
        ("found", [found(arm) for arm in arms]),
        ("rounds", [_counted(arm) for arm in arms]),
        ("with the class", [str(arm.hits) for arm in arms]),
    ]
    if not question.quick:
        table.append(("rate [95 %]", [_arm_rate(arm) for arm in arms]))
    table.append(("first after", [_times(arm) for arm in arms]))
    if question.counter:
        table.append((question.counter, [_exposure(arm, question) for arm in arms]))
    if question.witness:
        table.append(("example", [_witness(arm, question) for arm in arms]))
    return [(label, cells[: len(arms)]) for label, cells in table]


def p_text(reproduction: Reproduction) -> str:
    """The p of the difference, or nothing for an early stop."""
    if reproduction.p_value is None:
        return "" if reproduction.question.quick else "–"
    return f"{reproduction.p_value:.2g}  (Fisher's exact test, two-sided)"


def _version(arm: VariantResult, question: Question) -> str:
    """Return what was run. The name of the arm and its text may name the version of the bug file
    instead."""
    is_set = any(each.startswith(f"variants.{arm.name}.") for each in question.overrides)
    return (arm.version or "–") + (", instead of the one of the bug file" if is_set else "")


def _counted(arm: VariantResult) -> str:
    lost = arm.rounds - arm.counted
    return f"{arm.counted}, and {lost} not counted" if lost else str(arm.counted)


def _arm_rate(arm: VariantResult) -> str:
    rate = arm.rate
    if rate is None:
        return "–"
    return f"{words.percent(rate.value)}  [{words.percent(rate.low)}, {words.percent(rate.high)}]"


def _times(arm: VariantResult) -> str:
    """``0.7 s``; of several rounds their median and extremes."""
    times = arm.witness_times_s
    if len(times) < 2:
        return words.seconds(times[0] if times else None)
    middle = words.seconds(statistics.median(times))
    return f"{middle}  ({words.seconds(min(times))} to {words.seconds(max(times))})"


def _exposure(arm: VariantResult, question: Question) -> str:
    met = [run.exposure.get(question.counter, 0) for run in arm.runs if not run.not_counted]
    if not met:
        return "–"
    span = words.count(met[0]) if min(met) == max(met) else f"{min(met):,} to {max(met):,}"
    return f"{span}  (floor {question.floor:,})"


def _witness(arm: VariantResult, question: Question) -> str:
    """Return what carries the text of the bug, from the first round that shows it, and how many
    rounds showed another example.
    """
    counted = [run for run in arm.runs if not run.not_counted]
    seen = [run.sighted for run in counted if run.shows(question.expect) and run.sighted]
    others = sum(run.has(question.expect) and not run.shows(question.expect) for run in counted)
    more = f"{others} without {question.witness!r}" if others else ""
    return "; ".join(filter(None, [words.plain(seen[0]) if seen else "", more])) or "–"
