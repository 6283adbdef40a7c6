"""Reads compose/<system>/compose.yaml: which services there are and how to run each as a plain process.

Only the keys that one of our two runtimes honours are accepted; any other is an error that names the file
and the key, because a key that is silently dropped is a cluster that is silently different.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import yaml

from harness.errors import UsageError
from harness.toolchains.coordinates import Artifacts

_TOP = {"name", "services", "networks", "volumes", "x-brokerstorm"}
_SERVICE = {
    "image", "hostname", "environment", "volumes", "networks", "ports", "depends_on", "healthcheck", "labels",
    "stop_grace_period", "mem_limit", "profiles", "command", "cgroup_parent",
    "dns_opt", "dns_search", "x-brokerstorm",
}  # fmt: skip
_SHARED = {"system", "default_version", "topologies", "ports", "detours", "reserved", "releases"}
_RELEASE = {"from", "java", "coordinates", "archive", "exclude", "managed", "jvm", "templates", "args"}
_PROCESS = {
    "number", "roles", "main", "args", "jvm", "templates", "settings", "memory_mb", "endpoints", "once",
}  # fmt: skip
#: Compose's conditions of a dependency -> what the process runtime waits for.
_CONDITIONS = ("service_started", "service_healthy", "service_completed_successfully")
_ENDPOINTS = ("client", "peer", "admin")
_VARIABLE = re.compile(r"\$\$|\$\{(?P<name>\w+)(?::(?P<how>[-?])(?P<rest>[^}]*))?\}")
_VERSION = re.compile(r"^(\d+)\.(\d+)(\.\d+)*([-.][A-Za-z0-9]+)*$")


@dataclass(frozen=True, slots=True)
class Container:
    """A service as a container, as far as we must know; the compose plugin knows the rest.

    Attributes:
        image: its full name, tag included.
        data: where its data volume is mounted, empty when it has none.
    """

    image: str = ""
    data: str = ""


@dataclass(frozen=True, slots=True)
class Service:
    """One node, as a process: ``java <jvm> -cp <jars> <main> <args>``.

    ``jvm`` and ``args`` may hold ``{conf}``, ``{data}`` and ``{logs}``, folders of the node, and ``args``
    the addresses of nodes as ``{<node>.<port>}``. ``templates`` maps the name of a rendered file in
    ``{conf}`` to its template; the user's settings go into ``settings``.

    Attributes:
        once: a step of the start, not a node: it runs to its end before what depends on it starts.
        endpoints: client, peer, admin -> the port's name in the compose file.
        after: service -> what to wait for: "service_healthy" (its client endpoint accepts connections),
            "service_completed_successfully" or "service_started".
    """

    name: str
    number: int
    roles: tuple[str, ...]
    main: str
    args: tuple[str, ...]
    jvm: tuple[str, ...]
    templates: Mapping[str, Path]
    settings: str
    memory_mb: int
    once: bool = False
    endpoints: Mapping[str, str] = field(default_factory=dict)
    after: Mapping[str, str] = field(default_factory=dict)
    container: Container = field(default_factory=Container)


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """A compose file, resolved for one version and topology of its system; services in start order.

    Attributes:
        detours: "clients" and "peers" -> role of a node -> names of the ports that these connect to.
        detours_since: the first release that can tell clients an address of their own.
    """

    file: Path
    system: str
    version: str
    java: int
    artifacts: Artifacts
    ports: Mapping[str, int]
    services: tuple[Service, ...] = field(default=())
    topology: str = ""
    reserved: frozenset[str] = frozenset()
    detours: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    detours_since: tuple[int, int] = (0, 0)

    @property
    def nodes(self) -> tuple[Service, ...]:
        """The services that go on running."""
        return tuple(service for service in self.services if not service.once)


def release_key(version: str) -> tuple[int, int]:
    """``"4.1.2"`` -> ``(4, 1)``.

    Raises:
        UsageError: not a version number.
    """
    match = _VERSION.match(version)
    if match is None:
        raise UsageError(f"version {version!r} is not a version number such as 4.1.2")
    return int(match[1]), int(match[2])


def compose_file(system: str) -> Path:
    """The compose file of a system that we ship.

    Raises:
        UsageError: there is none.
    """
    root = Path(__file__).resolve().parents[3] / "compose"
    path = root / system / "compose.yaml"
    if not path.is_file():
        have = ", ".join(sorted(p.parent.name for p in root.glob("*/compose.yaml")))
        raise UsageError(f"unknown system {system!r}", hint=f"there is: {have}")
    return path


def read_compose(
    path: Path, *, version: str = "", topology: str = "", variables: Mapping[str, str] | None = None
) -> ClusterSpec:
    """The services of a compose file and the artifacts they run from.

    Args:
        version: version of the system; empty means the file's default.
        topology: one of the file's ``topologies``; empty means the first. A service with ``profiles`` is
            there when the topology is one of them.
        variables: values of ``${NAME}``; ``<SYSTEM>_VERSION`` is always known.

    Raises:
        UsageError: unreadable file, unsupported key, unknown variable or topology, version older than we
            support.
    """
    document = _load(path)
    _known(document, _TOP, path, "", extensions=True)
    shared = _mapping(document.get("x-brokerstorm"), path, "x-brokerstorm")
    _known(shared, _SHARED, path, "x-brokerstorm")
    system = str(_need(shared, "system", path, "x-brokerstorm"))
    version = version or str(_need(shared, "default_version", path, "x-brokerstorm"))
    known = {f"{system.upper()}_VERSION": version, "BROKERSTORM_RUN_ID": "none", **(variables or {})}
    document = _interpolate(document, known, path, "")
    shared = document["x-brokerstorm"]
    release = _release(shared, version, system, path)
    topology = _topology(shared, topology, system)
    services = _mapping(document.get("services"), path, "services")
    read = [_service(name, body, release, path) for name, body in services.items() if _is_in(body, topology)]
    ports = {str(name): int(port) for name, port in shared.get("ports", {}).items()}
    for service in read:
        for name, port in service.endpoints.items():
            if port not in ports:
                at = f"services.{service.name}.x-brokerstorm.endpoints"
                raise UsageError(f"{path}: {at}: {name} needs one of the ports {', '.join(ports)}")
    return ClusterSpec(
        file=path,
        system=system,
        version=version,
        java=int(_need(release, "java", path, "x-brokerstorm.releases")),
        artifacts=Artifacts(
            tuple(release.get("coordinates", ())),
            tuple(release.get("exclude", ())),
            str(release.get("archive", "")),
            str(release.get("managed", "")),
        ),
        ports=ports,
        services=_start_order(read, path),
        topology=topology,
        reserved=frozenset(shared.get("reserved", ())),
        detours=_detours(shared, ports, path),
        detours_since=release_key(str(shared.get("detours", {}).get("since", "0.0"))),
    )


def _detours(
    shared: Mapping[str, Any], ports: Mapping[str, int], path: Path
) -> dict[str, dict[str, tuple[str, ...]]]:
    at = "x-brokerstorm.detours"
    sides = _mapping(shared.get("detours", {}), path, at)
    _known(sides, {"clients", "peers", "since"}, path, at)
    read = {
        side: {str(role): tuple(map(str, listed)) for role, listed in _mapping(body, path, at).items()}
        for side, body in sides.items()
        if side != "since"
    }
    for name in (name for roles in read.values() for listed in roles.values() for name in listed):
        if name not in ports:
            raise UsageError(f"{path}: {at}: no port {name!r}; there are {', '.join(ports)}")
    return read


def _topology(shared: Mapping[str, Any], wanted: str, system: str) -> str:
    known = [str(name) for name in shared.get("topologies", ())]
    if wanted and wanted not in known:
        listed = ", ".join(known) or "none, leave it out"
        raise UsageError(f"{system} has no topology {wanted!r}", hint=f"there is: {listed}")
    return wanted or next(iter(known), "")


def _is_in(body: Any, topology: str) -> bool:
    profiles = body.get("profiles", ()) if isinstance(body, dict) else ()
    return not profiles or topology in profiles


def _start_order(services: Sequence[Service], path: Path) -> tuple[Service, ...]:
    """Services so that each comes after those it depends on; one that the topology lacks is no dependency."""
    there = {service.name: service for service in services}
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for service in services:
        sorter.add(service.name, *(name for name in service.after if name in there))
    try:
        names = list(sorter.static_order())
    except CycleError as error:
        raise UsageError(f"{path}: services depend on each other: {' -> '.join(error.args[1])}") from None
    depth: dict[str, int] = {}
    for name in names:
        depth[name] = max((depth[one] + 1 for one in there[name].after if one in there), default=0)
    # The file's order within a wave, so that a start is the same every time.
    return tuple(sorted(services, key=lambda service: depth[service.name]))


def _load(path: Path) -> dict[str, Any]:
    try:
        document = yaml.safe_load(path.read_text())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise UsageError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from error
    return _mapping(document, path, "")


def _release(shared: Mapping[str, Any], version: str, system: str, path: Path) -> dict[str, Any]:
    wanted = release_key(version)
    releases = [_mapping(entry, path, "x-brokerstorm.releases") for entry in shared.get("releases", [])]
    for release in releases:
        _known(release, _RELEASE, path, "x-brokerstorm.releases")
        if release_key(str(_need(release, "from", path, "x-brokerstorm.releases"))) <= wanted:
            return release
    oldest = releases[-1]["from"] if releases else "none"
    raise UsageError(
        f"{system} {version} is older than what brokerstorm can start",
        hint=f"the oldest supported release is {oldest}; the default is {shared['default_version']}",
    )


def _service(name: str, body: Any, release: Mapping[str, Any], path: Path) -> Service:
    at = f"services.{name}"
    body = _mapping(body, path, at)
    _known(body, _SERVICE, path, at)
    process = _mapping(body.get("x-brokerstorm"), path, f"{at}.x-brokerstorm")
    _known(process, _PROCESS, path, f"{at}.x-brokerstorm")
    templates = {**release.get("templates", {}), **process.get("templates", {})}
    # Arguments that differ between versions: the release's, by the service's name.
    args = release.get("args", {}).get(name, process.get("args", ()))
    return Service(
        name=name,
        number=int(_need(process, "number", path, f"{at}.x-brokerstorm")),
        roles=tuple(process.get("roles", ())),
        main=str(_need(process, "main", path, f"{at}.x-brokerstorm")),
        args=tuple(args),
        jvm=(*_flat(process.get("jvm", ())), *release.get("jvm", ())),
        templates={target: path.parent / source for target, source in templates.items()},
        settings=str(process.get("settings", "")),
        memory_mb=int(process.get("memory_mb", 0)),
        once=bool(process.get("once", False)),
        endpoints={name: str(process.get("endpoints", {}).get(name, name)) for name in _ENDPOINTS},
        after=_after(body.get("depends_on", {}), path, f"{at}.depends_on"),
        container=_container(body, path, at),
    )


def _container(body: Mapping[str, Any], path: Path, at: str) -> Container:
    """The data volume is the one with a name; folders of the host are mounted by path."""
    data = ""
    for volume in body.get("volumes", ()):
        source, colon, target = str(volume).partition(":")
        if not colon:
            raise UsageError(f"{path}: {at}.volumes: {volume!r} has no name, so `clean` could not find it")
        if "/" not in source:
            data = target.partition(":")[0]
    return Container(str(body.get("image", "")), data)


def _flat(flags: Sequence[Any]) -> list[str]:
    """A list in which an alias of YAML may stand for several flags."""
    return [str(flag) for one in flags for flag in (one if isinstance(one, list) else [one])]


def _after(depends_on: Any, path: Path, at: str) -> dict[str, str]:
    """Compose's two forms of ``depends_on`` as service -> condition."""
    if isinstance(depends_on, list):
        return {str(name): _CONDITIONS[0] for name in depends_on}
    after = {}
    for name, body in _mapping(depends_on, path, at).items():
        _known(_mapping(body, path, f"{at}.{name}"), {"condition", "required"}, path, f"{at}.{name}")
        condition = str(body.get("condition", _CONDITIONS[0]))
        if condition not in _CONDITIONS:
            allowed = ", ".join(_CONDITIONS)
            raise UsageError(f"{path}: {at}.{name}.condition is {condition!r}", hint=f"allowed: {allowed}")
        after[str(name)] = condition
    return after


