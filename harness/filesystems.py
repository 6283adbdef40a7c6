"""Folders on this machine or at a URL that pyarrow.fs opens, and which of the two a run is in."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Final

import pyarrow.fs as pafs

from harness.rundir import RunDir, is_url, read_json

#: In the copy of a stored run (`harness.stored`): where it came from.
ORIGIN: Final = "origin.json"


def filesystem_of(root: str) -> tuple[Any, str]:
    """Return the file system of a folder, and the folder's path in it; a text that is not a URL is
    a local path.

    Raises:
        OSError, ArrowException: the file system does not exist, or it does not answer.
    """
    if is_url(root):
        filesystem, path = pafs.FileSystem.from_uri(root)
        return filesystem, str(path)
    return pafs.LocalFileSystem(), root


def put_file(source: Path, root: str, path: str) -> None:
    """Write a copy of a file into a folder as of `filesystem_of`.

    Raises:
        OSError, ArrowException: it cannot be written there.
    """
    filesystem, folder = filesystem_of(root)
    target = f"{folder}/{path}"
    if isinstance(filesystem, pafs.LocalFileSystem):  # elsewhere folders do not exist
        filesystem.create_dir(target.rpartition("/")[0])
    with source.open("rb") as file, filesystem.open_output_stream(target) as stream:
        shutil.copyfileobj(file, stream, 1 << 20)


def below(url: str, name: str) -> str:
    """The URL of a folder in a folder."""
    address, mark, query = url.partition("?")
    return f"{address.rstrip('/')}/{name}{mark}{query}"


def origin_of(run: RunDir) -> str:
    """The URL of a run that was opened from one, or of the campaign that it is a round of; else
    empty."""
    for root, name in ((run.root, ""), (run.root.parent, run.root.name)):
        if (root / ORIGIN).exists():
            url = str(read_json(root / ORIGIN).get("url", ""))
            return below(url, name) if name else url
    return ""
