"""Runs in a folder at a URL, which pyarrow.fs opens: ``s3://``, ``gs://``, ``abfss://``,
``hdfs://``.

Such a run is read through a copy of its documents in the cache. Its tables stay where they are:
whoever judges or traces reads them there, executors too. What judging writes goes back. Credentials
and regions are those that pyarrow.fs finds in the environment (``AWS_ACCESS_KEY_ID``,
``AWS_ENDPOINT_URL`` ...).
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

import pyarrow as pa
import pyarrow.fs as pafs

from harness.errors import UsageError
from harness.filesystems import ORIGIN, below, filesystem_of, origin_of, put_file
from harness.rundir import RunDir, write_json
from harness.toolchains.cache import cache_folder

#: What a list of runs tells about one is in these.
_TELLING: Final = ("manifest.json", "campaign.json", "plan.json", "result.json")
#: Folders of a run that are not read once it is sealed.
_LEFT_THERE: Final = frozenset({"raw", "cluster", "ledger", "calibration"})
_TABLE: Final = ".parquet"
_LARGEST_DOCUMENT_BYTES: Final = 1 << 30
_HINT: Final = "check the URL, and the variables for its credentials, region and endpoint"


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder at a URL. Every method raises UsageError where the file system refuses or does not
    answer."""

    url: str

    def __truediv__(self, name: str) -> Folder:
        return Folder(below(self.url, name))

    @property
    def name(self) -> str:
        return self.url.partition("?")[0].rstrip("/").rpartition("/")[2]

    def having(self, paths: Collection[str]) -> dict[str, pafs.FileInfo]:
        """Return the files that exist, by their paths from this folder."""
        try:
            filesystem, root = filesystem_of(self.url)
            infos = filesystem.get_file_info([f"{root}/{path}" for path in paths])
        except (OSError, pa.ArrowException) as error:
            raise _refused("read", self.url, error) from error
        return {path: info for path, info in zip(paths, infos, strict=True) if info.is_file}

    def files(self) -> dict[str, pafs.FileInfo]:
        """Every file below, by its path from here."""
        found = self._listed(recursive=True)
        return {path: info for path, info in found.items() if info.is_file}

    def folders(self) -> list[str]:
        """Names of the folders in it."""
        found = self._listed(recursive=False)
        return sorted(name for name, info in found.items() if info.type == pafs.FileType.Directory)

    def _listed(self, *, recursive: bool) -> dict[str, pafs.FileInfo]:
        try:
            filesystem, path = filesystem_of(self.url)
            selector = pafs.FileSelector(path, allow_not_found=True, recursive=recursive)
            infos = filesystem.get_file_info(selector)
        except (OSError, pa.ArrowException) as error:
            raise _refused("read", self.url, error) from error
        return {info.path.removeprefix(path).lstrip("/"): info for info in infos}

    def fetch(self, path: str, target: Path) -> None:
        """Copy a file of it; ``target`` appears when it is whole."""
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            filesystem, root = filesystem_of(self.url)
            with filesystem.open_input_stream(f"{root}/{path}") as source, part.open("wb") as file:
                shutil.copyfileobj(source, file, 1 << 20)
            part.replace(target)
        except (OSError, pa.ArrowException) as error:
            raise _refused("read", f"{self.url}, {path}", error) from error
        finally:
            part.unlink(missing_ok=True)

    def put(self, source: Path, path: str) -> None:
        """Write a copy of a file into it."""
        try:
            put_file(source, self.url, path)
        except (OSError, pa.ArrowException) as error:
            raise _refused("write", f"{self.url}, {path}", error) from error


def _refused(what: str, where: str, error: Exception) -> UsageError:
    said = str(error).strip().partition("\n")[0][:300]
    return UsageError(f"cannot {what} {where}: {said}", hint=_HINT)


def open_stored(url: str, *, with_tables: bool = False) -> RunDir:
    """The run or campaign at a URL, as a folder in the cache that has its documents as they are
    now.

    Args:
        with_tables: the sealed tables are copied, too.

    Raises:
        UsageError: no run there, or it cannot be read.
    """
    folder = Folder(url)
    there = folder.files()
    if not {"manifest.json", "campaign.json"} & set(there):
        raise UsageError(
            f"there is no run at {url}: no manifest.json and no campaign.json",
            hint=f"`brokerstorm list runs {url}` shows the runs below it",
        )
    copy = cache_folder() / "stored" / hashlib.sha256(url.encode()).hexdigest()[:16] / folder.name
    wanted = {
        path: info for path, info in there.items() if with_tables or not path.endswith(_TABLE)
    }
    _renew(copy, folder, {path: info for path, info in wanted.items() if _is_copied(path)})
    for path in _documents(copy):
        if path != ORIGIN and path not in there:
            (copy / path).unlink()
    write_json(copy / ORIGIN, {"url": url})
    return RunDir(copy)


