"""The ability to let a node lose power, which is more than to kill it (see
`harness.protocols.cluster`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class Unsynced:
    """The files of a disk that were not synced.

    Attributes:
        files: how many have bytes that were written since they were synced.
        bytes: those bytes, of all files.
        entries: names that were made, changed or removed in folders that were not synced since.
        names: of some of the files, those with most bytes first, below the data folder.
        claimed: of the bytes, those that the disk had said to be synced.
        claimed_files: all files with such bytes, below the data folder.
        claimed_entries: names of which the disk had said that their changes are synced.
    """

    files: int = 0
    bytes: int = 0
    entries: int = 0
    names: tuple[str, ...] = ()
    claimed: int = 0
    claimed_files: tuple[str, ...] = ()
    claimed_entries: tuple[str, ...] = ()


@runtime_checkable
class LosesPower(Protocol):
    """Can drop what a node wrote and did not sync.

    Needs ``synced-disk`` of the cluster's start, and ``synced-folders`` for folders that lose
    names.
    """

    def keep_written(self) -> None:
        """Count all that the nodes have written so far as synced: after a minute this is so."""

    def stores(self) -> frozenset[str]:
        """The nodes that keep messages where the brokers keep none; nothing where brokers do."""

    def drop_unsynced(self, node: str, *, torn: bool, folders: bool, seed: int) -> Unsynced:
        """Put the disk of a node that is down back to what was synced; returns what was dropped.

        Args:
            torn: up to one block of what a file had grown by stays, as the seed has it.
            folders: what was made, renamed or removed in a folder that was not synced is undone,
                too.

        Raises:
            EnvironmentNotReady: the cluster was not started for it, or the disk is in use.
        """
