"""Claims of nodes and of other things by faults: one node at a time, unless a step allows more."""

from __future__ import annotations

import threading

from faults.kit.cluster_view import ClusterView
from faults.kit.errors import FiringSkipped
from faults.kit.injection import Injection


class NodeClaims:
    """What faults hold. A node stays claimed until its heal was verified."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._held: dict[str, int] = {}

    def nodes(self) -> frozenset[str]:
        return frozenset(self._held)

    def claim(self, fault_id: int, injection: Injection, view: ClusterView) -> None:
        """Hold the nodes that an injection takes away, and what else it holds alone.

        Two nodes away at once would leave fewer than two in-sync replicas of three: what was meant
        to be a harmless fault could then lose data by design. So only a step that says ``together``
        may do it.

        Raises:
            FiringSkipped: another fault holds one of them, a node died by itself, or another node
                is away.
        """
        ours = set(injection.away)
        all_of_ours = ours | set(injection.held)
        if not all_of_ours:
            return
        with self._lock:
            if taken := sorted(all_of_ours & self._held.keys()):
                raise FiringSkipped(f"{taken[0]} is held by fault {self._held[taken[0]]}")
            if dead := sorted(node for node in ours if not view.is_running(node)):
                raise FiringSkipped(f"{dead[0]} is not running, and no fault did that")
            if ours and not getattr(injection.params, "together", False):
                self._refuse_second(ours, view)
            self._held |= {name: fault_id for name in all_of_ours}

    def _refuse_second(self, ours: set[str], view: ClusterView) -> None:
        others = [node for node in view.nodes if node not in ours]
        for node in others:
            if node in self._held:
                raise FiringSkipped(
                    f"{node} is still away (fault {self._held[node]}); `together: true` allows it"
                )
            if not view.is_running(node):
                raise FiringSkipped(f"{node} is not running; `together: true` allows it")

    def release(self, fault_id: int) -> None:
        """Give a fault's nodes back. Idempotent."""
        with self._lock:
            self._held = {node: holder for node, holder in self._held.items() if holder != fault_id}
