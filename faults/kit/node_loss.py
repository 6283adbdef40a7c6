"""Base of kill, restart and pause: a node cannot serve for a while, and the cluster notices or does
not."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Final, Generic, TypeVar

from faults.kit.cluster_view import ClusterView, Snapshot
from faults.kit.errors import StepProblem
from faults.kit.injection import FaultKind, Injection
from faults.kit.params import Inventory, NodeParams, Params
from faults.kit.targets import is_coordinator, parse, part_text, resolve
from harness.faultlog import ConfirmedAcks
from harness.protocols.cluster import HasCoordinators, Proof

N = TypeVar("N", bound=NodeParams)
#: What the cluster did of itself: a number of partitions, a name, or names of nodes.
Change = int | str | list[str]
Changes = dict[str, Change]
#: Changes that show that others took a node's place.
_REPLACED: Final = frozenset({"leaders_moved", "controller", "fenced"})


def cluster_changes(before: Snapshot, now: Snapshot, nodes: Sequence[str]) -> Changes:
    """The changes that the loss of nodes caused; empty when the cluster did not react."""
    moved = [stream for stream in before.led_by(nodes) if now.leader(stream) not in (*nodes, None)]
    shrunk = [
        stream
        for stream in before.partitions
        if before.in_sync(stream) & set(nodes) - now.in_sync(stream)
    ]
    unled = [stream for stream in before.led_by(nodes) if now.leader(stream) is None]
    changed: Changes = {}
    if moved:
        changed["leaders_moved"] = len(moved)
    if unled:
        changed["unled"] = len(unled)
    if shrunk:
        changed["isr_shrunk"] = len(shrunk)
    if before.controller in nodes and now.controller not in (before.controller, None):
        changed["controller"] = f"{before.controller} -> {now.controller}"
    if gone := sorted(set(nodes) & before.registered - now.registered):
        changed["fenced"] = gone
    return changed


def changes_text(changed: Changes) -> str:
    """``leaders of 4 partitions moved, ISR of 12 shrank`` ..."""
    parts = {
        "leaders_moved": "leaders of {} moved",
        "unled": "{} had no leader that answers",
        "isr_shrunk": "ISR of {} shrank",
        "controller": "controller {}",
        "fenced": "fenced {}",
        "silent": "no answer from {}",
    }
    texts = {key: _change_text(value) for key, value in changed.items()}
    return ", ".join(text.format(texts[key]) for key, text in parts.items() if key in texts)


def _change_text(value: Change) -> str:
    """A number is one of partitions."""
    if isinstance(value, int):
        return f"{value} partition{'s' if value != 1 else ''}"
    return ", ".join(value) if isinstance(value, list) else str(value)


class NodeLoss(Injection):
    """Stops its targets from serving. Sub-classes say how, and how they see that it happened."""

    # Those that are left may answer only when it is healed; what was seen until then is kept.
    looks_first = False

    def __init__(self, view: ClusterView, targets: Sequence[str], params: Params) -> None:
        super().__init__(view, targets, params)
        self.away = self.targets
        self.before = view.snapshot()
        self._changed: Changes = {}
        self._keeping = threading.Lock()

    def objection(self) -> str:
        """Losing the targets while another replica lags would leave a partition with less than it
        is meant to survive."""
        if self.before is None or getattr(self.params, "together", False):
            return ""
        for stream, behind in self.before.shrunk().items():
            if others := sorted(set(behind) - set(self.targets)):
                return f"{others[0]} is not in sync for {stream}; `together: true` allows it"
        return ""

    @abstractmethod
    def process_evidence(self) -> str:
        """Seen of the processes themselves ("process gone"); empty when nothing was."""

    def proof(self) -> Proof:
        """Effective when the process is seen away *and* the cluster reacted."""
        self._note_change(self.view.snapshot())
        self._note_silence()
        seen, changed = (
            self.process_evidence(),
            changes_text(self._changed) if self._mattered() else "",
        )
        who = ", ".join(self.targets)
        if seen and changed:
            return Proof(True, f"{who}: {seen}; {changed}", self._changed)
        if not seen:
            return Proof(False, f"{who}: not observed")
        return Proof(False, f"{who}: {seen}, but no leader moved and no ISR shrank")

    def _mattered(self) -> bool:
        """A fenced broker that holds none of the run's topics is not a loss to the run."""
        return bool(self._changed.keys() - {"fenced"}) or not (
            self.before and self.before.partitions
        )

    def _note_silence(self) -> None:
        """Nodes below the brokers (bookies, ZooKeeper) lead nothing: their loss shows in unanswered
        requests. If all brokers are lost, none is left to report a change. Remembered from while
        they are away."""
        mute = [node for node in self.targets if node not in self.view.brokers]
        if set(self.view.brokers) <= set(self.targets):
            mute = list(self.targets)
        if mute and self.is_silent(mute):
            self._keep({"silent": mute})

    def is_silent(self, nodes: Sequence[str]) -> bool:
        """Whether none of the nodes answers now."""
        return all(self.view.answers(node) is False for node in nodes)

    def _note_change(self, now: Snapshot | None) -> None:
        """Keep the largest change seen: leaders may be back before the next look."""
        if self.before is None or now is None:
            return
        self._keep(cluster_changes(self.before, now, self.targets))

    def _keep(self, changes: Changes) -> None:
        """Called by the prover's and the execution's threads; what others read is never changed."""
        with self._keeping:
            kept = dict(self._changed)
            for key, value in changes.items():
                old = kept.get(key)
                kept[key] = (
                    max(old, value) if isinstance(old, int) and isinstance(value, int) else value
                )
            self._changed = kept

    def hits_broker(self) -> bool:
        return not set(self.targets).isdisjoint(self.view.brokers)

    def confirmed_acks(self) -> ConfirmedAcks:
        """At risk once another node was seen in a target's place, while the target continues or has
        ended."""
        return "at-risk" if _REPLACED & self._changed.keys() else "unknown"

    def missing(self) -> str:
        """Processes, registration and ISR of the targets."""
        down = [node for node in self.targets if not self.view.is_running(node)]
        if down:
            return f"{', '.join(down)} not running"
        # Asked first: while the cluster has no leader, the others still report what was true
        # before.
        if silent := [node for node in self.targets if self.view.answers(node) is False]:
            return f"{', '.join(silent)} not answering"
        now = self.view.snapshot()
        if now is None:
            return "the cluster does not answer"
        self._note_change(now)
        if unknown := sorted(set(self.targets) - now.registered):
            return f"{', '.join(unknown)} not registered"
        behind = [
            stream for stream, nodes in now.shrunk().items() if set(nodes) & set(self.targets)
        ]
        if behind:
            return f"{', '.join(self.targets)} not in sync for {len(behind)} partitions ({behind[0]} ...)"
        return ""


