"""NATS servers that somebody else started: one cluster with JetStream, each named with its two
ports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from harness.admin.failover import NoAnswer
from harness.admin.http_clock import clock_apart
from harness.clusters.external.cluster import (
    ExternalSystem,
    FoundCluster,
    clocks,
    named_nodes,
    try_topic,
)
from harness.clusters.external.made import MadeNames
from harness.clusters.external.places import admin_urls, listens_at
from harness.clusters.layout.compose import release_key
from harness.connections.file import Connection
from harness.connections.security import Access
from harness.errors import EnvironmentNotReady, UsageError
from harness.need import Need
from harness.protocols.cluster import Endpoint, Node
from harness.systems.nats import SYSTEM as NATS
from harness.systems.nats.assembly import CHOOSES_SINCE
from harness.systems.nats.external_admin import ExternalNatsAdmin
from harness.systems.nats.link import Link, server_at


@dataclass(frozen=True, slots=True, kw_only=True)
class _FoundServers(FoundCluster):
    """The cluster, with the node of each server by the server's own name."""

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
            {name: listens_at(urls[number - 1]) for name, number in servers.items()},
        )
        by_number = {node.number: node.name for node in nodes}
        called = {name: by_number[number] for name, number in servers.items()}
        version = str(next(iter(told.values()))["version"])
        return _FoundServers(names.pop(), version, nodes, min(len(nodes), 3), called=called)

    def admin(
        self, connection: Connection, found: FoundCluster, made: MadeNames
    ) -> ExternalNatsAdmin:
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
        copies = connection.file.topics.replication or min(len(nodes), 3)
        address, refused = try_topic(connection, admin, "streams", 1, copies)
        if refused:
            yield refused
            return
        yield Need(
            "streams", True, f"{address}-0 was made, {copies} replicas; a message was stored"
        )
        yield clocks(
            {node.name: clock_apart(partial(admin.monitor.date, node.name)) for node in nodes}
        )
        yield _room(admin, nodes)


def _room(admin: ExternalNatsAdmin, nodes: Sequence[Node]) -> Need:
    """Return how much storage for files each server has left."""
    free = {}
    for node in nodes:
        said = admin.monitor.account(node.name)
        limit = int((said.get("config") or {}).get("max_storage") or 0)
        free[node.name] = max(0, limit - int(said.get("storage") or 0)) // 2**20
    text = ", ".join(f"{node} {mb} MB" for node, mb in free.items())
    return Need("room", all(free.values()), f"free for streams: {text}", "make room", needed=False)


def _site(connection: Connection) -> tuple[list[Endpoint], list[str]]:
    """Where clients, and where questions to the monitoring port, reach each server, in the same
    order.

    Raises:
        UsageError: bootstrap or admin_url does not say it.
    """
    servers = connection.file.bootstrap.split(",")
    try:
        clients = [server_at(text) for text in servers]
    except ValueError as error:
        hint = f"as {NATS.bootstrap_form}"
        raise UsageError(f"{connection.path}: bootstrap: {error}", hint=hint) from None
    return clients, admin_urls(connection, servers)


def _info(connection: Connection, at: Endpoint) -> dict[str, Any]:
    """Log in to a server and return its INFO.

    Raises:
        EnvironmentNotReady: no server answers, or it refuses our login.
    """
    hint = "is it up, and bootstrap, tls and auth of the connection file right?"
    try:
        with Link(at, connection.admin) as link:
            return link.info
    except (NoAnswer, UsageError) as error:
        raise EnvironmentNotReady(f"{at}: {error}", hint=hint) from None


EXTERNAL = _ExternalNats()
