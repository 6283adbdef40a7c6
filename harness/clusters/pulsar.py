"""Pulsar as a cluster of processes: brokers over ZooKeeper and bookies, and its admin."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from harness.brokers.pulsar import PulsarAdmin, TransferringPulsarAdmin
from harness.clusters.assembly import Assembly, brokers
from harness.clusters.cluster import BrokerCluster
from harness.clusters.compose import ClusterSpec, release_key
from harness.clusters.process import ProcessRuntime
from harness.protocols import Node

PulsarCluster = BrokerCluster[PulsarAdmin]
_TRANSFERS_SINCE = (3, 0)


class _Pulsar(Assembly):
    def admin(self, runtime: ProcessRuntime, is_reachable: Callable[[str], bool]) -> PulsarAdmin:
        transfers = release_key(runtime.spec.version) >= _TRANSFERS_SINCE
        kind = TransferringPulsarAdmin if transfers else PulsarAdmin
        return kind(runtime.nodes, is_reachable=is_reachable)

    def bootstrap(self, nodes: Sequence[Node]) -> str:
        return "pulsar://" + super().bootstrap(nodes)

    def admin_url(self, nodes: Sequence[Node]) -> str:
        return "http://" + ",".join(str(node.admin) for node in brokers(nodes))

    def alone(self, spec: ClusterSpec) -> tuple[ClusterSpec, Mapping[str, Any]]:
        """One broker over one bookie."""
        first = ("zookeeper", "init", "bookie-1", "broker-1")
        services = tuple(service for service in spec.services if service.name in first)
        return replace(spec, services=services, topology="small"), {}


ASSEMBLY = _Pulsar()
