"""cpu-limit: a noisy neighbour, an instance that is too small, a throttled container."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pydantic import Field

from faults.kit.cluster_view import ClusterView
from faults.kit.params import Inventory, NodeParams
from faults.kit.resources import ResourceFault, ResourceLimited
from faults.kit.targets import target_text
from harness.durations import Seconds
from harness.protocols.cluster import Details, HasPlacement
from harness.protocols.limits import LimitsCpu
from harness.protocols.nodes import Killable

#: Held back in fewer periods than this, the node hardly wanted more than its quota.
_PERIODS: Final = 3


class CpuLimitParams(NodeParams):
    cores: float = Field(
        0.1, ge=0.01, le=1024, description="CPU time that the node may use, in cores"
    )
    for_: Seconds = Field(
        10.0, alias="for", gt=0, description="the limit is removed after this time"
    )


class CpuLimited(ResourceLimited):
    """Nodes under a quota; one that wants more is held back until the next period."""

    params: CpuLimitParams

    def __init__(self, view: ClusterView, targets: Sequence[str], params: CpuLimitParams) -> None:
        super().__init__(view, targets, params)
        self._cpu = view.ability(LimitsCpu)
        self._at_first = {node: self._cpu.cpu_use(node) for node in targets}
        self._limited = False

    def apply(self) -> None:
        for node in self.targets:
            self._cpu.limit_cpu(node, self.params.cores)
        self._limited = True

    def shortage(self) -> str:
        throttled, periods, held_s = self._since()
        if not self._limited or throttled < _PERIODS:
            return ""
        cores = self.params.cores
        return (
            f"held to {cores:g} cores in {throttled} of {periods} periods, it waited {held_s:.1f} s"
        )

    def no_effect(self) -> str:
        return f"never wanted more than {self.params.cores:g} cores"

    def details(self) -> Details:
        throttled, periods, held_s = self._since()
        return {
            **super().details(),
            "throttled": throttled,
            "periods": periods,
            "held_s": round(held_s, 2),
        }

    def _since(self) -> tuple[int, int, float]:
        """Throttled periods, all periods and the time held back, of all targets."""
        throttled, periods, held_s = 0, 0, 0.0
        for node, before in self._at_first.items():
            now = self._cpu.cpu_use(node)
            throttled += now.throttled - before.throttled
            periods += now.periods - before.periods
            held_s += now.throttled_s - before.throttled_s
        return throttled, periods, held_s

    def restore(self, node: str) -> None:
        self._cpu.limit_cpu(node, None)

    def is_restored(self, node: str) -> bool:
        return self._cpu.cpu_use(node).cores is None


class CpuLimit(ResourceFault[CpuLimitParams]):
    """Limit the CPU time of a node (a CPU quota) for `for`."""

    kind = "cpu-limit"
    abilities = (LimitsCpu, Killable, HasPlacement)
    needs = frozenset({"cpu-quota"})
    params = CpuLimitParams
    injects = CpuLimited

    def commands(self, params: CpuLimitParams, inventory: Inventory) -> list[str]:
        return [
            f"CPU quota of {params.cores * 100:g} ms each 100 ms for {target_text(params.target, inventory)}",
            f"after {params.for_:g} s: no quota",
        ]
