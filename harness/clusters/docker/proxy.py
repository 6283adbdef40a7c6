"""The network proxy in a container, between the nodes of one cluster: its image, its place in the
topology, and what it runs as.

The image holds the proxy's program and nothing else; it is made when it is needed and has the
digest of the program in its tag. The container has one address for every pair of nodes, which are
added from outside.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from harness.clusters.docker import engine, namespaces
from harness.clusters.docker.engine import STANDIN_LABEL, asking
from harness.clusters.docker.mesh_map import net_of
from harness.clusters.network import toxiproxy
from harness.clusters.nodes.node_process import NodeFolder, telling_lines
from harness.errors import EnvironmentNotReady
from harness.protocols.cluster import Endpoint
from harness.rundir import Document
from harness.toolchains.jars import Progress

#: A name of its own among the services; `toxiproxy.FOLDER` is for the proxy before clients.
SERVICE: Final = "peer-network"
REPOSITORY: Final = "brokerstorm/toxiproxy"
EDGE, MESH_NETWORK = "edge", "mesh"  # networks of the compose files
_PROGRAM: Final = "toxiproxy-server"
_LOG_LINES: Final = 40


def provide(client: Any, *, offline: bool = False, on_progress: Progress | None = None) -> str:
    """The tag of the proxy's image; made when the engine lacks it, in a second once there is the
    program.

    Raises:
        EnvironmentNotReady: as `toxiproxy.fetch`; the engine does not take the image.
    """
    program = toxiproxy.fetch(offline=offline, on_progress=on_progress).read_bytes()
    tag = f"{toxiproxy.VERSION}-{hashlib.sha256(program).hexdigest()[:12]}"
    with asking("cannot make the image of the network proxy"):
        if not client.images.list(name=f"{REPOSITORY}:{tag}"):
            said = client.api.import_image_from_data(
                _tree(program),
                repository=REPOSITORY,
                tag=tag,
                changes=[f'ENTRYPOINT ["/{_PROGRAM}"]', f"LABEL {STANDIN_LABEL}=true"],
            )
            if "error" in said:
                raise EnvironmentNotReady(
                    f"cannot make the image of the network proxy: {said.strip()[-300:]}"
                )
    return f"{REPOSITORY}:{tag}"


def _tree(program: bytes) -> bytes:
    """The whole file system of the image, as a tar archive."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as tar:
        member = tarfile.TarInfo(_PROGRAM)
        member.size, member.mode = len(program), 0o755
        tar.addfile(member, io.BytesIO(program))
    return target.getvalue()


def service(image: str, run_id: str, api: Endpoint) -> Document:
    """The proxy as compose has it.

    What the engine does not know, the name of a node that is down, it is answered at once: with
    this option the engine does not pass names without a dot on. (A name server that is not there,
    127.0.0.1, made the engine not answer at all, and a look took 20 s.)
    """
    return {
        "image": image,
        "command": ["-host", "0.0.0.0", "-port", str(api.port)],
        "networks": [EDGE, MESH_NETWORK],
        "ports": [f"{api.host}:{api.port}:{api.port}"],
        "cgroup_parent": "${BROKERSTORM_CGROUP:-}",
        "dns_opt": ["ndots:1"],
        "dns_search": ["."],
        # Through a variable: the path of a state folder may have a dollar sign in it.
        "labels": {engine.LABEL: run_id, engine.OWNER_LABEL: "${BROKERSTORM_OWNER}"},
    }


class ContainerHost:
    """`toxiproxy.Host` as the container of a run. What it says is in the engine while it lives, and
    kept as the log of any service when it ends.

    Args:
        folder: of the cluster.
        client: of the engine (`docker.DockerClient`).
    """

    def __init__(self, run_id: str, folder: Path, client: Any) -> None:
        self._run_id = run_id
        self._folder = NodeFolder(folder / SERVICE)
        self._client = client
        self._net = ""

    @property
    def log(self) -> Path:
        """The file that keeps what the proxy's container prints."""
        return self._folder.logs / "stdout.log"

    def adopt(self) -> None:
        """Nothing to take over: the engine knows it by the run."""

    def kill(self) -> None:
        """Do nothing: the proxy's container ends with the other containers of the run."""

    def is_running(self) -> bool:
        try:
            return self.pid() is not None
        except EnvironmentNotReady:
            return False  # an engine that went away took its containers along

    def why_dead(self) -> EnvironmentNotReady:
        """Return the error that explains why the proxy does not run, with the end of its log."""
        tail = ""
        if found := self._find():
            engine.keep_log(found, self._folder.logs)
            with asking("cannot read the log of the network proxy"):
                tail = found.logs(tail=_LOG_LINES).decode(errors="replace")
        lines = "\n".join(f"    {line}" for line in telling_lines(tail)) or "    (it wrote nothing)"
        return EnvironmentNotReady(
            f"the network proxy between the nodes died; last lines:\n{lines}",
            hint=f"its log is {self.log}",
        )

    def accepted(self) -> set[tuple[str, int]]:
        pid = self.pid()
        return namespaces.established(pid) if pid else set()

    def listen_on(self, hosts: list[str]) -> None:
        """Give it more addresses on the network of the nodes, until it ends.

        Raises:
            EnvironmentNotReady: it died, runs on another machine, or the kernel refuses.
        """
        pid = self.pid()
        if pid is None:
            raise self.why_dead()
        namespaces.add_addresses(pid, self._on_mesh()["IPAddress"], hosts)

    def net(self) -> str:
        """`mesh_map.net_of` the network of the nodes.

        Raises:
            EnvironmentNotReady: the network does not exist, or it is too small.
        """
        if not self._net:
            on_mesh = self._on_mesh()
            with asking("cannot look at the network of the nodes"):
                found = self._client.networks.get(on_mesh["NetworkID"]).attrs["IPAM"]["Config"]
            self._net = net_of(found[0]["Subnet"])
        return self._net

    def pid(self) -> int | None:
        """Return the proxy's process id on this machine; None when it does not run."""
        found = self._find()
        state = found.attrs["State"] if found else {}
        return int(state.get("Pid") or 0) or None if state.get("Running") else None

    def _on_mesh(self) -> Document:
        found = self._find()
        networks = found.attrs["NetworkSettings"]["Networks"] if found else {}
        for name, on_it in networks.items():
            if name.endswith(f"_{MESH_NETWORK}"):
                return dict(on_it)
        raise EnvironmentNotReady(
            "the network proxy between the nodes is not there",
            hint="`brokerstorm up` starts a cluster",
        )

    def _find(self) -> Any:
        """The container (`docker.models.containers.Container`) as it is now, None when there is
        none."""
        for one in engine.containers(self._client, self._run_id):
            if engine.service_of(one) == SERVICE:
                with asking("cannot ask for the network proxy between the nodes"):
                    return self._client.containers.get(one.id)
        return None


#: Starts services of a topology by the compose plugin: all that are not started yet, or these.
Compose = Callable[[tuple[str, ...]], None]
