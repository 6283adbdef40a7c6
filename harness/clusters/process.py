"""The process runtime: each service of a compose file as a local process group.

Nodes have addresses of their own, 127.0.R.N, with the same ports on each. R belongs to the run while it
lives (`addresses`). A cluster that is kept can be taken over by a later process from its state file.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.clusters import addresses
from harness.clusters.compose import ClusterSpec, Service, release_key
from harness.clusters.java import Java
from harness.clusters.node_process import NodeFolder, NodeProcess
from harness.clusters.templates import render
from harness.errors import EnvironmentNotReady, UsageError
from harness.protocols import Endpoint, Node

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
    #: Added to every node's JVM flags.
    jvm: tuple[str, ...] = ()


class ProcessRuntime:
    """Runtime, Killable, Stoppable and Pausable over local processes. Thread-safe per node."""

    def __init__(self, run_id: str, folder: Path, block: int, launch: Launch, prepare: Prepare) -> None:
        self.run_id = run_id
        self.folder = folder
        self.block = block
        self._launch = launch
        self._prepare = prepare
        self._nodes = tuple(self._node(service) for service in launch.spec.services)
        self._processes = {n.name: NodeProcess(n.name, NodeFolder(n.folder), run_id) for n in self._nodes}
        self._services = {service.name: service for service in launch.spec.services}

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
        for node in self._nodes:
            self._write_conf(node)
            self._prepare_data(node)
        for node in self._nodes:
            self.start(node.name)
        self.check()

    def down(self) -> None:
        """Kill every node, drop its data and give the addresses back; logs and settings stay."""
        for process in self._processes.values():
            process.kill()
        for node in self._nodes:
            shutil.rmtree(NodeFolder(node.folder).data, ignore_errors=True)
        addresses.release(self.run_id)

    def check(self) -> None:
        """Raise for the first node that does not run.

        Raises:
            EnvironmentNotReady: with the node's last log lines.
        """
        for process in self._processes.values():
            if not process.is_running():
                raise process.why_dead()

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
                f"unknown node {node!r}", hint=f"the nodes are {', '.join(self._processes)}"
            ) from None

    def _node(self, service: Service) -> Node:
        host = addresses.address(self.block, service.number)
        ports = self._launch.spec.ports
        return Node(
            name=service.name,
            number=service.number,
            client=Endpoint(host, ports["client"]),
            peer=Endpoint(host, ports["peer"]),
            admin=Endpoint(host, ports["admin"]),
            folder=self.folder / service.name,
            roles=service.roles,
        )

    def conf_text(self, node: Node, target: str) -> str:
        """A native settings file of a node, rendered; ``target`` is its name in the node's conf folder."""
        service = self._services[node.name]
        ports = self._launch.spec.ports

        def endpoints(number: int) -> dict[str, str]:
            return {name: f"{addresses.address(self.block, number)}:{port}" for name, port in ports.items()}

        def fields(one: Node) -> dict[str, Any]:
            at = endpoints(one.number)
            data = str(NodeFolder(one.folder).data)
            return {"name": one.name, "number": one.number, "bind": at, "advertised": at, "data": data}

        values = {
            "node": fields(node),
            "nodes": [fields(one) for one in self._nodes],
            "version": self._launch.spec.version,
            "release": release_key(self._launch.spec.version),
        }
        settings = self._launch.settings if target == service.settings else {}
        return render(service.templates[target], values, settings)

    def check_conf(self) -> None:
        """Render every node's settings without writing them.

        Raises:
            UsageError: a setting that cannot be laid over the template.
        """
        for node in self._nodes:
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
        except OSError as error:
            raise EnvironmentNotReady(
                f"cannot prepare {folder.data}: {error.strerror or error}",
                hint="free some disk space or choose another --run-dir",
            ) from error

    def _command(self, service: Service) -> list[str]:
        folder = NodeFolder(self.folder / service.name)
        return [
            self._launch.java.path,
            *self._launch.jvm,
            *(folder.fill(flag) for flag in service.jvm),
            "-cp",
            f"{self._launch.jars}/*",
            service.main,
            *(folder.fill(argument) for argument in service.args),
        ]

    @staticmethod
    def _environment() -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
