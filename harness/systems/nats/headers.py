"""Reads messages and their headers out of a stream."""

from __future__ import annotations

from base64 import b64decode

from harness.admin.probe import WithHeaders
from harness.connections.security import Security
from harness.systems.nats.link import Link, server_at
from harness.systems.nats.messages import headers_of


def read(bootstrap: str, address: str, partitions: int, security: Security) -> WithHeaders:
    """Value and headers of every message."""
    with Link(server_at(bootstrap.partition(",")[0]), security) as link:
        for partition in range(partitions):
            stream = f"{address}-{partition}"
            state = link.ask(f"$JS.API.STREAM.INFO.{stream}")["state"]
            for sequence in range(int(state["first_seq"]), int(state["last_seq"]) + 1):
                said = link.ask(f"$JS.API.STREAM.MSG.GET.{stream}", {"seq": sequence})["message"]
                headers = headers_of(b64decode(said.get("hdrs", "")))
                yield (
                    b64decode(said.get("data", "")),
                    {name: value.decode() for name, value in headers},
                )
