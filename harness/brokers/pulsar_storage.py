"""Health probes of ZooKeeper and bookies, which have no HTTP endpoint here."""

from __future__ import annotations

import socket
import struct
from typing import Final

from harness.protocols.cluster import Node

_TIMEOUT_S: Final = 1.0
#: BookKeeper's wire protocol 2: length, then version, operation and flags in one word, ledger, entry.
_VERSION, _READ_ENTRY = 2, 2
_NO_LEDGER: Final = 2**62  # never given out; a bookie answers that it has none
_READ: Final = struct.pack(">iiqq", 20, _VERSION << 24 | _READ_ENTRY << 16, _NO_LEDGER, 0)


def answers(node: Node) -> bool:
    """ZooKeeper says that it is in order (its word ``ruok``); a bookie that it lacks a ledger.

    A connection alone proves nothing: for a stopped process the kernel accepts it.
    """
    try:
        with socket.create_connection((node.client.host, node.client.port), timeout=_TIMEOUT_S) as link:
            link.settimeout(_TIMEOUT_S)
            if "zookeeper" in node.roles:
                link.sendall(b"ruok")
                return link.recv(4, socket.MSG_WAITALL) == b"imok"
            link.sendall(_READ)
            head = link.recv(8, socket.MSG_WAITALL)
            return len(head) == 8 and struct.unpack(">ii", head)[1] >> 16 & 0xFF == _READ_ENTRY
    except OSError:
        return False
