"""memory-limit: a node that has to live with what it holds, until it gives its page cache up or is
killed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from pydantic import Field

from faults.kit.cluster_view import ClusterView
from faults.kit.params import Inventory, NodeParams
from faults.kit.resources import ResourceFault, ResourceLimited
from faults.kit.targets import target_text
from harness.durations import Seconds
from harness.protocols.cluster import Details, HasPlacement
from harness.protocols.limits import LimitsMemory, MemoryUse
from harness.protocols.nodes import Killable
from harness.sizes import Size, in_units

_HEADROOM: Final = 16_000_000


class MemoryLimitParams(NodeParams):
    limit: Size | None = Field(
        None,
        description=(
            "limit in bytes, including the page cache; default: the memory that cannot be "
            "reclaimed, plus `headroom`"
        ),
    )
    headroom: Size = Field(
        _HEADROOM,
        description="memory above the part that cannot be reclaimed; only without `limit`",
    )
    for_: Seconds = Field(
        10.0, alias="for", gt=0, description="the limit is removed after this time"
    )


class MemoryLimited(ResourceLimited):
    """Nodes under a memory limit: the kernel takes their page cache, and kills one that wants still
    more."""

    params: MemoryLimitParams

    def __init__(
        self, view: ClusterView, targets: Sequence[str], params: MemoryLimitParams
    ) -> None:
        super().__init__(view, targets, params)
        self._memory = view.ability(LimitsMemory)
        self._at_first = {node: self._memory.memory_use(node) for node in targets}
        self._limits: dict[str, int] = {}
        self._seen: dict[str, MemoryUse] = {}

    def apply(self) -> None:
        asked = self.params.limit
        for node, use in self._at_first.items():
            wanted = asked if asked else use.fixed + self.params.headroom
            self._limits[node] = self._memory.limit_memory(node, wanted) or wanted

    def note(self) -> None:
        """The most that was counted: a restarted container counts from zero."""
        super().note()
        for node in list(self._limits):  # another thread is filling it
            now, seen = self._memory.memory_use(node), self._seen.get(node, self._at_first[node])
            self._seen[node] = replace(
                now, met=max(now.met, seen.met), killed=max(now.killed, seen.killed)
            )

    def shortage(self) -> str:
        """Allocations met the limit."""
        texts = []
        for node, use in list(self._seen.items()):
            before = self._at_first[node]
            if met := use.met - before.met:
                killed = use.killed - before.killed
                limit, used = in_units(self._limits[node]), in_units(before.used)
                texts.append(
                    f"{limit} of memory, {used} before: met {met:,} times"
                    + (f", the kernel killed {killed} for it" if killed else "")
                )
        return "; ".join(texts)

    def no_effect(self) -> str:
        return f"never wanted more than {', '.join(in_units(limit) for limit in self._limits.values())}"

    def details(self) -> Details:
        rows = {
            node: {
                "limit": self._limits[node],
                "used_before": self._at_first[node].used,
                "used": use.used,
                "met": use.met - self._at_first[node].met,
                "killed": use.killed - self._at_first[node].killed,
            }
            for node, use in list(self._seen.items())
        }
        return {**super().details(), "memory": rows}

    def restore(self, node: str) -> None:
        self._memory.limit_memory(node, None)

    def is_restored(self, node: str) -> bool:
        return self._memory.memory_use(node).limit is None


class MemoryLimit(ResourceFault[MemoryLimitParams]):
    """Limit the memory of a node to a little more than it cannot give back; beyond, the kernel
    kills it."""

    kind = "memory-limit"
    abilities = (LimitsMemory, Killable, HasPlacement)
    needs = frozenset({"memory-group"})
    params = MemoryLimitParams
    injects = MemoryLimited

    def commands(self, params: MemoryLimitParams, inventory: Inventory) -> list[str]:
        fixed = f"the memory that cannot be reclaimed then + {in_units(params.headroom)}"
        limit = in_units(params.limit) if params.limit else fixed
        return [
            f"memory limit of {limit} for {target_text(params.target, inventory)}",
            f"after {params.for_:g} s: no limit; start it again if the kernel killed it",
        ]
