"""The ability to disturb single operations of a node's disk (see `harness.protocols.cluster`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from harness.protocols.files import FileKind

#: Operations of a disk. ``fsync`` is also fdatasync, msync and the end of a write with O_SYNC.
Operation = Literal["read", "write", "fsync"]
#: Errors that an operation can end with.
Errno = Literal["EIO", "ENOSPC", "EDQUOT", "EROFS"]


@dataclass(frozen=True, slots=True)
class Disturbance:
    """What happens to some operations of a disk.

    Attributes:
        act: ``error``: the operation fails; ``delay``: it comes late; ``lie``: the disk says that
            it synced, and did not.
        operations: the operations that are met.
        files: the kind of files that are met.
        share: share of these operations, drawn by the seed.
        errno: error of a failed operation.
        delay_s: delay of a late operation, in seconds.
        seed: decides which operations are met.
    """

    act: Literal["error", "delay", "lie"]
    operations: tuple[Operation, ...]
    files: FileKind = "any"
    share: float = 1.0
    errno: Errno = "EIO"
    delay_s: float = 0.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Disturbed:
    """Counts of a disturbance.

    Attributes:
        seen: operations on these files that it might have met.
        met: by operation, how many it met.
        files: some of the files, below the data folder.
    """

    seen: int = 0
    met: Mapping[str, int] = field(default_factory=dict)
    files: tuple[str, ...] = ()


@runtime_checkable
class DisturbsDisks(Protocol):
    """Can make operations of a node's disk fail, come late, or be said to be done.

    Needs ``synced-disk`` of the cluster's start.
    """

    def disturb_disk(self, node: str, name: str, disturbance: Disturbance) -> None:
        """Begin a disturbance, under a name that nothing else uses.

        Raises:
            EnvironmentNotReady: the cluster was not started for it.
        """

    def disk_disturbed(self, node: str, name: str) -> Disturbed | None:
        """Return what a disturbance has met so far; None once it is undone.

        Raises:
            EnvironmentNotReady: the disk does not answer.
        """

    def calm_disk(self, node: str, name: str) -> Disturbed:
        """Undo a disturbance; return what it met. Idempotent.

        Raises:
            EnvironmentNotReady: the disk does not answer.
        """
