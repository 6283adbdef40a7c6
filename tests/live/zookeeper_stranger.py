"""A local account that knows the address of a cluster's ZooKeeper, and no password."""

from __future__ import annotations

from contextlib import closing

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.interfaces import IAsyncResult

from harness.systems.pulsar.assembly import PulsarCluster

_ANSWER_S = 10.0
_CLUSTERS = "/admin/clusters"


def assert_a_stranger_is_refused(cluster: PulsarCluster) -> None:
    """Whether it reads, creates or deletes; the cluster stays as it was."""
    (zookeeper,) = [node for node in cluster.runtime.nodes if "zookeeper" in node.roles]
    for ask in (_read, _create, _delete):
        with closing(
            KazooClient(str(zookeeper.client), connection_retry={"max_tries": 1})
        ) as stranger:
            assert stranger.start_async().wait(_ANSWER_S), "the connection itself is accepted"
            with pytest.raises((KazooException, KazooTimeoutError)):
                ask(stranger).get(timeout=_ANSWER_S)
            stranger.stop()
    assert cluster.admin._rest.get("/clusters") == ["brokerstorm"]


def _read(stranger: KazooClient) -> IAsyncResult:
    return stranger.get_async(f"{_CLUSTERS}/brokerstorm")


def _create(stranger: KazooClient) -> IAsyncResult:
    return stranger.create_async(f"{_CLUSTERS}/stranger", b"{}")


def _delete(stranger: KazooClient) -> IAsyncResult:
    return stranger.delete_async(f"{_CLUSTERS}/brokerstorm")
