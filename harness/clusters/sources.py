"""The software that nodes are started from, one class per runtime: Java and jars, or images."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Final, Self

from filelock import FileLock, Timeout

from harness.clusters.assembly import assembly_of, why_no_containers
from harness.clusters.layout.compose import ClusterLayout
from harness.clusters.layout.runtime import NodeRuntime
from harness.clusters.network import toxiproxy
from harness.clusters.network.proxied import NEEDS
from harness.clusters.nodes.node_process import NodeFolder
from harness.clusters.power import disks
from harness.clusters.process_runtime import Launch, ProcessRuntime
from harness.clusters.security.made import ClusterSecurity, forget
from harness.errors import BrokerstormError, UsageError
from harness.protocols.network import CLIENT_DETOURS, PEER_DETOURS, REQUESTS
from harness.toolchains import jars as artifacts
from harness.toolchains.go_tool import GoTool
from harness.toolchains.jars import Progress
from harness.toolchains.java import Java, find_java


@dataclass(frozen=True, slots=True)
class ClusterPlace:
    """The place of a cluster: its owner, its folder, and what is asked of it."""

    run_id: str
    folder: Path
    block: int
    settings: Mapping[str, str]
    needs: frozenset[str]
    security: ClusterSecurity | None = None


class NodeSoftware(ABC):
    """Got once for a cluster, kept as JSON in its folder, and made from that by a later process.

    Attributes:
        tools: programs of ours, with the needs that each meets.
    """

    tools: ClassVar[Mapping[GoTool, frozenset[str]]]

    @classmethod
    def tools_for(cls, needs: frozenset[str]) -> list[GoTool]:
        """The programs that a cluster with these needs is started with."""
        return [tool for tool, meets in cls.tools.items() if needs & meets]

    @classmethod
    @abstractmethod
    def get(
        cls, spec: ClusterLayout, *, offline: bool, on_progress: artifacts.Progress | None
    ) -> Self:
        """Find or fetch it.

        Raises:
            EnvironmentNotReady: what is missing.
        """

    @classmethod
    @abstractmethod
    def absent(cls) -> Self:
        """Stands for software that is not there: a runtime made from it describes nodes, but starts
        none."""

    @classmethod
    @abstractmethod
    def restored(cls, spec: ClusterLayout, state: Mapping[str, str]) -> Self:
        """From what `state` gave."""

    @staticmethod
    @abstractmethod
    def runtime_type() -> type[NodeRuntime]:
        """The class of its runtimes."""

    @abstractmethod
    def state(self) -> dict[str, str]:
        """Return what `restored` needs to find this software again, in another process."""

    @abstractmethod
    def runtime(self, spec: ClusterLayout, place: ClusterPlace) -> NodeRuntime:
        """The runtime of a cluster; nothing is started."""

    def make_quick(
        self, spec: ClusterLayout, place: ClusterPlace, report: artifacts.Progress
    ) -> None:
        """Make whatever makes later starts quick. Default: nothing."""
        del spec, place, report


@dataclass(frozen=True, slots=True)
class ProcessSource(NodeSoftware):
    """A Java and a folder of jars, or a program."""

    tools: ClassVar[Mapping[GoTool, frozenset[str]]] = {
        toxiproxy.SERVER: NEEDS,
        disks.PROGRAM: disks.GIVES,
    }

    java: Java
    jars: Path
    program: Path | None = None

    @classmethod
    def get(
        cls, spec: ClusterLayout, *, offline: bool, on_progress: artifacts.Progress | None
    ) -> Self:
        if spec.program:
            program = spec.program.fetch(offline=offline, on_progress=on_progress)
            return replace(cls.absent(), program=program)
        java = find_java(spec.java)
        return cls(
            java, artifacts.resolve(spec.artifacts, offline=offline, on_progress=on_progress)
        )

    @classmethod
    def absent(cls) -> Self:
        return cls(Java("", 0, ""), Path())

    @classmethod
    def restored(cls, spec: ClusterLayout, state: Mapping[str, str]) -> Self:
        if spec.program:
            return replace(cls.absent(), program=Path(state["program"]))
        return cls(find_java(spec.java), Path(state["jars"]))

    def state(self) -> dict[str, str]:
        """Return what `restored` needs to find this software again, in another process."""
        return {"program": str(self.program)} if self.program else {"jars": str(self.jars)}

    @staticmethod
    def runtime_type() -> type[NodeRuntime]:
        return ProcessRuntime

    def runtime(self, spec: ClusterLayout, place: ClusterPlace) -> ProcessRuntime:
        launch = self.launch(spec, place)
        prepare = assembly_of(spec.system).prepare(place.run_id, launch)
        return ProcessRuntime(
            place.run_id, place.folder, place.block, launch, prepare, needs=place.needs
        )

    def make_quick(
        self, spec: ClusterLayout, place: ClusterPlace, report: artifacts.Progress
    ) -> None:
        build_archives(self.launch(spec, place), place.run_id, place.block, report)

    def launch(self, spec: ClusterLayout, place: ClusterPlace) -> Launch:
        """Return what the cluster's nodes are started from."""
        return Launch(spec, self.java, self.jars, place.settings, place.security, self.program)


