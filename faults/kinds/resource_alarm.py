"""resource-alarm: a node finds itself short of memory or disk, and the brokers take no messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from faults.kit.cluster_view import ClusterView
from faults.kit.errors import FiringSkipped
from faults.kit.injection import Injection
from faults.kit.node_loss import NodeFault
from faults.kit.params import Inventory, NodeParams
from faults.kit.targets import parse, resolve, target_text
from harness.contracts.ledger import LedgerEntry
from harness.durations import Seconds
from harness.faultlog import ConfirmedAcks
from harness.protocols.cluster import HasPlacement, Proof, RaisesAlarms, Resource


class ResourceAlarmParams(NodeParams):
    resource: Resource = Field("memory", description="the resource that the node is short of")
    for_: Seconds = Field(
        5.0, alias="for", gt=0, description="the alarm is cleared after this time"
    )


class AlarmRaised(Injection):
    """Nodes with an alarm. They continue to serve consumers, and publishers wait.

    Only a node can clear its alarm, so the heal asks it. A node that is not running has none.
    """

    params: ResourceAlarmParams

    def __init__(
        self, view: ClusterView, targets: Sequence[str], params: ResourceAlarmParams
    ) -> None:
        super().__init__(view, targets, params)
        self._nodes = view.ability(RaisesAlarms)
        self._is_undone = False

    def apply(self) -> None:
        for node in self.targets:
            self._nodes.raise_alarm(node, self.params.resource)

    def _alarmed(self) -> list[str]:
        """The targets that have the alarm, as brokers report it."""
        found = self._nodes.alarms()
        return [node for node in self.targets if (node, self.params.resource) in found]

    def proof(self) -> Proof:
        """Effective when the brokers list the alarm of a target."""
        alarmed = self._alarmed()
        if not alarmed:
            return Proof(False, f"{', '.join(self.targets)}: no alarm is listed")
        text = f"{', '.join(alarmed)}: the brokers list the {self.params.resource} alarm"
        return Proof(True, text, {"alarmed": alarmed})

    def heal(self) -> None:
        for node in self.targets:
            if self.view.is_running(node):
                self._nodes.clear_alarms(node)
        self._is_undone = True

    def is_undone(self) -> bool:
        return self._is_undone

    def missing(self) -> str:
        alarmed = self._alarmed()
        return f"{', '.join(alarmed)} still has the {self.params.resource} alarm" if alarmed else ""

    def confirmed_acks(self) -> ConfirmedAcks:
        """The brokers continue to serve consumers, and keep what they stored."""
        return "kept"

    def ledger_entry(self) -> LedgerEntry:
        return LedgerEntry(alarmed=tuple(self.targets))


class ResourceAlarm(NodeFault[ResourceAlarmParams]):
    """Let a node report that it is short of memory or disk: all brokers then block publishers.

    The limit of the node is set so that it is exceeded, and restored after `for`.
    """

    kind = "resource-alarm"
    abilities = (RaisesAlarms, HasPlacement)
    takes_nodes: ClassVar[bool] = False
    silences = False
    params = ResourceAlarmParams

    def commands(self, params: ResourceAlarmParams, inventory: Inventory) -> list[str]:
        where = target_text(params.target, inventory)
        limit = {
            "memory": "set_vm_memory_high_watermark absolute 1",
            "disk": "set_disk_free_limit 1EB",
        }[params.resource]
        return [f"rabbitmqctl {limit}, on {where}", f"after {params.for_:g} s: the limit as before"]

    def prepare(self, params: ResourceAlarmParams, view: ClusterView, draw: int) -> Injection:
        target = parse(params.target, view.inventory)
        targets = resolve(target, view, draw)
        if found := view.ability(RaisesAlarms).alarms():
            node, resource = min(found)
            raise FiringSkipped(f"{node} has a {resource} alarm already")
        chosen = "all" if target.form == "all" else ", ".join(targets)
        return AlarmRaised(view, targets, params.model_copy(update={"target": chosen}))
