"""Plays what `run` and `repro` ask for, and shows what came out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.findings import Result
from commands.console import Settings
from commands.summaries import show_campaign, show_result, show_stopped
from experiments import variants
from experiments.prepared import play
from experiments.repro import rounds as reproductions

if TYPE_CHECKING:
    from analysis.verdict.campaign import Campaign
    from experiments.judging import TellStopped
    from experiments.repro.request import ReproRequest
    from harness.rundir import RunDir


def run_request(settings: Settings, request: variants.RunRequest) -> int:
    """Run all rounds, print the summary, return the exit code.

    Raises:
        BrokerstormError: it could not be started or was interrupted.
    """
    asked = variants.prepare(settings, request)
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
    )
    place = request.load.place_of(asked.root.run_id) if request.load else ""
    if place and len(asked.plans) > 1:  # its rounds are there already
        from harness.stored import keep_at

        keep_at(asked.root, place)
    return _show(settings, asked.root, found)


def repro_request(settings: Settings, request: ReproRequest) -> int:
    """Compare, print the summary, return the exit code.

    Raises:
        BrokerstormError: it could not be started or was interrupted.
    """
    asked = reproductions.prepare(settings, request)
    found = play(settings, request, asked, _tell_stopped(settings), metrics=request.metrics)
    return _show(settings, asked.root, found)


def _show(settings: Settings, root: RunDir, found: Result | Campaign) -> int:
    if isinstance(found, Result):
        return show_result(settings, root, found)
    return show_campaign(settings, root, found)


def _tell_stopped(settings: Settings) -> TellStopped:
    def tell(root: RunDir, so_far: Campaign) -> None:
        if not settings.json:  # its one document is the error
            show_stopped(settings, root, so_far)

    return tell