@dataclass(frozen=True, slots=True)
class ContainerSource(NodeSoftware):
    """A Docker engine that has the images.

    Attributes:
        client: of the engine (`docker.DockerClient`).
        environment: of the compose plugin's process.
    """

    tools: ClassVar[Mapping[GoTool, frozenset[str]]] = {
        toxiproxy.SERVER: frozenset({CLIENT_DETOURS, PEER_DETOURS, REQUESTS})
    }
    client: Any
    environment: Mapping[str, str]

    @classmethod
    def get(
        cls, spec: ClusterLayout, *, offline: bool, on_progress: artifacts.Progress | None
    ) -> Self:
        from harness.clusters.docker import engine, images
        from harness.clusters.images import compose_plugin

        if reason := why_no_containers(spec):
            raise UsageError(f"no containers: {reason}", hint="use --runtime process")
        client = engine.connect()
        environment = compose_plugin.find().environment
        images.provide(client, spec, offline=offline, on_progress=on_progress)
        return cls(client, environment)

    @classmethod
    def absent(cls) -> Self:
        return cls(None, {})

    @classmethod
    def restored(cls, spec: ClusterLayout, state: Mapping[str, str]) -> Self:
        from harness.clusters.docker import engine

        return cls(engine.connect(), os.environ)

    def state(self) -> dict[str, str]:
        """Return what `restored` needs to find this software again, in another process."""
        return {}

    @staticmethod
    def runtime_type() -> type[NodeRuntime]:
        from harness.clusters.docker.runtime import DockerRuntime

        return DockerRuntime

    def runtime(self, spec: ClusterLayout, place: ClusterPlace) -> NodeRuntime:
        from harness.clusters.docker.runtime import DockerRuntime

        return DockerRuntime(
            place.run_id,
            place.folder,
            place.block,
            spec,
            self.client,
            settings=place.settings,
            needs=place.needs,
            environment=self.environment,
        )


#: Runtime, as the user calls it -> what its nodes are started from.
SOURCES: Final[Mapping[str, type[NodeSoftware]]] = {
    "process": ProcessSource,
    "docker": ContainerSource,
}


log = logging.getLogger(__name__)
_STOP_S = 60.0


def build_archives(launch: Launch, run_id: str, block: int, report: Progress) -> None:
    """Make the class archives of the services of a cluster, unless they are there.

    Never fails: without an archive nodes start as usual. Uses addresses of the run's ``block``,
    where nothing may run yet.
    """
    if launch.program:
        return
    archives = [launch.archive(main) for main in {service.main for service in launch.spec.services}]
    lacking = [one for one in archives if one.can_record and not one.exists]
    if not lacking:
        return
    lock = launch.archive("all").path.with_suffix(".lock")
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(lock, timeout=0):
            if not all(one.exists for one in archives):
                report(
                    f"preparing {launch.spec.system} {launch.spec.version} for quick starts", None
                )
                _record(launch, run_id, block)
    except Timeout:
        return  # another process makes them; this start is a slow one
    except (BrokerstormError, OSError) as error:
        log.warning("no class archive for %s: %s", launch.jars.name, error)
    finally:
        for one in lacking:
            one.drop()


def _record(launch: Launch, run_id: str, block: int) -> None:
    assembly = assembly_of(launch.spec.system)
    spec, settings = assembly.minimal(launch.spec)
    with tempfile.TemporaryDirectory(prefix="brokerstorm-classes-") as name:
        minimal = replace(launch, spec=spec, is_recording=True, settings=settings)
        runtime = ProcessRuntime(
            run_id, Path(name), block, minimal, assembly.prepare(run_id, minimal)
        )
        admin = assembly.admin(runtime, runtime.is_running)
        admin.watch = runtime.check
        try:
            runtime.up()
            assembly.exercise(admin)
            admin.close()
            for service in reversed(spec.services):
                runtime.stop(service.name, timeout_s=_STOP_S)
                minimal.archive(service.main).keep()
        finally:
            admin.close()
            for node in runtime.nodes:
                runtime.kill(node.name)
                shutil.rmtree(NodeFolder(node.folder).data, ignore_errors=True)
            forget(run_id)
