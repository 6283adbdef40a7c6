"""Readiness of Kafka topics: what their metadata lacks, and probe messages that prove that they
work."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from confluent_kafka import KafkaError, Message, Producer
from kafka.errors import for_code

from harness.admin.failover import LOGS_HINT
from harness.admin.probe import PROBE_KEY, probe_payload
from harness.connections.security import ANYBODY, Security
from harness.errors import EnvironmentNotReady
from harness.systems.kafka.security import probe_options
from harness.systems.kafka.single import TopicRow


def missing_parts(topic: str, row: TopicRow | None, names: Mapping[int, str]) -> list[str]:
    """Return what a topic's metadata lacks: existence, leaders, replicas in sync. Empty if it lacks
    nothing.
    """
    if row is None or row["error_code"]:
        why = for_code(row["error_code"]).__name__ if row else "no metadata"
        return [f"topic {topic}: {why}"]
    missing = []
    for part in sorted(row["partitions"], key=lambda part: part["partition_index"]):
        stream = f"{topic}-{part['partition_index']}"
        out = [names.get(n, str(n)) for n in part["replica_nodes"] if n not in part["isr_nodes"]]
        if part["leader_id"] not in names:
            missing.append(f"{stream} has no leader")
        elif out:
            missing.append(f"{stream}: {', '.join(out)} not in sync")
    return missing


class Probes:
    """Messages of kind PROBE through the client endpoints, acknowledged by all replicas."""

    def __init__(self, bootstrap: str, run_tag: int, security: Security = ANYBODY.clients) -> None:
        self._bootstrap = bootstrap
        self._run_tag = run_tag
        self._security = security

    def through(self, partitions: Mapping[str, int], *, timeout_s: float) -> None:
        """Store one probe in each partition of each topic (name -> partitions).

        Raises:
            EnvironmentNotReady: the partitions that took none in time.
        """
        waiting = {
            f"{topic}-{p}": "no answer" for topic, count in partitions.items() for p in range(count)
        }
        if not waiting:
            return
        limit_s = max(1.0, timeout_s)
        producer = self._producer(limit_s)

        def delivered(error: KafkaError | None, message: Message) -> None:
            stream = f"{message.topic()}-{message.partition()}"
            if error is None:
                waiting.pop(stream, None)
            else:
                waiting[stream] = error.name()

        for topic, count in partitions.items():
            for partition in range(count):
                payload = probe_payload(self._run_tag, lane=partition)
                producer.produce(
                    topic, value=payload, key=PROBE_KEY, partition=partition, on_delivery=delivered
                )
        producer.flush(limit_s)
        if waiting:
            shown = ", ".join(f"{stream} ({why})" for stream, why in sorted(waiting.items())[:5])
            raise EnvironmentNotReady(
                f"{len(waiting)} partitions took no probe message in {limit_s:.0f} s: {shown}",
                hint=LOGS_HINT,
            )

    def _producer(self, timeout_s: float) -> Producer:
        quiet = logging.getLogger(f"{__name__}.client")
        quiet.setLevel(logging.CRITICAL)  # refused connections are expected here
        config = {
            "bootstrap.servers": self._bootstrap,
            "client.id": "brokerstorm-probe",
            "acks": "all",
            # Also shows that producer ids are given out, which the first idempotent client needs.
            "enable.idempotence": True,
            "message.timeout.ms": int(timeout_s * 1000),
            "socket.timeout.ms": 3000,
            "reconnect.backoff.max.ms": 500,
            "linger.ms": 0,
            **probe_options(self._security),
        }
        return Producer(config, logger=quiet)
