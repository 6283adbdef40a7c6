"""Keys of other load tools and of applications, and what they are called in a scenario."""

from __future__ import annotations

from typing import Final

from harness.errors import called_here

#: Tool -> its keys and options -> where they belong in a scenario, or why they have no place in
#: one.
OTHER_WORDS: Final[dict[str, dict[str, str]]] = {
    "OpenMessaging Benchmark": {
        "messageSize": "`load.payload`",
        "payloadFile": "`load.payload`: a size; the content of messages is made here",
        "randomBytesRatio": "`load.payload: {bytes: ..., compressible: ...}`",
        "producerRate": "`load.rate`",
        "testDurationMinutes": "`load.duration`, such as `15m`",
        "warmupDurationMinutes": "`load.warm_up`, such as `1m`",
        "partitionsPerTopic": "`topics.NAME.partitions`",
        "replicationFactor": "`topics.NAME.replication`",
        "topicConfig": "`topics.NAME.config`",
        "producersPerTopic": "`load.producers.NAME.count`",
        "consumerPerSubscription": "`load.consumers.NAME.count`",
        "subscriptionsPerTopic": "several entries of `load.consumers`, each with its own `group`",
        "keyDistributor": "`load.producers.NAME.lanes: key`",
        "consumerBacklogSizeGB": "`load.consumers.NAME.joins_after`: how long messages pile up",
        "driverClass": "`client` of the producer or consumer",
        "commonConfig": "`options` of the producer or consumer, or `options: {file: ...}`",
        "producerConfig": "`options` of the producer or consumer, or `options: {file: ...}`",
        "consumerConfig": "`options` of the producer or consumer, or `options: {file: ...}`",
    },
    "kafka-producer-perf-test": {
        "record-size": "`load.payload`",
        "num-records": "`load.rate` times `load.duration`",
        "throughput": "`load.rate`; without a limit: `load.unlimited: true`",
        "producer-props": "`options` of the producer",
        "producer.config": "`options: {file: producer.properties}`",
        "transaction-duration-ms": "`load.producers.NAME.transactions: {every: ...}`",
    },
    "pulsar-perf": {
        "rate": "`load.rate`",
        "size": "`load.payload`",
        "num-topics": "`topics.NAME.count`",
        "num-producers": "`load.producers.NAME.count`",
        "num-consumers": "`load.consumers.NAME.count`",
        "num-messages": "`load.rate` times `load.duration`",
        "test-duration": "`load.duration`",
        "subscription-type": "`options: {subscriptionType: Shared}` of the consumer",
        "receiver-queue-size": "`options: {receiverQueueSize: ...}` of the consumer",
        "max-outstanding": "`options: {maxPendingMessages: ...}` of the producer",
        "batch-time-window": "`options: {batchingMaxPublishDelayMicros: ...}` of the producer",
    },
    "k6": {
        "vus": "`load.producers.NAME.count`; the rate is `load.rate`, whatever the count",
        "iterations": "`load.rate` times `load.duration`",
        "stages": "`load.profile`",
        "thresholds": "`require`, such as `latency_p99: 500ms`",
        "gracefulStop": "`limits.drain`",
        "scenarios": "`variants`, or several entries of `load.producers`",
    },
    "applications": {
        "deliver_at": "`load.producers.NAME.deliver_after: 5s`",
        "pause": "`load.consumers.NAME.pauses: {every: 5s, for: 2s}`",
        "resume": "`load.consumers.NAME.pauses: {every: 5s, for: 2s}`",
        "seek": "`load.consumers.NAME.seeks: {every: 10s, back: 500}`",
        "topics_pattern": "`load.consumers.NAME.pattern: orders-.*`",
        "auto_commit": "`load.consumers.NAME.commit: auto`",
        "auto_offset_reset": "`load.consumers.NAME.start: latest`",
        "group_id": "`load.consumers.NAME.group`",
    },
}


def other_word(key: object) -> str:
    """A sentence about a key of another tool for the end of a message; empty = it is none."""
    return called_here(str(key), OTHER_WORDS)
