"""Asks whether a node answers: one request on a connection of our own, without a client library's retries."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from typing import Final

from harness.protocols.cluster import Endpoint

#: A broker that is up answers ApiVersions in a few milliseconds, also on a busy machine.
ANSWER_S: Final = 0.5
_CORRELATION: Final = 0x42535431


def kafka_answers(endpoint: Endpoint, timeout_s: float) -> bool:
    """Send ApiVersions v0 (api key 18, no client id) and wait for the head of the response (KIP-35).

    A stopped process still accepts connections: the kernel does that for it.
    """
    request = struct.pack(">hhih", 18, 0, _CORRELATION, -1)
    try:
        with socket.create_connection((endpoint.host, endpoint.port), timeout=timeout_s) as link:
            link.settimeout(timeout_s)
            link.sendall(struct.pack(">i", len(request)) + request)
            head = link.recv(8, socket.MSG_WAITALL)
    except OSError:
        return False
    return len(head) == 8 and struct.unpack(">ii", head)[1] == _CORRELATION


_PROBES: Final[dict[str, Callable[[Endpoint, float], bool]]] = {"kafka": kafka_answers}


def answers(system: str, endpoint: Endpoint, timeout_s: float = ANSWER_S) -> bool | None:
    """Whether the node behind an endpoint answers; None when we have no probe for the system."""
    probe = _PROBES.get(system)
    return probe(endpoint, timeout_s) if probe else None
