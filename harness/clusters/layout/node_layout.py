"""The nodes of one cluster, their addresses and their rendered settings: the same on every runtime.

A runtime differs in how nodes reach each other and where their files are, and says so in a
`Wiring`. Clients and the harness reach every node at the addresses of the run's block, whatever the
runtime.
"""

from __future__ import annotations

import base64
import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from harness.clusters.layout import addresses
from harness.clusters.layout.compose import ClusterLayout, Service, release_key
from harness.clusters.layout.detours import DetourMap
from harness.clusters.nodes.node_process import NodeFolder
from harness.errors import EnvironmentNotReady, UsageError
from harness.node_settings import by_node, of_node
from harness.protocols.cluster import Endpoint, Node
from harness.validation import is_one_line


def cluster_id(run_id: str) -> str:
    """An id of a run's cluster, 16 bytes: brokers of two runs can refuse each other by it."""
    return base64_of(hashlib.sha256(run_id.encode()).digest()[:16])


def base64_of(raw: bytes) -> str:
    """Url-safe and without padding, as Kafka writes its ids."""
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


#: What a template of settings is given, by the names that it uses.
TemplateValues = dict[str, Any]


class Wiring(ABC):
    """How the nodes of one runtime see themselves and each other. ``port`` is a name of the compose
    file."""

    def __init__(self, detours: DetourMap | None = None) -> None:
        self._detours = detours

    @abstractmethod
    def data(self, node: Node) -> str:
        """The node's data folder, as the node sees it."""

    @abstractmethod
    def bind_host(self, node: Node) -> str:
        """Return the address that the node listens on."""

    @abstractmethod
    def host(self, node: Node) -> str:
        """Return the host name under which other nodes know the node."""

    @abstractmethod
    def advertised(self, node: Node, port: str, number: int) -> str:
        """``host:port`` that users of this port of the node connect to."""

    def reached_at(self, node: Node, by: Node) -> str:
        """Return the address at which one node finds another, where a node is given addresses one
        by one. By default, this is the name under which the other is known.
        """
        return self.host(node)

    def client_host(self, service: Service, host: str) -> str:
        """Where clients find a node of a service, given its own address: there, unless by a
        detour."""
        detours = self._detours
        if detours is not None and detours.is_client_port(
            service.name, service.endpoints["client"]
        ):
            return detours.client_host(service.name)
        return host


