"""Takes messages and their headers from the queues of a topic of RabbitMQ."""

from __future__ import annotations

import pika

from harness.admin.amqp_headers import take_with_headers
from harness.admin.probe import WithHeaders
from harness.connections.security import Security
from harness.protocols.cluster import Endpoint
from harness.systems.rabbitmq.amqp import Amqp


def read(bootstrap: str, topic: str, partitions: int, security: Security) -> WithHeaders:
    """Value and headers of every message; takes them."""
    host, _, port = bootstrap.partition("/")[0].partition(",")[0].rpartition(":")
    parameters = Amqp(Endpoint(host, int(port)), security).parameters()
    for partition in range(partitions):
        yield from take_with_headers(pika.BlockingConnection(parameters), f"{topic}-{partition}")
