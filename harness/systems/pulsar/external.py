"""Pulsar clusters that somebody else started."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final
from urllib.parse import urlsplit

from harness.clusters.external.cluster import ExternalSystem, FoundCluster, clocks, named_nodes
from harness.clusters.external.made import MadeNames
from harness.clusters.layout.compose import release_key
from harness.connections.file import Connection
from harness.connections.security import Access
from harness.errors import BrokerstormError, UsageError
from harness.need import Need
from harness.protocols.cluster import Endpoint, Node, TopicSettings
from harness.systems.pulsar import SYSTEM as PULSAR
from harness.systems.pulsar.external_admin import (
    KEEPS,
    ExternalPulsarAdmin,
    TransferringExternalPulsarAdmin,
)
from harness.systems.pulsar.questions import PulsarQuestions, endpoint_of, lacks_of
from harness.systems.pulsar.transfers import TRANSFERS_SINCE

_READY_S: Final = 60.0
_PROBED: Final = "doctor"
#: Settings that hold clients back unless they are 0 -> what they limit.
_LIMITS: Final = {
    "brokerPublisherThrottlingMaxMessageRate": "msg/s into a broker",
    "brokerPublisherThrottlingMaxByteRate": "B/s into a broker",
    "maxPublishRatePerTopicInMessages": "msg/s into a topic",
    "maxPublishRatePerTopicInBytes": "B/s into a topic",
    "dispatchThrottlingRateInMsg": "msg/s out of a broker",
    "dispatchThrottlingRateInByte": "B/s out of a broker",
    "dispatchThrottlingRatePerTopicInMsg": "msg/s out of a topic",
    "dispatchThrottlingRatePerTopicInByte": "B/s out of a topic",
    "dispatchThrottlingRatePerSubscriptionInMsg": "msg/s to a subscription",
    "dispatchThrottlingRatePerSubscriptionInByte": "B/s to a subscription",
    "maxNamespacesPerTenant": "namespaces of a tenant",
    "maxTopicsPerNamespace": "topics of a namespace",
    "maxProducersPerTopic": "producers of a topic",
    "maxConsumersPerTopic": "consumers of a topic",
    "maxSubscriptionsPerTopic": "subscriptions of a topic",
    "maxNumPartitionsPerPartitionedTopic": "partitions of a topic",
    "brokerMaxConnectionsPerIp": "connections of a machine to a broker",
}
#: What moves bundles when no fault does.
_MOVERS: Final = ("loadBalancerSheddingEnabled", "loadBalancerAutoBundleSplitEnabled")


class _ExternalPulsar(ExternalSystem):
    def find(self, connection: Connection) -> FoundCluster:
        _refuse_mixed(connection)
        found = _questions(connection).identity()
        clients = {
            one: (n, at.client) for n, (one, at) in enumerate(found.brokers.items(), start=1)
        }
        nodes = named_nodes(
            connection, clients, {one: at.admin for one, at in found.brokers.items()}
        )
        known = zip(nodes, found.brokers, strict=True)
        peers = tuple(replace(node, peer=endpoint_of(one)) for node, one in known)
        return FoundCluster(found.cluster_id, found.version, peers, found.write_quorum, found.lacks)

    def admin(
        self, connection: Connection, found: FoundCluster, made: MadeNames
    ) -> ExternalPulsarAdmin:
        transfers = release_key(found.version or "0") >= TRANSFERS_SINCE
        kind = TransferringExternalPulsarAdmin if transfers else ExternalPulsarAdmin
        return kind(
            found.nodes,
            cluster=found.cluster_id.partition("@")[0],
            copies=found.replication,
            access=Access(connection.security, connection.admin),
            made=made,
        )

    def examine(
        self, connection: Connection, nodes: Sequence[Node], admin: ExternalPulsarAdmin
    ) -> Iterator[Need]:
        prefix = connection.file.topics.prefix
        namespace = PULSAR.namespace(secrets.randbits(32), prefix)
        settings = _questions(connection).settings()
        copies = connection.file.topics.replication or int(
            settings["managedLedgerDefaultWriteQuorum"]
        )
        try:
            admin.enter_namespace(namespace)
            admin.create_topics([TopicSettings(_PROBED, len(nodes), copies)])
            admin.wait_ready([_PROBED], timeout_s=_READY_S, run_tag=1)
        except BrokerstormError as error:
            remedy = (
                "who administrates must be allowed to make that namespace, clients to write and "
                "read in it"
            )
            yield Need("topics", False, str(error), remedy)
            return
        owners = sorted({owner for owner in admin.bundle_owners().values() if owner})
        text = f"{namespace} was made; every bundle of it was written to, on {', '.join(owners)}"
        yield Need("topics", True, text)
        yield _replication(copies, _questions(connection).bookies())
        yield clocks({node.name: admin.clock(node.name) for node in nodes})
        held = ", ".join(sorted(key for key in KEEPS if not key.startswith("auto")))
        yield Need(
            "retention", True, f"a run's namespace drops nothing, as its policies say: {held}"
        )
        yield from _set(settings)


def _replication(copies: int, bookies: Sequence[str]) -> Need:
    text = f"each message is kept by {copies} of {len(bookies)} bookies"
    return Need("replication", len(bookies) >= copies, text, "set topics.replication to fewer")


def _set(settings: Mapping[str, str]) -> Iterator[Need]:
    """Settings of the brokers that a run would be blamed for."""
    limits = [
        f"{settings[key]} {of}" for key, of in _LIMITS.items() if float(settings.get(key) or 0) > 0
    ]
    text = "; ".join(limits) or "none"
    yield Need("quotas", not limits, text, "a client that is held back keeps no rate", needed=False)
    movers = [key for key in _MOVERS if settings.get(key) == "true"]
    text = (
        f"moves bundles by itself: {', '.join(movers)}" if movers else "moves no bundle by itself"
    )
    remedy = "topics that it moves are away for a moment, which no fault of the run did"
    yield Need("load balancer", not movers, text, remedy, needed=False)
    lacks = ", ".join(f"{key}={value}" for key, value in lacks_of(settings).items())
    text = f"switched off: {lacks}" if lacks else "switched on"
    yield Need(
        "transactions", not lacks, text, "producers with `transactions` need them", needed=False
    )


def _refuse_mixed(connection: Connection) -> None:
    """URLs say TLS a second time.

    Raises:
        UsageError: one is missing, is none, or says otherwise than ``tls``.
    """
    file, s = connection.file, "s" if connection.security.tls else ""
    scheme = "pulsar+ssl" if s else "pulsar"
    said = "tls is set" if s else "tls is not set"
    for key, url, wanted in (
        ("bootstrap", file.bootstrap, scheme),
        ("admin_url", file.admin_url, f"http{s}"),
    ):
        if urlsplit(url).scheme != wanted:
            raise UsageError(
                f"{connection.path}: {key} is {url or 'missing'}, and {said}",
                hint=f"{key}: {wanted}://HOST:PORT,HOST:PORT",
            )
    _endpoints(connection)


def _endpoints(connection: Connection) -> list[Endpoint]:
    """Where the cluster is administrated.

    Raises:
        UsageError: that is not a host and port.
    """
    url = connection.file.admin_url
    try:
        return [endpoint_of(one) for one in urlsplit(url).netloc.split(",")]
    except ValueError:
        raise UsageError(
            f"{connection.path}: admin_url is {url}, in which a port is missing",
            hint=f"admin_url: {PULSAR.admin_form}",
        ) from None


def _questions(connection: Connection) -> PulsarQuestions:
    return PulsarQuestions(_endpoints(connection), connection.admin)


EXTERNAL = _ExternalPulsar()
