"""Prints the summary of a campaign: variants side by side, with expected and actual results."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from analysis.classes import CLASSES
from analysis.findings import Witness
from analysis.report import words
from analysis.report.terminal import (
    closing_lines,
    emit,
    faults_counted,
    is_message,
    unknown_help,
    witness_facts,
)
from analysis.verdict.campaign import CLEAN, Campaign, Expectation, RunSummary, VariantResult
from harness.invocation import for_terminal

STYLE = {
    Expectation.MET: "black on green",
    Expectation.NOT_MET: "bold white on red",
    Expectation.UNDECIDED: "black on yellow",
}
GLYPH = {Expectation.MET: "✓", Expectation.NOT_MET: "✗", Expectation.UNDECIDED: "?"}


def print_campaign(
    out: Console, campaign: Campaign, *, report: Path | None = None, is_stopped: bool = False
) -> None:
    """The summary of a scenario with variants or rounds; ``is_stopped``: before it was over."""
    parts: list[RenderableType] = [_banner(campaign)]
    if campaign.about:
        parts.append(Text(f"  {words.plain(campaign.about)}"))
    parts += ["", _side_by_side(campaign.variants), ""]
    for variant in campaign.variants:
        parts += witness_of(variant, out.width)
    parts += _undecided(campaign.variants)
    emit(out, *parts, next_steps(campaign, report, is_stopped=is_stopped))


def next_steps(campaign: Campaign, report: Path | None, *, is_stopped: bool = False) -> RenderableType:
    """Where the report lies, how to look at the first witness and to repeat the campaign, the exit code.

    ``is_stopped``: before it was over, so that the command ends with another one.
    """
    lines: list[tuple[str, Text | str]] = []
    if report is not None:
        lines.append(("report", str(report)))
        shown = [first for variant in campaign.variants if (first := first_witness(variant))]
        lines += [
            (
                "trace",
                for_terminal(
                    shlex.join(["brokerstorm", "trace", witness.message, str(report.parent / run.path)])
                ),
            )
            for run, _, witness in shown[:1]
            if is_message(witness)
        ]
    if outcome_of(campaign) is Expectation.UNDECIDED:
        lines.append(unknown_help())
    lines.append(("repeat", for_terminal(words.plain(campaign.command))))
    return closing_lines(lines if is_stopped else [*lines, ("exit", str(campaign.exit_code))])


def outcome_of(campaign: Campaign) -> Expectation:
    """One word for all variants: the worst of them."""
    outcomes = {variant.outcome for variant in campaign.variants}
    if Expectation.NOT_MET in outcomes:
        return Expectation.NOT_MET
    return Expectation.UNDECIDED if Expectation.UNDECIDED in outcomes or not outcomes else Expectation.MET


def found(variant: VariantResult) -> str:
    """``acked-lost 1,486, write-duplicate 12`` over all rounds, or ``clean``, or ``nothing proved``."""
    return _found(variant, lambda cls: "")


def _found(variant: VariantResult, more: Callable[[str], str]) -> str:
    """Return the classes that were found, with ``more`` after the number of each class; see `found`."""
    totals: dict[str, int] = {}
    for run in variant.runs:
        for cls, number in run.violations.items():
            totals[cls] = totals.get(cls, 0) + number
        if variant.expect not in run.violations and variant.expect in run.excused:
            allowed = f"{variant.expect} (no violation)"
            totals[allowed] = totals.get(allowed, 0) + run.excused[variant.expect]
    told = [f"{cls} {words.count(number)}{more(cls)}" for cls, number in totals.items()]
    told += [f"{name} missed" for name in dict.fromkeys(name for run in variant.runs for name in run.missed)]
    if told:
        return ", ".join(told)
    if not variant.runs:
        return "no round was finished"
    return "nothing proved" if variant.outcome is Expectation.UNDECIDED else CLEAN


def answer(campaign: Campaign) -> str:
    """Return what each variant showed: ``unsafe: acked-lost 1,486 (acknowledged, and not in the log); safe:
    clean``.

    The sentence of a class follows its first number. Empty without a variant.
    """
    explained: set[str] = set()

    def sentence(cls: str) -> str:
        if cls in explained or cls not in CLASSES:
            return ""
        explained.add(cls)
        return f" ({CLASSES[cls].sentence})"

    return "; ".join(f"{variant.name}: {_found(variant, sentence)}" for variant in campaign.variants)


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


def _banner(campaign: Campaign) -> RenderableType:
    outcome = outcome_of(campaign)
    line = Text(f" {outcome.value.upper()} ", style=STYLE[outcome])
    line.append(f"  {words.plain(campaign.scenario)}", style="bold")
    line.append(f"   {words.plural(len(campaign.variants), 'variant')} · seed {campaign.seed}", style="dim")
    return line


def _side_by_side(variants: list[VariantResult]) -> RenderableType:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("", style="dim", no_wrap=True)
    for variant in variants:
        table.add_column(Text(words.plain(variant.name)), overflow="fold")
    if any(variant.about for variant in variants):
        table.add_row("about", *(Text(words.plain(variant.about)) for variant in variants))
    for label, cells in comparison_rows(variants):
        table.add_row(label, *(Text(words.plain(cell)) for cell in cells))
    return table


def witness_of(variant: VariantResult, width: int) -> list[RenderableType]:
    """The first witness of a variant with the sequence around it; nothing without one."""
    first = first_witness(variant)
    if first is None:
        return []
    run, cls, witness = first
    head = Text(f"first {cls} in {words.plain(variant.name)}: ", style="bold")
    lines: list[RenderableType] = [head.append(words.witness_line(witness, ""))]
    if witness.around:
        lines.append(Text(f"  {words.sequence(witness.around, width - 2)}"))
    lines.append(Text(f"  {witness_facts(witness)} · run {run.path}", style="dim"))
    if witness.cause:
        lines.append(Padding(Text(words.plain(witness.cause)), (0, 0, 0, 2)))
    return [*lines, ""]


def _undecided(variants: list[VariantResult]) -> list[RenderableType]:
    """Why a variant is not as expected, in the words of its runs."""
    lines: list[RenderableType] = []
    for variant in variants:
        if variant.outcome is Expectation.MET:
            continue
        reasons = [reason for run in variant.runs for reason in run.reasons]
        reasons = reasons or [f"found {found(variant)}"]
        head = f"{GLYPH[variant.outcome]} {words.plain(variant.name)}: expected {variant.expect}, "
        lines += [Text(head + words.plain(reason)) for reason in reasons[:3]]
    return [*lines, ""] if lines else []
