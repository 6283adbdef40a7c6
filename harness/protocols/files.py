"""The ability to damage the files of a node that is down (see `harness.protocols.cluster`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Literal, Protocol, runtime_checkable

#: What a file is to its node; ``any``: every file.
FileKind = Literal["log", "index", "snapshot", "metadata", "any"]
#: A bit is another, bytes are zeros, the end is missing.
Damage = Literal["flip", "zero", "cut"]


def kind_of(path: str, kinds: Mapping[str, Sequence[str]]) -> str:
    """The kind of a file; empty when it has none.

    Args:
        path: below the data folder of its node.
        kinds: by kind, patterns of such paths; a file is of the first that has it.
    """
    named = (
        kind for kind, patterns in kinds.items() if any(fnmatch(path, each) for each in patterns)
    )
    return next(named, "")


@dataclass(frozen=True, slots=True)
class DamagedPlace:
    """Where a file is not what its node wrote.

    Attributes:
        file: below the data folder of the node.
        offset: of the first byte that is damaged.
        size_bytes: how many are; of a file that was cut, how many are missing.
        before, after: the first bytes there, hexadecimal; nothing is there after a cut.
    """

    file: str
    offset: int
    size_bytes: int
    before: str
    after: str

    def __str__(self) -> str:
        now = self.after or f"cut by {self.size_bytes:,} B"
        return f"{self.file} at {self.offset:,}: {self.before} -> {now}"


@runtime_checkable
class DamagesFiles(Protocol):
    """Can damage files of nodes that are down, and give a node an empty data folder."""

    def damage_files(
        self, node: str, files: FileKind, damage: Damage, *, places: int, size_bytes: int, seed: int
    ) -> list[DamagedPlace]:
        """Damage files of a kind, at places drawn from all bytes in use; returns what was done.

        Args:
            places: how many, in one file or in several; a file is cut once at most.
            size_bytes: zeros or missing bytes of each place, at most.

        Raises:
            EnvironmentNotReady: the node runs, or its disk refuses.
        """

    def renew_data(self, node: str) -> None:
        """Remove all that a node that is down has, and prepare its data folder as for its first
        start.

        Raises:
            EnvironmentNotReady: the node runs, or its disk refuses.
        """


@runtime_checkable
class ForgetsNodes(Protocol):
    """Can make the cluster forget what a node had, before it joins without its data."""

    def forget(self, node: str) -> None:
        """Remove what other nodes keep of the identity of its data; nothing where they keep none.

        Raises:
            EnvironmentNotReady: who keeps it does not answer.
        """
