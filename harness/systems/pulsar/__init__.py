"""Apache Pulsar: topics in bundles of a namespace, kept by bookies, with subscriptions of several
types."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final

from harness.errors import ScenarioError
from harness.systems.base import Problem, Request, System, Texts

_JMS_ONLY: Final = "only JMS clients have consumer transactions; leave it out"
_WHOLE_LOG: Final = "the audit needs the whole log"
_WHOLE: Final = re.compile(r"0|-?[1-9]\d*")
_SMALL, _THREE_BOOKIES = "small", "bookies-3"
#: BaseCommand CONNECT with the client version "bs" and protocol version 0 (PulsarApi.proto).
_CONNECT: Final = bytes.fromhex("080212060a0262732000")
#: BookKeeper's protocol 2: length, then version, operation and flags in one word, ledger, entry.
#: The ledger is never given out: a bookie answers that it has none.
READ_ENTRY: Final = 2
_READ: Final = struct.pack(">iiqq", 20, 2 << 24 | READ_ENTRY << 16, 2**62, 0)
#: Name of a port -> a request that is answered at once.
REQUESTS: Final = {
    "client": struct.pack(">ii", len(_CONNECT) + 4, len(_CONNECT)) + _CONNECT,
    "zookeeper": b"ruok",
    "bookie": _READ,
}


_RATE: Final = {
    "dispatchThrottlingRateInMsg": -1,
    "dispatchThrottlingRateInByte": -1,
    "relativeToPublishRate": False,
    "ratePeriodInSecond": 1,
}
#: Policies of a namespace that remove nothing, by their names in the admin API, and what they are
#: where they were not set: one value, or several by name.
POLICIES: Final[Mapping[str, Any]] = {
    "publishRate": {"publishThrottlingRateInMsg": -1, "publishThrottlingRateInByte": -1},
    "dispatchRate": _RATE,
    "subscriptionDispatchRate": _RATE,
    "subscribeRate": {"subscribeThrottlingRatePerConsumer": -1, "ratePeriodInSecond": 30},
    "maxProducersPerTopic": 0,
    "maxConsumersPerTopic": 0,
    "maxSubscriptionsPerTopic": 0,
    "maxConsumersPerSubscription": 0,
    "maxUnackedMessagesPerConsumer": 0,
    "maxUnackedMessagesPerSubscription": 0,
    "deduplication": False,
}
#: As settings: ``maxProducersPerTopic``, ``publishRate.publishThrottlingRateInMsg``.
SETTINGS: Final = {
    f"{policy}.{key}" if key else policy: default
    for policy, found in POLICIES.items()
    for key, default in (found.items() if isinstance(found, Mapping) else [("", found)])
}

#: BaseCommand.Type of PulsarApi.proto.
_REQUESTS: Final = {
    "SUBSCRIBE": 4,
    "PRODUCER": 5,
    "SEND": 6,
    "ACK": 10,
    "FLOW": 11,
    "UNSUBSCRIBE": 12,
    "CLOSE_PRODUCER": 15,
    "CLOSE_CONSUMER": 16,
    "PING": 18,
    "REDELIVER_UNACKNOWLEDGED_MESSAGES": 20,
    "PARTITIONED_METADATA": 21,
    "LOOKUP": 23,
    "SEEK": 28,
    "GET_LAST_MESSAGE_ID": 29,
    "NEW_TXN": 50,
    "ADD_PARTITION_TO_TXN": 52,
    "ADD_SUBSCRIPTION_TO_TXN": 54,
    "END_TXN": 56,
    "END_TXN_ON_PARTITION": 58,
    "END_TXN_ON_SUBSCRIPTION": 60,
}

#: ServerError of PulsarApi.proto.
_ERRORS: Final = {
    "UnknownError": 0,
    "MetadataError": 1,
    "PersistenceError": 2,
    "AuthenticationError": 3,
    "AuthorizationError": 4,
    "ConsumerBusy": 5,
    "ServiceNotReady": 6,
    "ProducerBlockedQuotaExceededError": 7,
    "ProducerBlockedQuotaExceededException": 8,
    "ChecksumError": 9,
    "UnsupportedVersionError": 10,
    "TopicNotFound": 11,
    "SubscriptionNotFound": 12,
    "ConsumerNotFound": 13,
    "TooManyRequests": 14,
    "TopicTerminatedError": 15,
    "ProducerBusy": 16,
    "InvalidTopicName": 17,
    "IncompatibleSchema": 18,
    "ConsumerAssignError": 19,
    "TransactionCoordinatorNotFound": 20,
    "InvalidTxnStatus": 21,
    "NotAllowedError": 22,
    "TransactionConflict": 23,
    "TransactionNotFound": 24,
    "ProducerFenced": 25,
}
#: Errors that tell a client that another try makes no difference.
_FATAL: Final = (
    "AuthenticationError",
    "AuthorizationError",
    "UnsupportedVersionError",
    "TopicNotFound",
    "SubscriptionNotFound",
    "TopicTerminatedError",
    "InvalidTopicName",
    "IncompatibleSchema",
    "NotAllowedError",
    "InvalidTxnStatus",
    "TransactionConflict",
    "TransactionNotFound",
    "ProducerFenced",
)


#: Settings by which brokers remove more than a message of a backlog at its limit.
_DROPS_ALL = {
    "subscriptionExpirationTimeMinutes": "it removes a subscription without consumers, and its backlog",
    "brokerDeleteInactiveTopicsEnabled": "it removes topics that the audit has to read",
}


class Pulsar(System):
    """Apache Pulsar: its settings, the names of topics, and what it can do."""

    name = "pulsar"
    client = "pulsar-client-java"
    version = "4.0.8"
    audit = ("pulsar-client-java", "4.0.8")  # only Java shows the sequence ids of what is stored
    follows_from_s = 300.0
    topologies = (_SMALL, _THREE_BOOKIES)
    harness_libraries = ("pulsar-client",)
    allowed = {
        "receive": ("loop", "listener", "batch"),
        "settle": ("auto", "ack", "cumulative", "none"),
    }
    foreign = {
        ("topic", "replication"): (
            f"BookKeeper keeps the copies: set cluster.topology: {_THREE_BOOKIES}, or in cluster.config "
            "managedLedgerDefaultEnsembleSize, ...WriteQuorum and ...AckQuorum"
        ),
        ("topic", "config"): (
            "a topic has no settings of its own here: broker settings go into cluster.config"
        ),
        ("consumer", "per_transaction"): _JMS_ONLY,
        ("consumer", "rollback_every"): _JMS_ONLY,
    }
    config_form = "properties"
    config_left_aside = (
        r"tls|brokerClient|authenti|authoriz|superUser|proxyRoles|sasl|kinit|jwt|anonymous|webServiceTls|"
        r"brokerServicePortTls|webServicePortTls|athenz|openID|token|kerberos|bookkeeperClientAuth|"
        r"bookkeeperTLS|.*(KeyStore|TrustStore|Certificate|PrivateKey|Password|Secret)|"
        r"metadataStore|zooKeeper|zookeeper|configurationStore|functionsWorker|"
        r".*[Dd]irectory$|advertised|loadManager"
    )
    stored_overhead_bytes = 250
    store_role = "bookie"
    reads_replicas = True
    reads_uncommitted = False  # of a topic, whatever a client asks for
    transactional_config = {
        "transactionCoordinatorEnabled": "true",
        "systemTopicEnabled": "true",  # topics remember in one which transactions were aborted
    }
    log_stamps = ("[{time}] {level} ", "{time} [{*}] {level} ")  # ours, the official image's
    client_requests = {
        "SEND": ("PersistenceError", "UnknownError"),
        "ACK": (),
        "LOOKUP": ("ServiceNotReady",),
        "PRODUCER": ("ServiceNotReady", "TooManyRequests"),
        "SUBSCRIBE": ("ServiceNotReady", "TooManyRequests"),
        "PARTITIONED_METADATA": ("ServiceNotReady",),
    }
    request_kinds = _REQUESTS
    answer_errors = _ERRORS
    answer_acts = ("error", "before", "drop", "delay", "close", "detach", "twice")
    unanswered = ("FLOW", "PING", "REDELIVER_UNACKNOWLEDGED_MESSAGES")
    closing_kinds = ("SEND", "ACK", "FLOW")
    answer_permits = dict.fromkeys(_FATAL, "give-up")
    skipped_permits = {"SEND": "overtake"}  # a broker that refuses a message closes its producer
    file_kinds = {  # of bookies and of ZooKeeper
        "metadata": ("version-2/log.*", "*/VERSION"),
        "snapshot": ("version-2/snapshot.*",),
        "log": ("*.log", "*.txn"),
        "index": ("*.sst", "*.idx"),
    }
    bootstrap_form = "pulsar://HOST:6650,HOST:6650"
    admin_form = "http://HOST:8080,HOST:8080"
    made_form = "of namespaces, [TENANT/]<prefix>-<run tag>"
    copies_default = "the brokers'"
    ask_id = "`pulsar-admin clusters get NAME`: NAME@ and host:port of its service URL"
    mechanisms = ("token", "oauth2")
    plain_ports = ("bookie", "zookeeper")
    log_leader = "Created topic {stream} "  # a broker loaded it
    term = "ledger"
    changeable = tuple(SETTINGS)
    changes_namespace = True
    change_request = "admin REST, policies of the run's namespace"
    broker_config = {
        "defaultRetentionTimeInMinutes": _WHOLE_LOG,
        "defaultRetentionSizeInMB": _WHOLE_LOG,
        "loadManagerClassName": "owners are read in ZooKeeper, where no other load manager writes them",
    }

    def cluster_problems(self, topology: str, config: Texts) -> Iterator[Problem]:
        """Check the settings of a ledger: ensemble >= write quorum >= ack quorum, and not more than
        there are bookies.
        """
        for key, why in _DROPS_ALL.items():
            if config.get(key, "0").strip().lower() not in ("0", "-1", "false", ""):
                yield key, f"must be off: {why}"
        most = 3 if topology == _THREE_BOOKIES else 1
        limit = f"topology {topology or _SMALL} has {most} of them"
        if most == 1:
            limit += f": write cluster.topology: {_THREE_BOOKIES}"
        for which in ("EnsembleSize", "WriteQuorum", "AckQuorum"):
            key = _quorum_key(which)
            if key not in config:
                continue
            text = config[key]
            if not text.isdigit() or not 1 <= int(text) <= most:
                range_words = "1 bookie" if most == 1 else f"from 1 to {most} bookies"
                yield key, f"must be {range_words}; {limit}"
                return
            most, limit = int(text), f"{key} is {text}"

    def change_problems(self, replication: int, config: Texts) -> Iterator[Problem]:
        """Values must be those that brokers answer with, and take no promise back."""
        yield from super().change_problems(replication, config)
        for key, text in config.items():
            default = SETTINGS.get(key)
            if isinstance(default, bool):
                if text not in ("true", "false"):
                    yield key, "must be true or false"
                elif key == "deduplication" and text == "false":
                    yield key, "without it a message that is sent again may be stored twice"
            elif default is not None and not (
                _WHOLE.fullmatch(text) and int(text) >= min(default, 1)
            ):
                yield key, f"must be a whole number, {min(default, 1)} or more"

    def replication(self, asked: int, topology: str, broker_config: Texts) -> int:
        key = _quorum_key("WriteQuorum")
        text = broker_config.get(key, "2" if topology == _THREE_BOOKIES else "1")
        if text not in {"1", "2", "3"}:
            raise ScenarioError(f"cluster.config.{key}: must be 1, 2 or 3, got {text!r}")
        return int(text)

    def size_limit(self, topic_config: Texts, broker_config: Texts) -> int:
        limit = broker_config.get("maxMessageSize", "5242880")
        return int(limit) if limit.isdigit() else 0

    def namespace(self, run_tag: int, prefix: str = "") -> str:
        tenant, _, name = prefix.rpartition("/")
        return f"{tenant or 'public'}/{name or 'bs'}-{run_tag:08x}"

    def address(self, topic: str, run_tag: int, prefix: str = "") -> str:
        return f"persistent://{self.namespace(run_tag, prefix)}/{topic}"

    def log_names(self, address: str, partition: int, partitions: int) -> tuple[str, ...]:
        """The topic's, and its managed ledger's."""
        full = address if partitions == 1 else f"{address}-partition-{partition}"
        domain, _, path = full.partition("://")
        namespace, _, local = path.rpartition("/")
        return full, f"{namespace}/{domain}/{local}"

    def request(self, port: str, ballast: int = 0) -> Request | None:
        data = REQUESTS.get(port)
        return None if data is None else (data, 1)


def _quorum_key(which: str) -> str:
    return f"managedLedgerDefault{which}"


SYSTEM = Pulsar()
