"""Pulsar as a cluster: brokers over ZooKeeper and bookies, and its admin."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from harness.clusters.assembly import Assembly, brokers
from harness.clusters.cluster import BrokerCluster
from harness.clusters.layout.compose import ClusterLayout, release_key
from harness.clusters.layout.runtime import NodeRuntime
from harness.clusters.layout.secret_files import fresh_secret
from harness.clusters.layout.tokens import signed_token
from harness.clusters.security.made import ADMIN, CLIENT, GUEST, ClusterSecurity
from harness.connections.secret import Secret
from harness.connections.security import ANYBODY, Access, Auth, Security
from harness.protocols.cluster import Node
from harness.systems.pulsar.admin import PulsarAdmin
from harness.systems.pulsar.transfers import TRANSFERS_SINCE, TransferringPulsarAdmin

PulsarCluster = BrokerCluster[PulsarAdmin]
#: Clients that show no token, as compose/pulsar/conf/broker.conf names them.
ANONYMOUS: Final = "anonymous"
_LISTENERS_SINCE = (2, 10)  # bindAddresses


class _Pulsar(Assembly):
    def admin(
        self, runtime: NodeRuntime, is_reachable: Callable[[str], bool], access: Access = ANYBODY
    ) -> PulsarAdmin:
        transfers = release_key(runtime.spec.version) >= TRANSFERS_SINCE
        kind = TransferringPulsarAdmin if transfers else PulsarAdmin
        more: dict[str, Any] = {"security": access.admin}
        if access.admin.auth is None:
            management = replace(access.admin, auth=runtime.management.token_auth)
            more = {"security": management, "probes": access.clients, "open_to": ANONYMOUS}
        nodes, host, ports = runtime.nodes, runtime.layout.wiring.host, runtime.spec.ports
        ids = {node.name: f"{host(node)}:{ports['web']}" for node in brokers(nodes)}
        bookies = {node.name: f"{host(node)}:{ports['bookie']}" for node in nodes}
        more["metadata"] = runtime.management.auth
        return kind(nodes, ids=ids, bookies=bookies, is_reachable=is_reachable, **more)

    def secrets(self) -> Mapping[str, Secret]:
        """The key of the brokers, and a token for each user."""
        key = fresh_secret()
        return {"key": key, **{user: signed_token(key, user) for user in (ADMIN, CLIENT, GUEST)}}

    def access(self, made: ClusterSecurity) -> Access:
        """By token."""
        clients, admin = (Auth("token", made.secrets[user]) for user in (CLIENT, ADMIN))
        return Access(Security(made.tls(), clients), Security(made.tls(), admin))

    def admit(self, admin: PulsarAdmin, made: ClusterSecurity | None) -> None:
        if made:
            admin.admit(CLIENT)
        else:
            admin.open_shared(ANONYMOUS)

    def cluster_id(self, run_id: str, admin: PulsarAdmin) -> str:
        return admin.cluster_id()

    def why_no_containers(self, version: str) -> str:
        if release_key(version) >= _LISTENERS_SINCE:
            return ""
        return f"Pulsar {version} knows one address of a broker only, for clients and for other brokers"

    def bootstrap(self, nodes: Sequence[Node], *, secure: bool = False) -> str:
        return ("pulsar+ssl://" if secure else "pulsar://") + super().bootstrap(nodes)

    def admin_url(self, nodes: Sequence[Node], *, secure: bool = False) -> str:
        return ("https://" if secure else "http://") + ",".join(
            str(node.admin) for node in brokers(nodes)
        )

    def minimal(self, spec: ClusterLayout) -> tuple[ClusterLayout, Mapping[str, str]]:
        """One broker over one bookie."""
        first = ("zookeeper", "init", "bookie-1", "broker-1")
        services = tuple(service for service in spec.services if service.name in first)
        return replace(spec, services=services, topology="small"), {}


ASSEMBLY = _Pulsar()
