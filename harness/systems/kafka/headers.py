"""Reads messages and their headers from Kafka."""

from __future__ import annotations

import confluent_kafka as kafka

from harness.admin.probe import WithHeaders
from harness.connections.security import Security
from harness.errors import EnvironmentNotReady
from harness.systems.kafka.security import probe_options

_READ_S = 20.0


def read(bootstrap: str, topic: str, partitions: int, security: Security) -> WithHeaders:
    """Value and headers of every message, to the end of each partition.

    Raises:
        EnvironmentNotReady: there was nothing more to read before.
    """
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": f"headers-{topic}",
        **probe_options(security),
    }
    reader = kafka.Consumer(
        {**settings, "enable.partition.eof": True, "auto.offset.reset": "earliest"}
    )
    left = set(range(partitions))
    reader.assign([kafka.TopicPartition(topic, p, kafka.OFFSET_BEGINNING) for p in left])
    try:
        while left:
            # `consume` would wait for a whole batch after the last one
            message = reader.poll(_READ_S)
            if message is None:
                raise EnvironmentNotReady(f"{topic}: nothing more to read in {_READ_S:g} s")
            if message.error() is None:
                pairs = message.headers() or []
                yield (
                    message.value() or b"",
                    {name: (value or b"").decode(errors="replace") for name, value in pairs},
                )
            elif message.error().code() == kafka.KafkaError._PARTITION_EOF:
                left.discard(message.partition())
    finally:
        reader.close()
