"""Network faults on containers: a proxy is between clients and brokers, and another one between the
nodes (`harness.clusters.docker.peers`). Where only a partition is asked for, the kernel drops
packets between the nodes instead, in the network namespace of the receiver.

Packets that are dropped are sent again by TCP, so to drop all of them is to hold bytes until the
network is whole again. Nothing of this is known inside of a container.
"""

from __future__ import annotations

import contextlib
import shlex
import socket
import threading
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from harness.clusters.docker import namespaces
from harness.clusters.docker.mesh_map import MeshMap
from harness.clusters.docker.namespaces import FindsNode, Whereabouts
from harness.clusters.docker.peers import PeerDetours
from harness.clusters.docker.proxy import Compose
from harness.clusters.layout.compose import ClusterLayout
from harness.clusters.network import packets
from harness.clusters.network.proxied import (
    LocalDetours,
    ProtocolFacts,
    ProxiedDetours,
    detours_of,
)
from harness.errors import EnvironmentNotReady, HealError
from harness.protocols.cluster import Endpoint
from harness.protocols.network import (
    ANSWERS,
    CLIENT_DETOURS,
    CLIENT_ROLES,
    PEER_DETOURS,
    REQUESTS,
    Answered,
    Flow,
    How,
    Impairment,
    Stalled,
    Wire,
    is_client_source,
)

ONLY_HOLD: Final = "without a proxy between them, bytes of containers can only be held (partition)"


class Mesh:
    """The network between the nodes of one cluster, and what of it is cut or held. Thread-safe.

    What is held is in the kernel, found by the run id in the comment of each rule. A container that
    is started again has a new namespace and maybe another address: `started` gives it what was held
    before.

    Args:
        find: says where a node is now.
    """

    def __init__(self, run_id: str, spec: ClusterLayout, block: int, find: FindsNode) -> None:
        self._run_id = run_id
        self._find = find
        self._lock = threading.Lock()
        self._held: dict[str, tuple[Flow, ...]] = {}
        self._nodes = [service.name for service in spec.nodes]
        self._wires = MeshMap(spec, block, frozenset({PEER_DETOURS}), str).wires()

    def wires(self) -> Sequence[Wire]:
        """From node to node; a host is the target's name on the mesh, which means nothing
        outside."""
        return self._wires

    def impair(self, name: str, flows: Iterable[Flow], impairment: Impairment) -> None:
        """Drop the packets of flows until `repair` of the same name.

        Raises:
            EnvironmentNotReady: it is not to hold, the kernel refuses, or the engine does not
                answer.
        """
        if impairment.how != "hold":
            raise EnvironmentNotReady(ONLY_HOLD)
        with self._lock:
            self._held[name] = tuple(flows)
            self._settle(name)

    def started(self, node: str) -> None:
        """A node has a new container's network: hold there what is held."""
        with self._lock:
            for name, flows in self._held.items():
                if any(node in (flow.sender, flow.receiver) for flow in flows):
                    self._settle(name)

    def repair(self, name: str) -> None:
        """Drop nothing under a name any more. Idempotent; also what another process held.

        Raises:
            HealError: a rule stays.
        """
        if namespaces.why_not():
            return  # then there never was one
        with self._lock:
            self._held.pop(name, None)
            try:
                self._settle(name)
            except EnvironmentNotReady as error:
                raise HealError(f"{name} stays on the network: {error}", hint=error.hint) from error

    def is_impaired(self, name: str) -> bool:
        """Whether a node that runs drops packets under a name."""
        if namespaces.why_not():
            return False
        tag = packets.tag(self._run_id, name)
        for node in self._nodes:
            at = self._find(node)
            try:
                if at is not None and _tagged(at, tag):
                    return True
            except EnvironmentNotReady:
                if self._find(node) == at:
                    return True  # not to know is not to be repaired
        return False

    def connect(self, wire: Wire, port: str, timeout_s: float) -> socket.socket:
        """Connect in the way that the source of a wire connects to its target.

        Raises:
            OSError: no node answers, or one of them does not run.
        """
        try:
            source, target = self._find(wire.source), self._find(wire.target)
        except EnvironmentNotReady as error:
            raise ConnectionError(str(error)) from error
        if source is None or target is None:
            raise ConnectionError(f"{wire}: one of them does not run")
        endpoint = Endpoint(target.address, wire.endpoints[port].port)
        return namespaces.connect(source.pid, endpoint, timeout_s)

    def check(self, nodes: Collection[str]) -> None:
        """Ask the kernel for the rules of nodes, once they run.

        Raises:
            EnvironmentNotReady: why nothing can be held there.
        """
        for node in nodes:
            at = self._find(node)
            if at is None:
                raise EnvironmentNotReady(
                    f"the Docker engine runs {node} where its network cannot be reached from here",
                    hint="a partition between containers needs an engine on this very machine",
                )
            namespaces.rules(at.pid)

    def _settle(self, name: str) -> None:
        """Make the rules of a name what they should be, in every namespace there is."""
        found = {node: self._find(node) for node in self._nodes}
        at = {node: where for node, where in found.items() if where is not None}
        tag = packets.tag(self._run_id, name)
        flows = [f for f in self._held.get(name, ()) if f.sender in at and f.receiver in at]
        for node, where in at.items():
            new = [
                rule
                for flow in flows
                if flow.receiver == node
                for rule in _rules(flow, at[flow.sender].address, tag)
            ]
            try:
                namespaces.replace_rules(where.pid, _tagged(where, tag), new)
            except EnvironmentNotReady:
                if self._find(node) == where:  # else it ended meanwhile, and its rules with it
                    raise


