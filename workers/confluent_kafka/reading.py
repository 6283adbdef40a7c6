"""Payloads of messages that librdkafka hands over."""

from __future__ import annotations

from confluent_kafka import Message
from worker_kit.layouts import HEADER_MAGIC
from worker_kit.template import joined


def payload_of(message: Message) -> bytes:
    """The payload as it was sent: the value, or a body with the identity of its header.

    Headers are asked for only where the value has no identity: that costs as much as all the rest.
    """
    value: bytes = message.value() or b""
    return value if value[:2] == HEADER_MAGIC else joined(value, message.headers())
