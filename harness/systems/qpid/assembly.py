"""Qpid Broker-J as a cluster: one broker, or a group of three with one replicated store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from harness.clusters.assembly import Assembly, ClusterAdmin
from harness.clusters.cluster import BrokerCluster
from harness.clusters.layout.compose import ClusterLayout
from harness.clusters.layout.runtime import NodeRuntime
from harness.clusters.security.made import ADMIN, CLIENT, ClusterSecurity
from harness.connections.security import ANYBODY, Access, Auth, Security
from harness.protocols.cluster import Node, TopicSettings
from harness.systems.qpid import VIRTUAL_HOST
from harness.systems.qpid.admin import QpidAdmin

QpidCluster = BrokerCluster[QpidAdmin]
_READY_S = 60.0


class _Qpid(Assembly):
    def admin(
        self, runtime: NodeRuntime, is_reachable: Callable[[str], bool], access: Access = ANYBODY
    ) -> QpidAdmin:
        if access.admin.auth is None:
            access = replace(access, admin=replace(access.admin, auth=runtime.management.auth))
        return QpidAdmin(runtime.nodes, is_reachable=is_reachable, access=access)

    def access(self, made: ClusterSecurity) -> Access:
        """By user and password, over AMQP and over REST."""
        clients, admin = (Auth("user", made.secrets[user], user) for user in (CLIENT, ADMIN))
        return Access(Security(made.tls(), clients), Security(made.tls(), admin))

    def cluster_id(self, run_id: str, admin: Any) -> str:
        """Return the id of the virtual host, which the broker chose."""
        return str(admin.virtual_host_id())

    def bootstrap(self, nodes: Sequence[Node], *, secure: bool = False) -> str:
        """Return the client endpoints, with the virtual host and a port for each version of
        AMQP."""
        return f"{super().bootstrap(nodes)}/{VIRTUAL_HOST}?port_per_version"

    def admin_url(self, nodes: Sequence[Node], *, secure: bool = False) -> str:
        return ",".join(f"{'https' if secure else 'http'}://{node.admin}" for node in nodes)

    def minimal(self, spec: ClusterLayout) -> tuple[ClusterLayout, Mapping[str, str]]:
        """A group of one: it loads what a single broker needs and what replication needs."""
        return replace(super().minimal(spec)[0], topology="group"), {}

    def exercise(self, admin: ClusterAdmin) -> None:
        admin.wait_ready([], timeout_s=_READY_S, run_tag=0)
        admin.create_topics([TopicSettings("class-archive", 1, 1)])
        admin.wait_ready(["class-archive"], timeout_s=_READY_S, run_tag=0)
        admin.delete_topics(["class-archive"])


ASSEMBLY = _Qpid()
