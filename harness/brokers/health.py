"""One request to a node on a connection of our own: no client library's pools and retries in between."""

from __future__ import annotations

import socket

from harness.protocols.cluster import Endpoint


def first_bytes(endpoint: Endpoint, request: bytes, count: int, timeout_s: float) -> bytes:
    """The first bytes of an answer; fewer when there is none.

    A connection alone proves nothing: for a stopped process the kernel accepts it.
    """
    try:
        with socket.create_connection((endpoint.host, endpoint.port), timeout=timeout_s) as link:
            link.settimeout(timeout_s)
            link.sendall(request)
            return link.recv(count, socket.MSG_WAITALL)
    except OSError:
        return b""
