"""Reads messages and their properties from Pulsar."""

from __future__ import annotations

import pulsar

from harness.admin.probe import WithHeaders
from harness.connections.security import Security
from harness.systems.pulsar.probe import secured

_READ_S = 20.0


def read(bootstrap: str, address: str, partitions: int, security: Security) -> WithHeaders:
    """Value and properties of every message that is there."""
    client = pulsar.Client(bootstrap, **secured(security))
    try:
        for name in (
            [address]
            if partitions == 1
            else [f"{address}-partition-{p}" for p in range(partitions)]
        ):
            reader = client.create_reader(name, pulsar.MessageId.earliest)
            while reader.has_message_available():
                message = reader.read_next(timeout_millis=int(_READ_S * 1000))
                yield message.data(), dict(message.properties())
    finally:
        client.close()
