"""The process runtime: each service of a compose file as a local process group.

Nodes have addresses of their own, 127.0.R.N, with the same ports on each. R belongs to the run
while it lives (`addresses`). A cluster that is kept can be taken over by a later process from its
state file.
"""

from __future__ import annotations

import os
import random
import shutil
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from harness.clusters.clocks import clocks
from harness.clusters.layout import addresses
from harness.clusters.layout.compose import ClusterLayout, Service
from harness.clusters.layout.management import Management
from harness.clusters.layout.node_layout import Layout, LoopbackWiring
from harness.clusters.layout.runtime import GIVEN_MEMBERS, NodeRuntime
from harness.clusters.limits import node_limits
from harness.clusters.network import packets
from harness.clusters.network.packets import Packets
from harness.clusters.network.proxied import NEEDS, LocalDetours, detours_of
from harness.clusters.nodes.file_damage import damage_files
from harness.clusters.nodes.node_process import NodeFolder, NodeProcess
from harness.clusters.power import disks
from harness.clusters.security.made import ClusterSecurity
from harness.errors import EnvironmentNotReady, UsageError
from harness.log_stamp import LOG_ZONE
from harness.protocols.clocks import CLIENT_CLOCKS, OWN_CLOCKS
from harness.protocols.cluster import Endpoint, Node
from harness.protocols.disturbed_disks import Disturbance, Disturbed
from harness.protocols.files import Damage, DamagedPlace, FileKind
from harness.protocols.power import Unsynced
from harness.protocols.versions import versions_of
from harness.systems import system_of
from harness.toolchains.jars import resolved
from harness.toolchains.java import ClassArchive, Java
from harness.waiting import wait_until

