"""Whether ZooKeeper and bookies answer: they have no HTTP endpoint here."""

from __future__ import annotations

import socket

from harness.protocols import Node

_TIMEOUT_S = 1.0


def answers(node: Node) -> bool:
    """ZooKeeper: says that it is in order. Bookie: accepts connections (it does so after registering)."""
    try:
        with socket.create_connection((node.client.host, node.client.port), timeout=_TIMEOUT_S) as door:
            if "zookeeper" not in node.roles:
                return True
            door.settimeout(_TIMEOUT_S)
            door.sendall(b"ruok")
            return door.recv(16) == b"imok"
    except OSError:
        return False
