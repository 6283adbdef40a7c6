"""Certificates and servers as they should not be, for tests of what clients say to them."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from harness.clusters.security.certificates import Authority, Issued
from tests.http_server import HOST, Answer, Request, answering

#: What is wrong with a server's certificate; "nothing" is not.
Flaw = Literal["nothing", "expired", "other host", "other authority"]


def flawed(authority: Authority, flaw: Flaw) -> Issued:
    """A certificate of a server at `HOST`, as clients of ``authority`` meet it."""
    now = datetime.now(UTC)
    span = (now - timedelta(days=2), now - timedelta(days=1)) if flaw == "expired" else None
    issuer = Authority("another authority") if flaw == "other authority" else authority
    return issuer.issue("broker", ["127.0.0.2" if flaw == "other host" else HOST], valid=span)


def written(issued: Issued, folder: Path, name: str = "node") -> tuple[Path, Path]:
    """Certificate and key as files."""
    paths = folder / f"{name}.crt", folder / f"{name}.key"
    for path, content in zip(paths, (issued.certificate, issued.key), strict=True):
        path.write_bytes(content)
    return paths


@contextmanager
def tls_server(certificate: Path, key: Path) -> Iterator[int]:
    """A port of `HOST` behind which nobody answers once the handshake is over: what a client meets
    first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    listener = socket.create_server((HOST, 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                link, _ = listener.accept()
                with link, suppress(OSError):
                    link.settimeout(10)
                    with context.wrap_socket(link, server_side=True) as shaken:
                        shaken.recv(1)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(15)


@contextmanager
def token_server(token: str) -> Iterator[tuple[str, list[str]]]:
    """URL of a token endpoint of OAuth2 that gives everybody the same token, and what it was
    asked."""
    asked: list[str] = []

    def answer(request: Request) -> Answer:
        asked.append(request.body.decode())
        return 200, {"access_token": token, "token_type": "Bearer", "expires_in": 3600}, {}

    with answering(answer) as port:
        yield f"http://{HOST}:{port}/token", asked
