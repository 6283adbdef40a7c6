"""Apache Kafka: partitioned logs, positions are offsets, topics with settings of their own."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final

from harness.systems.base import Problem, Request, System, Texts

_COMMITS: Final = "consumers of kafka commit positions; leave it out, or see commit_every"
CORRELATION: Final = 0x42535432
_NAME_BYTES: Final = 32_000  # a client id is at most 32,767 bytes long
_SELECTOR: Final = "replica.selector.class"
_IN_SYNC: Final = "min.insync.replicas"
#: The audit needs the whole log.
_POLICY: Final = "cleanup.policy"
#: Policies under which the audit can tell a loss: all stays, or the last message of each key.
POLICIES: Final = ("delete", "compact")
KEEPS: Final = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}

#: Of a log that is audited while it grows: a reader may lag by minutes.
LEAST_RETENTION_MS: Final = 900_000

#: https://kafka.apache.org/protocol#protocol_api_keys
_REQUESTS: Final = {
    "Produce": 0,
    "Fetch": 1,
    "ListOffsets": 2,
    "Metadata": 3,
    "OffsetCommit": 8,
    "OffsetFetch": 9,
    "FindCoordinator": 10,
    "JoinGroup": 11,
    "Heartbeat": 12,
    "LeaveGroup": 13,
    "SyncGroup": 14,
    "ApiVersions": 18,
    "InitProducerId": 22,
    "OffsetForLeaderEpoch": 23,
    "AddPartitionsToTxn": 24,
    "AddOffsetsToTxn": 25,
    "EndTxn": 26,
    "WriteTxnMarkers": 27,
    "TxnOffsetCommit": 28,
    "ConsumerGroupHeartbeat": 68,
    "ShareGroupHeartbeat": 76,
    "ShareFetch": 78,
    "ShareAcknowledge": 79,
}

#: https://kafka.apache.org/protocol#protocol_error_codes
_ERRORS: Final = {
    "UNKNOWN_SERVER_ERROR": -1,
    "OFFSET_OUT_OF_RANGE": 1,
    "CORRUPT_MESSAGE": 2,
    "UNKNOWN_TOPIC_OR_PARTITION": 3,
    "LEADER_NOT_AVAILABLE": 5,
    "NOT_LEADER_OR_FOLLOWER": 6,
    "REQUEST_TIMED_OUT": 7,
    "BROKER_NOT_AVAILABLE": 8,
    "REPLICA_NOT_AVAILABLE": 9,
    "MESSAGE_TOO_LARGE": 10,
    "OFFSET_METADATA_TOO_LARGE": 12,
    "NETWORK_EXCEPTION": 13,
    "COORDINATOR_LOAD_IN_PROGRESS": 14,
    "COORDINATOR_NOT_AVAILABLE": 15,
    "NOT_COORDINATOR": 16,
    "INVALID_TOPIC_EXCEPTION": 17,
    "RECORD_LIST_TOO_LARGE": 18,
    "NOT_ENOUGH_REPLICAS": 19,
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND": 20,
    "ILLEGAL_GENERATION": 22,
    "UNKNOWN_MEMBER_ID": 25,
    "INVALID_SESSION_TIMEOUT": 26,
    "REBALANCE_IN_PROGRESS": 27,
    "TOPIC_AUTHORIZATION_FAILED": 29,
    "GROUP_AUTHORIZATION_FAILED": 30,
    "CLUSTER_AUTHORIZATION_FAILED": 31,
    "INVALID_TIMESTAMP": 32,
    "UNSUPPORTED_VERSION": 35,
    "NOT_CONTROLLER": 41,
    "POLICY_VIOLATION": 44,
    "OUT_OF_ORDER_SEQUENCE_NUMBER": 45,
    "DUPLICATE_SEQUENCE_NUMBER": 46,
    "INVALID_PRODUCER_EPOCH": 47,
    "INVALID_TXN_STATE": 48,
    "INVALID_PRODUCER_ID_MAPPING": 49,
    "INVALID_TRANSACTION_TIMEOUT": 50,
    "CONCURRENT_TRANSACTIONS": 51,
    "TRANSACTION_COORDINATOR_FENCED": 52,
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": 53,
    "KAFKA_STORAGE_ERROR": 56,
    "UNKNOWN_PRODUCER_ID": 59,
    "FETCH_SESSION_ID_NOT_FOUND": 70,
    "INVALID_FETCH_SESSION_EPOCH": 71,
    "FENCED_LEADER_EPOCH": 74,
    "UNKNOWN_LEADER_EPOCH": 75,
    "OFFSET_NOT_AVAILABLE": 78,
    "MEMBER_ID_REQUIRED": 79,
    "PREFERRED_LEADER_NOT_AVAILABLE": 80,
    "GROUP_MAX_SIZE_REACHED": 81,
    "FENCED_INSTANCE_ID": 82,
    "INVALID_RECORD": 87,
    "UNSTABLE_OFFSET_COMMIT": 88,
    "THROTTLING_QUOTA_EXCEEDED": 89,
    "PRODUCER_FENCED": 90,
    "UNKNOWN_TOPIC_ID": 100,
    "FENCED_MEMBER_EPOCH": 110,
    "STALE_MEMBER_EPOCH": 113,
    "TRANSACTION_ABORTABLE": 120,
}

#: Errors that brokers do not expect a client to try again after.
_FATAL: Final = (
    "UNKNOWN_SERVER_ERROR",
    "MESSAGE_TOO_LARGE",
    "OFFSET_METADATA_TOO_LARGE",
    "INVALID_TOPIC_EXCEPTION",
    "RECORD_LIST_TOO_LARGE",
    "INVALID_SESSION_TIMEOUT",
    "TOPIC_AUTHORIZATION_FAILED",
    "GROUP_AUTHORIZATION_FAILED",
    "CLUSTER_AUTHORIZATION_FAILED",
    "INVALID_TIMESTAMP",
    "UNSUPPORTED_VERSION",
    "POLICY_VIOLATION",
    "INVALID_TXN_STATE",
    "INVALID_TRANSACTION_TIMEOUT",
    "TRANSACTION_COORDINATOR_FENCED",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    "GROUP_MAX_SIZE_REACHED",
    "FENCED_INSTANCE_ID",
    "INVALID_RECORD",
    "PRODUCER_FENCED",
    "TRANSACTION_ABORTABLE",
)

#: A batch that was stored before is acknowledged (KIP-98); a producer whose state the broker lost
#: takes a new id or epoch and numbers its batches anew, so that no broker recognizes a repeat
#: (KIP-360); a consumer goes to the position that auto.offset.reset names; a member joins again
#: under another id, and the coordinator waits for the one of before until its session ends.
_PERMITS: Final = {
    "DUPLICATE_SEQUENCE_NUMBER": "acknowledge",
    "OUT_OF_ORDER_SEQUENCE_NUMBER": "renumber",
    "UNKNOWN_PRODUCER_ID": "renumber",
    "INVALID_PRODUCER_EPOCH": "renumber",
    "INVALID_PRODUCER_ID_MAPPING": "renumber",
    "OFFSET_OUT_OF_RANGE": "reposition",
    "UNKNOWN_MEMBER_ID": "rejoin",
    **dict.fromkeys(_FATAL, "give-up"),
}


class Kafka(System):
    """Apache Kafka: its settings, the names of topics, and what it can do."""

    name = "kafka"
    client = "confluent-kafka"
    version = "4.1.2"
    audit = ("confluent-kafka", "")
    is_default = True
    partitions = 12
    harness_libraries = ("kafka-python", "confluent-kafka")
    allowed = {"receive": ("loop",), "settle": ("auto", "ack")}
    auto_settle = "auto"
    foreign = {
        ("consumer", "per_transaction"): _COMMITS,
        ("consumer", "rollback_every"): _COMMITS,
    }
    options_since = {("group.protocol", "consumer"): "4.0.0", ("group.type", "share"): "4.2.0"}
    #: Members that start together join in one rebalance, and not in two that are a heartbeat apart.
    quick_config = {"group.initial.rebalance.delay.ms": "300"}
    config_form = "properties"
    config_left_aside = (
        r"(ssl|sasl|security|listener\.name|zookeeper|kafka\.metrics|metric)\.|authorizer\.|super\.users$|"
        r"principal\.builder|early\.start\.listeners$|control\.plane\.listener"
    )
    copies = ("replica", "replicas")
    stored_overhead_bytes = 30
    keeps_leaders = True
    term = "epoch"
    has_offsets = True
    size_setting = "max.message.bytes"
    changeable = (
        *(
            _IN_SYNC,
            "max.message.bytes",
            "flush.messages",
            "flush.ms",
            "segment.bytes",
            "segment.ms",
        ),
        *("compression.type", "index.interval.bytes", "retention.ms", "retention.bytes"),
    )
    change_request = "IncrementalAlterConfigs topic {topic}"
    follows_from_s = 45.0
    forgets_read = True
    reads_replicas = True
    runs_applications = True
    append_time = {"message.timestamp.type": "LogAppendTime"}
    names_group_members = True
    grows_topics = True
    log_stamps = ("[{time}] {level} ",)
    client_requests = {
        "Produce": ("NOT_LEADER_OR_FOLLOWER", "NOT_ENOUGH_REPLICAS", "REQUEST_TIMED_OUT"),
        "Fetch": ("NOT_LEADER_OR_FOLLOWER",),
        "EndTxn": ("COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR"),
        "AddPartitionsToTxn": ("COORDINATOR_LOAD_IN_PROGRESS", "CONCURRENT_TRANSACTIONS"),
        "OffsetCommit": ("COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR"),
        "Heartbeat": ("REBALANCE_IN_PROGRESS",),
        "Metadata": (),
        "JoinGroup": ("COORDINATOR_NOT_AVAILABLE",),
        "FindCoordinator": (),
        "InitProducerId": ("COORDINATOR_LOAD_IN_PROGRESS",),
    }
    transactional_requests = ("AddPartitionsToTxn", "EndTxn")
    request_kinds = _REQUESTS
    answer_errors = _ERRORS
    answer_acts = ("error", "before", "drop", "delay", "throttle", "close", "stale", "flip")
    answer_permits = _PERMITS
    file_kinds = {
        "unused": ("*-delete/*",),
        "metadata": (
            "__cluster_metadata-0/*",
            *("*checkpoint", "*checkpoint.tmp", "*checkpoint.part"),
            "*/partition.metadata",
            "*.properties",
        ),
        "log": ("*/*.log",),
        "index": ("*/*.index", "*/*.timeindex", "*/*.txnindex"),
        "snapshot": ("*/*.snapshot",),
    }
    stream_folders = True
    bootstrap_form = "HOST:9092,HOST:9092"
    ask_id = "`kafka-cluster.sh cluster-id --bootstrap-server HOST:PORT`"
    mechanisms = ("plain", "scram-sha-256", "scram-sha-512", "oauthbearer")
    log_leader = r"\] Leader {stream} .*starts at leader epoch"
    subscription = "group"

    def cluster_problems(self, topology: str, config: Texts) -> Iterator[Problem]:
        if config.get(_IN_SYNC, "1") not in {"1", "2", "3"}:
            yield _IN_SYNC, "must be 1, 2 or 3"

    def cluster_warnings(self, configs: Sequence[Texts]) -> Iterator[str]:
        racks = {config["broker.rack"] for config in configs if "broker.rack" in config}
        is_asked = any(
            config.get(_SELECTOR, "").endswith(".RackAwareReplicaSelector") for config in configs
        )
        if is_asked and len(racks) < 2:
            yield (
                f"cluster.config: {_SELECTOR} has no effect: no two brokers have different racks; write "
                "broker.rack: {kafka-1: az-1, kafka-2: az-2, kafka-3: az-3}"
            )

    def topic_problems(self, replication: int, config: Texts) -> Iterator[Problem]:
        """The log must stay until it is read, but for what compaction removes, and every write must
        be possible with all brokers up."""
        if config.get(_POLICY, "delete") not in POLICIES:
            yield _POLICY, f"must be {' or '.join(POLICIES)}: the audit needs the whole log"
        for key, needed in KEEPS.items():
            if key == _POLICY:
                continue
            asked = config.get(key, needed)
            may_go = key == "retention.ms" and asked.isdigit()
            least = f", or {LEAST_RETENTION_MS} or more" if may_go else ""
            if asked != needed and not (may_go and int(asked) >= LEAST_RETENTION_MS):
                yield key, f"must be {needed}{least}: the audit needs the whole log"
        wanted = config.get(_IN_SYNC, "1")
        if not wanted.isdigit() or not 1 <= int(wanted) <= replication:
            yield _IN_SYNC, f"must be a number from 1 to replication ({replication})"

    def change_problems(self, replication: int, config: Texts) -> Iterator[Problem]:
        """Refuse a change after which fewer replicas must have a message than an acknowledgement
        promises."""
        yield from super().change_problems(replication, config)
        in_sync = config.get(_IN_SYNC, "2")
        if not (in_sync.isdigit() and int(in_sync) >= min(2, replication)):
            yield _IN_SYNC, "below 2 an acknowledgement promises less"

    def topic_config(self, config: Texts, replication: int, broker_config: Texts) -> dict[str, str]:
        """Every topic keeps its whole log and says itself how many replicas a write needs."""
        in_sync = broker_config.get(_IN_SYNC, str(min(2, replication)))
        return {**KEEPS, _IN_SYNC: in_sync, **config}

    def keeps_last_of_key(self, topic_config: Texts) -> bool:
        return topic_config.get(_POLICY) == "compact"

    def retention(self, seconds: float) -> dict[str, str]:
        kept_ms = max(int(seconds * 1000), LEAST_RETENTION_MS)
        # only whole segments go
        return {"retention.ms": str(kept_ms), "segment.ms": str(kept_ms // 4)}

    def retention_s(self, topic_config: Texts) -> float | None:
        asked = topic_config.get("retention.ms", "")
        return int(asked) / 1000 if asked.isdigit() else None

    def replication(self, asked: int, topology: str, broker_config: Texts) -> int:
        return asked

    def size_limit(self, topic_config: Texts, broker_config: Texts) -> int:
        limit = (
            topic_config.get(self.size_setting)
            or broker_config.get("message.max.bytes")
            or "1048588"
        )
        return int(limit) if limit.isdigit() else 0

    def name_key(self, topic: str) -> str:
        """Metrics have underscores for dots, so the brokers refuse ``a.b`` if there is ``a_b``."""
        return topic.replace(".", "_")

    def log_names(self, address: str, partition: int, partitions: int) -> tuple[str, ...]:
        return (f"{address}-{partition}",)

    def request(self, port: str, ballast: int = 0) -> Request | None:
        return api_versions(ballast) if port in ("client", "peer", "controller") else None


def api_versions(ballast: int = 0) -> Request:
    """ApiVersions v0 (KIP-35): answered by brokers and controllers alike, with a client id of any
    length; as many requests as it takes."""
    sizes = [min(_NAME_BYTES, ballast - at) for at in range(0, ballast, _NAME_BYTES)] or [0]
    bodies = [struct.pack(">hhih", 18, 0, CORRELATION, size) + b"x" * size for size in sizes]
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies), len(bodies)


SYSTEM = Kafka()
