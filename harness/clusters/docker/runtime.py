"""The docker runtime: each service of a compose file as a container.

The compose plugin starts the topology once. From then on containers are asked, stopped, frozen and
started through the engine's API, found by the labels of the run and of the service. (`compose
start` would run the steps of the start again.)
"""

from __future__ import annotations

import contextlib
import math
import os
import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import psutil

from harness.clusters.clocks import clocks
from harness.clusters.docker import data_files, engine, limits, namespaces, peers, topology, volumes
from harness.clusters.docker import groups as docker_groups
from harness.clusters.docker.detours import container_detours
from harness.clusters.docker.engine import asking
from harness.clusters.docker.namespaces import Whereabouts
from harness.clusters.docker.wiring import (
    MANAGEMENT_FILE,
    MANAGEMENT_SECRET,
    MANAGEMENT_TOKEN,
    MESH,
    DockerWiring,
    variables,
)
from harness.clusters.layout import addresses
from harness.clusters.layout.compose import ClusterLayout
from harness.clusters.layout.management import USER, Management
from harness.clusters.layout.node_layout import Layout
from harness.clusters.layout.runtime import GIVEN_MEMBERS, NodeRuntime
from harness.clusters.network import packets
from harness.clusters.network.packets import Packets
from harness.clusters.nodes.file_damage import damage_files, is_of
from harness.clusters.nodes.node_process import NodeFolder, cause_of, telling_lines
from harness.errors import EnvironmentNotReady, HealError
from harness.protocols.clocks import CLIENT_CLOCKS
from harness.protocols.cluster import Node
from harness.protocols.files import Damage, DamagedPlace, FileKind
from harness.protocols.members import FOURTH_BROKER, SPARE_BROKER
from harness.protocols.network import (
    ANSWERS,
    CLIENT_DETOURS,
    CLIENT_ROLES,
    PEER_CUTS,
    PEER_DETOURS,
    REQUESTS,
)
from harness.rundir import Document
from harness.systems import system_of
from harness.waiting import wait_until, wait_while

_POLL_S = 0.02
_GONE_S = 10.0
_SIGKILLED = 128 + 9  # exit code
_LOG_LINES = 400
_NETWORK = frozenset({CLIENT_DETOURS, CLIENT_ROLES, PEER_DETOURS, PEER_CUTS, REQUESTS, ANSWERS})
# the exit code that an engine gives to containers that it finds dead at its start
_ENGINE_GONE = 255