def _mapping(value: Any, path: Path, at: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{path}: {at or 'the file'} must be a mapping, found {type(value).__name__}")
    return value


def _need(mapping: Mapping[str, Any], key: str, path: Path, at: str) -> Any:
    if key not in mapping:
        raise UsageError(f"{path}: {at} needs the key {key!r}")
    return mapping[key]


def _known(
    mapping: Mapping[str, Any], allowed: set[str], path: Path, at: str, *, extensions: bool = False
) -> None:
    for key in mapping:
        if key in allowed or (extensions and str(key).startswith("x-")):
            continue
        near = difflib.get_close_matches(str(key), allowed, n=1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        raise UsageError(
            f"{path}: key {f'{at}.{key}' if at else key!r} is not supported{meant}",
            hint=f"supported here: {', '.join(sorted(allowed))}",
        )


def _interpolate(value: Any, variables: Mapping[str, str], path: Path, at: str) -> Any:
    """Compose's ``${NAME}``, ``${NAME:-default}``, ``${NAME:?message}`` in every string below ``value``."""
    if isinstance(value, dict):
        return {k: _interpolate(v, variables, path, f"{at}.{k}" if at else str(k)) for k, v in value.items()}
    if isinstance(value, list):
        return [_interpolate(v, variables, path, f"{at}[{i}]") for i, v in enumerate(value)]
    if not isinstance(value, str):
        return value

    def replace(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        name, how, rest = match["name"], match["how"], match["rest"]
        if variables.get(name):
            return variables[name]
        if how == "-":
            return rest
        raise UsageError(f"{path}: {at} needs the variable {name}{f': {rest}' if rest else ''}")

    return _VARIABLE.sub(replace, value)
