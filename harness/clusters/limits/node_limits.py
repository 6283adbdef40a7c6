"""CPU, memory and disk limits of the nodes on this machine: the part of the runtimes for resource
faults.

What a fault needs is made when the cluster is made and goes with it: one control group per node
(`harness.clusters.limits.groups`), one volume per node (`harness.clusters.limits.volumes`). The
process runtime takes both, the docker runtime the volumes: a container has its groups anyway.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, TypeVar

import psutil

from harness.clusters.limits.groups import (
    CpuGroup,
    MemoryGroup,
    group_of,
    hierarchies,
    remove_groups,
)
from harness.clusters.limits.groups import why_not as why_no_group
from harness.clusters.limits.volumes import (
    Volume,
    images,
    volumes_below,
    why_no_volume,
    why_not_slow,
)
from harness.errors import EnvironmentNotReady, HealError
from harness.protocols.limits import CpuQuota, MemoryUse

CPU, MEMORY, VOLUME, SLOW = "cpu-quota", "memory-group", "data-volume", "slow-volume"
#: Need -> why this machine cannot give it, empty when it can.
_WHY_NOT: Final[Mapping[str, Callable[[], str]]] = {
    CPU: lambda: why_no_group("cpu"),
    MEMORY: lambda: why_no_group("memory"),
    VOLUME: why_no_volume,
    SLOW: why_not_slow,
}
#: What a fault may need of the cluster's start, and this part can give on some machines.
GIVES: Final = frozenset(_WHY_NOT)

G = TypeVar("G", CpuGroup, MemoryGroup)


def clear(run_id: str, folders: Iterable[Path]) -> None:
    """Remove the volumes and groups of a run whose processes are gone, also where nothing refers to
    them any more. Idempotent.

    Args:
        folders: of its clusters, one folder a node in each.

    Raises:
        HealError: something is still in use.
    """
    for folder in folders:
        for data in {
            *volumes_below(folder.resolve()),
            *(image.with_name("data") for image in images(folder)),
        }:
            Volume(data).unmount()
    if left := remove_groups(run_id):
        raise HealError(
            f"{left[0]} could not be removed", hint="a process of the run is still in it"
        )


def why_not(need: str) -> str:
    """Why this machine cannot give a need of `GIVES`; empty when it can."""
    return _WHY_NOT[need]()


class Limits:
    """The groups and volumes of one cluster's nodes, as far as it was started with them."""

    def __init__(
        self,
        run_id: str,
        data: Mapping[str, Path],
        needs: frozenset[str],
        *,
        contained: bool = False,
    ) -> None:
        """
        Args:
            data: node -> its data folder.
            contained: nodes are containers, which have groups of their own.
        """
        self._run_id = run_id
        known = hierarchies() if needs & {CPU, MEMORY, SLOW} and not contained else {}
        self._groups = {
            (need, node): group_of(known[controller], run_id, node)
            for need, controller in ((CPU, "cpu"), (MEMORY, "memory"), (SLOW, "io"))
            if need in needs and controller in known
            for node in data
        }
        self._volumes = {
            node: Volume(path) for node, path in data.items() if needs & {VOLUME, SLOW}
        }

    def prepare(self, node: str) -> None:
        """Give a node its groups and volume, before its first start; its data folder is there.

        Raises:
            EnvironmentNotReady: the machine refuses it.
        """
        for (_, name), group in self._groups.items():
            if name == node:
                try:
                    group.make()
                except OSError as error:
                    raise EnvironmentNotReady(
                        f"cannot make the control group {group.path}: {error.strerror}"
                    ) from error
        if node in self._volumes:
            self._volumes[node].mount()

    def enter(self, node: str, pid: int | None) -> None:
        """Put a node that was just started into its groups; what slows its volume holds for it
        too."""
        for (_, name), group in self._groups.items():
            if name == node and pid is not None:
                group.enter(pid)
        volume = self._volumes.get(node)
        if volume and (rate := volume.asked_bytes_per_s or volume.rate()):
            volume.slow(rate, pid)

    def drop(self) -> None:
        """Remove groups and volumes of nodes that are gone. Idempotent.

        Raises:
            HealError: something is still in use.
        """
        for volume in self._volumes.values():
            volume.unmount()
        if self._groups and (left := remove_groups(self._run_id)):
            raise HealError(
                f"{left[0]} could not be removed", hint="a process of the run is still in it"
            )

    def group(self, need: str, node: str, kind: type[G]) -> G:
        """A node's group.

        Raises:
            EnvironmentNotReady: the cluster was not started with it.
        """
        found = self._groups.get((need, node))
        if not isinstance(found, kind):
            raise _not_given(need)
        return found

    @property
    def volumes(self) -> Mapping[str, Volume]:
        """Node -> its volume."""
        return self._volumes

    def volume(self, node: str) -> Volume:
        """A node's volume.

        Raises:
            EnvironmentNotReady: the cluster was not started with it, or the node stores nothing.
        """
        if self._volumes and node not in self._volumes:
            others = ", ".join(sorted(self._volumes))
            raise EnvironmentNotReady(
                f"{node} keeps no data of its own", hint=f"these do: {others}"
            )
        if node not in self._volumes:
            raise _not_given(VOLUME)
        return self._volumes[node]


