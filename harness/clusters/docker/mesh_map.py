"""The ways between nodes in containers, on the network that only nodes are on. Pure.

    node S to node T   -> N.(120+9(S-1)+T-1):port       -> T-mesh:port
    the same, renamed  -> N.(210+9(T mod 5)+S-1):port   -> T-mesh:port

N are the first three numbers of the last addresses of that network: an engine gives out the first
ones. The proxy asks the engine for the name of a node with each connection, so that one with a new
address is found.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable

from harness.clusters.docker.wiring import MESH
from harness.clusters.layout import addresses
from harness.clusters.layout.compose import ClusterLayout
from harness.clusters.layout.detours import API_PORT, DetourMap
from harness.errors import EnvironmentNotReady
from harness.protocols.cluster import Endpoint
from harness.protocols.network import PEER_DETOURS, REQUESTS, Wire

#: Of an address of the run: where the API of the proxy in a container is published.
API_NUMBER = 110


class MeshMap(DetourMap):
    """`DetourMap` for the nodes of a cluster in containers.

    A hosts file knows the other nodes only: a node's own name is the engine's to say.

    Args:
        needs: of faults.
        net: asked for N; the network is made when containers are.
    """

    def __init__(
        self, spec: ClusterLayout, block: int, needs: frozenset[str], net: Callable[[], str]
    ) -> None:
        super().__init__(spec, block, needs & {PEER_DETOURS, REQUESTS})
        self._net = net

    @property
    def api(self) -> Endpoint:
        return Endpoint(addresses.address(self._block, API_NUMBER), API_PORT)

    def peer_name(self, service: str) -> str:
        return MESH.format(name=service)

    def wires(self) -> list[Wire]:
        """Known before there is a network: a host is the target's name, as its source has it."""
        named = DetourMap(self._spec, self._block, (PEER_DETOURS,)).wires()
        return [
            Wire(
                wire.source,
                wire.target,
                {
                    port: Endpoint(self.peer_name(wire.target), end.port)
                    for port, end in wire.endpoints.items()
                },
            )
            for wire in named
        ]

    def listening(self) -> list[str]:
        """Every address that the proxy ever listens on, each once."""
        moved = (route for node in self.sources() for route in self.moved(node))
        return list(dict.fromkeys(route.listen.host for route in (*self.routes(), *moved)))

    def _always(self) -> dict[str, str]:
        return {"localhost": "127.0.0.1"}

    def _undisturbed(self, service: str) -> str:
        return ""

    def _upstream(self, service: str) -> str:
        return MESH.format(name=service)

    def _at(self, number: int) -> str:
        return f"{self._net()}.{number}"


def net_of(subnet: str) -> str:
    """N of a network: ``"172.20.0.0/16"`` -> ``"172.20.255"``.

    Raises:
        EnvironmentNotReady: it has fewer than 256 addresses.
    """
    network = ipaddress.ip_network(subnet)
    if network.version != 4 or network.prefixlen > 24:
        raise EnvironmentNotReady(
            f"the network {subnet} of the nodes has no room for their detours",
            hint="it needs 256 addresses of IPv4: see default-address-pools of the Docker engine",
        )
    return str(network.broadcast_address).rpartition(".")[0]
