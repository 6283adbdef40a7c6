"""NATS servers that somebody else started: one cluster with JetStream, each named with its two ports."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from harness.admin.failover import NoAnswer
from harness.admin.http_clock import clock_apart
from harness.clusters.external.cluster import ExternalSystem, FoundCluster, clocks, named_nodes
from harness.clusters.external.made import MadeNames
from harness.clusters.layout.compose import release_key
from harness.connections.file import Connection
from harness.connections.security import Access
from harness.errors import BrokerstormError, EnvironmentNotReady, UsageError
from harness.need import Need
from harness.protocols.cluster import Endpoint, Node, TopicSettings
from harness.systems.nats import SYSTEM as NATS
from harness.systems.nats.assembly import CHOOSES_SINCE
from harness.systems.nats.external_admin import ExternalNatsAdmin
from harness.systems.nats.link import Link

_READY_S: Final = 60.0
_PROBED: Final = "doctor"


@dataclass(frozen=True, slots=True, kw_only=True)
class _FoundServers(FoundCluster):
    """With the name that each server has itself -> its node."""

    called: Mapping[str, str]


class _ExternalNats(ExternalSystem):
    def find(self, connection: Connection) -> FoundCluster:
        clients, urls = _site(connection)
        told = {number: _info(connection, at) for number, at in enumerate(clients, start=1)}
        names = {str(info.get("cluster") or info["server_name"]) for info in told.values()}
        if len(names) > 1:
            raise UsageError(
                f"{connection.path}: bootstrap: {' and '.join(sorted(names))} are different clusters",
                hint="name the servers of one",
            )
        for number, info in told.items():
            if not info.get("jetstream"):
                raise EnvironmentNotReady(
                    f"{info['server_name']} ({clients[number - 1]}): JetStream is not enabled",
                    hint="enable it on every server: `jetstream {}` in its configuration",
                )
        servers = {str(info["server_name"]): number for number, info in told.items()}
        nodes = named_nodes(
            connection,
            {name: (number, clients[number - 1]) for name, number in servers.items()},
            {name: _endpoint(urls[number - 1]) for name, number in servers.items()},
        )
        by_number = {node.number: node.name for node in nodes}
        called = {name: by_number[number] for name, number in servers.items()}
        version = str(next(iter(told.values()))["version"])
        return _FoundServers(names.pop(), version, nodes, min(len(nodes), 3), called=called)

    def admin(self, connection: Connection, found: FoundCluster, made: MadeNames) -> ExternalNatsAdmin:
        assert isinstance(found, _FoundServers)
        _, urls = _site(connection)
        return ExternalNatsAdmin(
            found.nodes,
            made,
            access=Access(connection.security, connection.admin),
            can_choose=release_key(found.version) >= CHOOSES_SINCE,
            links={node.name: node.client for node in found.nodes},
            urls={node.name: urls[node.number - 1] for node in found.nodes},
            called=found.called,
        )

    def examine(
        self, connection: Connection, nodes: Sequence[Node], admin: ExternalNatsAdmin
    ) -> Iterator[Need]:
        prefix = connection.file.topics.prefix
        address = NATS.address(_PROBED, secrets.randbits(32), prefix)
        copies = connection.file.topics.replication or min(len(nodes), 3)
        admin.name_topics({_PROBED: address}, ())
        try:
            admin.create_topics([TopicSettings(_PROBED, 1, copies)])
            admin.wait_ready([_PROBED], timeout_s=_READY_S, run_tag=1)
        except BrokerstormError as error:
            yield Need("streams", False, str(error), error.hint or f"streams {prefix}-* must be allowed")
            return
        yield Need("streams", True, f"{address}-0 was made, {copies} replicas; a message was stored")
        yield clocks({node.name: clock_apart(_dates(admin, node.name)) for node in nodes})
        yield _room(admin, nodes)


def _dates(admin: ExternalNatsAdmin, node: str) -> Any:
    return lambda: admin.monitor.date(node)


def _room(admin: ExternalNatsAdmin, nodes: Sequence[Node]) -> Need:
    """What each server still takes of files."""
    free = {}
    for node in nodes:
        said = admin.monitor.account(node.name)
        limit = int((said.get("config") or {}).get("max_storage") or 0)
        free[node.name] = max(0, limit - int(said.get("storage") or 0)) // 2**20
    text = ", ".join(f"{node} {mb} MB" for node, mb in free.items())
    return Need("room", all(free.values()), f"free for streams: {text}", "make room", needed=False)


def _site(connection: Connection) -> tuple[list[Endpoint], list[str]]:
    """Where clients, and where questions to the monitoring port, reach each server, in the same order.

    Raises:
        UsageError: bootstrap or admin_url does not say it.
    """
    file, path = connection.file, connection.path
    urls = [url.rstrip("/") for url in file.admin_url.split(",")]
    if bad := [url for url in urls if urlsplit(url).scheme not in ("http", "https")]:
        raise UsageError(f"{path}: admin_url: {bad[0]!r} is no URL", hint=f"as {NATS.admin_form}")
    clients = [_client(path, text) for text in file.bootstrap.split(",")]
    if len(urls) != len(clients):
        raise UsageError(
            f"{path}: admin_url has {len(urls)} URLs, and bootstrap {len(clients)} servers",
            hint="one URL a server, in the same order",
        )
    return clients, urls


def _client(path: Any, text: str) -> Endpoint:
    found = urlsplit(text if "://" in text else f"nats://{text}")
    try:
        host, port = found.hostname, found.port
    except ValueError:
        host = port = None
    if not host or found.scheme not in ("nats", "tls"):
        raise UsageError(f"{path}: bootstrap: {text!r} is no server", hint=f"as {NATS.bootstrap_form}")
    return Endpoint(host, port or 4222)


def _endpoint(url: str) -> Endpoint:
    found = urlsplit(url)
    return Endpoint(str(found.hostname), found.port or (443 if found.scheme == "https" else 80))


def _info(connection: Connection, at: Endpoint) -> dict[str, Any]:
    """What a server says of itself when we log in.

    Raises:
        EnvironmentNotReady: nobody answers, or it does not let us in.
    """
    hint = "is it up, and bootstrap, tls and auth of the connection file right?"
    try:
        with Link(at, connection.admin) as link:
            return link.info
    except (NoAnswer, UsageError) as error:
        raise EnvironmentNotReady(f"{at}: {error}", hint=hint) from None


EXTERNAL = _ExternalNats()
