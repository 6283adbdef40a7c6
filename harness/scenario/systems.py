"""The differences between systems for scenario files: defaults, and keys that have no meaning.

Imports nothing of ours. How clusters of a system are made is `harness.clusters`' to know, what its clients
promise is `harness.plan.settings`'.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class System:
    """One system.

    Attributes:
        client: the library of a producer or consumer that names none.
        partitions: of a topic that says nothing.
        version: of the broker, when the scenario names none: the one everything here is measured with.
        topologies: what ``cluster.topology`` may be, the default first; empty = there is one only.
        harness_options: client options the harness sets itself; a scenario that sets one would no longer say
            what is run.
        allowed: by key of a consumer, its values.
        foreign: by part and key of the scenario, what to write instead of a key that means nothing here.
        broker_config: by broker setting that the harness needs as it is, why.
    """

    name: str
    client: str
    partitions: int
    version: str
    topologies: tuple[str, ...]
    harness_options: frozenset[str]
    allowed: Mapping[str, tuple[str, ...]]
    foreign: Mapping[tuple[str, str], str] = field(default_factory=dict)
    broker_config: Mapping[str, str] = field(default_factory=dict)


_COMMITS: Final = "consumers of kafka commit positions; leave it out, or see commit_every"
_JMS_ONLY: Final = "only qpid's JMS clients have consumer transactions; leave it out"

_KAFKA: Final = System(
    name="kafka",
    client="confluent-kafka",
    partitions=12,
    version="4.1.2",
    topologies=(),
    harness_options=frozenset(
        name.replace(".", separator)
        for separator in "._"
        for name in (
            "bootstrap.servers",
            "metadata.broker.list",
            "client.id",
            "group.id",
            "transactional.id",
            "enable.auto.commit",
            "enable.auto.offset.store",
            "auto.offset.reset",
        )
    )
    | {
        "ClientID",
        "Consumer.Offsets.Initial",
        "Consumer.Offsets.AutoCommit.Enable",
        "Producer.Transaction.ID",
    },
    allowed={"receive": ("loop",), "settle": ("auto",)},
    foreign={
        ("consumer", "nack_every"): _COMMITS,
        ("consumer", "per_transaction"): _COMMITS,
        ("consumer", "rollback_every"): _COMMITS,
    },
)

_PULSAR: Final = System(
    name="pulsar",
    client="pulsar-client-java",
    partitions=1,
    version="4.0.8",
    topologies=("small", "bookies-3"),
    harness_options=frozenset(
        {
            *("serviceUrl", "topicName", "topicNames", "topicsPattern", "subscriptionName", "consumerName"),
            *("subscriptionInitialPosition", "messageListener", "consumerEventListener"),
            *("service_url", "topic", "subscription_name", "consumer_name", "initial_position"),
            *("message_listener", "schema", "logger"),
        }
    ),
    allowed={"receive": ("loop", "listener", "batch"), "settle": ("auto", "ack", "cumulative", "none")},
    foreign={
        ("topic", "replication"): (
            "BookKeeper keeps the copies: set cluster.topology: bookies-3, or in cluster.config "
            "managedLedgerDefaultEnsembleSize, ...WriteQuorum and ...AckQuorum"
        ),
        (
            "topic",
            "config",
        ): "a topic has no settings of its own here: broker settings go into cluster.config",
        ("consumer", "commit_every"): "a consumer of pulsar acknowledges messages: see settle",
        ("consumer", "per_transaction"): _JMS_ONLY,
        ("consumer", "rollback_every"): _JMS_ONLY,
    },
    broker_config={
        "defaultRetentionTimeInMinutes": "the audit needs the whole log",
        "defaultRetentionSizeInMB": "the audit needs the whole log",
    },
)

_QPID: Final = System(
    name="qpid",
    client="qpid-jms-legacy",
    partitions=1,
    version="9.2.1",
    topologies=("node", "memory", "group"),
    harness_options=frozenset({"brokerlist", "clientid", "host", "port", "queue", "destination"}),
    allowed={"receive": ("loop", "listener"), "settle": ("auto", "ack", "transacted", "none")},
    foreign={
        ("topic", "replication"): "the nodes of a group hold the same queues: set cluster.topology: group",
        ("consumer", "commit_every"): "a consumer of qpid settles messages: see settle and per_transaction",
    },
)

SYSTEMS: Final[Mapping[str, System]] = {system.name: system for system in (_KAFKA, _PULSAR, _QPID)}
