"""partition: bytes between a node and others do not arrive until the network is whole again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Self

from pydantic import Field, model_validator

from faults.kit.cluster_view import ClusterView
from faults.kit.errors import FiringSkipped
from faults.kit.network import Impaired, NetworkFault, NetworkParams, Way, is_of_clients
from faults.kit.params import Inventory
from faults.kit.targets import target_text
from harness.protocols.network import (
    CLIENT_DETOURS,
    CLIENT_ROLES,
    PEER_CUTS,
    PEER_DETOURS,
    Flow,
    HasDetours,
    Impairment,
    Wire,
    is_client_source,
)


class PartitionParams(NetworkParams):
    way: Way = Field(
        "both",
        description="direction: `in` holds bytes to the node, `out` bytes from it, `both` both",
    )
    shape: Literal["node", "ring", "bridge"] = Field(
        "node",
        description=(
            "shape among peers: `node` cuts the node off; with `ring` each broker sees another "
            "majority; with `bridge` only the node reaches all others"
        ),
    )

    @model_validator(mode="after")
    def _of_peers(self) -> Self:
        if self.shape != "node" and (self.link != "peers" or self.way != "both"):
            raise ValueError(f"shape: {self.shape} goes with link: peers, and with both ways")
        if self.shape == "ring" and self.target not in ("random", "all"):
            raise ValueError("shape: a ring has no target, it is made of all brokers")
        return self


class Partitioned(Impaired):
    """Flows that are held."""


def ring(wires: Sequence[Wire], nodes: Sequence[str]) -> list[Flow]:
    """Each node hears itself and those that follow it, together just a majority: no two the same
    one."""
    majority = len(nodes) // 2 + 1
    heard = {
        node: {nodes[(at + step) % len(nodes)] for step in range(majority)}
        for at, node in enumerate(nodes)
    }
    return [flow for flow in _among(wires, nodes) if flow.sender not in heard[flow.receiver]]


def bridge(wires: Sequence[Wire], nodes: Sequence[str], middle: str) -> list[Flow]:
    """All that does not go to or from the middle."""
    return [flow for flow in _among(wires, nodes) if middle not in (flow.sender, flow.receiver)]


def _among(wires: Sequence[Wire], nodes: Sequence[str]) -> list[Flow]:
    known = set(nodes)
    inner = [
        wire
        for wire in wires
        if not is_client_source(wire.source) and {wire.source, wire.target} <= known
    ]
    return [flow for wire in inner for flow in (Flow(wire, "target"), Flow(wire, "source"))]


class Partition(NetworkFault[PartitionParams]):
    """Cut nodes off from clients, from the other nodes or from both, in one direction or both, for
    `for`."""

    kind = "partition"
    how = "hold"
    takes_nodes = True
    params = PartitionParams
    needs = frozenset({CLIENT_DETOURS, CLIENT_ROLES, PEER_CUTS})

    def needs_for(self, params: PartitionParams) -> frozenset[str]:
        """Between nodes less than the other kinds: containers can be cut off, too."""
        needs = super().needs_for(params)
        return needs - {PEER_DETOURS} | {PEER_CUTS} if PEER_DETOURS in needs else needs

    def tool(self, params: PartitionParams) -> str:
        return (
            "toxiproxy"
            if is_of_clients(params.link)
            else "toxiproxy (between containers: iptables)"
        )

    def action(self, params: PartitionParams) -> str:
        return "hold all bytes"

    def complete(self, params: PartitionParams, inventory: Inventory) -> PartitionParams:
        """A ring is of all brokers whatever is written; that they are cut together is its
        meaning."""
        if params.shape == "ring":
            return params.model_copy(update={"target": "all"})
        return super().complete(params, inventory)

    def target(self, params: PartitionParams) -> str:
        return "all" if params.shape == "ring" else params.target

    def commands(self, params: PartitionParams, inventory: Inventory) -> list[str]:
        if params.shape == "node":
            return super().commands(params, inventory)
        what = {
            "ring": "hold all bytes to each broker from those outside of its majority",
            "bridge": f"hold all bytes between brokers other than {target_text(params.target, inventory)}",
        }[params.shape]
        return [f"{self.tool(params)}: {what}", f"after {params.for_:g} s: remove it"]

    def impaired(
        self,
        view: ClusterView,
        targets: tuple[str, ...],
        params: PartitionParams,
        flows: Sequence[Flow],
    ) -> Partitioned:
        wires, brokers = view.ability(HasDetours).wires(), view.brokers
        if params.shape != "node":
            if len(brokers) < 3:
                raise FiringSkipped(
                    f"a {params.shape} needs three brokers, there are {len(brokers)}"
                )
            flows = (
                ring(wires, brokers)
                if params.shape == "ring"
                else bridge(wires, brokers, targets[0])
            )
            targets = (
                brokers if params.shape == "ring" else tuple(b for b in brokers if b != targets[0])
            )
        # A replay reads it again: a ring has no target.
        kept = params.model_copy(update={"target": "all"}) if params.shape == "ring" else params
        return Partitioned(view, targets, kept, flows, Impairment(self.how))
