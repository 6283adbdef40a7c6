"""The process runtime: each service of a compose file as a local process group.

Nodes have addresses of their own, 127.0.R.N, with the same ports on each. R belongs to the run while it
lives (`addresses`). A cluster that is kept can be taken over by a later process from its state file.
"""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.clusters import addresses
from harness.clusters.compose import ClusterSpec, Service, release_key
from harness.clusters.java import Java
from harness.clusters.node_process import NodeFolder, NodeProcess
from harness.clusters.templates import render
from harness.errors import EnvironmentNotReady, UsageError
from harness.protocols import Endpoint, Node

_POLL_S = 0.05
_CONNECT_TIMEOUT_S = 1.0
_STEP_TIMEOUT_S = 120.0  # a step of the start on a machine that does other things
#: Variables of our environment that would change a broker behind the scenario's back.
_NOT_INHERITED = ("JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "CLASSPATH")
#: Called with a node and its folder before its first start: put formatted storage in place.
Prepare = Callable[[Node, NodeFolder], None]


@dataclass(frozen=True, slots=True)
class Launch:
    """What every node of a cluster is started from."""

    spec: ClusterSpec
    java: Java
    jars: Path
    settings: Mapping[str, Any]
    #: Added to every node's JVM flags; may hold {main}, the service's main class.
    jvm: tuple[str, ...] = ()
    #: Main class -> its class archive.
    archives: Mapping[str, Path] = field(default_factory=dict)


class ProcessRuntime:
    """Runtime, Killable, Stoppable and Pausable over local processes. Thread-safe per node."""

    def __init__(self, run_id: str, folder: Path, block: int, launch: Launch, prepare: Prepare) -> None:
        self.run_id = run_id
        self.folder = folder
        self.block = block
        self._launch = launch
        self._prepare = prepare
        self._services = {service.name: service for service in launch.spec.services}
        self._all = {name: self._node(service) for name, service in self._services.items()}
        self._nodes = tuple(self._all[service.name] for service in launch.spec.nodes)
        self._processes = {
            name: NodeProcess(name, NodeFolder(node.folder), run_id) for name, node in self._all.items()
        }

    @property
    def spec(self) -> ClusterSpec:
        return self._launch.spec

    @property
    def nodes(self) -> Sequence[Node]:
        return self._nodes

    def adopt(self) -> None:
        """Take over the nodes that an earlier harness process started and that still run."""
        for process in self._processes.values():
            process.adopt()

    def up(self, *, needs: Iterable[str] = ()) -> None:
        lacking = sorted(set(needs))
        if lacking:
            raise UsageError(f"the process runtime cannot give: {', '.join(lacking)}")
        for node in self._all.values():
            self._write_conf(node)
            self._prepare_data(node)
        for service in self._services.values():
            for name, condition in service.after.items():
                if name in self._services:
                    self._wait_for(name, condition)
            self.start(service.name)
        self.check()

    def _wait_for(self, name: str, condition: str) -> None:
        """Wait until a service that another depends on is far enough.

        Raises:
            EnvironmentNotReady: it died (its last log lines), failed, or is not far enough in time.
        """
        process, endpoint = self._processes[name], self._all[name].client
        deadline = time.monotonic() + _STEP_TIMEOUT_S
        if condition == "service_started":
            return
        while time.monotonic() < deadline:
            completed = self._services[name].once and not process.is_running()
            if completed and process.exit_code == 0:
                return
            if completed or not process.is_running():
                raise process.why_dead()
            if condition == "service_healthy" and _accepts(endpoint):
                return
            time.sleep(_POLL_S)
        waited = f"not listening at {endpoint}" if condition == "service_healthy" else "not done"
        raise EnvironmentNotReady(
            f"{name} is {waited} {_STEP_TIMEOUT_S:.0f} s after its start",
            hint=f"its log is {process.folder.logs / 'stdout.log'}; the machine may be too busy",
        )

    def down(self) -> None:
        """Kill every node, drop its data and give the addresses back; logs and settings stay."""
        for process in self._processes.values():
            process.kill()
        for node in self._all.values():
            shutil.rmtree(NodeFolder(node.folder).data, ignore_errors=True)
        addresses.release(self.run_id)

    def check(self) -> None:
        """Raise for the first node that does not run.

        Raises:
            EnvironmentNotReady: with the node's last log lines.
        """
        for node in self._nodes:
            if not self._processes[node.name].is_running():
                raise self._processes[node.name].why_dead()

    def pid(self, node: str) -> int | None:
        return self._process(node).pid

    def is_running(self, node: str) -> bool:
        return self._process(node).is_running()

    def start(self, node: str) -> None:
        self._process(node).launch(self._command(self._services[node]), self._environment())

    def kill(self, node: str) -> None:
        self._process(node).kill()

    def stop(self, node: str, *, timeout_s: float = 30.0) -> None:
        self._process(node).stop(timeout_s)

    def pause(self, node: str) -> None:
        self._process(node).pause()

    def resume(self, node: str) -> None:
        self._process(node).resume()

    def is_paused(self, node: str) -> bool:
        return self._process(node).is_paused()

    def log_tail(self, node: str) -> str:
        """Why a node that is down went down, as text for a report."""
        return str(self._process(node).why_dead())

    def _process(self, node: str) -> NodeProcess:
        try:
            return self._processes[node]
        except KeyError:
            raise UsageError(
                f"unknown node {node!r}", hint=f"the nodes are {', '.join(n.name for n in self._nodes)}"
            ) from None

    def _node(self, service: Service) -> Node:
        host = addresses.address(self.block, service.number)
        ports = self._launch.spec.ports
        return Node(
            name=service.name,
            number=service.number,
            client=Endpoint(host, ports[service.endpoints["client"]]),
            peer=Endpoint(host, ports[service.endpoints["peer"]]),
            admin=Endpoint(host, ports[service.endpoints["admin"]]),
            folder=self.folder / service.name,
            roles=service.roles,
        )

    def conf_text(self, node: Node, target: str) -> str:
        """A native settings file of a node, rendered; ``target`` is its name in the node's conf folder."""
        service, spec = self._services[node.name], self._launch.spec

        def fields(one: Node) -> dict[str, Any]:
            at = self._addresses(one)
            return {
                "name": one.name,
                "number": one.number,
                "roles": one.roles,
                "host": one.client.host,
                "bind": at,
                "advertised": at,
                "data": str(NodeFolder(one.folder).data),
            }

        values = {
            "node": fields(node),
            "nodes": [fields(one) for one in self._nodes],
            "version": spec.version,
            "release": release_key(spec.version),
            "topology": spec.topology,
            "ports": dict(spec.ports),
        }
        settings = self._launch.settings if target == service.settings else {}
        return render(service.templates[target], values, settings, reserved=spec.reserved)

    def _addresses(self, node: Node) -> dict[str, str]:
        """Name of a port -> the node's address with it."""
        return {name: f"{node.client.host}:{port}" for name, port in self._launch.spec.ports.items()}

    def check_conf(self) -> None:
        """Render every node's settings without writing them.

        Raises:
            UsageError: a setting that cannot be laid over the template.
        """
        for node in self._all.values():
            for target in self._services[node.name].templates:
                self.conf_text(node, target)

    def _write_conf(self, node: Node) -> None:
        folder = NodeFolder(node.folder)
        try:
            folder.conf.mkdir(parents=True, exist_ok=True)
            folder.logs.mkdir(parents=True, exist_ok=True)
            for target in self._services[node.name].templates:
                (folder.conf / target).write_text(self.conf_text(node, target))
        except OSError as error:
            raise EnvironmentNotReady(f"cannot write {folder.conf}: {error.strerror}") from error

    def _prepare_data(self, node: Node) -> None:
        folder = NodeFolder(node.folder)
        if folder.data.exists():
            return
        try:
            self._prepare(node, folder)
            folder.data.mkdir(exist_ok=True)
        except OSError as error:
            raise EnvironmentNotReady(
                f"cannot prepare {folder.data}: {error.strerror or error}",
                hint="free some disk space or choose another --run-dir",
            ) from error

    def _command(self, service: Service) -> list[str]:
        folder = NodeFolder(self.folder / service.name)
        places = {
            f"{{{one.name}.{name}}}": at for one in self._nodes for name, at in self._addresses(one).items()
        }
        archive = self._launch.archives.get(service.main)
        return [
            self._launch.java.path,
            *([f"-XX:SharedArchiveFile={archive}"] if archive else []),
            *(flag.replace("{main}", service.main) for flag in self._launch.jvm),
            *(folder.fill(flag) for flag in service.jvm),
            "-cp",
            f"{self._launch.jars}/*",
            service.main,
            *(_filled(folder.fill(argument), places) for argument in service.args),
        ]

    @staticmethod
    def _environment() -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}


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
