"""Sends orders, and reads them back."""

from __future__ import annotations

import time
from collections.abc import Mapping
from threading import Event
from typing import Any, Final

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

#: The settings that we ship.
SETTINGS: Final[Mapping[str, str | int | bool]] = {
    "acks": "all",
    "enable_idempotence": True,
    "linger_ms": 5,
}


def send_until(stop: Event, bootstrap: str, topic: str, every_s: float = 0.005) -> list[int]:
    """Send orders 0, 1, 2 ... until told to stop; those that Kafka acknowledged."""
    producer = KafkaProducer(bootstrap_servers=bootstrap.split(","), **SETTINGS)
    sent: list[Any] = []
    while not stop.is_set():
        sent.append(producer.send(topic, str(len(sent)).encode()))
        time.sleep(every_s)
    producer.flush()
    producer.close()
    return [number for number, future in enumerate(sent) if future.succeeded()]


def stored(bootstrap: str, topic: str, partition: int = 0) -> list[int]:
    """Every order of a partition, as it lies there."""
    place = TopicPartition(topic, partition)
    consumer = KafkaConsumer(bootstrap_servers=bootstrap.split(","), auto_offset_reset="earliest")
    consumer.assign([place])
    end = consumer.end_offsets([place])[place]
    found: list[int] = []
    while consumer.position(place) < end:
        for records in consumer.poll(timeout_ms=500).values():
            found += [int(record.value) for record in records]
    consumer.close()
    return found
