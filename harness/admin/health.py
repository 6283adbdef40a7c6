"""One request to a node on a connection of our own: no client library's pools and retries in
between."""

from __future__ import annotations

import socket
import ssl
from contextlib import nullcontext

from harness.protocols.cluster import Endpoint


def first_bytes(
    endpoint: Endpoint,
    request: bytes,
    count: int,
    timeout_s: float,
    tls: ssl.SSLContext | None = None,
) -> bytes:
    """The first bytes of an answer; fewer when there is none.

    A connection alone proves nothing: for a stopped process the kernel accepts it.
    """
    try:
        with (
            socket.create_connection((endpoint.host, endpoint.port), timeout=timeout_s) as plain,
            tls.wrap_socket(plain, server_hostname=endpoint.host)
            if tls
            else nullcontext(plain) as link,
        ):
            link.settimeout(timeout_s)
            link.sendall(request)
            return _read(link, count)
    except OSError:
        return b""


def _read(link: socket.socket, count: int) -> bytes:
    """That many bytes, fewer at the end; TLS knows no MSG_WAITALL."""
    found = b""
    while len(found) < count and (more := link.recv(count - len(found))):
        found += more
    return found
