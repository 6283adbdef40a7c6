"""rolling-upgrade and rolling-downgrade: node by node to another version of the brokers, under
load."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from itertools import chain
from typing import ClassVar, TypeVar

from packaging.version import InvalidVersion, Version
from pydantic import Field

from faults.kinds.rolling_restart import Rolled, RollingParams
from faults.kit.cluster_view import ClusterView, find_ability
from faults.kit.errors import FiringSkipped, StepProblem
from faults.kit.injection import FaultKind
from faults.kit.params import Inventory, names
from harness.durations import Seconds
from harness.errors import EnvironmentNotReady
from harness.protocols.cluster import Cluster, HasPlacement, Proof
from harness.protocols.nodes import Stoppable
from harness.protocols.versions import FinalizesFeatures, HasVersions, need_of
from harness.systems import system_of

T = TypeVar("T", bound="RollingVersionParams")


class RollingVersionParams(RollingParams):
    to: str = Field(
        min_length=1, description="version of the brokers, or `dir:PATH` of a distribution"
    )
    pause: Seconds = Field(
        0.0, description="time between a node that is in sync again and the next one"
    )
    roles: tuple[str, ...] = Field(
        ("broker",),
        min_length=1,
        description="roles of the nodes, in this order, for example `[bookie, broker]`",
    )


class RollingUpgradeParams(RollingVersionParams):
    finalize: bool = Field(
        False,
        description=(
            "raises the cluster's features to the level of the new version at the end (Kafka: "
            "KIP-584); after that, no downgrade is possible"
        ),
    )


class Upgraded(Rolled):
    """Nodes that were restarted with another version."""

    params: RollingVersionParams

    def __init__(self, view: ClusterView, params: RollingVersionParams) -> None:
        of_role = {
            role: view.brokers if role == "broker" else view.with_role(role)
            for role in params.roles
        }
        super().__init__(view, params, dict.fromkeys(chain.from_iterable(of_role.values())))
        self._versions: HasVersions = view.ability(HasVersions)
        self._was = {node: self._versions.version(node) for node in self.targets}
        self._raised: dict[str, tuple[int, int]] = {}
        if set(self._was.values()) <= {params.to}:
            raise FiringSkipped(f"every {' and '.join(params.roles)} has version {params.to}")

    def apply(self) -> None:
        super().apply()
        if getattr(self.params, "finalize", False) and len(self._done) == len(self.targets):
            features = find_ability(self.view.cluster, FinalizesFeatures)
            assert features is not None
            self._raised = dict(features.finalize_features())

    def before_start(self, node: str) -> None:
        self._versions.set_version(node, self.params.to)

    def after_start(self, node: str) -> None:
        roll, version = self._done[node], self._versions.version(node)
        self._done[node] = replace(roll, was=self._was[node], version=version)
        if node != self.targets[-1]:
            self.view.stopping.wait(self.params.pause)

    def not_ready(self, node: str, missing: str) -> EnvironmentNotReady:
        """One that ends at once says why."""
        error = super().not_ready(node, missing)
        if self.view.is_running(node):
            return error
        return EnvironmentNotReady(
            f"{node} does not start as {self.params.to}: {self._versions.log_tail(node)}"
        )

    def heal(self) -> None:
        """A node that did not work with the new version continues with its previous one."""
        for node in self.targets:
            if not self.view.is_running(node) and node not in self._done:
                self._versions.set_version(node, self._was[node])
        super().heal()

    def proof(self) -> Proof:
        """Effective when the processes of all nodes are of that version, and each gave something
        up."""
        found = super().proof()
        done = {node: row.version for node, row in self._done.items()}
        other = [node for node in self.targets if done.get(node) != self.params.to]
        raised = [f"{name} {was} -> {now}" for name, (was, now) in sorted(self._raised.items())]
        text = "; ".join([found.evidence, *raised])
        details = {**found.details, **({"features": self._raised} if self._raised else {})}
        return Proof(found.effective and not other, text, details)


class _RollingVersion(FaultKind[T]):
    abilities = (Stoppable, HasPlacement, HasVersions)
    takes_nodes = True
    #: What the version may not be, compared with the one before.
    direction: ClassVar[str]
    other: ClassVar[str]

    @abstractmethod
    def is_wrong(self, before: Version, to: Version) -> bool: ...

    def needs_for(self, params: T) -> frozenset[str]:
        return frozenset({need_of(params.to)})

    def ends_within_s(self, params: T) -> float | None:
        """Return the time that all nodes need."""
        return None

    def complete(self, params: T, inventory: Inventory) -> T:
        there = {role for roles in inventory.roles.values() for role in roles}
        if unknown := [role for role in params.roles if there and role not in there]:
            raise StepProblem("roles", f"no node is a {unknown[0]}. Roles: {names(sorted(there))}")
        return params

    def refusal(self, params: T, cluster: Cluster) -> str:
        given: frozenset[str] = getattr(cluster.runtime, "needs", frozenset())
        if params.to != cluster.version and need_of(params.to) not in given:
            return f"it was started without {need_of(params.to)}"
        try:
            before, to = Version(cluster.version), Version(params.to)
        except InvalidVersion:  # a distribution of the user's own
            return ""
        if self.is_wrong(before, to):
            return f"to: {params.to} is {self.direction} than {before}; use {self.other}"
        return system_of(cluster.system).upgrade_problem(cluster.version, params.to)

    def target(self, params: T) -> str:
        return f"{' and '.join(params.roles)} to {params.to}"

    def choices(self, params: T) -> list[str]:
        return []

    def commands(self, params: T, inventory: Inventory) -> list[str]:
        stop = f"SIGTERM, SIGKILL after {params.stop_within:g} s"
        ready = f"wait until it is in sync, {params.ready_within:g} s at most"
        steps = f"{stop}; start it from {params.to}; {ready}"
        pause = f"; then {params.pause:g} s" if params.pause else ""
        nodes = [
            n
            for role in params.roles
            for n in inventory.nodes
            if role in inventory.roles.get(n, (role,))
        ]
        return [f"{node}: {steps}{pause}" for node in dict.fromkeys(nodes)]

    def prepare(self, params: T, view: ClusterView, draw: int) -> Upgraded:
        return Upgraded(view, params)


class RollingUpgrade(_RollingVersion[RollingUpgradeParams]):
    """Restart every broker with a newer version, one after the other, each in sync before the
    next."""

    kind = "rolling-upgrade"
    params = RollingUpgradeParams
    direction, other = "older", "rolling-downgrade"

    def is_wrong(self, before: Version, to: Version) -> bool:
        return to < before

    def abilities_for(self, params: RollingUpgradeParams) -> tuple[type, ...]:
        return (*self.abilities, FinalizesFeatures) if params.finalize else self.abilities

    def commands(self, params: RollingUpgradeParams, inventory: Inventory) -> list[str]:
        last = (
            ["UpdateFeatures: metadata.version to what the brokers support"]
            if params.finalize
            else []
        )
        return [*super().commands(params, inventory), *last]


class RollingDowngrade(_RollingVersion[RollingVersionParams]):
    """Restart every broker with an older version, one after the other, each in sync before the
    next."""

    kind = "rolling-downgrade"
    params = RollingVersionParams
    direction, other = "newer", "rolling-upgrade"

    def is_wrong(self, before: Version, to: Version) -> bool:
        return to > before