class NodeFault(FaultKind[N], Generic[N]):
    """Base of the kinds with a node as target.

    Attributes:
        silences: whether a node cannot serve while it lasts: slow is not gone.
    """

    takes_nodes = True
    silences: ClassVar[bool] = True
    #: What it does to them; a kind that has more to tell it makes it in `injection`.
    injects: ClassVar[type[NodeLoss]]

    def complete(self, params: N, inventory: Inventory) -> N:
        target = parse(params.target, inventory)
        is_asked = self.silences and not params.together
        if target.form == "all" and is_asked and len(inventory.nodes) > 1:
            raise StepProblem(
                "target", "'all' takes every node away at once; say so with together: true"
            )
        return params

    def abilities_for(self, params: N) -> tuple[type, ...]:
        return (
            (*self.abilities, HasCoordinators) if is_coordinator(params.target) else self.abilities
        )

    def part(self, params: N, inventory: Inventory) -> str:
        return part_text(params.target, inventory)

    def prepare(self, params: N, view: ClusterView, draw: int) -> Injection:
        # Checked when compiled; parsed again with the names of the cluster that runs.
        target = parse(params.target, view.inventory)
        targets = resolve(target, view, draw)
        chosen = "all" if target.form == "all" else ", ".join(targets)
        return self.injection(view, targets, params.model_copy(update={"target": chosen}))

    def injection(self, view: ClusterView, targets: tuple[str, ...], params: N) -> Injection:
        return self.injects(view, targets, params)
