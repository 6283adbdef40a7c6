"""The interface of a runtime: clusters, faults and the run know no more of it than this."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Final

from harness.clusters.layout.compose import ClusterLayout
from harness.clusters.layout.management import Management
from harness.clusters.layout.node_layout import Layout
from harness.errors import EnvironmentNotReady, UsageError
from harness.protocols.cluster import Node
from harness.protocols.members import DYNAMIC_QUORUM, FOURTH_BROKER, SPARE_BROKER, SPARE_CONTROLLER

#: A fault needs a broker besides the nodes that are controllers, too.
GIVEN_BROKERS: Final = frozenset({SPARE_BROKER, FOURTH_BROKER})
#: Nodes that join and leave, and votes that change.
GIVEN_MEMBERS: Final = GIVEN_BROKERS | {SPARE_CONTROLLER, DYNAMIC_QUORUM}
_BROKER_ALONE: Final = ("broker",)
_CONTROLLER_ALONE: Final = ("controller",)


class NodeRuntime(ABC):
    """protocols.Runtime, Killable, Stoppable and Pausable. Thread-safe per node.

    Attributes:
        name: as the user calls it.
        gives: what a fault may need of the cluster from its start on, and this runtime has.
        hint: where a need is given that this runtime or machine does not have.
        folder: of the cluster, one sub-folder a node.
        block: R of the addresses 127.0.R.N.
        needs: of the faults that it was started for.
        management: the account of the harness in the management of the brokers.
    """

    name: ClassVar[str]
    gives: ClassVar[frozenset[str]]
    hint: ClassVar[str]
    run_id: str
    folder: Path
    block: int
    layout: Layout
    needs: frozenset[str]
    management: Management
    _outside: set[str]

    @classmethod
    @abstractmethod
    def why_not(cls, need: str) -> str:
        """Why this machine cannot give a need of ``gives``; empty when it can."""

    @classmethod
    def lacking(cls, needs: frozenset[str]) -> list[str]:
        """Return the needs that this runtime can never meet."""
        return sorted(needs - cls.gives)

    @classmethod
    def require(cls, needs: frozenset[str]) -> None:
        """Refuse, before anything starts, what cannot be given.

        Raises:
            UsageError: a need that this runtime never gives.
            EnvironmentNotReady: one that this machine cannot give, and why.
        """
        if lacking := cls.lacking(needs):
            raise UsageError(
                f"the {cls.name} runtime cannot give: {', '.join(lacking)}", hint=cls.hint
            )
        for need in sorted(needs):
            if reason := cls.why_not(need):
                raise EnvironmentNotReady(
                    f"a fault of this scenario needs {need}: {reason}", hint=cls.hint
                )

    @property
    def facts(self) -> dict[str, str]:
        """Return the facts for the report about where and from what nodes run, by name."""
        return {"runtime": self.name}

    @property
    def spec(self) -> ClusterLayout:
        """The layout that the cluster was asked to have."""
        return self.layout.spec

    @property
    def nodes(self) -> Sequence[Node]:
        """Return the nodes of the cluster, without those that have not joined yet or have left."""
        return tuple(node for node in self.layout.nodes if node.name not in self._outside)

    def outside(self, role: str = "broker") -> Sequence[str]:
        return sorted(name for name in self._outside if role in self.layout.node(name).roles)

    def may_leave(self) -> Sequence[str]:
        return [
            node.name
            for node in self.nodes
            if self.needs & GIVEN_BROKERS and node.roles == _BROKER_ALONE
        ]

    def spares(self) -> set[str]:
        """The nodes of one role alone that a fault is to let join."""
        roles = set()
        if self.needs & GIVEN_BROKERS == {SPARE_BROKER}:
            roles.add(_BROKER_ALONE)
        if SPARE_CONTROLLER in self.needs:
            roles.add(_CONTROLLER_ALONE)
        return {node.name for node in self.layout.nodes if node.roles in roles}

    def is_reachable(self, node: str) -> bool:
        """Whether a node can answer, as far as its runtime knows."""
        return self.is_running(node) and not self.is_paused(node)

    @abstractmethod
    def up(self) -> None:
        """Start every node and return once they run (readiness is the admin's to say).

        Raises:
            EnvironmentNotReady: what is missing, or a node that died (its last log lines).
        """

    @abstractmethod
    def down(self) -> None:
        """End every node, drop its data and give the addresses back; logs and settings stay.
        Idempotent."""

    @abstractmethod
    def adopt(self) -> None:
        """Take over the nodes that an earlier harness process started and that still run."""

    @abstractmethod
    def check(self) -> None:
        """Raise for the first node that does not run.

        Raises:
            EnvironmentNotReady: with the node's last log lines.
        """

    @abstractmethod
    def pid(self, node: str) -> int | None:
        """Process id on this machine, None when there is none."""

    @abstractmethod
    def is_running(self, node: str) -> bool: ...

    @abstractmethod
    def start(self, node: str) -> None:
        """Start a node that is down; returns when its process runs. No-op when it runs."""

    @abstractmethod
    def kill(self, node: str) -> None:
        """SIGKILL; returns when the process is gone."""

    @abstractmethod
    def stop(self, node: str, *, timeout_s: float = 30.0) -> bool:
        """SIGTERM, wait, SIGKILL after the timeout; returns when the process is gone."""

    @abstractmethod
    def pause(self, node: str) -> None:
        """Freeze it; returns when it is stopped.

        Raises:
            EnvironmentNotReady: the node does not run.
        """

    @abstractmethod
    def resume(self, node: str) -> None:
        """No-op for a node that is down or not paused."""

    @abstractmethod
    def is_paused(self, node: str) -> bool: ...

    @abstractmethod
    def read_data(self, node: str, path: str) -> bytes | None:
        """A file below the data folder of a node, also of one that is down; None when it is not
        there.

        Raises:
            EnvironmentNotReady: it cannot be read.
        """

    @abstractmethod
    def log_tail(self, node: str) -> str:
        """Why a node that is down went down, as text for a report."""
