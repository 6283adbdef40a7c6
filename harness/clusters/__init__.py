"""Clusters under test: from a compose file to running brokers that work."""

from harness.clusters.cluster import (
    BrokerCluster,
    attach_cluster,
    describe_cluster,
    fetch_cluster,
    is_fetched,
    open_cluster,
    spec_of,
)
from harness.clusters.layout.distribution import pinned

__all__ = [
    "BrokerCluster",
    "attach_cluster",
    "describe_cluster",
    "fetch_cluster",
    "is_fetched",
    "open_cluster",
    "pinned",
    "spec_of",
]
