"""Addresses, folders and names as nodes in containers see them, and the variables of their compose
file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from harness.clusters.layout import addresses
from harness.clusters.layout.compose import ClusterLayout, Service
from harness.clusters.layout.detours import DetourMap
from harness.clusters.layout.node_layout import Wiring, cluster_id
from harness.errors import UsageError
from harness.owners import owner_mark
from harness.protocols.cluster import Node
from harness.rundir import Document

#: A node's name on the network that only nodes are on: it means nothing on the clients' network.
MESH = "{name}-mesh"
#: Where the start of a container writes user and password of its management, in its own memory
#: alone; the password alone, and the token.
MANAGEMENT_FILE = "/dev/shm/management.passwd"
MANAGEMENT_SECRET = "/dev/shm/management.secret"
MANAGEMENT_TOKEN = "/dev/shm/management.token"
_NO_VOLUME = "/tmp"


class DockerWiring(Wiring):
    """Nodes listen on every address of their container.

    Clients and the harness reach them by published ports at 127.0.R.N, or by the detours before
    those; nodes reach each other by names on a network of their own.
    """

    def __init__(self, spec: ClusterLayout, detours: DetourMap | None = None) -> None:
        super().__init__(detours)
        self._spec = spec
        self._services = {service.name: service for service in spec.services}

    def data(self, node: Node) -> str:
        return self._services[node.name].data_mount or _NO_VOLUME

    def bind_host(self, node: Node) -> str:
        return "0.0.0.0"

    def host(self, node: Node) -> str:
        return MESH.format(name=node.name)

    def advertised(self, node: Node, port: str, number: int) -> str:
        if self._detours is not None and self._detours.is_client_port(node.name, port):
            return f"{self._detours.client_host(node.name)}:{number}"
        host = (
            node.admin.host
            if self._is_outside(self._services[node.name], port)
            else self.host(node)
        )
        return f"{host}:{number}"

    def _is_outside(self, service: Service, port: str) -> bool:
        """Whether clients or the harness connect to this port of a service, and no other node
        does."""
        sides = self._spec.detours
        for_peers = {
            name for role in service.roles for name in sides.get("peers", {}).get(role, ())
        }
        for_clients = {
            name for role in service.roles for name in sides.get("clients", {}).get(role, ())
        }
        return port in for_clients or (port == service.endpoints["admin"] and port not in for_peers)


def variables(
    spec: ClusterLayout, run_id: str, folder: Path, block: int, group: str = ""
) -> dict[str, str]:
    """Return the variables that the compose file refers to.

    Args:
        group: the control group of the containers; empty = the engine's default.
    """
    if ":" in str(folder):
        raise UsageError(
            f"the run folder {folder} has a colon in its path: Docker cannot mount it",
            hint="--run-dir names another",
        )
    return {
        f"{spec.system.upper()}_VERSION": spec.version,
        "BROKERSTORM_RUN_ID": run_id,
        "BROKERSTORM_OWNER": owner_mark(),
        "BROKERSTORM_CLUSTER_DIR": str(folder),
        "BROKERSTORM_CLUSTER_ID": cluster_id(run_id),
        "BROKERSTORM_CGROUP": group,
        "BROKERSTORM_NET": addresses.address(block, 0).removesuffix(".0"),
    }


def bind_mount(source: Path, target: str, *, read_only: bool = False) -> Document:
    """A bind mount as a compose file has it; a dollar sign would be a variable there."""
    return {
        "type": "bind",
        "source": str(source).replace("$", "$$"),
        "target": target,
        "read_only": read_only,
        "bind": {"create_host_path": False},
    }


def env_text(values: Mapping[str, str]) -> str:
    """An env file as the compose plugin reads it: single quotes keep everything as it is."""
    return "".join(
        "{}='{}'\n".format(name, value.replace("'", "\\'")) for name, value in values.items()
    )
