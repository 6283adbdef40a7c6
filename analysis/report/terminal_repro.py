"""Prints the summary of `repro`: the affected version next to the fixed one."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from analysis.report import words
from analysis.report.campaign_words import p_text, reproduction_rows, sentences
from analysis.report.terminal import emit
from analysis.report.terminal_campaign import next_steps, witness_of
from analysis.verdict.campaign import Campaign, Proved, Reproduction

STYLE = {
    Proved.REPRODUCED: "black on green",
    Proved.SEEN: "black on green",
    Proved.NOT_REPRODUCED: "bold white on red",
    Proved.UNKNOWN: "black on yellow",
}


def print_reproduction(
    out: Console, campaign: Campaign, *, report: Path | None = None, is_stopped: bool = False
) -> None:
    """The summary of `repro`; ``is_stopped``: of the rounds before it was stopped."""
    reproduction = campaign.reproduction
    assert reproduction is not None
    parts: list[RenderableType] = [_banner(campaign, reproduction)]
    parts += [Text(f"  {words.plain(line)}") for line in sentences(campaign, reproduction)]
    parts += ["", _side_by_side(campaign, reproduction), ""]
    for variant in campaign.variants:
        parts += witness_of(variant, out.width)
    emit(out, *parts, next_steps(campaign, report, is_stopped=is_stopped))


def _banner(campaign: Campaign, reproduction: Reproduction) -> RenderableType:
    outcome, question = reproduction.outcome, reproduction.question
    line = Text(f" {outcome.value.upper()} ", style=STYLE[outcome])
    line.append(f"  {words.plain(question.bug)}", style="bold")
    return line.append(f"   {words.plain(question.pair)} · seed {campaign.seed}", style="dim")


def _side_by_side(campaign: Campaign, reproduction: Reproduction) -> RenderableType:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("", style="dim", no_wrap=True)
    for arm in campaign.variants:
        table.add_column(Text(f"{arm.role}: {words.plain(arm.name)}"), overflow="fold")
    if any(arm.about for arm in campaign.variants):
        table.add_row("about", *(Text(words.plain(arm.about)) for arm in campaign.variants))
    for label, cells in reproduction_rows(campaign, reproduction):
        table.add_row(label, *(Text(words.plain(cell)) for cell in cells))
    if text := p_text(reproduction):
        table.add_row("p", Text(text))
    return table
