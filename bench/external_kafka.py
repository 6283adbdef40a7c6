"""Things of others on a Kafka cluster: topics with settings and messages, a group with offsets."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

_ASK_S: Final = 30.0
PREFIX: Final = "brokerstorm"
#: Topics of others: one is compacted, one drops soon, one is nearly called as ours are.
OTHERS: Final[Mapping[str, dict[str, str]]] = {
    "orders": {"min.insync.replicas": "2"},
    "customers": {"cleanup.policy": "compact"},
    "clicks": {"retention.ms": "86400000", "segment.bytes": "1048576"},
    f"{PREFIX}-plans": {"compression.type": "zstd"},
    f"{PREFIX}-0badcafe-orders": {},
}
GROUP: Final = "billing"


def fill(bootstrap: str, _admin_url: str) -> None:
    """Make the topics of others, with messages, and a group that read some of them."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = [NewTopic(name, 4, 3, config=config) for name, config in OTHERS.items()]
    for future in admin.create_topics(made, operation_timeout=_ASK_S).values():
        future.result()
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for name in OTHERS:
        for number in range(400):
            producer.produce(name, f"{name} {number}".encode(), f"key-{number % 40}".encode())
    if producer.flush(_ASK_S):
        raise SystemExit("the topics of others could not be filled")
    read = [TopicPartition("orders", partition, 7 + partition) for partition in range(4)]
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    reader.commit(offsets=read, asynchronous=False)
    reader.close()


def fingerprint(bootstrap: str, _admin_url: str) -> dict[str, Any]:
    """All that others have there: topics with replicas and settings, messages, groups with
    offsets."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = {
        n: t for n, t in admin.list_topics(timeout=_ASK_S).topics.items() if not n.startswith("__")
    }
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in sorted(topics)]
    settings = {
        one.name: {key: entry.value for key, entry in future.result().items()}
        for one, future in (admin.describe_configs(resources) if resources else {}).items()
    }
    groups = sorted(group.group_id for group in admin.list_consumer_groups().result().valid)
    return {
        "topics": {
            name: {number: sorted(part.replicas) for number, part in topic.partitions.items()}
            for name, topic in sorted(topics.items())
        },
        "settings": settings,
        "messages": {
            name: _messages(bootstrap, name, list(topics[name].partitions)) for name in topics
        },
        "groups": {group: _offsets(admin, group) for group in groups},
    }


def _messages(bootstrap: str, topic: str, partitions: list[int]) -> str:
    """A digest of all messages of a topic: offsets, times, keys and values."""
    reader = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False}
    )
    digest = hashlib.sha256()
    try:
        for number in sorted(partitions):
            at = TopicPartition(topic, number, 0)
            low, high = reader.get_watermark_offsets(at, timeout=_ASK_S)
            digest.update(f"{number} {low} {high}".encode())
            reader.assign([at])
            while low < high:
                message = reader.poll(_ASK_S)
                if message is None or message.error():
                    raise SystemExit(f"{topic}-{number} cannot be read at {low}")
                row = (message.offset(), message.timestamp(), message.key(), message.value())
                digest.update(repr(row).encode())
                low = (message.offset() or 0) + 1
    finally:
        reader.close()
    return digest.hexdigest()


def _offsets(admin: AdminClient, group: str) -> dict[str, int]:
    (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {
        f"{at.topic}-{at.partition}": at.offset for at in future.result().topic_partitions or ()
    }


def connection(folder: Path, bootstrap: str, _admin_url: str) -> Path:
    """A connection file of the cluster."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    identity = admin.describe_cluster().result(_ASK_S)
    path = folder / "staging.yaml"
    path.write_text(
        f"system: kafka\nyours: true\ncluster_id: {identity.cluster_id}\nbootstrap: {bootstrap}\n"
        f"topics: {{prefix: {PREFIX}}}\n"
    )
    return path
