"""RabbitMQ nodes that somebody else started: one cluster, each node named with its two ports."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.admin.failover import NoAnswer
from harness.clusters.external.cluster import (
    ExternalSystem,
    FoundCluster,
    clocks,
    named_nodes,
    try_topic,
)
from harness.clusters.external.made import MadeNames
from harness.connections.file import Connection
from harness.connections.secret import Secret
from harness.connections.security import Access
from harness.errors import EnvironmentNotReady, UsageError
from harness.need import Need
from harness.protocols.cluster import Endpoint, Node
from harness.systems.rabbitmq import NODES, series
from harness.systems.rabbitmq import SYSTEM as RABBITMQ
from harness.systems.rabbitmq.amqp import Amqp
from harness.systems.rabbitmq.external_admin import ExternalRabbitMqAdmin
from harness.systems.rabbitmq.link import CookieRefused, ErlangLink, Refused, shown
from harness.systems.rabbitmq.terms import Atom


@dataclass(frozen=True, slots=True, kw_only=True)
class _FoundNodes(FoundCluster):
    """The cluster, with the name that Erlang has for each node."""

    called: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Site:
    """The addresses in a connection file at which clients, and other nodes, reach each node, in the
    same order."""

    virtual_host: str
    clients: tuple[Endpoint, ...]
    peers: tuple[Endpoint, ...]
    cookie: Secret


class _ExternalRabbitMq(ExternalSystem):
    def find(self, connection: Connection) -> FoundCluster:
        site = _site(connection)
        told = [_identity(connection, at, site.cookie) for at in site.peers]
        names = {cluster for _, cluster, _ in told}
        if len(names) > 1:
            raise UsageError(
                f"{connection.path}: admin_url: {' and '.join(sorted(names))} are different clusters",
                hint="name the nodes of one",
            )
        for at in site.clients:
            Amqp(at, connection.admin, site.virtual_host).log_in()
        numbers = {erlang: number for number, (erlang, _, _) in enumerate(told, start=1)}
        nodes = named_nodes(
            connection,
            {erlang: (number, site.clients[number - 1]) for erlang, number in numbers.items()},
            {erlang: site.peers[number - 1] for erlang, number in numbers.items()},
        )
        erlang_of = {number: erlang for erlang, number in numbers.items()}
        called = {node.name: erlang_of[node.number] for node in nodes}
        copies = min(len(nodes), NODES)
        return _FoundNodes(names.pop(), told[0][2], nodes, copies, called=called)

    def admin(
        self, connection: Connection, found: FoundCluster, made: MadeNames
    ) -> ExternalRabbitMqAdmin:
        assert isinstance(found, _FoundNodes)
        site = _site(connection)
        return ExternalRabbitMqAdmin(
            found.nodes,
            made,
            cookie=lambda: site.cookie,
            called=found.called,
            version=series(found.version),
            access=Access(connection.security, connection.admin),
            virtual_host=site.virtual_host,
        )

    def examine(self, connection: Connection, nodes: Sequence[Node], admin: Any) -> Iterator[Need]:
        try:
            admin.refuse_alarms()
        except EnvironmentNotReady as error:
            yield Need("alarms", False, str(error), error.hint)
            return
        copies = connection.file.topics.replication or min(len(nodes), NODES)
        config = RABBITMQ.topic_config({}, copies, {})
        address, refused = try_topic(connection, admin, "queues", 1, copies, config)
        if refused:
            yield refused
            return
        text = f"{address}-0 was made, {copies} members; a message was confirmed and taken"
        yield Need("queues", True, text)
        off = [flag for flag, is_enabled in admin.feature_flags().items() if not is_enabled]
        text = f"not enabled: {', '.join(off)}" if off else "all are enabled"
        hint = "`rabbitmqctl enable_feature_flag all`; what is not enabled is not played"
        yield Need("feature flags", not off, text, hint, needed=False)
        site = _site(connection)
        found = {node.name: _clock_apart(node.admin, site.cookie) for node in nodes}
        yield clocks(found)


def _identity(connection: Connection, at: Endpoint, cookie: Secret) -> tuple[str, str, str]:
    """Return the name that Erlang has for a node, the cluster's name and the version.

    Raises:
        EnvironmentNotReady: the node does not answer, has another cookie, or does not run RabbitMQ.
    """
    link = ErlangLink(at, lambda: cookie)
    try:
        node = str(link.call("erlang", "node"))
        cluster = shown(link.call("rabbit_nodes", "cluster_name"))
        found = link.call("application", "get_key", Atom("rabbit"), Atom("vsn"))
    except NoAnswer as error:
        raise EnvironmentNotReady(
            f"{connection.path}: admin_url: {at}: {error}",
            hint=f"check that the node listens there for other nodes; admin_url: {RABBITMQ.admin_form}",
        ) from None
    except CookieRefused as error:
        raise EnvironmentNotReady(
            f"{connection.path}: cookie: {at}: {error}",
            hint="the content of .erlang.cookie in the home of the user who runs the nodes",
        ) from None
    except Refused as error:
        raise EnvironmentNotReady(
            f"{connection.path}: admin_url: {at}: RabbitMQ does not run there yet ({error})",
            hint="`rabbitmqctl await_startup` on the node waits until it does",
        ) from None
    finally:
        link.close()
    return node, cluster, shown(found[1]) if isinstance(found, tuple) else ""


def _clock_apart(at: Endpoint, cookie: Secret) -> tuple[float, float] | None:
    """Return how far the clock of a node is ahead, and within what, in seconds."""
    link = ErlangLink(at, lambda: cookie)
    try:
        link.call("erlang", "node")
        before = time.time()
        there = int(link.call("erlang", "system_time", Atom("millisecond"))) / 1000
        after = time.time()
    except (NoAnswer, Refused, TypeError, ValueError):  # the answer may be no number
        return None
    finally:
        link.close()
    return there - (before + after) / 2, (after - before) / 2 + 0.001


def _site(connection: Connection) -> _Site:
    """Raises:
    UsageError: bootstrap, admin_url or cookie does not say where and who it is.
    """
    file, path = connection.file, connection.path
    hosts, _, virtual_host = file.bootstrap.partition("/")
    if not virtual_host:
        raise UsageError(
            f"{path}: bootstrap: which virtual host?", hint=f"as {RABBITMQ.bootstrap_form}"
        )
    if connection.cookie is None:
        raise UsageError(
            f"{path}: cookie is missing: nodes answer only who knows it",
            hint="cookie: {file: .erlang.cookie}",
        )
    clients = tuple(_endpoint(path, "bootstrap", one) for one in hosts.split(","))
    peers = tuple(_endpoint(path, "admin_url", one) for one in file.admin_url.split(","))
    if len(clients) != len(peers):
        raise UsageError(
            f"{path}: admin_url has {len(peers)} addresses, and bootstrap {len(clients)} nodes",
            hint=f"one address a node, in the same order, as {RABBITMQ.admin_form}",
        )
    return _Site(virtual_host, clients, peers, connection.cookie)


def _endpoint(path: Any, key: str, address: str) -> Endpoint:
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        form = RABBITMQ.bootstrap_form if key == "bootstrap" else RABBITMQ.admin_form
        raise UsageError(f"{path}: {key}: {address!r} is not HOST:PORT", hint=f"as {form}")
    return Endpoint(host, int(port))


EXTERNAL = _ExternalRabbitMq()