class DockerRuntime(limits.LimitedContainers, NodeRuntime):
    """NodeRuntime over containers. Thread-safe: the engine puts what is asked at once in order.

    Args:
        client: of the engine (`docker.DockerClient`).
        environment: of the compose plugin's process.
    """

    name: ClassVar[str] = "docker"
    gives: ClassVar[frozenset[str]] = (
        limits.GIVES | volumes.GIVES | GIVEN_MEMBERS | _NETWORK | {CLIENT_CLOCKS}
    )
    hint: ClassVar[str] = (
        "--runtime process may; docs/explanation/runtimes.md says which fault exists where"
    )

    def __init__(
        self,
        run_id: str,
        folder: Path,
        block: int,
        spec: ClusterLayout,
        client: Any,
        *,
        settings: Mapping[str, str] | None = None,
        needs: frozenset[str] = frozenset(),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.run_id = run_id
        self.folder = folder
        self.block = block
        self.management = Management(run_id)
        self.client = client
        self.needs = needs & self.gives | limits.GIVES  # the last asked for or not
        self.packets = Packets(run_id, spec, block, peers=False)
        self.detours = container_detours(run_id, folder, spec, block, needs, client, self.find)
        wiring = DockerWiring(spec, self.detours.plan)
        account = {
            "user": USER,
            "file": MANAGEMENT_FILE,
            "secret": MANAGEMENT_SECRET,
            "token": MANAGEMENT_TOKEN,
            "folder": "",
        }
        self.layout = Layout(spec, folder, block, wiring, settings=settings, management=account)
        self._volumes = volumes.BoundVolumes(run_id, folder, spec, client, needs)
        self.limits = self._volumes.limits
        self._environment = os.environ if environment is None else environment
        self._ids: dict[str, str] = {}
        self._outside = self.spares()

    @classmethod
    def why_not(cls, need: str) -> str:
        if need == PEER_CUTS:
            return namespaces.why_not()
        if need == PEER_DETOURS:
            return namespaces.why_no_addresses()
        if need == CLIENT_CLOCKS:
            return clocks.why_not()
        return volumes.why_not(need) if need in volumes.GIVES else ""

    def up(self) -> None:
        self.management.keep(self.layout)
        for node in self.layout.all_nodes.values():
            self._write_conf(node)
        compose = self._composing([self.spec.file, *self._volumes.make(), *self.detours.files()])
        try:
            self.detours.start(compose)
            compose(profiles=[SPARE_BROKER] if FOURTH_BROKER in self.needs else [])
        except topology.CannotCompose as error:
            self.adopt()
            raise self._unhealthy(error) from None
        self.adopt()
        self.check()
        self._volumes.check({node.name: self.pid(node.name) for node in self.nodes})
        if self.needs & {PEER_DETOURS, PEER_CUTS}:
            self.detours.check([node.name for node in self.nodes])

    def _composing(self, files: Sequence[Path]) -> Callable[..., None]:
        """`topology.up` of some of this cluster's services."""
        group = docker_groups.make(self.client, self.run_id, self.spec)
        values = variables(self.spec, self.run_id, self.folder, self.block, group)
        # The plugin hands the password on from its own environment: it is in no file.
        environment = {**self._environment, **self.management.environment()}
        return partial(topology.up, self.spec, files, self.folder, values, environment)

    def join(self, node: str) -> None:
        """Make the container of a node that joins, with an empty volume; see `HasMembers.join`."""
        overrides = (self.folder / name for name in (volumes.OVERRIDE, peers.OVERRIDE))
        self._composing([self.spec.file, *(file for file in overrides if file.exists())])([node])
        self.adopt()
        self.limits.enter(node, self.pid(node))
        self.detours.started(node)

    def leave(self, node: str) -> None:
        if node in self._outside:
            return
        self.stop(node)
        container = self.container(node)
        engine.keep_log(container, NodeFolder(self.layout.node(node).folder).logs)
        engine.drop_with_data(self.client, container)
        self._volumes.empty(node)
        self._outside.add(node)
        del self._ids[node]

    def _write_conf(self, node: Node) -> None:
        """The user inside the container is another one: what it reads, or starts, must be open to
        everybody."""
        self.layout.write_conf(node)
        conf = NodeFolder(node.folder).conf
        conf.chmod(0o755)
        for path in conf.iterdir():
            path.chmod(0o755 if path.read_bytes().startswith(b"#!") else 0o644)

    def adopt(self) -> None:
        self.detours.adopt()
        for container in engine.containers(self.client, self.run_id):
            service = engine.service_of(container)
            if service in self.layout.all_nodes:
                self._ids[service] = container.id
                self._outside.discard(service)

    def down(self) -> None:
        engine.keep_logs(self.client, self.run_id, self.folder)
        engine.remove(self.client, self.run_id)
        self.detours.down()
        packets.clear(self.run_id)
        self._volumes.drop()  # where that fails, the claim stays: `clean` finds the run by it
        docker_groups.drop(self.run_id)
        self._ids.clear()
        self.client.close()  # it opens its connections again if it is asked for more
        addresses.release(self.run_id)

    def check(self) -> None:
        for node in self.nodes:
            if problem := self._problem(node.name):
                raise problem

    def container(self, node: str) -> Any:
        """The container of a node (`docker.models.containers.Container`), as it is now.

        Raises:
            EnvironmentNotReady: it is gone, or the engine does not answer.
        """
        name = self.layout.node(node).name
        if name not in self._ids:
            raise EnvironmentNotReady(
                f"{name} has no container", hint="`brokerstorm up` starts a cluster"
            )
        with asking(f"cannot ask for the container of {name}"):
            return self.client.containers.get(self._ids[name])

    def compose_path(self) -> Path:
        return self.spec.file

    def _state(self, node: str) -> Document:
        """The engine's words on a container; empty when there is none."""
        from docker.errors import NotFound

        name = self.layout.node(node).name
        if name not in self._ids:
            return {}
        with asking(f"cannot ask for the state of {name}"):
            try:
                found: Document = self.client.api.inspect_container(self._ids[name])["State"]
            except NotFound:
                return {}
        return found

    def pid(self, node: str) -> int | None:
        """Return the process id of a node; None when it does not run, and while the engine does not
        answer: metering continues without this node.
        """
        try:
            state = self._state(node)
        except EnvironmentNotReady:
            return None
        pid = int(state.get("Pid") or 0) if state.get("Running") else 0
        # The engine may run on another machine, or in a virtual one: then the number means nothing
        # here.
        return pid if pid and self._is_ours(node, pid) else None

    def _is_ours(self, node: str, pid: int) -> bool:
        try:
            groups = Path(f"/proc/{pid}/cgroup").read_text()
        except OSError:
            return False
        return self._ids[self.layout.node(node).name] in groups and psutil.pid_exists(pid)

    def find(self, node: str) -> Whereabouts | None:
        """Where a node is now that runs on this machine: its process, and its address among the
        nodes.

        Raises:
            EnvironmentNotReady: the engine does not answer.
        """
        pid = self.pid(node)
        if pid is None:
            return None
        networks = self.container(node).attrs["NetworkSettings"]["Networks"]
        name = MESH.format(name=self.layout.node(node).name)
        found = (
            one["IPAddress"] for one in networks.values() if name in (one.get("Aliases") or ())
        )
        address = next(found, "")
        return Whereabouts(pid, address) if address else None

    def is_running(self, node: str) -> bool:
        return bool(self._state(node).get("Running"))

    def is_paused(self, node: str) -> bool:
        return bool(self._state(node).get("Paused"))

    def is_reachable(self, node: str) -> bool:
        try:
            state = self._state(node)
        except EnvironmentNotReady:
            return False  # an engine that went away took its containers along
        return bool(state.get("Running")) and not state.get("Paused")

    def start(self, node: str) -> None:
        if self.is_running(node):
            return
        container = self.container(node)
        with asking(f"cannot start {node}"):
            container.start()
        self.limits.enter(node, self.pid(node))
        self.detours.started(node)

    def kill(self, node: str) -> None:
        self._act(node, "kill", lambda container: container.kill())
        if wait_while(lambda: self.is_running(node), _GONE_S, every_s=_POLL_S):
            raise HealError(f"{node} still runs {_GONE_S:.0f} s after SIGKILL", hint="docker ps")

    def stop(self, node: str, *, timeout_s: float = 30.0) -> bool:
        self.resume(node)  # a frozen process gets its SIGTERM only when it runs
        self._act(node, "stop", lambda container: container.stop(timeout=math.ceil(timeout_s)))
        if wait_while(lambda: self.is_running(node), _GONE_S, every_s=_POLL_S):
            raise HealError(
                f"{node} still runs {timeout_s + _GONE_S:.0f} s after SIGTERM", hint="docker ps"
            )
        return self._state(node).get("ExitCode") != _SIGKILLED

    def pause(self, node: str) -> None:
        if self.is_paused(node):
            return
        if not self.is_running(node):
            raise EnvironmentNotReady(f"cannot pause {node}: it is not running")
        container = self.container(node)
        with asking(f"cannot pause {node}"):
            container.pause()
        if not wait_until(lambda: self.is_paused(node), _GONE_S, every_s=_POLL_S):
            raise EnvironmentNotReady(f"cannot pause {node}: it is not running")

    def resume(self, node: str) -> None:
        if self.is_paused(node):
            self._act(node, "resume", lambda container: container.unpause(), if_paused=True)

    def _act(
        self, node: str, what: str, do: Callable[[Any], None], *, if_paused: bool = False
    ) -> None:
        """Do it to a container that runs; it is not an error if it ended (or was resumed)
        meanwhile."""
        from docker.errors import APIError, NotFound

        if not self.is_running(node):
            return
        container = self.container(node)
        with asking(f"cannot {what} {node}"):
            try:
                do(container)
            except NotFound:
                return
            except APIError:
                state = self._state(node)
                if state.get("Running") and (state.get("Paused") or not if_paused):
                    raise

    def read_data(self, node: str, path: str) -> bytes | None:
        inside = f"{self.layout.wiring.data(self.layout.node(node))}/{path}"
        return engine.read_file(self.container(node), inside)

    def damage_files(
        self, node: str, files: FileKind, damage: Damage, *, places: int, size_bytes: int, seed: int
    ) -> list[DamagedPlace]:
        container, mount = self._data_of_a_node_down(node)
        kinds, rng = system_of(self.spec.system).file_kinds, random.Random(seed)
        try:
            return data_files.damage(
                container,
                mount,
                lambda path: is_of(files, path, kinds),
                partial(
                    damage_files,
                    kinds=kinds,
                    files=files,
                    damage=damage,
                    places=places,
                    size_bytes=size_bytes,
                    rng=rng,
                ),
                folder=self.folder,
            )
        except OSError as error:
            raise EnvironmentNotReady(
                f"cannot copy the files of {node} to {self.folder}: {error.strerror}"
            ) from error

    def renew_data(self, node: str) -> None:
        """Its image prepares it as it starts."""
        data_files.empty(self.client, *self._data_of_a_node_down(node), self.run_id)

    def _data_of_a_node_down(self, node: str) -> tuple[Any, str]:
        """Its container, and where its data is mounted there."""
        if self.is_running(node):
            raise EnvironmentNotReady(f"{node} runs: its files are its own")
        if mount := self.layout.services[node].data_mount:
            return self.container(node), mount
        raise EnvironmentNotReady(f"{node} keeps no data of its own")

    def log_tail(self, node: str) -> str:
        return str(self._why_dead(node))

    def _why_dead(self, node: str) -> EnvironmentNotReady:
        return self._error(f"{node} died{self._how(node)}", node)

    def _how(self, node: str) -> str:
        state = self._state(node)
        if not state:
            return " (its container is gone)"
        if state.get("OOMKilled"):
            return " (killed at its memory limit)"
        if state.get("ExitCode") == _ENGINE_GONE:
            return " (the Docker engine went away while it ran)"
        return f" (exit code {state['ExitCode']})" if state.get("ExitCode") else ""

    def _unhealthy(self, error: topology.CannotCompose) -> EnvironmentNotReady:
        """The plugin's error, or the error of the first container that is to blame for it."""
        for node in self.layout.all_nodes:
            state = self._state(node)
            failed = state.get("Status") in ("exited", "dead") and state.get("ExitCode")
            if failed or state.get("Health", {}).get("Status") == "unhealthy":
                return self._problem(node) or error
        return error

    def _problem(self, node: str) -> EnvironmentNotReady | None:
        """Return what is wrong with a node that should run; None when nothing is."""
        state = self._state(node)
        if not state.get("Running"):
            return self._why_dead(node)
        if state.get("Health", {}).get("Status") == "unhealthy":
            return self._error(f"{node} runs and never became healthy", node)
        return None

    def _error(self, what: str, node: str) -> EnvironmentNotReady:
        tail = ""
        logs = NodeFolder(self.layout.node(node).folder).logs
        with contextlib.suppress(EnvironmentNotReady):
            container = self.container(node)
            engine.keep_log(container, logs)
            with asking(f"cannot read the log of {node}"):
                tail = container.logs(tail=_LOG_LINES).decode(errors="replace")
        lines = "\n".join(f"    {line}" for line in telling_lines(tail)) or "    (it wrote nothing)"
        where = f"its log is {logs / 'stdout.log'}"
        hint = cause_of(tail)
        return EnvironmentNotReady(
            f"{what}; last lines:\n{lines}", hint=f"{hint}; {where}" if hint else where
        )
