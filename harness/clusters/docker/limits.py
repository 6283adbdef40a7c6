"""CPU and memory limits of containers, by the engine's own `update`.

A container has its control groups from its start on, so nothing has to be prepared. A disk of its
own is a volume that was bound into it (`harness.clusters.docker.volumes`).
"""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Any, Final

import yaml

from harness.clusters.docker.engine import asking
from harness.clusters.limits.node_limits import CPU, MEMORY, LimitedDisks
from harness.errors import EnvironmentNotReady
from harness.protocols.limits import CpuQuota, MemoryUse
from harness.rundir import Document

#: What a fault may need of the cluster's start, and every container has.
GIVES: Final = frozenset({CPU, MEMORY})
_PERIOD_US: Final = 100_000
#: cgroups v2 tell the engine no count of allocations that met the limit: this near to it, they do.
_FULL: Final = 0.97
#: How often a limit is raised that the kernel refuses because more is in use (cgroups v1: EBUSY).
_TRIES: Final = 20
#: How runc says so: in the kernel's words, or in its own.
_IN_USE: Final = ("busy", "unable to set memory limit to")


class LimitedContainers(LimitedDisks):
    """LimitsCpu, LimitsMemory, FillsDisk and SlowsDisk for a runtime of containers."""

    @abstractmethod
    def container(self, node: str) -> Any:
        """The container of a node, as it is now."""

    @abstractmethod
    def compose_path(self) -> Path:
        """The compose file that the containers were made from."""

    def limit_cpu(self, node: str, cores: float | None) -> None:
        quota_us = -1 if cores is None else max(1000, round(cores * _PERIOD_US))
        with asking(f"cannot set the CPU quota of {node}"):
            self.container(node).update(cpu_period=_PERIOD_US, cpu_quota=quota_us)

    def cpu_use(self, node: str) -> CpuQuota:
        container = self.container(node)
        throttling = _stats(container, node)["cpu_stats"].get("throttling_data") or {}
        quota_us = int(container.attrs["HostConfig"].get("CpuQuota") or 0)
        cores = quota_us / _PERIOD_US if quota_us > 0 else None
        held_s = throttling.get("throttled_time", 0) / 1e9
        return CpuQuota(
            throttling.get("periods", 0), throttling.get("throttled_periods", 0), held_s, cores
        )

    def limit_memory(self, node: str, limit_bytes: int | None) -> int | None:
        from docker.errors import APIError

        own = self._own_memory(node)
        if limit_bytes is None:
            # The engine's default for swap is as much again; no limit at all is -1.
            with asking(f"cannot lift the memory limit of {node}"):
                self.container(node).update(mem_limit=own or -1, memswap_limit=2 * own or -1)
            return None
        wanted = limit_bytes
        with asking(f"cannot limit the memory of {node}"):
            for _ in range(_TRIES):
                try:
                    self.container(node).update(mem_limit=wanted, memswap_limit=wanted)
                    return wanted
                except APIError as error:
                    if not any(words in str(error).lower() for words in _IN_USE):
                        raise
                wanted = max(round(wanted * 1.02), self.memory_use(node).used + (1 << 20))
        raise EnvironmentNotReady(f"the memory of {node} cannot be limited: all of it is in use")

    def memory_use(self, node: str) -> MemoryUse:
        container = self.container(node)
        memory = _stats(container, node).get("memory_stats") or {}
        stat, used = memory.get("stats") or {}, int(memory.get("usage", 0))
        limit = int(container.attrs["HostConfig"].get("Memory") or 0)
        killed = int(bool(container.attrs["State"].get("OOMKilled")))
        # The counts of a container end with it; that it was killed for its memory stays until its
        # next start.
        met = int(
            memory.get("failcnt") or (bool(used) and limit > 0 and used > limit * _FULL) or killed
        )
        holds = limit if limit > 0 and limit != self._own_memory(node) else None
        return MemoryUse(
            used, int(stat.get("total_rss") or stat.get("anon") or 0), holds, met, killed
        )

    def lift_limits(self, node: str) -> None:
        self.limit_cpu(node, None)
        self.limit_memory(node, None)
        super().lift_limits(node)

    def _own_memory(self, node: str) -> int:
        """The limit that the compose file gives to a service; 0 = none."""
        from docker.utils import parse_bytes

        services = yaml.safe_load(self.compose_path().read_text())["services"]
        return int(parse_bytes(services[node].get("mem_limit") or 0))


def _stats(container: Any, node: str) -> Document:
    """The engine's counters, now; without the second look that a rate would need."""
    with asking(f"cannot read the counters of {node}"):
        found: Document = container.client.api.stats(container.id, stream=False, one_shot=True)
    return found
