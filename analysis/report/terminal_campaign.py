"""Prints the summary of a campaign: variants side by side, with expected and actual results."""

from __future__ import annotations

import shlex
from pathlib import Path

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from analysis.report import words
from analysis.report.campaign_words import GLYPH, comparison_rows, first_witness, found, outcome_of
from analysis.report.result_words import is_message, witness_facts
from analysis.report.terminal import closing_lines, emit, unknown_help
from analysis.verdict.campaign import Campaign, Expectation, VariantResult
from harness.invocation import for_terminal

STYLE = {
    Expectation.MET: "black on green",
    Expectation.NOT_MET: "bold white on red",
    Expectation.UNDECIDED: "black on yellow",
}


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


def next_steps(
    campaign: Campaign, report: Path | None, *, is_stopped: bool = False
) -> RenderableType:
    """Where the report lies, how to look at the first witness and to repeat the campaign, the exit
    code.

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
                    shlex.join(
                        ["brokerstorm", "trace", witness.message, str(report.parent / run.path)]
                    )
                ),
            )
            for run, _, witness in shown[:1]
            if is_message(witness)
        ]
    if outcome_of(campaign) is Expectation.UNDECIDED:
        lines.append(unknown_help())
    lines.append(("repeat", for_terminal(words.plain(campaign.command))))
    return closing_lines(lines if is_stopped else [*lines, ("exit", str(campaign.exit_code))])


def _banner(campaign: Campaign) -> RenderableType:
    outcome = outcome_of(campaign)
    line = Text(f" {outcome.value.upper()} ", style=STYLE[outcome])
    line.append(f"  {words.plain(campaign.scenario)}", style="bold")
    line.append(
        f"   {words.plural(len(campaign.variants), 'variant')} · seed {campaign.seed}", style="dim"
    )
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
