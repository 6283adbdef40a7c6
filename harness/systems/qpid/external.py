"""Qpid Broker-J that somebody else started: a virtual host of one broker, or of a group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from urllib.parse import quote

from harness.admin.failover import each
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
from harness.connections.file import Connection
from harness.connections.security import Access
from harness.errors import BrokerstormError, EnvironmentNotReady, UsageError
from harness.need import Need
from harness.protocols.cluster import Endpoint, Node
from harness.rundir import Document
from harness.systems.qpid import SYSTEM as QPID
from harness.systems.qpid.admin import KEEPS, MASTER
from harness.systems.qpid.external_admin import ExternalQpidAdmin
from harness.systems.qpid.probe import Probe
from harness.systems.qpid.rest import GUEST, LockedOut, QpidRest, QueuePlace

_HOSTS: Final = "querybroker/virtualhost?select=" + quote("$parent.name,$parent.role,name,id,type")
#: Stores that forget with the broker.
_FORGETS: Final = ("Memory", "ProvidedStore")
#: Settings of a virtual host that end transactions or stop producers; 0 = never.
_STOPS: Final = (
    "storeTransactionIdleTimeoutClose",
    "storeTransactionOpenTimeoutClose",
    "storeOverfullSize",
)


@dataclass(frozen=True, slots=True)
class _Host:
    """The virtual host, as one broker sees it. ``node``: its virtual host node."""

    node: str
    role: str
    id: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _FoundHosts(FoundCluster):
    """The cluster, with the virtual host node of each node."""

    hosts: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Site:
    """The addresses in a connection file at which clients and the harness reach each broker, by
    client address.
    """

    virtual_host: str
    clients: Mapping[str, Endpoint]
    urls: Mapping[str, str]

    def rest(self, connection: Connection) -> QpidRest:
        """Return the management interface of the brokers, with the administrator's login."""
        return QpidRest(self.urls, connection.admin)

    def hosts(self, rest: QpidRest) -> dict[str, _Host]:
        """The virtual host on each broker that answers.

        Raises:
            EnvironmentNotReady: none does, or none accepts our login.
            UsageError: the virtual host does not exist.
        """
        found = each(self.urls, lambda at: rest.get(at, _HOSTS)["results"])
        if not found:
            _ask(rest, next(iter(self.urls)))
        names = sorted({str(row[2]) for rows in found.values() for row in rows})
        if self.virtual_host not in names:
            raise UsageError(
                f"bootstrap: there is no virtual host {self.virtual_host!r}",
                hint=f"virtual hosts there: {', '.join(names) or 'none'}; bootstrap: {QPID.bootstrap_form}",
            )
        return {
            at: _Host(str(node), str(role or MASTER), str(number), str(kind))
            for at in self.urls
            for node, role, name, number, kind in found.get(at, ())
            if name == self.virtual_host
        }


class _ExternalQpid(ExternalSystem):
    def find(self, connection: Connection) -> FoundCluster:
        site = _site(connection)
        rest = site.rest(connection)
        try:
            hosts = site.hosts(rest)
            masters = [at for at, host in hosts.items() if host.role == MASTER]
            _refuse_apart(masters, hosts)
            version = str(rest.get(next(iter(hosts)), "broker?depth=0")["productVersion"])
        finally:
            rest.close()
        if not masters:
            raise EnvironmentNotReady(
                f"{connection.path}: no broker of the group is the master now",
                hint=", ".join(f"{host.node} {host.role}" for host in hosts.values()),
            )
        _log_in(connection, site, masters[0])
        nodes = _nodes(connection, site, hosts)
        own = {node.name: hosts[str(node.client)].node for node in nodes}
        return _FoundHosts(hosts[masters[0]].id, version, nodes, hosts=own)

    def admin(
        self, connection: Connection, found: FoundCluster, made: MadeNames
    ) -> ExternalQpidAdmin:
        assert isinstance(found, _FoundHosts)
        site = _site(connection)
        urls = {node.name: site.urls[str(node.client)] for node in found.nodes}
        access = Access(connection.security, connection.admin)
        return ExternalQpidAdmin(
            found.nodes, urls, access, QueuePlace(site.virtual_host, found.hosts), made
        )

    def examine(
        self, connection: Connection, nodes: Sequence[Node], admin: ExternalQpidAdmin
    ) -> Iterator[Need]:
        address, refused = try_topic(connection, admin, "queues", 1, 1)
        if refused:
            yield refused
            return
        yield Need("queues", True, f"{address}-0 was made; a message was committed and taken")
        held = ", ".join(f"{key}={allowed[0]}" for key, allowed in KEEPS.items())
        yield Need("retention", True, f"queues of runs keep everything, as the broker says: {held}")
        site = _site(connection)
        rest = site.rest(connection)
        try:
            hosts = site.hosts(rest)
            at, master = next((at, host) for at, host in hosts.items() if host.role == MASTER)
            where = f"{quote(master.node, safe='')}/{quote(site.virtual_host, safe='')}"
            settings = rest.get(at, f"virtualhost/{where}?depth=0")
            yield _store(settings)
            if len(hosts) > 1:
                yield _group(
                    rest.get(at, f"remotereplicationnode/{where.partition('/')[0]}") or (), hosts
                )
            yield clocks(
                {node.name: clock_apart(partial(rest.date, str(node.client))) for node in nodes}
            )
            yield _limits(rest, at, where, settings)
        finally:
            rest.close()


