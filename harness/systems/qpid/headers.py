"""Takes messages and their application properties from a queue of Qpid."""

from __future__ import annotations

from typing import Any

import pika

from harness.admin.probe import WithHeaders
from harness.connections.security import Security
from harness.systems.qpid import VIRTUAL_HOST
from harness.systems.qpid.probe import proof


def read(bootstrap: str, queue: str, partitions: int, security: Security) -> WithHeaders:
    """Value and properties of every message; takes them."""
    host, _, port = bootstrap.partition("/")[0].partition(",")[0].rpartition(":")
    how = proof(host, security)
    connection = pika.BlockingConnection(pika.ConnectionParameters(host, int(port), VIRTUAL_HOST, **how))
    try:
        channel = connection.channel()
        method, properties, value = channel.basic_get(f"{queue}-{partitions - 1}", auto_ack=True)
        while method is not None:
            yield value, {name: _text(each) for name, each in (properties.headers or {}).items()}
            method, properties, value = channel.basic_get(f"{queue}-{partitions - 1}", auto_ack=True)
    finally:
        connection.close()


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
