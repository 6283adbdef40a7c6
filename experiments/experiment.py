"""A folder in which rounds are played, by one process or by several after each other: nothing is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from experiments.leftovers import end_leftovers
from harness.errors import BrokerstormError, EnvironmentNotReady, Interrupted, UsageError
from harness.rundir import RunDir

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
