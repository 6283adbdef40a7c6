"""One turn of a night: a cell played with one seed as `run` or `repro` would, and what it came to."""

from __future__ import annotations

import traceback
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commands import repro, running
from commands.console import Settings
from harness.errors import UsageError
from harness.rundir import RunDir
from suites.matrix import Cell

if TYPE_CHECKING:
    from analysis.findings import Result
    from analysis.verdict.campaign import Campaign as Summary
    from harness.progress.view import BaseProgress
    from harness.run.campaign import Campaign


def play_cell(
    settings: Settings,
    cell: Cell,
    seed: int,
    root: RunDir,
    campaign: Campaign[Result],
    progress: BaseProgress,
    offline: bool,
) -> tuple[int, str]:
    """Play a cell with one seed, as `run` or `repro` would; exit code, and the command that repeats it.

    Raises:
        BrokerstormError: it could not be started, broke or was interrupted.
    """
    shared: dict[str, Any] = {
        "seed": seed,
        "overrides": cell.overrides,
        "runtime": cell.runtime,
        "keep_up": False,
        "offline": offline,
        "master": None,
    }
    if cell.pair:
        asked = repro.prepare(
            settings,
            repro.ReproRequest(
                bug=cell.scenario, pair=cell.pair, rounds=cell.tries, quick=True, client_jars=None, **shared
            ),
            root,
        )
        return repro.play_in(campaign, asked, progress), asked.command
    prepared = running.prepare(
        settings,
        running.RunRequest(scenario=cell.scenario, rounds=1, variant="", replay=None, **shared),
        root,
    )
    for text in prepared.warnings:
        progress.note(f"warning: {text}")
    return running.play_in(campaign, prepared), prepared.command


def judged(run: RunDir) -> Result | Summary:
    """What was said of a turn, once all of it was.

    Raises:
        UsageError: it is not judged, or not to the end.
    """
    from analysis.report.documents import read_campaign, read_result

    if not run.junit.exists():  # written last
        raise UsageError(f"{run.root} has not been judged")
    return read_campaign(run) if run.campaign.exists() else read_result(run)


def reasons_of(run: RunDir) -> list[str]:
    """Why a judged turn is no pass: of a run its reasons, of several those that are not as expected."""
    from analysis.findings import Result

    found = judged(run)
    if isinstance(found, Result):
        return [*found.reasons, *(f"{each.cls} {each.count:,}" for each in found.violations())]
    if not found.exit_code:
        return []
    if found.reproduction is not None:
        return [found.reproduction.why]
    return [f"{each.name}: {each.outcome}" for each in found.variants if not each.as_expected]


def modified(path: Path) -> str:
    """When a file was last written, ISO 8601, UTC."""
    return datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds")


def keep_traceback(root: RunDir) -> None:
    """The traceback of the error that is handled, into the folder of its turn."""
    with suppress(OSError):
        root.root.mkdir(parents=True, exist_ok=True)
        (root.root / "traceback.txt").write_text(traceback.format_exc())
