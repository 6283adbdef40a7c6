"""Prints the result of one run or of several."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.report.documents import campaign_document, run_document
from analysis.report.terminal import console, print_result
from analysis.report.terminal_campaign import print_campaign
from analysis.report.terminal_repro import print_reproduction
from commands.console import Settings, reader_may_leave, write
from commands.tables import paragraph

if TYPE_CHECKING:
    from analysis.findings import Result
    from analysis.verdict.campaign import Campaign
    from experiments.nights.document import SuiteDocument
    from harness.rundir import RunDir


def show_result(settings: Settings, run: RunDir, result: Result) -> int:
    """Print the summary of one run; its exit code."""
    settings.show(
        run_document(result),
        lambda: print_result(
            console(sys.stdout, color=settings.color),
            result,
            report=_report(run),
            verbose=settings.verbose > 0,
        ),
    )
    return result.exit_code


def show_campaign(settings: Settings, root: RunDir, campaign: Campaign) -> int:
    """Print the summary of several runs; its exit code."""
    printed = print_reproduction if campaign.reproduction else print_campaign
    settings.show(
        campaign_document(campaign),
        lambda: printed(console(sys.stdout, color=settings.color), campaign, report=_report(root)),
    )
    return campaign.exit_code


def show_stopped(settings: Settings, root: RunDir, campaign: Campaign) -> None:
    """Print for people what the rounds of a command that was stopped had found."""
    printed = print_reproduction if campaign.reproduction else print_campaign
    out = console(sys.stdout, color=settings.color)
    with reader_may_leave():
        printed(out, campaign, report=_report(root), is_stopped=True)


def print_night(outcome: SuiteDocument, page: Path) -> None:
    """Print how each round of a night ended, its verdict and its page."""
    for cell in outcome.cells:
        for each in cell.rounds:
            reasons = f": {'; '.join(each.reasons)}" if each.reasons else ""
            paragraph(f"{each.verdict:<7}  {cell.id}, seed {each.seed}{reasons}", hanging=" " * 9)
    for skipped in outcome.not_run:
        paragraph(f"not run  {skipped.cell}: {skipped.why}", hanging=" " * 9)
    paragraph(f"{outcome.suite}: {outcome.verdict}: {outcome.counts}")
    if page.exists():
        write(str(page))


def _report(run: RunDir) -> Path | None:
    """Where the page is, as short as it can be said from here."""
    if not run.report.exists():
        return None
    try:
        return run.report.relative_to(Path.cwd())
    except ValueError:
        return run.report
