"""The differences between systems when a cluster is opened: one small assembly per system.

`System.assembly` has it (docs/howto/add-a-system.md). It is imported when its system is asked for,
so that a run loads the client libraries of its own system only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, cast

from harness.clusters.layout.compose import ClusterLayout
from harness.clusters.layout.runtime import NodeRuntime
from harness.clusters.process_runtime import Launch, Prepare
from harness.clusters.security.made import ClusterSecurity, fresh_passwords
from harness.connections.secret import Secret
from harness.connections.security import ANYBODY, Access
from harness.protocols.cluster import Admin, Node
from harness.systems import system_of
from harness.systems.base import Request

_EXERCISE_S = 120.0  # without archives, perhaps on a machine that does other things


class ClusterAdmin(Admin, Protocol):
    """An admin as a cluster uses it; ``watch`` is called while it waits for readiness and may
    raise."""

    watch: Callable[[], None]


class Assembly(ABC):
    """One system, as the runtimes need to know it. Stateless."""

    @abstractmethod
    def admin(
        self, runtime: NodeRuntime, is_reachable: Callable[[str], bool], access: Access = ANYBODY
    ) -> ClusterAdmin:
        """The admin of a cluster.

        Args:
            is_reachable: whether a node can answer, as far as the runtime knows; decides whom to
                ask first.
        """

    def secrets(self) -> Mapping[str, Secret]:
        """New ones for a cluster that is made secure: of each user, and what else its brokers
        share."""
        return fresh_passwords()

    def access(self, made: ClusterSecurity) -> Access:
        """The ways into a cluster that is made secure."""
        raise NotImplementedError

    def admit(self, admin: Any, made: ClusterSecurity | None) -> None:  # noqa: B027
        """Make users and their rights known to brokers that work. Default: their settings did.

        Args:
            made: of a cluster that is made secure; None = clients need not say who they are.

        Raises:
            EnvironmentNotReady: the clients' user cannot do what it should within a minute.
        """

    def cluster_id(self, run_id: str, admin: Any) -> str:
        """Return the id that a running cluster reports; empty where brokers have no such id."""
        return ""

    def facts(self, admin: Any) -> Mapping[str, str]:
        """What a report should say of brokers that work, by name. Default: nothing."""
        return {}

    def prepare(self, run_id: str, launch: Launch) -> Prepare:
        """Prepare the data folder of a process before its first start. By default there is nothing
        to prepare.
        """
        return lambda node, folder: None

    def why_no_containers(self, version: str) -> str:
        """Why a version of this system cannot run in containers; empty when it can."""
        return ""

    def bootstrap(self, nodes: Sequence[Node], *, secure: bool = False) -> str:
        """Return the address that clients connect to. By default it lists the client endpoints,
        separated by commas.
        """
        return ",".join(str(node.client) for node in brokers(nodes))

    def admin_url(self, nodes: Sequence[Node], *, secure: bool = False) -> str:
        """Return the URL that workers use to administrate; empty when the system has no such
        endpoint."""
        return ""

    def connection_parts(self, runtime: NodeRuntime) -> Mapping[str, Any]:
        """Return what the connection file of a secure cluster says besides addresses of clients
        and who they are. Default: nothing."""
        return {}

    def request(self, runtime: NodeRuntime, port: str, ballast: int = 0) -> Request | None:
        """Make the request of `System.request`, also for ports that need the harness's own
        account."""
        return system_of(runtime.spec.system).request(port, ballast)

    def minimal(self, spec: ClusterLayout) -> tuple[ClusterLayout, Mapping[str, str]]:
        """The smallest cluster that works, and the broker settings it needs: it is booted
        once per version to build class archives. Default: the first broker, and what needs no
        dependency."""
        first = next(service for service in spec.services if "broker" in service.roles)
        return replace(spec, services=(first,)), {}

    def exercise(self, admin: ClusterAdmin) -> None:
        """Make the cluster of `minimal` load the classes that a run needs. Default: wait until it
        works."""
        admin.wait_ready([], timeout_s=_EXERCISE_S, run_tag=0)


def why_no_containers(spec: ClusterLayout) -> str:
    """Why a cluster cannot run in containers; empty when it can."""
    if spec.own:
        return f"there is no image of {spec.own.short}: brokers of your own run as processes"
    return assembly_of(spec.system).why_no_containers(spec.version)


def brokers(nodes: Sequence[Node]) -> list[Node]:
    """The nodes that clients connect to."""
    return [node for node in nodes if "broker" in node.roles]


def assembly_of(system: str) -> Assembly:
    """The assembly of a system.

    Raises:
        UsageError: there is none.
    """
    return cast("Assembly", system_of(system).assembly())
