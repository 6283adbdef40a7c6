"""Kafka as a cluster: formatted storage for each node, and its admin."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from harness.clusters.assembly import Assembly, ClusterAdmin
from harness.clusters.cluster import BrokerCluster
from harness.clusters.layout.compose import ClusterLayout
from harness.clusters.layout.node_layout import cluster_id
from harness.clusters.layout.runtime import NodeRuntime
from harness.clusters.nodes.node_process import NodeFolder
from harness.clusters.process_runtime import Launch, Prepare
from harness.clusters.security.certificates import usual_span
from harness.clusters.security.made import (
    ADMIN,
    CLIENT,
    GUEST,
    ClusterSecurity,
    fresh_passwords,
    fresh_secret,
)
from harness.clusters.security.tokens import key_set, signed_token
from harness.connections.secret import Secret
from harness.connections.security import ANYBODY, Access, Auth, Security
from harness.protocols.cluster import Node, TopicSettings
from harness.systems.kafka.admin import KafkaAdmin
from harness.systems.kafka.storage import clone_storage, formatted_storage

KafkaCluster = BrokerCluster[KafkaAdmin]
#: Name of the secret that clients show by OAUTHBEARER.
TOKEN: Final = "token"
_READY_S = 60.0
#: What a broker alone needs to be whole.
_MINIMAL: Mapping[str, str] = {
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


class _Kafka(Assembly):
    def admin(
        self, runtime: NodeRuntime, is_reachable: Callable[[str], bool], access: Access = ANYBODY
    ) -> KafkaAdmin:
        return KafkaAdmin(runtime.nodes, is_reachable=is_reachable, data=runtime.read_data, access=access)

    def secrets(self) -> Mapping[str, Secret]:
        """Passwords, and the clients' token with what the brokers check it with."""
        key = fresh_secret()
        return {
            **fresh_passwords(),
            "token-key": key,
            "token-keys": key_set(key),
            TOKEN: signed_token(key, CLIENT, usual_span()),
        }

    def access(self, made: ClusterSecurity) -> Access:
        """Clients by SCRAM, the harness by its certificate."""
        auth = Auth("scram-sha-512", made.secrets[CLIENT], CLIENT)
        return Access(Security(made.tls(), auth), Security(made.tls(ADMIN)))

    def admit(self, admin: KafkaAdmin, made: ClusterSecurity) -> None:
        admin.admit({user: made.secrets[user] for user in (CLIENT, GUEST)}, CLIENT)

    def cluster_id(self, run_id: str, admin: Any) -> str:
        return cluster_id(run_id)

    def prepare(self, run_id: str, launch: Launch) -> Prepare:
        """Puts formatted storage in place of a node that has none."""

        def prepare(node: Node, folder: NodeFolder) -> None:
            properties = (folder.conf / "server.properties").read_text()
            template = formatted_storage(launch.java.path, launch.jars, properties, launch.spec.version)
            clone_storage(folder.data, template=template, node_number=node.number, cluster=cluster_id(run_id))

        return prepare

    def minimal(self, spec: ClusterLayout) -> tuple[ClusterLayout, Mapping[str, Any]]:
        return super().minimal(spec)[0], _MINIMAL

    def exercise(self, admin: ClusterAdmin) -> None:
        admin.create_topics([TopicSettings("class-archive", 3, 1)])
        admin.wait_ready(["class-archive"], timeout_s=_READY_S, run_tag=0)
        admin.end_offsets(["class-archive"])
        admin.delete_topics(["class-archive"])


ASSEMBLY = _Kafka()
