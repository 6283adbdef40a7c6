"""flap: a node that crashes again and again, as under a supervisor that keeps restarting it."""

from __future__ import annotations

from pydantic import Field

from faults.kinds.kill import Killed
from faults.kit.node_loss import NodeFault
from faults.kit.params import Inventory, NodeParams
from faults.kit.targets import target_text
from harness.durations import Seconds
from harness.protocols.cluster import HasPlacement
from harness.protocols.nodes import Killable


class FlapParams(NodeParams):  # target and together come from NodeParams
    times: int = Field(3, ge=2, le=100, description="how often it crashes")
    down: Seconds = Field(1.0, description="start it again this long after each crash")
    up: Seconds = Field(3.0, gt=0, description="let it run this long before the next crash")


class Flapped(Killed):
    """Nodes that are killed and started in turn; proof, heal and ledger entry are a kill's."""

    params: FlapParams

    def apply(self) -> None:
        for _ in range(self.params.times):
            super().apply()
            if self.view.stopping.wait(self.params.down):
                return  # everything must be healed now: the heal starts the nodes
            for node in self.targets:
                self.view.ability(Killable).start(node)
            if self.view.stopping.wait(self.params.up):
                return


class Flap(NodeFault[FlapParams]):
    """Crash a node (SIGKILL) several times, and start it again each time."""

    kind = "flap"
    abilities = (Killable, HasPlacement)
    params = FlapParams
    injects = Flapped

    def ends_within_s(self, params: FlapParams) -> float | None:
        """How long a start takes is the node's."""
        return None

    def choices(self, params: FlapParams) -> list[str]:
        return [f"{params.times} times"]

    def commands(self, params: FlapParams, inventory: Inventory) -> list[str]:
        turn = f"SIGKILL {target_text(params.target, inventory)}, start it {params.down:g} s later"
        return [f"{turn}; again {params.up:g} s after that, {params.times} times in all"]