def _store(settings: Document) -> Need:
    kind, commits = settings["type"], settings.get("durability")
    return Need(
        "durability",
        kind not in _FORGETS,
        f"its store is {kind}" + (f", commits {commits}" if commits else ""),
        "a broker that restarts has lost everything: leave such faults out",
        needed=False,
    )


def _group(others: Sequence[Document], hosts: Mapping[str, _Host]) -> Need:
    """Return the master, and whether clients know every node that may become the master."""
    roles = ", ".join(f"{host.node} {host.role}" for host in hosts.values())
    untold = sorted({str(row["name"]) for row in others} - {host.node for host in hosts.values()})
    if untold:
        text = f"{roles}; {untold[0]} is of the group, too"
        return Need("group", False, text, "name all in bootstrap and admin_url")
    return Need("group", True, roles)


def _limits(rest: QpidRest, at: str, where: str, host: Document) -> Need:
    """Return the limits that end connections and transactions, or stop producers."""
    try:
        ports = rest.get(at, "port?depth=0") or []
        providers = [
            str(row["name"])
            for kind in (
                "brokerconnectionlimitprovider",
                f"virtualhostconnectionlimitprovider/{where}",
            )
            for row in rest.get(at, kind) or []
        ]
    except BrokerstormError as error:
        return Need("limits", False, f"unknown: {error}", "ask who runs it", needed=False)
    found = [f"{key}={host[key]}" for key in _STOPS if host.get(key)]
    found += [
        f"port {port['name']}: maxOpenConnections={port['maxOpenConnections']}"
        for port in ports
        if port.get("maxOpenConnections", -1) >= 0
    ]
    found += [f"connection limits {name}" for name in providers]
    return Need(
        "limits",
        not found,
        "; ".join(found) or "none",
        "they end connections and transactions, or stop producers: a run shows it as an outage",
        needed=False,
    )


def _site(connection: Connection) -> _Site:
    """Raises:
    UsageError: bootstrap or admin_url does not say where it is.
    """
    file, path = connection.file, connection.path
    hosts, _, rest = file.bootstrap.removeprefix("amqp://").removeprefix("amqps://").partition("/")
    addresses = hosts.split(",")
    virtual_host = rest.partition("?")[0]
    if not virtual_host:
        raise UsageError(
            f"{path}: bootstrap: which virtual host?", hint=f"as {QPID.bootstrap_form}"
        )
    urls = admin_urls(connection, addresses)
    clients = {address: _endpoint(path, address) for address in addresses}
    return _Site(virtual_host, clients, dict(zip(addresses, urls, strict=True)))


def _endpoint(path: Any, address: str) -> Endpoint:
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise UsageError(
            f"{path}: bootstrap: {address!r} is not HOST:PORT", hint=f"as {QPID.bootstrap_form}"
        )
    return Endpoint(host, int(port))


def _nodes(connection: Connection, site: _Site, hosts: Mapping[str, _Host]) -> tuple[Node, ...]:
    numbers = {at: number for number, at in enumerate(site.clients, start=1)}
    brokers = {host.node: (numbers[at], site.clients[at]) for at, host in hosts.items()}
    admin = {host.node: listens_at(site.urls[at]) for at, host in hosts.items()}
    return named_nodes(connection, brokers, admin)


def _ask(rest: QpidRest, at: str) -> None:
    """Ask again for the reason why no broker answered.

    Raises:
        EnvironmentNotReady: that.
    """
    try:
        rest.get(at, _HOSTS)
    except LockedOut as error:
        raise EnvironmentNotReady(
            str(error), hint="look at auth of the connection file: user and password"
        ) from None
    except EnvironmentNotReady as error:
        raise EnvironmentNotReady(
            str(error),
            hint="check that the broker is up, and admin_url and tls of the connection file",
        ) from None


def _refuse_apart(masters: Sequence[str], hosts: Mapping[str, _Host]) -> None:
    """Raises:
    UsageError: brokers that serve a virtual host each.
    """
    if len({hosts[at].id for at in masters}) > 1:
        raise UsageError(
            f"{masters[0]} and {masters[1]} serve separate virtual hosts: they are not a group",
            hint="one broker, or the brokers of one group",
        )


def _log_in(connection: Connection, site: _Site, at: str) -> None:
    """Once, as clients do it.

    Raises:
        EnvironmentNotReady: it is not possible.
    """
    probe = Probe(site.clients[at], 0, connection.security, site.virtual_host)
    if why := probe.failure([], through=""):
        user = (connection.security.auth or GUEST).user
        raise EnvironmentNotReady(
            f"{at}: {why}",
            hint=f"look at bootstrap, tls and auth of the connection file (user {user})",
        )


EXTERNAL = _ExternalQpid()
