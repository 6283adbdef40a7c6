"""name-change: a node has another address, as after a move to another machine; its name is asked
anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from faults.kit.cluster_view import ClusterView
from faults.kit.network import Impaired, NetworkFault, NetworkParams
from faults.kit.params import Inventory
from faults.kit.targets import target_text
from harness.durations import Seconds
from harness.protocols.cluster import HasPlacement, Proof
from harness.protocols.network import Flow, Impairment, RenamesNodes, Wire
from harness.protocols.nodes import Killable


class NameChangeParams(NetworkParams):
    link: Literal["peers"] = Field(
        "peers",
        description=(
            "always `peers`: only the nodes, which run on Java, can be given another address for "
            "a name"
        ),
    )
    for_: Seconds = Field(
        45.0,
        alias="for",
        gt=0,
        description="the old address is restored after this time; Java caches an address for 30 s",
    )


class Renamed(Impaired):
    """A node that others find at another address once they ask for its name again."""

    _new: tuple[Wire, ...] = ()
    _found: frozenset[str] = frozenset()

    def apply(self) -> None:
        for node in self.targets:
            self._new += tuple(self.view.ability(RenamesNodes).rename(self.name, node))
        self._applied = True

    def sentence(self, affected: dict[str, float | None]) -> str:
        return f"no answer at the old address ({len(affected)} of {len(self.wires)} wires)"

    def proof(self) -> Proof:
        """Effective when the old address is dead; the proof also names who has found the new
        one."""
        proof = super().proof()
        if self._applied and not self.is_undone():
            self._found |= self.view.ability(RenamesNodes).found_by(self._new)
        if not self._found or not proof.effective:
            return proof
        text = f"{proof.evidence}; found at the new address by {', '.join(sorted(self._found))}"
        return Proof(True, text, {**proof.details, "found_by": sorted(self._found)})


class NameChange(NetworkFault[NameChangeParams]):
    """Give a node another address under the same name for `for`."""

    kind = "name-change"
    how = "hold"
    abilities = (RenamesNodes, Killable, HasPlacement)
    takes_nodes = True
    params = NameChangeParams

    def commands(self, params: NameChangeParams, inventory: Inventory) -> list[str]:
        who = target_text(params.target, inventory)
        return [
            f"toxiproxy: listen at another address for {who}, close the old one; hosts files say so",
            f"after {params.for_:g} s: the old address again",
        ]

    def impaired(
        self,
        view: ClusterView,
        targets: tuple[str, ...],
        params: NameChangeParams,
        flows: Sequence[Flow],
    ) -> Renamed:
        # Only what others open to the node goes by its name.
        to_node = [flow for flow in flows if flow.wire.target in targets]
        return Renamed(view, targets, params, to_node, Impairment("hold"))
