"""Takes messages with their headers out of a queue, over AMQP 0-9-1."""

from __future__ import annotations

from typing import Any

from harness.admin.probe import WithHeaders


def take_with_headers(connection: Any, queue: str) -> WithHeaders:
    """Value and headers of every message of a queue; takes them.

    Args:
        connection: a ``pika.BlockingConnection``; it is closed in the end.
    """
    try:
        channel = connection.channel()
        method, properties, value = channel.basic_get(queue, auto_ack=True)
        while method is not None:
            yield value, {name: _text(each) for name, each in (properties.headers or {}).items()}
            method, properties, value = channel.basic_get(queue, auto_ack=True)
    finally:
        connection.close()


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
