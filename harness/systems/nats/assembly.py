"""NATS as a cluster: servers with JetStream that are one meta group."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from harness.clusters.assembly import Assembly
from harness.clusters.cluster import BrokerCluster
from harness.clusters.layout.compose import release_key
from harness.clusters.layout.runtime import NodeRuntime
from harness.clusters.security.made import ADMIN, CLIENT, ClusterSecurity
from harness.connections.security import ANYBODY, Access, Auth, Security
from harness.protocols.cluster import Node
from harness.systems.base import Request
from harness.systems.nats import CLUSTER, PING, PONG
from harness.systems.nats.admin import NatsAdmin

NatsCluster = BrokerCluster[NatsAdmin]
#: `placement.preferred` of a request to step down.
CHOOSES_SINCE: Final = (2, 11)


class _Nats(Assembly):
    def admin(
        self, runtime: NodeRuntime, is_reachable: Callable[[str], bool], access: Access = ANYBODY
    ) -> NatsAdmin:
        chooses = release_key(runtime.spec.version) >= CHOOSES_SINCE
        return NatsAdmin(
            runtime.nodes, is_reachable=is_reachable, access=access, can_choose=chooses
        )

    def access(self, made: ClusterSecurity) -> Access:
        """By user and password; the monitoring port has no authentication."""
        clients, admin = (Auth("user", made.secrets[user], user) for user in (CLIENT, ADMIN))
        return Access(Security(made.tls(), clients), Security(made.tls(), admin))

    def cluster_id(self, run_id: str, admin: Any) -> str:
        return CLUSTER

    def bootstrap(self, nodes: Sequence[Node], *, secure: bool = False) -> str:
        scheme = "tls" if secure else "nats"
        return ",".join(f"{scheme}://{node.client}" for node in nodes)

    def admin_url(self, nodes: Sequence[Node], *, secure: bool = False) -> str:
        return ",".join(f"{'https' if secure else 'http'}://{node.admin}" for node in nodes)

    def request(self, runtime: NodeRuntime, port: str, ballast: int = 0) -> Request | None:
        """Make the request of the base class; a route takes no ballast.

        The peer port answers a connection that shows the password before it is a route.
        """
        if port != "peer":
            return super().request(runtime, port, ballast)
        if ballast:
            return None
        account = runtime.management.auth
        hello = {
            "verbose": False,
            "cluster": CLUSTER,
            "server_id": "probe",
            "user": account.user,
            "pass": account.secret.reveal(),
        }
        return b"CONNECT " + json.dumps(hello).encode() + b"\r\n" + PING, PONG


ASSEMBLY = _Nats()
