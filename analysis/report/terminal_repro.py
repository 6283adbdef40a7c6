"""Prints the summary of `repro`: the affected version beside the fixed one."""

from __future__ import annotations

import statistics
from pathlib import Path

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from analysis.report import words
from analysis.report.terminal import emit
from analysis.report.terminal_campaign import found, next_steps, witness_of
from analysis.verdict.campaign import Campaign, Proved, Question, Reproduction, VariantResult

STYLE = {
    Proved.REPRODUCED: "black on green",
    Proved.SEEN: "black on green",
    Proved.NOT_REPRODUCED: "bold white on red",
    Proved.UNKNOWN: "black on yellow",
}
#: Why `--quick` shows neither rate nor p.
QUICK = "stopped early, so neither rate nor p; run it without --quick for a proof"


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


def sentences(campaign: Campaign, reproduction: Reproduction) -> list[str]:
    """The bug, its report, and the outcome of the rounds."""
    question = reproduction.question
    told = [campaign.about, question.report, reproduction.why]
    return [text for text in (*told, QUICK if question.quick and not question.until_hit else "") if text]


def reproduction_rows(campaign: Campaign, reproduction: Reproduction) -> list[tuple[str, list[str]]]:
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
        table.append(("rate [95 %]", [_rate(arm) for arm in arms]))
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
    """Return what was run. The name of the arm and its text may name the version of the bug file instead."""
    is_set = any(each.startswith(f"variants.{arm.name}.") for each in question.overrides)
    return (arm.version or "–") + (", instead of the one of the bug file" if is_set else "")


def _counted(arm: VariantResult) -> str:
    lost = arm.rounds - arm.counted
    return f"{arm.counted}, and {lost} not counted" if lost else str(arm.counted)


def _rate(arm: VariantResult) -> str:
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
    """Return the message that the bug's text describes, from the first round that shows it, and how many
    rounds showed another one.
    """
    counted = [run for run in arm.runs if not run.not_counted]
    seen = [run.sighted for run in counted if run.shows(question.expect) and run.sighted]
    others = sum(run.has(question.expect) and not run.shows(question.expect) for run in counted)
    more = f"{others} without {question.witness!r}" if others else ""
    return "; ".join(filter(None, [words.plain(seen[0]) if seen else "", more])) or "–"


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
