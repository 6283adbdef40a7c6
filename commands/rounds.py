"""Plays what `run` and `repro` ask for, and shows what came out."""

from __future__ import annotations

import logging
from dataclasses import asdict
from typing import TYPE_CHECKING

from analysis.findings import Result
from commands.console import Settings, write
from commands.summaries import show_campaign, show_result, show_stopped
from commands.tables import paragraph, table
from experiments import variants
from experiments.player import RoundOptions
from experiments.prepared import play
from experiments.repro import rounds as reproductions
from experiments.repro import zoo
from harness.errors import Interrupted

if TYPE_CHECKING:
    from analysis.verdict.campaign import Campaign
    from experiments.judging import TellStopped
    from experiments.repro.request import ReproRequest
    from harness.rundir import RunDir

_LOG = logging.getLogger(__name__)


def run_request(settings: Settings, request: variants.RunRequest) -> int:
    """Run all rounds, print the summary, return the exit code.

    Raises:
        BrokerstormError: it could not be started or was interrupted.
    """
    asked = variants.prepare_run(settings, request)
    found = play(
        settings,
        request,
        asked,
        _tell_stopped(settings),
        replay=request.replay,
        external=asked.external,
        metrics=request.metrics,
        secure=request.secure,
        judges_cut=True,
        load=request.load,
        windows=request.windows,
    )
    place = request.load.place_of(asked.root.run_id) if request.load else ""
    if place and len(asked.plans) > 1:  # its rounds are there already
        from experiments.spark_load import stays_here
        from harness.stored import keep_at

        with stays_here(asked.root, _LOG.warning):
            keep_at(asked.root, place)
    return _show(settings, asked.root, found)


def resume_request(settings: Settings, root: RunDir, request: variants.RunRequest) -> int:
    """Go on with a run that was killed, print what it shows, return the exit code.

    Raises:
        BrokerstormError: it cannot be resumed, or was interrupted.
    """
    from experiments.resume import resume

    options = RoundOptions("process", request.offline, master=request.master)
    return show_result(settings, root, resume(settings, root, options, request.windows))


def repro_request(settings: Settings, request: ReproRequest) -> int:
    """Compare, print the summary, return the exit code.

    Raises:
        BrokerstormError: it could not be started or was interrupted.
    """
    asked = reproductions.prepare_repro(settings, request)
    found = play(settings, request, asked, _tell_stopped(settings), metrics=request.metrics)
    return _show(settings, asked.root, found)


def repro_all(settings: Settings, request: ReproRequest, budget_s: float | None) -> int:
    """Look at every known bug, print a table, return the exit code.

    Raises:
        BrokerstormError: an option of a single bug, or it was interrupted.
    """
    zoo.refuse_single(request)

    def tell(look: zoo.QuickLook) -> None:
        if not settings.json:
            paragraph(" · ".join(_row(look)), hanging="  ")

    looks: list[zoo.QuickLook] = []
    try:
        left_out = zoo.look_at_all(settings, request, budget_s, _tell_stopped(settings), looks, tell)
    except Interrupted:
        if not settings.json:  # its one document is the error
            _show_looks(looks, [])
        raise
    code = zoo.exit_code_of(looks)
    document = {
        "bugs": [asdict(look) for look in looks],
        "left_out": left_out,
        "exit_code": code,
    }

    settings.show(document, lambda: _show_looks(looks, left_out))
    return code


def _show_looks(looks: list[zoo.QuickLook], left_out: list[str]) -> None:
    write("")
    table([("bug", "affected", "fixed", "seconds", "exit"), *(_row(look) for look in looks)])
    if left_out:
        paragraph(f"no time was left for {', '.join(left_out)}", hanging="  ")


def _row(look: zoo.QuickLook) -> tuple[str, str, str, str, str]:
    exit_code = f"{look.exit_code}: {look.why}" if look.why else str(look.exit_code)
    return look.bug, look.affected or "-", look.fixed or "-", f"{look.seconds:.0f}", exit_code


def _show(settings: Settings, root: RunDir, found: Result | Campaign) -> int:
    if isinstance(found, Result):
        return show_result(settings, root, found)
    return show_campaign(settings, root, found)


def _tell_stopped(settings: Settings) -> TellStopped:
    def tell(root: RunDir, so_far: Campaign) -> None:
        if not settings.json:  # its one document is the error
            show_stopped(settings, root, so_far)

    return tell
