"""`repro --all`: one look at every known bug, the one that was shown longest ago first."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from analysis.report.documents import read_begun
from analysis.verdict.campaign import URGENT_EXITS, BegunCampaign, Campaign
from experiments.context import CommandContext
from experiments.experiment import play
from experiments.judging import TellStopped
from experiments.repro.figures import figures
from experiments.repro.request import ReproRequest
from experiments.repro.rounds import prepare_repro
from harness.errors import BrokerstormError, Exit, Interrupted, UsageError
from harness.rundir import all_runs, begun_at
from harness.scenario.bundled import bundled_bugs


@dataclass(frozen=True, slots=True, kw_only=True)
class QuickLook:
    """The result of one look at a bug.

    Attributes:
        affected, fixed: of each arm its version or name, the rounds with the bug, and the counted
            rounds.
        why: why it could not be looked at; empty when it was.
        folder: of its rounds; empty when there is none.
    """

    bug: str
    affected: str = ""
    fixed: str = ""
    seconds: float
    exit_code: int
    why: str = ""
    folder: str = ""


def refuse_single(request: ReproRequest) -> None:
    """Raises: UsageError: options of a single bug."""
    single = {"--pair": request.pair, "--rounds": request.rounds, "--until-hit": request.until_hit}
    single |= {"--affected": request.affected, "--fixed": request.fixed, "BUG": request.bug}
    if given := [name for name, value in single.items() if value]:
        raise UsageError(f"--all cannot be combined with {given[0]}", hint=f"remove {given[0]}")


def by_age(run_dir: Path) -> list[str]:
    """Every known bug: never shown first, then by when it was last shown, here or in the counted
    rounds."""
    shown = {
        bug: max(datetime(*one.day.timetuple()[:3], tzinfo=UTC) for one in pairs.values())
        for bug, pairs in figures().items()
    }
    for bug, when in _shown_here(run_dir):
        shown[bug] = max(when, shown.get(bug, when))
    return sorted(
        bundled_bugs(), key=lambda bug: (shown.get(bug, datetime.min.replace(tzinfo=UTC)), bug)
    )


def _shown_here(run_dir: Path) -> Iterator[tuple[str, datetime]]:
    for run in all_runs(run_dir):
        try:
            found = read_begun(run) if run.campaign.exists() else BegunCampaign()
            when = begun_at(run.run_id)
        except (BrokerstormError, ValueError):  # damaged, or named by somebody
            continue
        if found.bug and found.exit_code == Exit.PASS:
            yield found.bug, when


def look_at_all(
    context: CommandContext,
    request: ReproRequest,
    budget_s: float | None,
    tell_stopped: TellStopped,
    looks: list[QuickLook],
    tell: Callable[[QuickLook], None],
) -> list[str]:
    """QuickLook at one after the other, each on clusters of its own; the bugs that time was too
    short for. No look begins when the budget is used up.

    Args:
        looks: gets what was seen.

    Raises:
        Interrupted: the rest is left out.
    """
    began, bugs = time.monotonic(), by_age(context.run_dir)
    for number, bug in enumerate(bugs):
        if budget_s is not None and time.monotonic() - began >= budget_s:
            return bugs[number:]
        looks.append(_look(context, replace(request, bug=bug, quick=True), tell_stopped))
        tell(looks[-1])
    return []


def _look(context: CommandContext, request: ReproRequest, tell_stopped: TellStopped) -> QuickLook:
    began, root = time.monotonic(), None
    try:
        asked = prepare_repro(context, request)
        root = asked.root
        found = play(context, asked, tell_stopped)
    except Interrupted:
        raise
    except BrokerstormError as error:
        seconds = round(time.monotonic() - began, 1)
        where = str(root.root) if root else ""
        return QuickLook(
            bug=request.bug,
            seconds=seconds,
            exit_code=error.exit_code,
            why=str(error),
            folder=where,
        )
    assert isinstance(found, Campaign), "two arms are more than one run"
    arms = {
        arm.role: f"{arm.version or arm.name} {arm.hits} of {arm.counted}" for arm in found.variants
    }
    why = found.reproduction.why if found.reproduction else ""
    return QuickLook(
        bug=request.bug,
        affected=arms.get("affected", ""),
        fixed=arms.get("fixed", ""),
        seconds=round(time.monotonic() - began, 1),
        exit_code=found.exit_code,
        why="" if found.exit_code == Exit.PASS else why,
        folder=str(asked.root.root),
    )


def exit_code_of(looks: list[QuickLook]) -> int:
    """The most urgent of all; 3 when there is none."""
    codes = {look.exit_code for look in looks}
    return next((code for code in (*URGENT_EXITS, 2, 1, 3, 0) if code in codes), int(Exit.UNKNOWN))
