"""RabbitMQ as a cluster: three nodes, each an Erlang node of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harness.clusters.assembly import Assembly
from harness.clusters.cluster import BrokerCluster
from harness.clusters.layout.runtime import NodeRuntime
from harness.clusters.security.made import ADMIN, CLIENT, ClusterSecurity
from harness.connections.security import ANYBODY, Access, Auth, Security
from harness.protocols.cluster import Node
from harness.systems.rabbitmq import CLUSTER, VIRTUAL_HOST, series
from harness.systems.rabbitmq.admin import RabbitMqAdmin

RabbitMqCluster = BrokerCluster[RabbitMqAdmin]


class _RabbitMq(Assembly):
    def admin(
        self, runtime: NodeRuntime, is_reachable: Callable[[str], bool], access: Access = ANYBODY
    ) -> RabbitMqAdmin:
        management = runtime.management
        return RabbitMqAdmin(
            runtime.nodes,
            # Read when it is asked for: a cluster that is attached to restores it first.
            cookie=lambda: management.auth.secret,
            called={n.name: f"rabbit@{runtime.layout.wiring.host(n)}" for n in runtime.nodes},
            version=series(runtime.spec.version),
            is_reachable=is_reachable,
            access=access,
        )

    def access(self, made: ClusterSecurity) -> Access:
        """By user and password. The harness asks nodes with their cookie, too."""
        clients, admin = (Auth("user", made.secrets[user], user) for user in (CLIENT, ADMIN))
        return Access(Security(made.tls(), clients), Security(made.tls(), admin))

    def cluster_id(self, run_id: str, admin: Any) -> str:
        """Return the name of the cluster, as compose/rabbitmq/conf/rabbitmq.conf has it."""
        return CLUSTER

    def bootstrap(self, nodes: Sequence[Node], *, secure: bool = False) -> str:
        """Return the client endpoints, with the virtual host."""
        return f"{super().bootstrap(nodes)}/{VIRTUAL_HOST}"

    def connection_parts(self, runtime: NodeRuntime) -> Mapping[str, Any]:
        """Return where the nodes listen for each other, and the file with their cookie."""
        return {
            "admin_url": ",".join(str(node.admin) for node in runtime.nodes),
            "cookie": {"file": str(runtime.management.secret_file)},
        }

    def facts(self, admin: Any) -> Mapping[str, str]:
        """Return which feature flags are enabled: they decide what brokers of a version do."""
        flags = admin.feature_flags()
        off = [flag for flag, is_enabled in flags.items() if not is_enabled]
        text = f"{len(flags) - len(off)} of {len(flags)} enabled"
        return {"feature flags": f"{text}; not {', '.join(off)}" if off else text}


ASSEMBLY = _RabbitMq()
