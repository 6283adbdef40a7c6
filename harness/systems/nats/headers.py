"""Reads messages and their headers out of a stream."""

from __future__ import annotations

from base64 import b64decode
from email import message_from_string
from typing import Final

from harness.admin.probe import WithHeaders
from harness.connections.security import Security
from harness.systems.nats.link import Link, server_at

#: The line before the headers of a message.
_VERSION: Final = "NATS/1.0\r\n"


def read(bootstrap: str, address: str, partitions: int, security: Security) -> WithHeaders:
    """Value and headers of every message."""
    with Link(server_at(bootstrap.partition(",")[0]), security) as link:
        for partition in range(partitions):
            stream = f"{address}-{partition}"
            state = link.ask(f"$JS.API.STREAM.INFO.{stream}")["state"]
            for sequence in range(int(state["first_seq"]), int(state["last_seq"]) + 1):
                said = link.ask(f"$JS.API.STREAM.MSG.GET.{stream}", {"seq": sequence})["message"]
                text = b64decode(said.get("hdrs", "")).decode().removeprefix(_VERSION)
                yield b64decode(said.get("data", "")), dict(message_from_string(text).items())
