"""Data volumes of containers that can be full or slow alone: the volumes of
`harness.clusters.limits.volumes`, mounted on this machine and bound into the containers instead of
the engine's own.
"""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from harness.clusters.docker import engine
from harness.clusters.docker.engine import asking
from harness.clusters.docker.wiring import bind_mount
from harness.clusters.layout.compose import ClusterLayout, Service
from harness.clusters.limits import node_limits
from harness.clusters.limits.node_limits import Limits
from harness.clusters.nodes.node_process import NodeFolder
from harness.errors import EnvironmentNotReady
from harness.rundir import write_json

#: What a fault may need of the cluster's start.
GIVES: Final = frozenset({node_limits.VOLUME, node_limits.SLOW})
#: Laid over the compose file of a cluster with such volumes (JSON is YAML).
OVERRIDE: Final = "compose.volumes.json"
_ELSEWHERE: Final = (
    "a disk of its own needs an engine on this very machine, in the same mount namespace"
)


def why_not(need: str) -> str:
    """Why containers cannot get a volume of their own here; empty when they can, as far as is known
    before there is a container."""
    if engine.socket_path() is None:
        return "the Docker engine is on another machine (DOCKER_HOST)"
    return node_limits.why_not(need)


class BoundVolumes:
    """The volumes of one cluster's containers: of the services whose data the compose file keeps in
    one.

    Args:
        client: of the engine (`docker.DockerClient`).
    """

    def __init__(
        self, run_id: str, folder: Path, spec: ClusterLayout, client: Any, needs: frozenset[str]
    ) -> None:
        self._run_id = run_id
        self._folder = folder
        self._client = client
        self._services = {each.name: each for each in spec.services if each.data_mount}
        data = {name: NodeFolder(folder / name).data for name in self._services}
        self.limits = Limits(run_id, data, needs & GIVES, contained=True)

    def make(self) -> list[Path]:
        """Make and mount them, before the containers; the compose files that bind them, none
        without volumes.

        Raises:
            EnvironmentNotReady: the machine refuses it.
        """
        bound = {}
        owners: dict[str, tarfile.TarInfo] = {}
        for node, volume in self.limits.volumes.items():
            service = self._services[node]
            if service.image not in owners:
                owners[service.image] = self._as_in_image(service)
            volume.data.mkdir(parents=True, exist_ok=True)
            self.limits.prepare(node)
            like = owners[service.image]
            os.chown(volume.data, like.uid, like.gid)
            volume.data.chmod(like.mode & 0o777)
            bound[node] = {"volumes": [bind_mount(volume.data, service.data_mount)]}
        if not bound:
            return []
        write_json(self._folder / OVERRIDE, {"services": bound})
        return [self._folder / OVERRIDE]

    def drop(self) -> None:
        """Unmount and remove them, once the containers are gone. Idempotent.

        Raises:
            HealError: one is still in use.
        """
        self.limits.drop()
        for volume in self.limits.volumes.values():
            shutil.rmtree(volume.data, ignore_errors=True)

    def empty(self, node: str) -> None:
        """Remove what a node that is down has on its volume, if it has one."""
        if volume := self.limits.volumes.get(node):
            for path in volume.data.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def check(self, pids: Mapping[str, int | None]) -> None:
        """Look whether the containers really keep their data there.

        Args:
            pids: of the nodes' processes.

        Raises:
            EnvironmentNotReady: the engine sees another file system than we do.
        """
        for node, pid in pids.items():
            if (volume := self.limits.volumes.get(node)) is None:
                continue
            if pid is None:
                raise EnvironmentNotReady(
                    f"the process of {node} is not on this machine", hint=_ELSEWHERE
                )
            inside = Path(f"/proc/{pid}/root{self._services[node].data_mount}")
            try:
                same = inside.stat().st_dev == volume.data.stat().st_dev
            except OSError as error:
                raise EnvironmentNotReady(
                    f"cannot look at the data of {node}: {error.strerror}"
                ) from error
            if not same:
                raise EnvironmentNotReady(
                    f"{node} does not keep its data on {volume.data}", hint=_ELSEWHERE
                )

    def _as_in_image(self, service: Service) -> tarfile.TarInfo:
        """Owner and mode of the data folder of an image, which a volume of the engine would take
        over."""
        with asking(f"cannot look into {service.image}"):
            made = self._client.containers.create(
                service.image, labels=engine.labels_of(self._run_id)
            )
            try:
                chunks, _ = made.get_archive(service.data_mount)
                archive = io.BytesIO(b"".join(chunks))
            finally:
                made.remove(force=True, v=True)
        with tarfile.open(fileobj=archive) as listed:
            found = listed.next()
        if found is None:
            raise EnvironmentNotReady(f"{service.image} has no {service.data_mount}")
        return found
