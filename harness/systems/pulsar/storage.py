"""Health probes of ZooKeeper and bookies, which have no HTTP endpoint here."""

from __future__ import annotations

from harness.admin.health import first_bytes
from harness.protocols.cluster import Node
from harness.systems.pulsar import READ_ENTRY, REQUESTS

_TIMEOUT_S = 1.0


def answers(node: Node) -> bool:
    """ZooKeeper says that it is in order; a bookie answers the question after a ledger that it lacks."""
    if "zookeeper" in node.roles:
        return first_bytes(node.client, REQUESTS["zookeeper"], 4, _TIMEOUT_S) == b"imok"
    head = first_bytes(node.client, REQUESTS["bookie"], 8, _TIMEOUT_S)
    return len(head) == 8 and head[5] == READ_ENTRY  # version, operation and flags: 1, 1 and 2 bytes