class Layout:
    """The nodes of one cluster and their settings. Holds no process and no container.

    Attributes:
        services: every service of the compose file by name, steps of the start included.
        all_nodes: one node a service, steps of the start included.
        nodes: those that keep running.

    Args:
        settings: of the user, by the brokers' own names; settings of one node as
            `harness.node_settings`.
        management: what templates know of the harness' account in the brokers' management.
        security: a node's name -> what its templates know where the cluster is secure.
    """

    def __init__(
        self,
        spec: ClusterLayout,
        folder: Path,
        block: int,
        wiring: Wiring,
        *,
        settings: Mapping[str, str] | None = None,
        management: Mapping[str, str] | None = None,
        security: Callable[[str], Mapping[str, str]] = lambda node: {},
    ) -> None:
        self.spec = spec
        self.folder = folder
        self.block = block
        self.wiring = wiring
        self.settings = dict(settings or {})
        self._management = dict(management or {})
        self._security = security
        self.services = {service.name: service for service in spec.services}
        self.all_nodes = {name: self._node(service) for name, service in self.services.items()}
        self.nodes: Sequence[Node] = tuple(self.all_nodes[service.name] for service in spec.nodes)

    def node(self, name: str) -> Node:
        """A node by its service's name.

        Raises:
            UsageError: there is none.
        """
        try:
            return self.all_nodes[name]
        except KeyError:
            listed = ", ".join(node.name for node in self.nodes)
            raise UsageError(f"unknown node {name!r}", hint=f"the nodes are {listed}") from None

    def bind(self, node: Node) -> dict[str, str]:
        """Name of a port -> where the node listens."""
        host = self.wiring.bind_host(node)
        return {name: f"{host}:{port}" for name, port in self.spec.ports.items()}

    def advertised(self, node: Node) -> dict[str, str]:
        """Name of a port -> where others connect."""
        return {
            name: self.wiring.advertised(node, name, port) for name, port in self.spec.ports.items()
        }

    def conf_text(self, node: Node, target: str) -> str:
        """A native settings file of a node, rendered; ``target`` is its name in the node's conf
        folder."""
        service = self.services[node.name]
        settings = self._settings_of(service) if target == service.settings else {}
        values = {**self._values(node), "plain": str(service.plain.get(target, ""))}
        return render(service.templates[target], values, settings, reserved=self.spec.reserved)

    def _settings_of(self, service: Service) -> dict[str, str]:
        own = service.settings_prefix
        others = tuple({one.settings_prefix for one in self.services.values()} - {own, ""})
        return {
            key.removeprefix(own): value
            for key, value in of_node(self.settings, service.name).items()
            if key.startswith(own) and not key.startswith(others)
        }

    def private_texts(self, node: Node, secrets: Mapping[str, object]) -> dict[str, str]:
        """The files of a node that hold ``secrets``, rendered."""
        values = {**self._values(node), **secrets}
        private = self.services[node.name].private
        return {target: render(template, values) for target, template in private.items()}

    def management_texts(self, node: Node, password: str) -> dict[str, str]:
        """The files of a node that hold the password of the harness' account, rendered."""
        values = {**self._values(node), "password": password}
        files = self.services[node.name].management
        return {target: render(template, values) for target, template in files.items()}

    def _values(self, node: Node) -> TemplateValues:
        spec = self.spec
        return {
            "node": self._fields(node),
            "nodes": [self._fields(one) for one in self.nodes],
            "reached_at": {one.name: self.wiring.reached_at(one, node) for one in self.nodes},
            "version": spec.version,
            "release": release_key(spec.version),
            "topology": spec.topology,
            "profiles": spec.profiles,
            "ports": dict(spec.ports),
            "security": self._security(node.name),
            "management": self._management,
        }

    def check_conf(self) -> None:
        """Render every node's settings without writing them.

        Raises:
            UsageError: a setting that cannot be laid over the template, or of a node that is not
                there.
        """
        for name, setting, _ in by_node(self.settings):
            if name not in {node.name for node in self.nodes}:
                listed = ", ".join(node.name for node in self.nodes)
                raise UsageError(
                    f"cluster.config: {setting}: {name!r} is not a node of this cluster",
                    hint=f"the nodes are {listed}",
                )
        for node in self.all_nodes.values():
            for target in self.services[node.name].templates:
                self.conf_text(node, target)

    def write_conf(self, node: Node) -> None:
        """Render a node's settings into its conf folder, and make its logs folder.

        Raises:
            EnvironmentNotReady: they cannot be written.
        """
        folder = NodeFolder(node.folder)
        try:
            folder.conf.mkdir(parents=True, exist_ok=True)
            folder.logs.mkdir(parents=True, exist_ok=True)
            for target in self.services[node.name].templates:
                file = folder.conf / target
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(self.conf_text(node, target))
        except OSError as error:
            raise EnvironmentNotReady(f"cannot write {folder.conf}: {error.strerror}") from error

    def _node(self, service: Service) -> Node:
        host = addresses.address(self.block, service.number)
        ports = self.spec.ports
        return Node(
            name=service.name,
            number=service.number,
            client=Endpoint(
                self.wiring.client_host(service, host), ports[service.endpoints["client"]]
            ),
            peer=Endpoint(host, ports[service.endpoints["peer"]]),
            admin=Endpoint(host, ports[service.endpoints["admin"]]),
            folder=self.folder / service.name,
            roles=tuple(service.roles),
        )

    def _fields(self, node: Node) -> TemplateValues:
        """A node as templates see it."""
        return {
            "name": node.name,
            "number": node.number,
            "roles": node.roles,
            "host": self.wiring.host(node),
            "bind_host": self.wiring.bind_host(node),
            "bind": self.bind(node),
            "advertised": self.advertised(node),
            "data": self.wiring.data(node),
        }


