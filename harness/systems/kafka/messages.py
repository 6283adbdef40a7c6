"""Reads a whole topic as readers of committed data see it: the outputs of an application under
test."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from harness.connections.security import Security
from harness.contracts.rows import Bounds
from harness.errors import EnvironmentNotReady
from harness.protocols.cluster import StoredMessage
from harness.systems.kafka.security import probe_options
from harness.waiting import wait_until

_BATCH: Final = 10_000
_ANSWER_S: Final = 5.0
#: An open transaction of a process that was killed is aborted by its coordinator after its own
#: timeout.
_PAUSE_S: Final = 0.2


def read(
    bootstrap: str,
    security: Security,
    topic: str,
    partitions: Sequence[int],
    take: Callable[[StoredMessage], None],
    *,
    timeout_s: float,
    last: int = 0,
) -> list[Bounds]:
    """Hand every committed message of a topic to ``take``; how far each partition was read.

    ``last``: begin so many offsets before the end of each partition; 0 = at its begin.

    The end of each partition is its high watermark at the start. A transaction that is open there
    holds the reader back until it is committed or aborted. If that takes too long, the partition is
    not read whole.

    Raises:
        EnvironmentNotReady: the brokers do not say where a partition begins and ends.
    """
    give_up = time.monotonic() + timeout_s
    ends = _spans(bootstrap, security, topic, partitions, give_up)
    begins = {p: max(low, high - last) if last else low for p, (low, high) in ends.items()}
    read_to = dict(begins)
    consumer = _consumer(bootstrap, security, "read_committed")
    try:
        consumer.assign(
            [
                TopicPartition(topic, p, begins[p])
                for p, (_, high) in ends.items()
                if begins[p] < high
            ]
        )
        while (
            any(read_to[p] < high for p, (_, high) in ends.items()) and time.monotonic() < give_up
        ):
            for message in consumer.consume(num_messages=_BATCH, timeout=_PAUSE_S):
                partition, position = message.partition(), message.offset()
                error = message.error()
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF and partition in read_to:
                        # markers and aborted messages before it were passed
                        read_to[partition] = max(read_to[partition], position)
                    continue
                if not read_to[partition] <= position < ends[partition][1]:
                    continue
                kind, t_ms = message.timestamp()
                take(
                    StoredMessage(
                        partition,
                        position,
                        t_ms if kind == TIMESTAMP_LOG_APPEND_TIME else 0,
                        message.key() or b"",
                        message.value() or b"",
                        message.headers() or (),
                    )
                )
                read_to[partition] = position + 1
    finally:
        consumer.close()
    return [
        Bounds(
            begin=begins[partition],
            end=high,
            read_to=min(read_to[partition], high),
            why="end" if read_to[partition] >= high else "deadline",
            isolation="outputs",
            stream=f"{topic}-{partition}",
        )
        for partition, (_, high) in ends.items()
    ]


def _spans(
    bootstrap: str, security: Security, topic: str, partitions: Sequence[int], give_up: float
) -> dict[int, tuple[int, int]]:
    """Partition -> its first offset, and its high watermark: transactions that are open count."""
    consumer = _consumer(bootstrap, security, "read_uncommitted")
    found: dict[int, tuple[int, int]] = {}

    def is_whole() -> bool:
        for partition in partitions:
            if partition in found:
                continue
            try:
                bounds = consumer.get_watermark_offsets(
                    TopicPartition(topic, partition), timeout=_ANSWER_S
                )
            except KafkaException:
                return False
            if bounds is None:
                return False
            found[partition] = bounds
        return True

    try:
        if not wait_until(is_whole, max(0.0, give_up - time.monotonic()), every_s=_PAUSE_S):
            missing = [f"{topic}-{p}" for p in partitions if p not in found]
            raise EnvironmentNotReady(
                f"brokers do not say where {', '.join(missing[:5])} begins and ends"
            )
    finally:
        consumer.close()
    return found


def _consumer(bootstrap: str, security: Security, isolation: str) -> Consumer:
    quiet = logging.getLogger(f"{__name__}.client")
    quiet.setLevel(logging.CRITICAL)
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "brokerstorm-outputs",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "reconnect.backoff.max.ms": 500,
            **probe_options(security),
        },
        logger=quiet,
    )
