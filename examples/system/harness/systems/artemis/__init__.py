"""Apache ActiveMQ Artemis: queues on one broker."""

from __future__ import annotations

from typing import ClassVar

from harness.systems.base import Request, System


class Artemis(System):
    name = "artemis"
    client = "stomp.py"
    version = "2.31.2"
    audit = ("stomp.py", "")
    allowed: ClassVar = {"receive": ("listener",), "settle": ("auto", "ack", "none")}
    foreign: ClassVar = {
        ("topic", "replication"): "there is one broker: leave it out",
        ("consumer", "commit_every"): "a consumer of artemis settles messages: see settle",
    }
    is_queue = True
    subscription = "queue"
    order = "none"

    def request(self, port: str, ballast: int = 0) -> Request | None:
        """The greeting of STOMP 1.2, with a header as long as the ballast."""
        greeting = b"CONNECT\naccept-version:1.2\nhost:%s\n\n\0" % (b"x" * max(1, ballast))
        return (greeting, 1) if port == "client" else None


SYSTEM = Artemis()
