"""A folder in which rounds are played, by one process or by several after each other: nothing is lost."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from experiments.leftovers import end_leftovers
from experiments.player import opened_campaign
from harness.errors import BrokerstormError, EnvironmentNotReady, Interrupted, UsageError
from harness.rundir import RunDir

if TYPE_CHECKING:
    from analysis.findings import Result
    from analysis.verdict.campaign import Campaign as Summary
    from experiments.campaign import Campaign
    from experiments.context import Context
    from experiments.judging import RoundOutcome, TellStopped
    from experiments.player import RunOptions
    from harness.contracts.plan import Plan
    from harness.progress.view import BaseProgress

LOCK: Final = "experiment.lock"


@contextmanager
def playing(root: RunDir, goes_on: str, so_far: Callable[[], str] = lambda: "") -> Iterator[None]:
    """Hold a folder: no other process plays in it, and nothing is left of one that was killed.

    Args:
        goes_on: the command that goes on with it, for the message of what ends it early.
        so_far: what there is already, for the same message.

    Raises:
        EnvironmentNotReady: another process plays in it.
    """
    from filelock import FileLock, Timeout

    try:
        lock = FileLock(root.root / LOCK).acquire(timeout=0)
    except Timeout:
        raise EnvironmentNotReady(
            f"{root.run_id} is still being run by another process", hint="wait for it, or end it"
        ) from None
    with lock:
        end_leftovers(root.run_id)
        try:
            yield
        except BrokerstormError as error:
            if root.root.exists() and (isinstance(error, Interrupted) or not error.hint):
                error.hint = f"{so_far()}`{goes_on}` goes on"
            raise


def begun(run_dir: Path, name: str, file: str, what: str) -> RunDir:
    """The folder to go on in: an id below the folder of runs, or a path.

    Args:
        file: what such a folder holds.
        what: it is called.

    Raises:
        UsageError: there is none of that name.
    """
    folder = next((path for path in (run_dir / name, Path(name)) if (path / file).exists()), None)
    if folder is None:
        have = ", ".join(sorted(path.parent.name for path in run_dir.glob(f"*/{file}")))
        raise UsageError(f"no {what} {name!r} in {run_dir}", hint=f"there: {have or 'none'}")
    return RunDir(folder.resolve())


def set_aside(folder: Path, why: str) -> str:
    """Make room for a round: what is in its folder stays, under another name; that name.

    Args:
        why: part of the name.
    """
    names = (folder.with_name(f"{folder.name}-{why}-{number}") for number in range(1, 10_000))
    free = next(path for path in names if not path.exists())
    if folder.exists():
        folder.rename(free)
    return free.name


def close_run_folder(root: RunDir, error: BrokerstormError) -> None:
    """Say what can still be had of a run that was cut short; nothing at all leaves no folder."""
    if not any(root.root.rglob("manifest.json")) and not root.cluster.exists():
        shutil.rmtree(root.root)
    elif not error.hint and (root.raw.exists() or root.campaign.exists()):
        error.hint = f"what was captured until then: `brokerstorm analyze {root.run_id}`"


class Rounds(Protocol):
    """What `run` or `repro` was asked, and what came out so far: how rounds follow each other is its own."""

    @property
    def root(self) -> RunDir: ...
    @property
    def command(self) -> str: ...
    @property
    def warnings(self) -> tuple[str, ...]: ...
    @property
    def judged(self) -> list[RoundOutcome]: ...

    def every_plan(self) -> list[Plan]:
        """Of all rounds that can be foreseen."""

    def play(self, campaign: Campaign, progress: BaseProgress, *, goes_on: bool) -> None:
        """Play the rounds; each is in `judged` as soon as it is."""

    def summary(self, duration_s: float) -> Summary:
        """What the rounds say together, written into the folder."""


def play(
    context: Context, options: RunOptions, asked: Rounds, tell_stopped: TellStopped, **more: Any
) -> Result | Summary:
    """Play all rounds: the result of the only one, or the summary of several.

    Args:
        tell_stopped: gets what the finished rounds had found when the rest could not be played.
        more: as of `opened_campaign`.

    Raises:
        BrokerstormError: interrupted, or it could not be run; what is finished can be shown and analysed.
    """
    began = time.monotonic()
    plans = asked.every_plan()
    try:
        with opened_campaign(context, options, asked.root, plans, asked.command, **more) as opened:
            return play_in(*opened, asked, began)
    except BrokerstormError as error:
        if asked.judged and len(plans) > 1:
            tell_stopped(asked.root, asked.summary(time.monotonic() - began))
        close_run_folder(asked.root, error)
        raise


def play_in(
    campaign: Campaign, progress: BaseProgress, asked: Rounds, began: float, *, goes_on: bool = False
) -> Result | Summary:
    """As `play`, in a campaign that is open; ``goes_on``: other rounds come after these on its cluster."""
    for text in asked.warnings:
        progress.note(f"warning: {text}")
    asked.play(campaign, progress, goes_on=goes_on)
    if len(asked.every_plan()) == 1:
        return asked.judged[0].result
    return asked.summary(time.monotonic() - began)