def _not_given(need: str) -> EnvironmentNotReady:
    return EnvironmentNotReady(
        f"this cluster was started without {need}",
        hint="start it with a scenario whose faults need it: `brokerstorm up SCENARIO`",
    )


class LimitedDisks(ABC):
    """FillsDisk and SlowsDisk for a runtime that has `Limits`."""

    limits: Limits

    @abstractmethod
    def pid(self, node: str) -> int | None:
        """Process id on this machine, None when there is none."""

    def fill_disk(self, node: str) -> None:
        self.limits.volume(node).fill()

    def free_disk(self, node: str) -> None:
        self.limits.volume(node).free()

    def is_filled(self, node: str) -> bool:
        return self.limits.volume(node).is_filled()

    def try_write(self, node: str, size: int) -> tuple[str, float]:
        return self.limits.volume(node).try_write(size, self.pid(node))

    def slow_disk(self, node: str, bytes_per_s: int | None) -> None:
        self.limits.volume(node).slow(bytes_per_s, self.pid(node))

    def is_slowed(self, node: str) -> bool:
        return self.limits.volume(node).is_slowed()

    def written(self, node: str) -> int:
        try:
            return int(psutil.Process(self.pid(node) or 0).io_counters().write_bytes)
        except psutil.Error:
            return 0

    def lift_limits(self, node: str) -> None:
        """Lift every limit of a node, whatever was set; for who knows only that something was."""
        if volume := self.limits.volumes.get(node):
            volume.free()
            if volume.is_slowed():
                volume.slow(None)


class LimitedNodes(LimitedDisks):
    """LimitsCpu, LimitsMemory, FillsDisk and SlowsDisk for a runtime that has `Limits`."""

    def limit_cpu(self, node: str, cores: float | None) -> None:
        self.limits.group(CPU, node, CpuGroup).limit(cores)

    def cpu_use(self, node: str) -> CpuQuota:
        return self.limits.group(CPU, node, CpuGroup).use()

    def limit_memory(self, node: str, limit_bytes: int | None) -> int | None:
        return self.limits.group(MEMORY, node, MemoryGroup).limit(limit_bytes)

    def memory_use(self, node: str) -> MemoryUse:
        return self.limits.group(MEMORY, node, MemoryGroup).use()

    def lift_limits(self, node: str) -> None:
        for (_, name), group in self.limits._groups.items():
            if name == node and isinstance(group, CpuGroup | MemoryGroup):
                group.limit(None)
        super().lift_limits(node)
