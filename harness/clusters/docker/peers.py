"""Detours between nodes in containers: one more container on their network, with the network proxy.

Each node gets a hosts file of its own, mounted over the one of its container, in which the name of
another node is the address of the pair. Its own name is not in there: it asks the engine for it, as
it would without.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

from harness.clusters.docker import namespaces, proxy
from harness.clusters.docker.mesh_map import MeshMap
from harness.clusters.docker.namespaces import FindsNode
from harness.clusters.docker.proxy import SERVICE, Compose, ContainerHost
from harness.clusters.docker.wiring import bind_mount
from harness.clusters.layout.compose import ClusterLayout
from harness.clusters.network.proxied import ProxiedDetours
from harness.errors import EnvironmentNotReady
from harness.protocols.cluster import Endpoint
from harness.protocols.network import Wire
from harness.rundir import write_json

#: Laid over the compose file of a cluster with such detours (JSON is YAML).
OVERRIDE: Final = "compose.network.json"
_HOSTS: Final = "/etc/hosts"


class PeerDetours(ProxiedDetours):
    """`ProxiedDetours` between the nodes of a cluster in containers.

    Args:
        needs: of faults.
        client: of the engine (`docker.DockerClient`).
        find: says where a node is now.
    """

    def __init__(
        self,
        run_id: str,
        folder: Path,
        spec: ClusterLayout,
        block: int,
        needs: frozenset[str],
        client: Any,
        find: FindsNode,
    ) -> None:
        self._run_id = run_id
        self._client = client
        self._find = find
        self._container = ContainerHost(run_id, folder, client)
        self._map = MeshMap(spec, block, needs, self._container.net)
        super().__init__(folder, self._map, self._container)

    def files(self) -> list[Path]:
        """Make what is laid over the compose file.

        Raises:
            EnvironmentNotReady: the proxy has no image, and none can be made.
        """
        image = proxy.provide(self._client)
        services = {SERVICE: proxy.service(image, self._run_id, self._map.api)}
        for node in self._map.sources():
            services[node] = {
                "volumes": [bind_mount(self.hosts_path(node), _HOSTS, read_only=True)]
            }
        write_json(self.folder / OVERRIDE, {"services": services})
        return [self.folder / OVERRIDE]

    def start(self, compose: Compose) -> None:
        """Start the proxy, before any node; returns when every route is open.

        Raises:
            EnvironmentNotReady: it does not start, or its network is not as it must be.
        """
        compose((SERVICE,))
        self._container.listen_on(self._map.listening())
        self._open()
        for node in self._map.sources():
            self.write_hosts(node)

    def check(self, nodes: Collection[str]) -> None:
        """Look whether nodes read the hosts files, once they run.

        Raises:
            EnvironmentNotReady: the engine shows them other files.
        """
        for node in (source for source in self._map.sources() if source in nodes):
            at = self._find(node)
            if at is None:
                raise EnvironmentNotReady(
                    f"the Docker engine runs {node} where its network cannot be reached from here",
                    hint="detours between containers need an engine on this very machine",
                )
            try:
                read = Path(f"/proc/{at.pid}/root{_HOSTS}").read_text()
            except OSError as error:
                raise EnvironmentNotReady(
                    f"cannot look at {_HOSTS} of {node}: {error.strerror}"
                ) from error
            if read != self._map.hosts_file(node):
                raise EnvironmentNotReady(
                    f"{node} does not read {self.hosts_path(node)}",
                    hint="the engine needs the same mount namespace as this process",
                )

    def connect(self, wire: Wire, port: str, timeout_s: float) -> socket.socket:
        try:
            source = self._find(wire.source)
            if source is None:
                raise ConnectionError(f"{wire.source} does not run")
            return namespaces.connect(source.pid, self._resolved(wire, port), timeout_s)
        except EnvironmentNotReady as error:
            raise ConnectionError(str(error)) from error

    def _resolved(self, wire: Wire, port: str) -> Endpoint:
        """Where the source of a wire connects to; a wire to another address has that one."""
        usual = (r for r in self._of(wire) if r.port == port and r.upstream == wire.endpoints[port])
        return next((route.listen for route in usual), wire.endpoints[port])

    def _put(self, path: Path, text: str) -> None:
        """In place: what is mounted is the file, not its name. In one write, as long as what was
        there."""
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.fchmod(handle, 0o644)
            os.pwrite(handle, text.encode(), 0)
            os.ftruncate(handle, len(text))
        finally:
            os.close(handle)
