"""Whose messages a disk took away that had said to have synced them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from harness.protocols.files import kind_of
from harness.protocols.power import Unsynced
from harness.systems.base import System

#: In the place of a stream: any of those that the node has.
ANY_STREAM: Final = "*"


def is_own(stream: str) -> bool:
    """Whether it is a stream of a topic that brokers keep for themselves."""
    return stream.startswith("__")


def lied_about(lost: Unsynced, system: System) -> set[str]:
    """The streams about whose messages a disk lied: it lost bytes of files with messages, or the
    names of such files or of their folders, and had said that they were synced.

    Where streams have no folders of their own, nobody can tell whose messages a file had, or what
    a folder was for: these are all streams.
    """
    kinds = system.file_kinds
    files = {
        path
        for path in (*lost.claimed_files, *lost.claimed_entries)
        if kind_of(path, kinds) == "log"
    }
    if not system.stream_folders:
        folders = [path for path in lost.claimed_entries if not kind_of(path, kinds)]
        return {ANY_STREAM} if files or folders else set()
    return {Path(path).parent.name for path in files} | {
        Path(path).name for path in lost.claimed_entries if path not in files
    }
