"""packet-loss: the kernel drops packets at random, and TCP sends them again."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from faults.kit.cluster_view import ClusterView, ability_of
from faults.kit.errors import FiringSkipped
from faults.kit.network import Way
from faults.kit.node_loss import NodeFault, NodeLoss
from faults.kit.params import Inventory, NodeParams, Share
from faults.kit.targets import target_text
from harness.contracts.ledger import LedgerEntry
from harness.durations import Seconds
from harness.faultlog import ConfirmedAcks
from harness.protocols.cluster import Cluster, HasPlacement, Proof
from harness.protocols.network import LosesPackets
from harness.protocols.nodes import Killable


class PacketLossParams(NodeParams):
    link: Literal["clients", "peers", "all"] = Field(
        "clients",
        description=(
            "which connections to the node are affected: of `clients`, of `peers` (other nodes), "
            "or `all`"
        ),
    )
    way: Way = Field(
        "both",
        description="direction: `in` loses packets to the node, `out` packets from it, `both` both",
    )
    share: Share = Field(
        0.1,
        lt=1,
        json_schema_extra={"not": {"enum": [1, "100%"]}},
        description="share of the packets that are lost; 0.1 is one in ten",
    )
    for_: Seconds = Field(5.0, alias="for", gt=0, description="the fault is undone after this time")


class PacketsLost(NodeLoss):
    """Nodes whose packets get lost on their way. No node is away: TCP continues, slowly."""

    params: PacketLossParams

    def __init__(self, view: ClusterView, targets: Sequence[str], params: PacketLossParams) -> None:
        super().__init__(view, targets, params)
        self.away = ()
        self.looks_first = True
        self.packets = view.ability(LosesPackets)
        self.name = f"fault-{uuid.uuid4().hex[:8]}"
        self._lost = 0

    def objection(self) -> str:
        return ""

    def apply(self) -> None:
        for node in self.targets:
            keys = self.params
            self.packets.lose(self.name, node, keys.link, keys.way, keys.share)

    def process_evidence(self) -> str:
        self._lost = max(self._lost, self.packets.lost(self.name))
        return f"{self._lost} packets lost" if self._lost else ""

    def proof(self) -> Proof:
        """Effective when the kernel counted a packet that it dropped."""
        seen = self.process_evidence()
        return Proof(
            bool(seen),
            f"{', '.join(self.targets)}: {seen or 'no packet lost'}",
            {"lost": self._lost},
        )

    def heal(self) -> None:
        self.packets.repair(self.name)

    def is_undone(self) -> bool:
        return not self.packets.is_losing(self.name)

    def missing(self) -> str:
        return super().missing() if self.is_undone() else f"{self.name} is still in iptables"

    def confirmed_acks(self) -> ConfirmedAcks:
        """Return that confirmed acknowledgements may be lost, as with any fault between brokers, or
        between them and what they write to.
        """
        return "kept" if self.params.link == "clients" else super().confirmed_acks()

    def ledger_entry(self) -> LedgerEntry:
        return LedgerEntry(losing=(self.name,))


class PacketLoss(NodeFault[PacketLossParams]):
    """Lose a share of the packets of connections to a node for `for` (requires Linux, root and
    iptables)."""

    silences = False
    kind = "packet-loss"
    abilities = (LosesPackets, Killable, HasPlacement)
    params = PacketLossParams

    def complete(self, params: PacketLossParams, inventory: Inventory) -> PacketLossParams:
        target_text(params.target, inventory)  # several nodes at once do not count as lost nodes
        return params

    def refusal(self, params: PacketLossParams, cluster: Cluster) -> str:
        return ability_of(cluster, LosesPackets).why_not(params.link)

    def commands(self, params: PacketLossParams, inventory: Inventory) -> list[str]:
        words = {"both": "to and from", "in": "to", "out": "from"}[params.way]
        who = {"clients": "of clients", "peers": "of other nodes", "all": "of anybody"}[params.link]
        where = f"{words} {target_text(params.target, inventory)}, connections {who}"
        return [
            f"iptables: drop {params.share:.1%} of packets {where}",
            f"after {params.for_:g} s: delete it",
        ]

    def injection(
        self, view: ClusterView, targets: tuple[str, ...], params: PacketLossParams
    ) -> NodeLoss:
        if not any(view.ability(LosesPackets).has_ports(node, params.link) for node in targets):
            raise FiringSkipped(f"no connections of {params.link} to {', '.join(targets)}")
        return PacketsLost(view, targets, params)