class LoopbackWiring(Wiring):
    """Nodes as local processes: each has an address of its own, the same for everybody, or is
    reached by the detours of a cluster that has some."""

    def data(self, node: Node) -> str:
        return str(NodeFolder(node.folder).data)

    def bind_host(self, node: Node) -> str:
        return node.admin.host

    def host(self, node: Node) -> str:
        return self._detours.peer_name(node.name) if self._detours else node.admin.host

    def advertised(self, node: Node, port: str, number: int) -> str:
        detours = self._detours
        if detours is not None and detours.is_client_port(node.name, port):
            return f"{detours.client_host(node.name)}:{number}"
        if detours is not None and detours.is_peer_port(node.name, port):
            return f"{detours.peer_name(node.name)}:{number}"
        return f"{node.admin.host}:{number}"

    def reached_at(self, node: Node, by: Node) -> str:
        """An address: a node that is given the addresses of others one by one reads no hosts
        file."""
        pair = self._detours.pair(by.name, node.name) if self._detours else ""
        return pair or node.admin.host


#: Keeps what it compiled: a plan renders the settings of every node a few times.
_ENVIRONMENT = jinja2.Environment(
    undefined=jinja2.StrictUndefined,
    keep_trailing_newline=True,
    autoescape=False,  # property files, not HTML
    loader=jinja2.FileSystemLoader("/"),
)
_KEY = re.compile(r"^([A-Za-z0-9_.-]+)\s*=", re.MULTILINE)


def render(
    template: Path,
    values: TemplateValues,
    settings: Mapping[str, str] | None = None,
    *,
    reserved: Collection[str] = (),
) -> str:
    """The text of a native settings file for one node.

    Args:
        values: fields of the template; a field without a value is an error.
        settings: ``key=value`` lines laid over the result; only for property files.
        reserved: settings that say who a node is and where it listens: the runtime owns them.

    Raises:
        UsageError: ``settings`` holds a key that the runtime owns, or a value of more than one
            line.
    """
    text = _ENVIRONMENT.get_template(str(template.absolute())).render(values)
    return overlay(text, settings or {}, reserved)


def overlay(text: str, settings: Mapping[str, str], reserved: Collection[str] = ()) -> str:
    """``text`` with each setting instead of its line, or at the end."""
    for key, value in settings.items():
        line = f"{key}={value}"
        if key in reserved:
            raise UsageError(
                f"cluster.config: {key} cannot be set, the runtime decides it",
                hint="leave out identity, listener and data folder settings",
            )
        if not _KEY.match(f"{key}=") or not is_one_line(line):
            raise UsageError(f"cluster.config: {key!r}: not a setting of one line")
        text = _in_block(text, key, line) or _set_line(text, key, line)
    return text


def _set_line(text: str, key: str, line: str) -> str:
    lines = text.splitlines()
    is_it = re.compile(rf"\s*{re.escape(key)}\s*=")
    kept = [old for old in lines if not is_it.match(old)]
    at = next((i for i, old in enumerate(lines) if is_it.match(old)), len(kept))
    return "\n".join([*kept[:at], line, *kept[at:]]) + "\n"


def _in_block(text: str, key: str, line: str) -> str:
    """``block.key=value`` in the block ``block { ... }`` of the text; empty where it has none."""
    block, _, inner = key.partition(".")
    found = (
        re.search(rf"^{re.escape(block)} {{\n(.*?)^}}$", text, re.MULTILINE | re.DOTALL)
        if inner
        else None
    )
    if found is None:
        return ""
    changed = _set_line(found[1], inner, f"  {line.removeprefix(f'{block}.')}")
    return text[: found.start(1)] + changed + text[found.end(1) :]
