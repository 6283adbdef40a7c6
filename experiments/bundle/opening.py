"""Opens a bundle: unpacks it into a run folder that every command reads as any other."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from experiments.bundle.archive import SUFFIX, entries, unpack
from experiments.bundle.cover import Cover, read_cover
from experiments.bundle.names import OPENED, is_name_of_a_run, is_of_a_bundle
from harness.errors import UsageError
from harness.rundir import RunDir, find_run, is_url, open_regular, resolved

_DIGITS: Final = 16


@dataclass(frozen=True, slots=True)
class Opened:
    """An opened bundle: its run folder and what bundle.json says.

    Attributes:
        ignored: paths of files that were not written, because a bundle does not hold such files.
    """

    run: RunDir
    cover: Cover
    ignored: list[str]


def folder_of(archive: Path) -> str:
    """The folder that a bundle unpacks to, which is the id of its run.

    Raises:
        UsageError: it is not a bundle, or no run can have the name of its folder.
    """
    for entry in entries(archive):
        if not is_name_of_a_run(entry.folder):
            raise UsageError(
                f"{archive} is not a bundle: its folder {entry.folder[:80]!a} cannot be the name of a run",
                hint="`brokerstorm open BUNDLE DIR` unpacks it into the folder DIR",
            )
        return entry.folder
    raise UsageError(f"{archive} is not a bundle: it is empty")


def open_bundle(archive: Path, target: Path) -> Opened:
    """Unpack into ``target``; `show --html` draws the pages, which takes most of a second each.

    Raises:
        UsageError: no bundle, not a harmless one, of another version, or ``target`` has something
            in it.
    """
    ignored = unpack(archive, target, check=_require_a_run, is_taken=is_of_a_bundle)
    run = RunDir(resolved(target))
    return Opened(run, read_cover(run), ignored)


def _require_a_run(folder: Path) -> None:
    run = RunDir(folder)
    read_cover(run)
    if not (run.manifest.exists() or run.campaign.exists()):
        raise UsageError("it holds no manifest.json and no campaign.json")


def is_bundle(name: str) -> bool:
    """Whether a name belongs to a file that may be a bundle."""
    path = Path(name)
    return path.suffix == Path(SUFFIX).suffix and path.is_file()


def run_of(base: Path, name: str | None, *, with_tables: bool = False) -> RunDir:
    """The run that the user means, as `harness.rundir.find_run`; of a bundle's file, the run
    inside; of a URL, a copy of the documents there.

    A bundle is unpacked once, into ``base``. ``with_tables``: of a URL, the tables are copied, too.

    Raises:
        UsageError: no such run, or the file is not a bundle.
    """
    if name is not None and is_url(name):
        # and with it PyArrow: 0.2 s that `show` can do without
        from harness.stored import open_stored

        return open_stored(name, with_tables=with_tables)
    if name is None or not is_bundle(name):
        return find_run(base, name)
    archive = Path(name)
    folder = folder_of(archive)  # first: what is not a bundle may be large
    with open_regular(archive) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()[:_DIGITS]
    target = base / OPENED / f"{folder}-{digest}"
    run = RunDir(resolved(target))
    if not (run.manifest.exists() or run.campaign.exists()):
        shutil.rmtree(target, ignore_errors=True)
        open_bundle(archive, target)
    return run
