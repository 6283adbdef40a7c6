"""Reads messages and their properties from Pulsar."""

from __future__ import annotations

import pulsar

from harness.contract.rig import RUN_TAG, Rig, WithHeaders

_READ_S = 20.0


def read(rig: Rig, topic: str) -> WithHeaders:
    """Value and properties of every message that is there."""
    address = rig.system.address(topic, RUN_TAG)
    count = rig.partitions[topic]
    client = pulsar.Client(rig.cluster.bootstrap)
    try:
        for name in [address] if count == 1 else [f"{address}-partition-{p}" for p in range(count)]:
            reader = client.create_reader(name, pulsar.MessageId.earliest)
            while reader.has_message_available():
                message = reader.read_next(timeout_millis=int(_READ_S * 1000))
                yield message.data(), dict(message.properties())
    finally:
        client.close()