def _renew(copy: Path, folder: Folder, wanted: Mapping[str, pafs.FileInfo]) -> None:
    """Fetch what the copy of a folder lacks, or has otherwise."""
    for path, info in wanted.items():
        if not _is_same(copy / path, info):
            _require_sane(path, info, folder.url)
            folder.fetch(path, copy / path)
            if info.mtime_ns is not None:
                os.utime(copy / path, ns=(info.mtime_ns, info.mtime_ns))


def _is_copied(path: str) -> bool:
    return not _LEFT_THERE.intersection(PurePosixPath(path).parts)


def _is_same(copy: Path, info: pafs.FileInfo) -> bool:
    if not copy.is_file():
        return False
    found = copy.stat()
    return info.mtime_ns is not None and (found.st_size, found.st_mtime_ns) == (
        info.size,
        info.mtime_ns,
    )


def _require_sane(path: str, info: pafs.FileInfo, url: str) -> None:
    """A store holds what somebody put there: no name leads out of the copy, no document fills the
    disk."""
    is_outside = path.startswith("/") or ".." in PurePosixPath(path).parts or "\0" in path
    if is_outside or (info.size > _LARGEST_DOCUMENT_BYTES and not path.endswith(_TABLE)):
        raise UsageError(
            f"{url} holds {path!r} of {info.size:,} bytes, which is not a file of a run"
        )


def _documents(folder: Path) -> Iterator[str]:
    """Files below a folder, tables left out, by their paths from there."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix != _TABLE:
            yield path.relative_to(folder).as_posix()


def give_back(run: RunDir, paths: Collection[Path]) -> None:
    """Write documents of a stored run to where it came from; those that are not there are left out.

    Raises:
        UsageError: it cannot be written there.
    """
    if url := origin_of(run):
        for path in paths:
            if path.exists():
                Folder(url).put(path, path.relative_to(run.root).as_posix())


def upload(run: RunDir, url: str) -> list[str]:
    """Copy a run or campaign to ``url``/ID, without what is not read once it is sealed: raw
    segments and the brokers' data. The documents that make it a run come last, so a copy that was
    cut off is none.

    Returns:
        The paths of what was copied.

    Raises:
        UsageError: there is such a run already, it is not sealed, or it cannot be written there.
    """
    target = Folder(url) / run.run_id
    if target.files():
        raise UsageError(f"{target.url} exists", hint="remove it there, or name another place")
    rounds = run.rounds() if run.campaign.exists() else [run]
    for each in rounds:
        if each.manifest.exists() and not each.seal_report.exists():
            raise UsageError(
                f"{each.root} is not sealed", hint=f"`brokerstorm analyze {run.run_id}` does it"
            )
    return _put_all(run, target)


def keep_at(run: RunDir, url: str) -> None:
    """Write what this machine has of a run or campaign, as `upload` would, to the folder at ``url``
    that has the rest of it, and have it read there from now on.

    Raises:
        UsageError: it cannot be written there.
    """
    _put_all(run, Folder(url))
    write_json(run.root / ORIGIN, {"url": url})


def _put_all(run: RunDir, target: Folder) -> list[str]:
    """The paths of what was copied; what makes it a run comes last."""
    paths = [
        path.relative_to(run.root).as_posix()
        for path in sorted(run.root.rglob("*"))
        if path.is_file() and not path.is_symlink() and not path.name.startswith(".")
    ]
    paths = [path for path in paths if _is_copied(path) and PurePosixPath(path).name != ORIGIN]
    for path in sorted(paths, key=lambda path: path in ("manifest.json", "campaign.json")):
        target.put(run.root / path, path)
    return paths


def stored_runs(url: str) -> Iterator[RunDir]:
    """Copies of what tells about each run below a URL, newest first.

    Raises:
        UsageError: it cannot be read.
    """
    folder = Folder(url)
    copies = cache_folder() / "stored" / "list" / hashlib.sha256(url.encode()).hexdigest()[:16]
    for name in reversed(folder.folders()):
        there = (folder / name).having(_TELLING)
        if {"manifest.json", "campaign.json"} & set(there):
            _renew(copies / name, folder / name, there)
            yield RunDir(copies / name)
