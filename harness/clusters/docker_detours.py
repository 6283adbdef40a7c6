"""Network faults on containers: a proxy stands between clients and brokers, and between the nodes the kernel
drops packets, in the network namespace of the node that would receive them.

Packets that are dropped are sent again by TCP, so to drop all of them is to hold bytes until the network is
whole again. Nothing of this is known inside of a container.
"""

from __future__ import annotations

import contextlib
import shlex
import socket
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from harness.clusters import namespaces, packets
from harness.clusters.compose import ClusterSpec
from harness.clusters.detours import DetourMap
from harness.clusters.docker_wiring import MESH
from harness.clusters.network import detours_of
from harness.errors import EnvironmentNotReady, HealError
from harness.protocols import Endpoint
from harness.wires import CLIENT_DETOURS, CLIENTS, PEER_DETOURS, Flow, How, Impairment, Wire

ONLY_HOLD: Final = "between containers bytes can only be held (partition)"


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Where a node in a container is now: a process in its namespaces, and its address among the nodes."""

    pid: int
    address: str


class Finds(Protocol):
    def __call__(self, node: str) -> Whereabouts | None:
        """None when it does not run, or not on this machine.

        Raises:
            EnvironmentNotReady: the engine does not answer.
        """


class Mesh:
    """What the nodes of one cluster hear of each other. Thread-safe.

    What is held is in the kernel, found by the run id in the comment of each rule. A container that is
    started again has a new namespace and maybe another address: `started` gives it what was held before.

    Args:
        find: says where a node is now.
    """

    def __init__(self, run_id: str, spec: ClusterSpec, block: int, find: Finds) -> None:
        self._run_id = run_id
        self._find = find
        self._lock = threading.Lock()
        self._held: dict[str, tuple[Flow, ...]] = {}
        self._nodes = [service.name for service in spec.nodes]
        self._wires = [
            Wire(wire.source, wire.target, _by_name(wire))
            for wire in DetourMap(spec, block, (PEER_DETOURS,)).wires()
        ]

    def wires(self) -> Sequence[Wire]:
        """From node to node; a host is the target's name on the mesh, which means nothing outside."""
        return self._wires

    def hold(self, name: str, flows: Iterable[Flow]) -> None:
        """Drop the packets of flows until `repair` of the same name.

        Raises:
            EnvironmentNotReady: the kernel refuses, or the engine does not answer.
        """
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
        with self._lock:
            self._held.pop(name, None)
            try:
                self._settle(name)
            except EnvironmentNotReady as error:
                raise HealError(f"{name} stays on the network: {error}", hint=error.hint) from error

    def is_holding(self, name: str) -> bool:
        """Whether a node that runs drops packets under a name."""
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
        """As the source of a wire connects to its target.

        Raises:
            OSError: nobody answers, or one of them does not run.
        """
        try:
            source, target = self._find(wire.source), self._find(wire.target)
        except EnvironmentNotReady as error:
            raise ConnectionError(str(error)) from error
        if source is None or target is None:
            raise ConnectionError(f"{wire}: one of them does not run")
        endpoint = Endpoint(target.address, wire.endpoints[port].port)
        return namespaces.connect(source.pid, endpoint, timeout_s)

    def check(self) -> None:
        """Ask the kernel for the rules of every node, once they run.

        Raises:
            EnvironmentNotReady: why nothing can be held there.
        """
        for node in self._nodes:
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


class ContainerDetours:
    """`HasDetours` for containers: a proxy before the published ports, and the mesh. Thread-safe.

    Attributes:
        plan: of the proxy; None when the cluster was started without one.
    """

    def __init__(
        self, run_id: str, folder: Path, spec: ClusterSpec, block: int, needs: frozenset[str], find: Finds
    ) -> None:
        self._clients = detours_of(run_id, folder, spec, block, needs & {CLIENT_DETOURS})
        self._mesh = Mesh(run_id, spec, block, find)
        self.plan = self._clients.plan if self._clients else None

    def start(self) -> None:
        """Start the proxy, if there is to be one.

        Raises:
            EnvironmentNotReady: as `Detours.start`.
        """
        if self._clients:
            self._clients.start()

    def adopt(self) -> None:
        if self._clients:
            self._clients.adopt()

    def down(self) -> None:
        """What is held between containers ends with these."""
        if self._clients:
            self._clients.down()

    def check(self) -> None:
        """`Mesh.check`."""
        self._mesh.check()

    def started(self, node: str) -> None:
        """`Mesh.started`."""
        self._mesh.started(node)

    def why_not(self, link: str, how: How) -> str:
        if link == "clients":
            return ""
        return namespaces.why_not() if how == "hold" else ONLY_HOLD

    def wires(self) -> Sequence[Wire]:
        return [*(self._clients.wires() if self._clients else ()), *self._mesh.wires()]

    def connect(self, wire: Wire, port: str, timeout_s: float) -> socket.socket:
        if wire.source != CLIENTS:
            return self._mesh.connect(wire, port, timeout_s)
        end = wire.endpoints[port]
        return socket.create_connection((end.host, end.port), timeout=timeout_s)

    def impair(self, name: str, flows: Iterable[Flow], impairment: Impairment) -> None:
        flows = list(flows)
        outside = [flow for flow in flows if flow.wire.source == CLIENTS]
        inside = [flow for flow in flows if flow.wire.source != CLIENTS]
        if inside and impairment.how != "hold":
            raise EnvironmentNotReady(ONLY_HOLD)
        if inside:
            self._mesh.hold(name, inside)
        if outside and self._clients:
            self._clients.impair(name, outside, impairment)

    def repair(self, name: str) -> None:
        with contextlib.ExitStack() as both:  # the one also when the other fails
            if not namespaces.why_not():
                both.callback(self._mesh.repair, name)
            if self._clients:
                both.callback(self._clients.repair, name)

    def is_impaired(self, name: str) -> bool:
        if self._clients and self._clients.is_impaired(name):
            return True
        return not namespaces.why_not() and self._mesh.is_holding(name)


def _by_name(wire: Wire) -> dict[str, Endpoint]:
    host = MESH.format(name=wire.target)
    return {port: Endpoint(host, end.port) for port, end in wire.endpoints.items()}


def _rules(flow: Flow, sender: str, tag: str) -> list[str]:
    """What the receiver of a flow drops, a rule for each port of its wire."""
    end = "--dport" if flow.toward == "target" else "--sport"
    return [
        f'-s {sender}/32 -p tcp {end} {endpoint.port} -m comment --comment "{tag}" -j DROP'
        for endpoint in flow.wire.endpoints.values()
    ]


def _tagged(at: Whereabouts, tag: str) -> list[str]:
    """The rules with this very comment in a namespace."""
    return [line for line in namespaces.rules(at.pid) if tag in shlex.split(line)]
