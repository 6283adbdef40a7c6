"""Reads where brokers are out of a connection file that names a URL for each."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from harness.connections.file import Connection
from harness.errors import UsageError
from harness.protocols.cluster import Endpoint
from harness.systems import SYSTEMS


def admin_urls(connection: Connection, addresses: Sequence[str]) -> list[str]:
    """The URL of each broker, in the order of its addresses for clients.

    Raises:
        UsageError: ``admin_url`` does not say them.
    """
    file, path = connection.file, connection.path
    urls = [url.rstrip("/") for url in file.admin_url.split(",")]
    parts = {url: urlsplit(url) for url in urls}
    if bad := [
        url for url, of in parts.items() if of.scheme not in ("http", "https") or not of.hostname
    ]:
        hint = f"as {SYSTEMS[file.system].admin_form}"
        raise UsageError(f"{path}: admin_url: {bad[0]!r} is not a URL", hint=hint)
    if len(urls) != len(addresses):
        raise UsageError(
            f"{path}: admin_url has {len(urls)} URLs, and bootstrap {len(addresses)} brokers",
            hint="one URL a broker, in the same order",
        )
    return urls


def listens_at(url: str) -> Endpoint:
    """Where a URL of `admin_urls` leads."""
    found = urlsplit(url)
    return Endpoint(str(found.hostname), found.port or (443 if found.scheme == "https" else 80))