class ContainerDetours(ProtocolFacts):
    """`HasDetours` for containers: a proxy before the published ports, and the mesh or a proxy on
    it. Thread-safe.

    Attributes:
        plan: of the proxy before clients; None when the cluster was started without one.
    """

    def __init__(
        self, system: str, clients: LocalDetours | None, peers: Mesh | PeerDetours
    ) -> None:
        super().__init__(system)
        self._clients = clients
        self._peers = peers
        self.plan = clients.plan if clients else None

    def files(self) -> list[Path]:
        """Make what is laid over the compose file; none without a proxy between the nodes.

        Raises:
            EnvironmentNotReady: as `PeerDetours.files`.
        """
        return self._peers.files() if isinstance(self._peers, PeerDetours) else []

    def start(self, compose: Compose) -> None:
        """Start the proxies that there are to be, before any node.

        Raises:
            EnvironmentNotReady: as `LocalDetours.start` and `PeerDetours.start`.
        """
        if self._clients:
            self._clients.start()
        if isinstance(self._peers, PeerDetours):
            self._peers.start(compose)

    def adopt(self) -> None:
        if self._clients:
            self._clients.adopt()

    def down(self) -> None:
        """Do nothing: the rules between containers end when the containers end."""
        if self._clients:
            self._clients.down()

    def check(self, nodes: Collection[str]) -> None:
        """`Mesh.check` or `PeerDetours.check`."""
        self._peers.check(nodes)

    def started(self, node: str) -> None:
        """`Mesh.started`; hosts files stay what they are."""
        if isinstance(self._peers, Mesh):
            self._peers.started(node)

    def why_not(self, link: str, how: How) -> str:
        if link not in ("peers", "all") or isinstance(self._peers, PeerDetours):
            return ""
        return namespaces.why_not() if how == "hold" else ONLY_HOLD

    def wires(self) -> Sequence[Wire]:
        return [*(self._clients.wires() if self._clients else ()), *self._peers.wires()]

    def connect(self, wire: Wire, port: str, timeout_s: float) -> socket.socket:
        if not is_client_source(wire.source):
            return self._peers.connect(wire, port, timeout_s)
        end = wire.endpoints[port]
        return socket.create_connection((end.host, end.port), timeout=timeout_s)

    def impair(self, name: str, flows: Iterable[Flow], impairment: Impairment) -> None:
        flows = list(flows)
        outside = [flow for flow in flows if is_client_source(flow.wire.source)]
        inside = [flow for flow in flows if not is_client_source(flow.wire.source)]
        if inside:
            self._peers.impair(name, inside, impairment)
        if outside and self._clients:
            self._clients.impair(name, outside, impairment)

    def give_wires(self, source: str) -> None:
        if self._clients:
            self._clients.give_wires(source)

    def answered(self, name: str) -> Answered:
        return self._clients.answered(name) if self._clients else Answered()

    def stalled(self, name: str) -> Stalled:
        found = [
            part.stalled(name)
            for part in (self._clients, self._peers)
            if isinstance(part, ProxiedDetours)
        ]
        return Stalled(sum(each.seen for each in found), sum(each.held for each in found))

    def repair(self, name: str) -> None:
        with contextlib.ExitStack() as both:  # the one also when the other fails
            both.callback(self._peers.repair, name)
            if self._clients:
                both.callback(self._clients.repair, name)

    def is_impaired(self, name: str) -> bool:
        if self._clients and self._clients.is_impaired(name):
            return True
        return self._peers.is_impaired(name)

    def found_by(self, wires: Iterable[Wire]) -> set[str]:
        wires = list(wires)
        parts = [part for part in (self._clients, self._peers) if isinstance(part, ProxiedDetours)]
        return {source for part in parts for source in part.found_by(wires)}


class RenamingContainers(ContainerDetours):
    """`RenamesNodes`, too: with a proxy between the nodes."""

    def __init__(self, system: str, clients: LocalDetours | None, peers: PeerDetours) -> None:
        super().__init__(system, clients, peers)
        self._names = peers

    def rename(self, name: str, node: str) -> Sequence[Wire]:
        return self._names.rename(name, node)


def container_detours(
    run_id: str,
    folder: Path,
    spec: ClusterLayout,
    block: int,
    needs: frozenset[str],
    client: Any,
    find: FindsNode,
) -> ContainerDetours:
    """The detours that a cluster in containers is started with, or can be cut by.

    Args:
        client: of the engine (`docker.DockerClient`).
        find: says where a node is now.

    Raises:
        UsageError: as `network.detours_of`.
    """
    clients = detours_of(
        run_id, folder, spec, block, needs & {CLIENT_DETOURS, CLIENT_ROLES, REQUESTS, ANSWERS}
    )
    if PEER_DETOURS in needs:
        return RenamingContainers(
            spec.system, clients, PeerDetours(run_id, folder, spec, block, needs, client, find)
        )
    return ContainerDetours(spec.system, clients, Mesh(run_id, spec, block, find))


def _rules(flow: Flow, sender: str, tag: str) -> list[str]:
    """Return the rules by which the receiver of a flow drops its packets, one for each port of the
    wire."""
    end = "--dport" if flow.toward == "target" else "--sport"
    return [
        f'-s {sender}/32 -p tcp {end} {endpoint.port} -m comment --comment "{tag}" -j DROP'
        for endpoint in flow.wire.endpoints.values()
    ]


def _tagged(at: Whereabouts, tag: str) -> list[str]:
    """The rules with this very comment in a namespace."""
    return [line for line in namespaces.rules(at.pid) if tag in shlex.split(line)]
