"""The folder of an experiment: its lock, what was asked and played there, and what was
interrupted."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol, TypeVar

from filelock import FileLock, Timeout

from analysis.report.documents import finite
from experiments.judging import RoundOutcome
from experiments.leftovers import end_leftovers
from harness.contracts import read_rows, typed
from harness.errors import BrokerstormError, EnvironmentNotReady, Interrupted, UsageError
from harness.rundir import ASKED, RunDir, read_json, resolved, write_json, write_jsonl

#: In the folder: who holds it, and the outcome of each round.
LOCK, ROUNDS = "experiment.lock", "rounds.jsonl"
#: In a run folder: what judging again needs.
CAPTURE: Final = ("raw", "sealed", "stacks")
#: In the names of rounds that are played again: they do not count.
ASIDE: Final = "aside"
SCHEMA_VERSION: Final = 1

AskedT = TypeVar("AskedT")


class KeptOutcome(Protocol):
    """The outcome that a strategy gets: a dataclass, with the name and the key of the request."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def name(self) -> str:
        """Return the name of the round's folder."""

    @property
    def key(self) -> str:
        """Return what identifies the round in its experiment."""


OutcomeT = TypeVar("OutcomeT", bound=KeptOutcome)


@contextmanager
def playing(root: RunDir, goes_on: str, so_far: Callable[[], str] = lambda: "") -> Iterator[None]:
    """Hold a folder: no other process plays in it, and nothing is left of one that was killed.

    Args:
        goes_on: the command that continues it, for the message of what ends it early.
        so_far: what there is already, for the same message.

    Raises:
        EnvironmentNotReady: another process plays in it.
    """
    try:
        lock = FileLock(root.root / LOCK).acquire(timeout=0)
    except Timeout:
        raise EnvironmentNotReady(
            f"{root.run_id} is still being run by another process",
            hint="wait until it has ended, or stop it with Ctrl-C",
        ) from None
    with lock:
        end_leftovers(root.run_id)
        try:
            yield
        except BrokerstormError as error:
            if root.root.exists() and (isinstance(error, Interrupted) or not error.hint):
                error.hint = f"{so_far()}`{goes_on}` continues"
            raise


def close_run_folder(root: RunDir, error: BrokerstormError) -> None:
    """Say what is still available of a run that was cut short; nothing at all leaves no folder."""
    if not any(root.root.rglob("manifest.json")) and not root.cluster.exists():
        shutil.rmtree(root.root)
    elif not error.hint and (root.raw.exists() or root.campaign.exists()):
        error.hint = f"what was captured until then: `brokerstorm analyze {root.run_id}`"


def keep_asked(root: RunDir, kind: str, asked: Any) -> None:
    """Write down what is asked, before the first round.

    Args:
        kind: of experiment, as people call it: ``search``.
        asked: a dataclass.
    """
    document = {"schema_version": SCHEMA_VERSION, "kind": kind, "asked": asdict(asked)}
    write_json(root.experiment, document)


def begun(run_dir: Path, name: str, kind: str, asked: type[AskedT]) -> tuple[RunDir, AskedT]:
    """An experiment to continue: its folder and what was asked.

    Args:
        name: an id below the folder of runs, or a path.
        kind, asked: as of `keep_asked`.

    Raises:
        UsageError: there is none of that name and kind, it is damaged, or of another version.
    """
    for folder in (run_dir / name, Path(name)):
        path = folder / ASKED
        if not path.exists() or (document := read_json(path)).get("kind") != kind:
            continue
        if (version := document.get("schema_version")) != SCHEMA_VERSION:
            raise UsageError(
                f"{path}: schema_version is {version!r}, this version reads {SCHEMA_VERSION}"
            )
        return RunDir(resolved(folder)), typed(document.get("asked"), asked, str(path))
    have = ", ".join(
        sorted(path.parent.name for path in run_dir.glob(f"*/{ASKED}") if _is(path, kind))
    )
    raise UsageError(f"no {kind} {name!r} in {run_dir}", hint=f"found there: {have or 'none'}")


def _is(path: Path, kind: str) -> bool:
    with suppress(UsageError):
        return read_json(path).get("kind") == kind
    return False


def kept(root: RunDir, outcome: type[OutcomeT]) -> list[OutcomeT]:
    """Return the outcomes of a folder so far, in the order of play.

    Raises:
        UsageError: the file is damaged.
    """
    return read_rows(root.root / ROUNDS, outcome)


def play_again(root: RunDir, again: Callable[[RoundOutcome], bool]) -> None:
    """Let rounds be played again: what they captured, and what came out, stays under another
    name."""
    every = []
    for outcome in kept(root, RoundOutcome):
        if f"-{ASIDE}-" in outcome.name or not again(outcome):
            every.append(outcome)
        elif not outcome.is_unusable:
            every.append(replace(outcome, name=set_aside(root.root / outcome.name, ASIDE)))
    write_jsonl(root.root / ROUNDS, [finite(asdict(outcome)) for outcome in every])


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


def make_room(run: RunDir) -> None:
    """Keep what a killed process captured in the folder of a round, under another name."""
    if any(path != run.plan for path in run.root.glob("*")):
        set_aside(run.root, "cut")