_POLL_S = 0.05
_CONNECT_TIMEOUT_S = 1.0
_STEP_TIMEOUT_S = 120.0  # a step of the start on a machine that does other things
#: Variables of our environment that would change a broker without the scenario's knowledge.
_NOT_INHERITED = (
    *("JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "CLASSPATH"),
    *("GODEBUG", "GOGC", "GOMAXPROCS", "GOMEMLIMIT"),
)
#: What a fault may need of the cluster from its start on, and this runtime has.
GIVES: frozenset[str] = GIVEN_MEMBERS | NEEDS | node_limits.GIVES | disks.GIVES | clocks.GIVES
#: Called with a node and its folder before its first start: put formatted storage in place.
Prepare = Callable[[Node, NodeFolder], None]


@dataclass(frozen=True, slots=True)
class Launch:
    """The program that every node of a cluster is started from: ``program``, or a Java and a folder
    of jars.
    """

    spec: ClusterLayout
    java: Java
    jars: Path
    settings: Mapping[str, str]
    security: ClusterSecurity | None = None
    program: Path | None = None
    #: Whether the nodes write their class archives at their end, instead of using them.
    is_recording: bool = False

    def archive(self, main: str) -> ClassArchive:
        """The class archive of a main class."""
        return ClassArchive(self.java, f"{self.jars.name}-{main.rpartition('.')[2]}")

    @property
    def mark(self) -> str:
        """The argument of a process by which it is known that it was started from this."""
        return str(self.program or f"{self.jars}/*")


class ProcessRuntime(node_limits.LimitedNodes, NodeRuntime):
    """NodeRuntime and limits over local processes."""

    name: ClassVar[str] = "process"
    gives: ClassVar[frozenset[str]] = GIVES | {CLIENT_CLOCKS}
    hint: ClassVar[str] = (
        "leave that fault out, or run as root on Linux; see docs/reference/faults.md"
    )

    def __init__(
        self,
        run_id: str,
        folder: Path,
        block: int,
        launch: Launch,
        prepare: Prepare,
        *,
        needs: frozenset[str] = frozenset(),
    ) -> None:
        if launch.spec.program and needs & clocks.GIVES:
            raise UsageError(
                f"the nodes of {launch.spec.system} cannot have clocks of their own: "
                f"{launch.spec.program.clock_refusal}",
                hint="leave faults on clocks out",
            )
        self.needs = needs
        self.run_id = run_id
        self.folder = folder
        self.block = block
        self.management = Management(run_id)
        self.packets = Packets(run_id, launch.spec, block)
        self.detours: LocalDetours | None = detours_of(run_id, folder, launch.spec, block, needs)
        wiring = LoopbackWiring(self.detours.plan if self.detours else None)
        told: dict[str, Any] = {"management": self.management.values()}
        if launch.security:
            told["security"] = launch.security.values
        self.layout = Layout(launch.spec, folder, block, wiring, settings=launch.settings, **told)
        self._wiring, self._told = wiring, told
        self._offered = {launch.spec.asked: (launch, self.layout)}
        self._version_of = dict.fromkeys(self.layout.all_nodes, launch.spec.asked)
        self._prepare = prepare
        self._outside = self.spares()
        self._services = self.layout.services
        self._processes = {
            name: NodeProcess(name, NodeFolder(node.folder), run_id)
            for name, node in self.layout.all_nodes.items()
        }
        data = {node.name: NodeFolder(node.folder).data for node in self.layout.nodes}
        self.limits = node_limits.Limits(run_id, data, needs)
        owners = self.layout.nodes if needs & clocks.GIVES else ()
        self._clocks = clocks.OwnClocks({node.name: node.folder for node in owners})
        self.power = disks.PowerDisks(run_id, folder, data, needs)

    @classmethod
    def why_not(cls, need: str) -> str:
        if need in disks.GIVES:
            return disks.why_not(need)
        if need in (OWN_CLOCKS, CLIENT_CLOCKS):
            return clocks.why_not()
        return node_limits.why_not(need) if need in node_limits.GIVES else ""

    @classmethod
    def lacking(cls, needs: frozenset[str]) -> list[str]:
        """Any version is available, where there is one (`offer`)."""
        return super().lacking(needs - versions_of(needs).keys())

    def offer(self, version: str, launch: Launch) -> None:
        """Let nodes be started from another version of the brokers, too."""
        base = self.layout
        there = Layout(
            launch.spec, base.folder, base.block, self._wiring, settings=base.settings, **self._told
        )
        there.check_conf()
        self._offered[version] = (launch, there)

    def version(self, node: str) -> str:
        command = self._process(node).command
        for version, (launch, _) in self._offered.items():
            if launch.mark in command:
                return version
        return self._version_of[node]

    def set_version(self, node: str, version: str) -> None:
        if version not in self._offered:
            raise EnvironmentNotReady(
                f"{node} cannot become {version}: the cluster was started without it"
            )
        there = self.layout.node(node)
        self._offered[version][1].write_conf(there)
        NodeFolder(there.folder).version_file.write_text(version)
        self._version_of[node] = version

    def is_changed(self) -> bool:
        return set(self._version_of.values()) != {self.spec.asked}

    def join(self, node: str) -> None:
        self._prepare_data(self.layout.node(node), is_first=False)
        self.start(node)
        self._outside.discard(node)

    def leave(self, node: str) -> None:
        if node not in self._outside:
            self.stop(node)
            self._outside.add(node)
            shutil.rmtree(NodeFolder(self.layout.node(node).folder).data, ignore_errors=True)

    def adopt(self) -> None:
        """Take over the nodes that an earlier harness process started and that still run."""
        for name, process in self._processes.items():
            process.adopt()
            with suppress(FileNotFoundError):
                self._version_of[name] = process.folder.version_file.read_text()
            if process.is_running():
                self._outside.discard(name)
        self.power.adopt()
        if self.detours:
            self.detours.adopt()

    @property
    def facts(self) -> dict[str, str]:
        found = resolved(self._offered[self.spec.asked][0].jars)
        return {**super().facts, **({"broker jars": found} if found else {})}

    def up(self) -> None:
        self.management.keep(self.layout)
        for node in self.layout.all_nodes.values():
            self.layout.write_conf(node)
            self._prepare_data(node)
        self.power.start()
        if self.detours:
            for node in self.layout.all_nodes.values():
                self.detours.write_hosts(node.name)
            self.detours.start()
        for service in self._services.values():
            for name, condition in service.after.items():
                if name in self._services:
                    self._wait_for(name, condition)
            if service.name not in self._outside:
                self.start(service.name)
        self.check()

    def _wait_for(self, name: str, condition: str) -> None:
        """Wait until a service that another depends on is far enough.

        Raises:
            EnvironmentNotReady: it died (its last log lines), failed, or is not far enough in time.
        """
        process, node = self._processes[name], self.layout.node(name)
        endpoint = Endpoint(node.admin.host, node.client.port)  # not a proxy, which always listens
        if condition == "service_started":
            return

        def is_far_enough() -> bool:
            if not process.is_running():
                if self._services[name].once and process.exit_code == 0:
                    return True
                raise process.why_dead()
            return condition == "service_healthy" and _accepts(endpoint)

        if wait_until(is_far_enough, _STEP_TIMEOUT_S, every_s=_POLL_S):
            return
        waited = f"not listening at {endpoint}" if condition == "service_healthy" else "not done"
        raise EnvironmentNotReady(
            f"{name} is {waited} {_STEP_TIMEOUT_S:.0f} s after its start",
            hint=f"its log is {process.folder.logs / 'stdout.log'}; the machine may be too busy",
        )

    def down(self) -> None:
        """Kill every node, drop its data and give the addresses back; logs and settings stay.

        Raises:
            HealError: a node's volume or control group is still in use.
        """
        for process in self._processes.values():
            process.kill()
        if self.detours:
            self.detours.down()
        packets.clear(self.run_id)
        self.power.down()
        # where that fails, the claim on the addresses stays: `clean` finds the run by it
        self.limits.drop()
        for node in self.layout.all_nodes.values():
            for folder in (NodeFolder(node.folder).data, NodeFolder(node.folder).temporary):
                shutil.rmtree(folder, ignore_errors=True)
        addresses.release(self.run_id)

    def check(self) -> None:
        """Raise for the first node that does not run.

        Raises:
            EnvironmentNotReady: with the node's last log lines.
        """
        for node in self.nodes:
            if not self._processes[node.name].is_running():
                raise self._processes[node.name].why_dead()

    def pid(self, node: str) -> int | None:
        return self._process(node).pid

    def is_running(self, node: str) -> bool:
        return self._process(node).is_running()

    def start(self, node: str) -> None:
        process = self._process(node)
        launch, layout = self._offered[self._version_of[node]]
        service = layout.services[node]
        command, environment = self._command(launch, service), self._environment(node)
        process.launch(command, environment, memory_max_mb=service.memory_max_mb)
        self.limits.enter(node, process.pid)

    def kill(self, node: str) -> None:
        self._process(node).kill()

    def stop(self, node: str, *, timeout_s: float = 30.0) -> bool:
        return self._process(node).stop(timeout_s)

    def pause(self, node: str) -> None:
        self._process(node).pause()

    def resume(self, node: str) -> None:
        self._process(node).resume()

    def is_paused(self, node: str) -> bool:
        return self._process(node).is_paused()

    def read_data(self, node: str, path: str) -> bytes | None:
        file = NodeFolder(self.layout.node(node).folder).data / path
        try:
            return file.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise EnvironmentNotReady(f"cannot read {file}: {error.strerror}") from error

    def keep_written(self) -> None:
        self.power.keep_written()

    def stores(self) -> frozenset[str]:
        role = system_of(self.spec.system).store_role
        return frozenset(node.name for node in self.nodes if role in node.roles)

    def drop_unsynced(self, node: str, *, torn: bool, folders: bool, seed: int) -> Unsynced:
        return self.power.drop(node, torn=torn, folders=folders, seed=seed)

    def disturb_disk(self, node: str, name: str, disturbance: Disturbance) -> None:
        self.power.disturb(node, name, disturbance, system_of(self.spec.system).file_kinds)

    def disk_disturbed(self, node: str, name: str) -> Disturbed | None:
        return self.power.disturbed(node, name)

    def calm_disk(self, node: str, name: str) -> Disturbed:
        return self.power.calm(node, name)

    def damage_files(
        self, node: str, files: FileKind, damage: Damage, *, places: int, size_bytes: int, seed: int
    ) -> list[DamagedPlace]:
        data, kinds = self._data_of_a_node_down(node), system_of(self.spec.system).file_kinds
        try:
            return damage_files(
                data,
                kinds,
                files,
                damage,
                places=places,
                size_bytes=size_bytes,
                rng=random.Random(seed),
            )
        except OSError as error:
            raise EnvironmentNotReady(f"cannot damage files in {data}: {error.strerror}") from error

    def renew_data(self, node: str) -> None:
        data = self._data_of_a_node_down(node)
        try:
            for path in data.iterdir():  # it may be a mount
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            self._prepare(self.layout.node(node), NodeFolder(data.parent))
        except OSError as error:
            raise EnvironmentNotReady(f"cannot empty {data}: {error.strerror or error}") from error

    def _data_of_a_node_down(self, node: str) -> Path:
        if self.is_running(node):
            raise EnvironmentNotReady(f"{node} runs: its files are its own")
        return NodeFolder(self.layout.node(node).folder).data

    def set_clock(self, node: str, ahead_s: float, speed: float = 1.0) -> None:
        self._clocks.set(node, ahead_s, speed)

    def clock_told(self, node: str, *, within_s: float) -> float | None:
        return self._clocks.offset_told(node, within_s=within_s)

    def were_clocks_set(self) -> bool:
        return self._clocks.were_set()

    def lift_limits(self, node: str) -> None:
        super().lift_limits(node)
        self.power.calm(node)
        if clocks.GIVES & self.needs:
            self._clocks.set(node, 0.0)

    def log_tail(self, node: str) -> str:
        """Why a node that is down went down, as text for a report."""
        return str(self._process(node).why_dead())

    def _process(self, node: str) -> NodeProcess:
        return self._processes[self.layout.node(node).name]

    def _prepare_data(self, node: Node, *, is_first: bool = True) -> None:
        folder = NodeFolder(node.folder)
        if folder.data.exists():
            return
        try:
            self._prepare(node, folder)
            folder.data.mkdir(exist_ok=True)
            if is_first:
                self.limits.prepare(node.name)
        except OSError as error:
            raise EnvironmentNotReady(
                f"cannot prepare {folder.data}: {error.strerror or error}",
                hint="free some disk space or choose another --run-dir",
            ) from error

    def _command(self, launch: Launch, service: Service) -> list[str]:
        folder = NodeFolder(self.folder / service.name)
        places = {
            f"{{{one.name}.{name}}}": at
            for one in self.layout.nodes
            for name, at in self.layout.advertised(one).items()
        }
        places["{management}"] = str(Path(self.management.values()["folder"], service.name))
        if launch.security:
            places["{security}"] = launch.security.values(service.name)["folder"]
        arguments = [_filled(folder.fill(argument), places) for argument in service.args]
        if launch.program:
            return [launch.mark, *arguments]
        archive = launch.archive(service.main)
        return [
            launch.java.path,
            # a bookie that is killed leaves 13 MB of RocksDB in it
            f"-Djava.io.tmpdir={folder.temporary}",
            *(archive.record() if launch.is_recording else archive.use()),
            *(_filled(folder.fill(flag), places) for flag in service.jvm),
            *(self.detours.jvm_flags(str(folder.conf)) if self.detours else ()),
            "-cp",
            launch.mark,
            service.main,
            *arguments,
        ]

    def _environment(self, node: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
        return {**kept, "TZ": LOG_ZONE, **self._clocks.environment(node)}


def _filled(text: str, places: Mapping[str, str]) -> str:
    for name, at in places.items():
        text = text.replace(name, at)
    return text


def _accepts(endpoint: Endpoint) -> bool:
    """Whether somebody listens there."""
    try:
        with socket.create_connection((endpoint.host, endpoint.port), timeout=_CONNECT_TIMEOUT_S):
            return True
    except OSError:
        return False
