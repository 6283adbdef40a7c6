"""Takes messages and their application properties from a queue of Qpid."""

from __future__ import annotations

import pika

from harness.admin.amqp_headers import take_with_headers
from harness.admin.probe import WithHeaders
from harness.connections.security import Security
from harness.systems.qpid import VIRTUAL_HOST
from harness.systems.qpid.probe import proof


def read(bootstrap: str, queue: str, partitions: int, security: Security) -> WithHeaders:
    """Value and properties of every message; takes them."""
    host, _, port = bootstrap.partition("/")[0].partition(",")[0].rpartition(":")
    how = proof(host, security)
    parameters = pika.ConnectionParameters(host, int(port), VIRTUAL_HOST, **how)
    yield from take_with_headers(pika.BlockingConnection(parameters), f"{queue}-{partitions - 1}")
