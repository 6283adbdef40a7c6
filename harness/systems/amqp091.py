"""Requests and errors of AMQP 0-9-1 (amqp0-9-1.xml), which clients of several systems speak."""

from __future__ import annotations

from typing import Final

_CLASSES: Final = {"channel": 20, "exchange": 40, "queue": 50, "basic": 60, "confirm": 85, "tx": 90}
_METHODS: Final = (
    ("channel.open", 10),
    ("exchange.declare", 10),
    ("queue.declare", 10),
    ("queue.bind", 20),
    ("basic.qos", 10),
    ("basic.consume", 20),
    ("basic.cancel", 30),
    ("basic.publish", 40),
    ("basic.ack", 80),
    ("basic.reject", 90),
    ("basic.nack", 120),
    ("confirm.select", 10),
    ("tx.select", 10),
    ("tx.commit", 20),
    ("tx.rollback", 30),
)
#: Name of a method -> its number for the network proxy: class and method in a byte each.
REQUESTS: Final = {name: _CLASSES[name.partition(".")[0]] << 8 | at for name, at in _METHODS}

#: As `harness.systems.base.System.client_requests`.
CLIENT_REQUESTS: Final = {"basic.publish": ("basic.nack",), "basic.consume": (), "basic.qos": ()}

#: What a broker says when it closes a channel, or (from ``CONNECTION_FORCED`` on) the connection.
REPLY_CODES: Final = {
    "CONTENT_TOO_LARGE": 311,
    "ACCESS_REFUSED": 403,
    "NOT_FOUND": 404,
    "RESOURCE_LOCKED": 405,
    "PRECONDITION_FAILED": 406,
    "CONNECTION_FORCED": 320,
    "FRAME_ERROR": 501,
    "COMMAND_INVALID": 503,
    "CHANNEL_ERROR": 504,
    "UNEXPECTED_FRAME": 505,
    "RESOURCE_ERROR": 506,
    "NOT_ALLOWED": 530,
    "INTERNAL_ERROR": 541,
}

#: Errors of answers. The number of ``basic.nack`` is one of the network proxy's.
ERRORS: Final = {"basic.nack": 1, **REPLY_CODES}
#: What a broker says that stops the use of a channel or a connection; the number of
#: ``connection.blocked`` is one of the network proxy's.
CLOSINGS: Final = {"connection.blocked": 2, **REPLY_CODES}
UNANSWERED: Final = ("basic.ack", "basic.reject", "basic.nack")
#: A broker can only refuse a message.
ERROR_KINDS: Final = {"basic.nack": ("basic.publish",)}
ACTS: Final = ("error", "drop", "delay", "close", "detach", "twice", "reorder")
