"""Addresses, names and routes of connections that pass a proxy, where a network fault can impair
them. Pure.

Without detours a connection goes straight to a node's port at 127.0.R.N. With them it goes through
a proxy:

    clients            -> 127.0.R.(100+N):port          -> 127.0.R.N:port
    producers          -> 127.0.R.(100+N):port          -> 127.0.R.(20+N):port -> 127.0.R.N:port
    an instance        -> 127.0.R.(100+N):port          -> 127.0.R.(40+N):any  -> 127.0.R.N:port
    node S to node T   -> 127.0.R.(120+9(S-1)+T-1):port -> 127.0.R.T:port
    the same, renamed  -> 127.0.R.(210+9(T mod 5)+S-1)  -> 127.0.R.T:port

Brokers advertise the first address, so no client by-passes it. Where a fault is about some clients
only, that address is a splitter: it finds out whose each connection is and passes it on to the
listener of producers (20+N), of consumers (30+N), of the instance of an application (40+N, a port
each), of readers of the log (50+N, where answers can be changed) or of other clients (10+N). Nodes
know each other by name (``kafka-2.peer``), and a hosts file a node says what each name means to it
(``-Djdk.net.hosts.file``), so that every ordered pair of nodes has a way of its own: one node, a
ring or one direction are sets of pairs.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from harness.clusters.layout import addresses
from harness.clusters.layout.compose import ClusterLayout, Service
from harness.protocols.cluster import Endpoint
from harness.protocols.network import (
    ANSWERS,
    AUDIT,
    CLIENT_DETOURS,
    CLIENT_ROLES,
    CLIENTS,
    CONSUMERS,
    PEER_CUTS,
    PEER_DETOURS,
    PRODUCERS,
    REQUESTS,
    Wire,
)

_PROXY, _CLIENT, _PAIR, _MOVED, _PER_SOURCE = 100, 100, 120, 210, 9
#: Source of a wire -> where the numbers of its addresses begin, where connections are told apart by
#: role.
_ROLES = {CLIENTS: 10, PRODUCERS: 20, CONSUMERS: 30}
#: Where the numbers of the addresses for instances of applications begin.
_INSTANCES = 40
#: Where those of readers of the log begin, where answers can be changed.
_AUDIT = 50
API_PORT = 18474


@dataclass(frozen=True, slots=True)
class Route:
    """One listener of the proxy."""

    source: str
    target: str
    port: str
    listen: Endpoint
    upstream: Endpoint

    @property
    def name(self) -> str:
        """Unique in a cluster; has no slash, it is part of a URL."""
        return f"{self.source}.{self.target}.{self.port}"


@dataclass(frozen=True, slots=True)
class Split:
    """A listener that passes each connection to a port of a node on to the route of its client's
    role."""

    listen: Endpoint
    target: str
    port: str


def wires_of_routes(routes: Iterable[Route]) -> list[Wire]:
    """Return the wires of routes: one for every pair of source and target."""
    ends: dict[tuple[str, str], dict[str, Endpoint]] = {}
    for route in routes:
        ends.setdefault((route.source, route.target), {})[route.port] = route.listen
    return [Wire(source, target, endpoints) for (source, target), endpoints in ends.items()]


class DetourMap:
    """The ways of one cluster of local processes; for containers, the ways of clients (the others:
    `mesh_map`). Nodes without a number from 1 to 9 cannot have any.

    Attributes:
        clients: connections of clients take a detour.
        peers: connections between nodes take a detour.
        roles: connections of producers, of consumers and of other clients take different ones.
        requests: the proxy knows where each request begins.
        answers: it can change answers.
    """

    def __init__(self, spec: ClusterLayout, block: int, needs: Iterable[str]) -> None:
        needs = frozenset(needs)
        self.clients, self.peers = CLIENT_DETOURS in needs, bool({PEER_DETOURS, PEER_CUTS} & needs)
        self.roles = self.clients and CLIENT_ROLES in needs
        self.requests = REQUESTS in needs
        self.answers = ANSWERS in needs
        self.system = spec.system
        self._spec = spec
        self._block = block
        self._services = {service.name: service for service in spec.services}
        beyond = [s.name for s in spec.services if s.number > _PER_SOURCE]
        assert not beyond, f"no addresses for detours of {beyond}"

    @property
    def api(self) -> Endpoint:
        """Where the proxy receives its commands."""
        return Endpoint(addresses.address(self._block, _PROXY), API_PORT)

    def is_client_port(self, service: str, port: str) -> bool:
        """Return whether clients reach this port of a service through a proxy."""
        return self.clients and port in self._ports("clients", self._services[service])

    def is_peer_port(self, service: str, port: str) -> bool:
        """Return whether other nodes reach this port of a service through a proxy."""
        return self.peers and port in self._ports("peers", self._services[service])

    def client_host(self, service: str) -> str:
        """Where clients find a node that has a port for them."""
        return addresses.address(self._block, _CLIENT + self._services[service].number)

    def peer_name(self, service: str) -> str:
        """Return the name by which other nodes call a node; its address if they do not connect to
        it."""
        named = self.peers and self._ports("peers", self._services[service])
        return f"{service}.peer" if named else self._direct(service)

    def pair(self, source: str, target: str) -> str:
        """Where a node finds another; empty = as if nothing stood between."""
        named = self.peers and source != target and self._ports("peers", self._services[target])
        return self._pair(self._services[source], self._services[target]) if named else ""

    def routes(self) -> list[Route]:
        """Every listener of the proxy, in a fixed order."""
        found = []
        for target in self._spec.nodes:
            if self.clients:
                for role, host in self._client_hosts(target).items():
                    found += self._routes(role, target, "clients", host)
            if self.peers:
                for source in self._spec.nodes:
                    if source.name != target.name:
                        found += self._routes(
                            source.name, target, "peers", self._pair(source, target)
                        )
        return found

    def splits(self) -> list[Split]:
        """Every listener that tells the roles of clients apart; none where no fault asks for it."""
        if not self.roles:
            return []
        return [
            Split(Endpoint(self.client_host(node.name), self._spec.ports[port]), node.name, port)
            for node in self._spec.nodes
            for port in self._ports("clients", node)
        ]

    def of_instance(self, source: str) -> list[Route]:
        """The routes of an instance of an application; the proxy chooses the ports that it listens
        on. None where no fault asks for them."""
        if not self.roles:
            return []
        return [
            replace(route, listen=Endpoint(route.listen.host, 0))
            for node in self._spec.nodes
            for route in self._routes(
                source,
                node,
                "clients",
                addresses.address(self._block, _INSTANCES + node.number),
            )
        ]

    def wires(self) -> list[Wire]:
        """Return the wires of all routes: one for every pair of source and target."""
        return wires_of_routes(self.routes())

    def moved(self, node: str) -> list[Route]:
        """The routes to a node from the others at its other address."""
        target = self._services[node]
        return [
            route
            for source in self._spec.nodes
            if self.peers and source.name != node
            for route in self._routes(source.name, target, "peers", self._moved(source, target))
        ]

    def sources(self) -> list[str]:
        """Every service that reads a hosts file."""
        return [service.name for service in self._spec.nodes] if self.peers else []

    def hosts_file(self, service: str, moved: Mapping[str, str] | None = None) -> str:
        """Return the hosts file of one node: the only names that its JVM can then resolve.

        Args:
            moved: node -> address instead of the one that this node would find it at.
        """
        own = self._services[service]
        at = self._always()
        for other in self._spec.services:
            if not self._ports("peers", other):
                continue
            direct = own.once or other.name == service  # a step of the start is never cut off
            found_at = self._undisturbed(other.name) if direct else self._pair(own, other)
            at[self.peer_name(other.name)] = found_at
        at |= {self.peer_name(node): address for node, address in (moved or {}).items()}
        return "".join(f"{address:<15} {name}\n" for name, address in at.items() if address)

    def _routes(self, source: str, target: Service, side: str, host: str) -> list[Route]:
        ports = self._spec.ports
        return [
            Route(
                source,
                target.name,
                name,
                Endpoint(host, ports[name]),
                Endpoint(self._upstream(target.name), ports[name]),
            )
            for name in self._ports(side, target)
        ]

    def _client_hosts(self, target: Service) -> dict[str, str]:
        """Source of each wire of clients to a node -> the address of its listeners."""
        if not self.roles:
            return {CLIENTS: self.client_host(target.name)}
        firsts = {**_ROLES, AUDIT: _AUDIT} if self.answers else _ROLES
        return {
            source: addresses.address(self._block, first + target.number)
            for source, first in firsts.items()
        }

    def _ports(self, side: str, service: Service) -> list[str]:
        by_role = self._spec.detours.get(side, {})
        return [port for role in service.roles for port in by_role.get(role, ())]

    def _direct(self, service: str) -> str:
        return addresses.address(self._block, self._services[service].number)

    def _always(self) -> dict[str, str]:
        """Names that every node can resolve, whoever else there is."""
        return {"localhost": "127.0.0.1", socket.gethostname(): "127.0.0.1"}

    def _undisturbed(self, service: str) -> str:
        """Return the address of a node that has no proxy before it; empty when a hosts file does
        not need it.
        """
        return self._direct(service)

    def _upstream(self, service: str) -> str:
        """Where the proxy finds a node."""
        return self._direct(service)

    def _at(self, number: int) -> str:
        """An address of the proxy, for nodes."""
        return addresses.address(self._block, number)

    def _pair(self, source: Service, target: Service) -> str:
        return self._at(self._number(source, target))

    def _moved(self, source: Service, target: Service) -> str:
        """One of five other addresses: nodes whose numbers differ by five cannot be renamed at
        once."""
        return self._at(_MOVED + _PER_SOURCE * (target.number % 5) + source.number - 1)

    @staticmethod
    def _number(source: Service, target: Service) -> int:
        return _PAIR + _PER_SOURCE * (source.number - 1) + target.number - 1
