"""Clusters under test: from a compose file to running brokers that work."""

from harness.clusters.cluster import (
    BrokerCluster,
    attach_cluster,
    describe_cluster,
    fetch_cluster,
    open_cluster,
    spec_of,
)

__all__ = [
    "BrokerCluster",
    "attach_cluster",
    "describe_cluster",
    "fetch_cluster",
    "open_cluster",
    "spec_of",
]
