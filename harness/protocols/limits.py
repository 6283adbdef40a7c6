"""Abilities of clusters whose nodes can be given less: CPU, memory, disk (see
`harness.protocols.cluster`).

Each needs something that the cluster is started with; `faults.kit.injection.FaultKind.needs` names
it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class CpuQuota:
    """A node and its CPU quota: counters since the group was made, and the quota that holds now."""

    periods: int
    throttled: int
    throttled_s: float
    cores: float | None


@runtime_checkable
class LimitsCpu(Protocol):
    """Can limit the CPU time of a node.

    Needs ``cpu-quota`` of the cluster's start.
    """

    def limit_cpu(self, node: str, cores: float | None) -> None:
        """At most this share of a core from now on; None lifts it. Idempotent.

        Raises:
            EnvironmentNotReady: the machine refuses it.
        """

    def cpu_use(self, node: str) -> CpuQuota:
        """Return the limit in force and the time for which the node was throttled."""


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """A node and its memory: bytes now, and counters since the group was made.

    Attributes:
        used: charged to the node, its page cache included.
        fixed: what cannot be given back (heap, stacks, buffers).
        limit: None when there is none.
        met: how often an allocation met the limit.
        killed: how often the kernel killed for want of memory.
    """

    used: int
    fixed: int
    limit: int | None
    met: int
    killed: int


@runtime_checkable
class LimitsMemory(Protocol):
    """Can limit the memory of a node.

    Needs ``memory-group`` of the cluster's start: only what a node takes after it entered its group
    is counted.
    """

    def limit_memory(self, node: str, limit_bytes: int | None) -> int | None:
        """At most this much from now on; None lifts it. Idempotent.

        Returns:
            The limit that holds: more than asked where what is in use cannot be given back.

        Raises:
            EnvironmentNotReady: the machine refuses it.
        """

    def memory_use(self, node: str) -> MemoryUse:
        """Return the limit in force and the memory in use."""


@runtime_checkable
class LiftsLimits(Protocol):
    """The ability to lift every limit of a node."""

    def lift_limits(self, node: str) -> None:
        """Lift whatever limits a node, for who knows only that something was set. Idempotent."""


@runtime_checkable
class FillsDisk(Protocol):
    """Can fill the volume that holds the data of one node.

    Needs ``data-volume`` of the cluster's start.
    """

    def fill_disk(self, node: str) -> None:
        """Take all that is free on the node's volume.

        Raises:
            EnvironmentNotReady: it cannot be filled.
        """

    def free_disk(self, node: str) -> None:
        """Give it back. Idempotent."""

    def is_filled(self, node: str) -> bool:
        """Return whether the disk is full because of `fill_disk`."""

    def try_write(self, node: str, size: int) -> tuple[str, float]:
        """Write that much there and sync it: the system's complaint or "", and how long it took,
        seconds."""


@runtime_checkable
class SlowsDisk(FillsDisk, Protocol):
    """Can slow the volume that holds the data of one node.

    Needs ``slow-volume`` of the cluster's start.
    """

    def slow_disk(self, node: str, bytes_per_s: int | None) -> None:
        """Read and write at most this fast from now on; None lifts it. Idempotent.

        Raises:
            EnvironmentNotReady: the machine refuses it.
        """

    def is_slowed(self, node: str) -> bool:
        """Return whether a limit on writes is in force."""

    def written(self, node: str) -> int:
        """Bytes that the node's process wrote so far, to whatever disk; in the page cache counts. 0
        while it does not run."""
