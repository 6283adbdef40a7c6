"""Reads compose/<system>/compose.yaml: which services there are and how to run each as a plain
process."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, Final, get_args

import yaml
from pydantic import ValidationError

from harness.clusters.layout.compose_model import (
    ComposeFile,
    Endpoint,
    Release,
    Secure,
    ServicePart,
    ServiceProcess,
    Shared,
    UnpackedFiles,
)
from harness.errors import UsageError
from harness.rundir import Document
from harness.systems import System, system_of
from harness.toolchains.coordinates import Artifacts
from harness.toolchains.go_program import GoProgram
from harness.toolchains.own_builds import OwnBuild, own_build
from harness.toolchains.packaged_program import PackagedProgram
from harness.validation import dotted, problems_of

#: libyaml's where PyYAML was built with it: ten times as fast, and every command reads these files.
_Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_ENDPOINTS: Final = get_args(Endpoint)
_VARIABLE = re.compile(r"\$\$|\$\{(?P<name>\w+)(?::(?P<how>[-?])(?P<rest>[^}]*))?\}")
_VERSION = re.compile(r"^(\d+)\.(\d+)(\.\d+)*([-.][A-Za-z0-9]+)*$")


#: What nodes are started from, where that is not Java and jars.
Program = GoProgram | PackagedProgram


class Service(ServiceProcess):
    """A service of one version: a node, as a process and as a container.

    Attributes:
        after: service -> what to wait for: "service_healthy" (its client endpoint accepts
            connections), "service_completed_successfully" or "service_started".
        plain: of templates that extend another, that other.
        management: file with the password of the harness' account -> its template.
        private: file with secrets -> its template; none where the cluster is not secure.
        image: its full name, tag included.
        data_mount: where its data volume is mounted in the container, empty when it has none.
    """

    name: str
    templates: Mapping[str, Path]  # type: ignore[assignment]
    plain: Mapping[str, Path]
    management: Mapping[str, Path]  # type: ignore[assignment]
    private: Mapping[str, Path]
    after: Mapping[str, str]
    image: str
    data_mount: str


@dataclass(frozen=True, slots=True)
class ClusterLayout:
    """A compose file, resolved for one version and topology of its system; services in start order.

    Attributes:
        detours: "clients" and "peers" -> role of a node -> names of the ports that these connect
            to.
        detours_since: the first release that can tell clients an address of their own.
        program: what its nodes are started from; None = Java and jars.
        own: the distribution of the user's that it is; None = a released one.
        is_secure: its services have TLS and users.
        profiles: asked for besides the topology; templates see them, too.
    """

    file: Path
    system: str
    version: str
    java: int
    jars: Artifacts | None
    ports: Mapping[str, int]
    services: tuple[Service, ...] = field(default=())
    topology: str = ""
    reserved: frozenset[str] = frozenset()
    detours: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)
    detours_since: tuple[int, int] = (0, 0)
    program: Program | None = None
    own: OwnBuild | None = None
    is_secure: bool = False
    profiles: frozenset[str] = frozenset()

    @property
    def artifacts(self) -> Artifacts:
        """Return the jars of a system that runs on Java."""
        assert self.jars is not None
        return self.jars

    @property
    def asked(self) -> str:
        """The version as it is asked for: what this spec can be read from again."""
        return str(self.own or self.version)

    @property
    def nodes(self) -> tuple[Service, ...]:
        """The services that keep running."""
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
    return root / system_of(system).name / "compose.yaml"


def read_compose(
    path: Path,
    *,
    version: str = "",
    topology: str = "",
    variables: Mapping[str, str] | None = None,
    secure: bool = False,
    profiles: frozenset[str] = frozenset(),
) -> ClusterLayout:
    """The services of a compose file and the artifacts they run from.

    Args:
        version: version of the system; empty means its default. May be a pinned ``dir:PATH``.
        topology: one of the system's; empty means the first. A service with ``profiles`` is there
            when the topology is one of them.
        variables: values of ``${NAME}``; ``<SYSTEM>_VERSION`` is always known.
        secure: with TLS and users.
        profiles: of services besides the topology's.

    Raises:
        UsageError: unreadable file, unsupported key, unknown variable or topology, version older
            than we support, or older than a profile.
    """
    raw = _load(path)
    system = system_of(_checked(raw, path).shared.system)
    own = own_build(version)
    version = own.number if own else version or system.version
    topology = _topology(system, topology)
    known = {
        f"{system.name.upper()}_VERSION": version,
        "BROKERSTORM_RUN_ID": "none",
        **(variables or {}),
    }
    file = _checked(_interpolate(raw, known, path, ""), path)
    shared, release = file.shared, _release(file.shared, version)
    _require_profiles(shared, version, profiles)
    services = [
        _service(name, part, release, path, part.process.secure if secure else Secure())
        for name, part in file.services.items()
        if not part.profiles or {topology, *profiles}.intersection(part.profiles)
    ]
    _require_ports(shared, services, path)
    program = _program(shared, release, version, own, path)
    return ClusterLayout(
        file=path,
        system=system.name,
        version=version,
        java=release.java,
        jars=None if program else _artifacts(shared, release, own),
        ports=shared.ports,
        services=_start_order(services, path),
        topology=topology,
        reserved=frozenset(shared.reserved),
        detours={"clients": shared.detours.clients, "peers": shared.detours.peers},
        detours_since=release_key(shared.detours.since),
        program=program,
        own=own,
        is_secure=secure,
        profiles=profiles,
    )


def _program(
    shared: Shared, release: Release, version: str, own: OwnBuild | None, path: Path
) -> Program | None:
    if release.go:
        return GoProgram(release.go, version, own)
    if release.packages:
        launcher = path.parent / release.launcher
        suites = [release.suite, *(other.suite for other in shared.releases)]
        return PackagedProgram(
            tuple(release.packages), version, launcher, tuple(dict.fromkeys(filter(None, suites)))
        )
    return None


def _topology(system: System, asked: str) -> str:
    if asked and asked not in system.topologies:
        listed = ", ".join(system.topologies) or "none, leave it out"
        raise UsageError(f"{system.name} has no topology {asked!r}", hint=f"there is: {listed}")
    return asked or next(iter(system.topologies), "")


def _artifacts(shared: Shared, release: Release, own: OwnBuild | None) -> Artifacts:
    if own and shared.distribution and shared.distribution.jars:
        return Artifacts((), own=own, jars=own.path / shared.distribution.jars)
    return Artifacts(
        tuple(release.coordinates), tuple(release.exclude), release.archive, release.managed
    )


def read_distribution(path: Path) -> UnpackedFiles | None:
    """Return what a compose file says about unpacked distributions of its system; None if it says
    nothing.

    Raises:
        UsageError: an unreadable file.
    """
    return _checked(_load(path), path).shared.distribution


def _load(path: Path) -> Document:
    """The file's data without its own extensions, which hold the values of YAML's aliases."""
    try:
        document = yaml.load(path.read_text(), _Loader)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise UsageError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(document, dict):
        raise UsageError(f"{path}: must be a mapping, found {type(document).__name__}")
    kept = ("x-brokerstorm",)
    return {
        key: value
        for key, value in document.items()
        if key in kept or not str(key).startswith("x-")
    }


def _checked(document: Document, path: Path) -> ComposeFile:
    try:
        return ComposeFile.model_validate(document)
    except ValidationError as error:
        found = problems_of(ComposeFile, error, document)
        raise UsageError.of_lines(
            f"{path}: {dotted(location, 'the file')}: {problem}" for location, problem in found
        ) from None


def _require_ports(shared: Shared, services: Sequence[Service], path: Path) -> None:
    sides = shared.detours
    named = {
        **{f"x-brokerstorm.detours.clients.{role}": ports for role, ports in sides.clients.items()},
        **{f"x-brokerstorm.detours.peers.{role}": ports for role, ports in sides.peers.items()},
        **{
            f"services.{each.name}.x-brokerstorm.endpoints": each.endpoints.values()
            for each in services
        },
    }
    for place, ports in named.items():
        for port in ports:
            if port not in shared.ports:
                raise UsageError(
                    f"{path}: {place}: no port {port!r}; there are {', '.join(shared.ports)}"
                )


def _release(shared: Shared, version: str) -> Release:
    wanted = release_key(version)
    for release in shared.releases:
        if release_key(release.from_) <= wanted:
            return release
    raise UsageError(
        f"{shared.system} {version} is older than what brokerstorm can start",
        hint=f"the oldest supported release is {shared.releases[-1].from_}",
    )


def _require_profiles(shared: Shared, version: str, profiles: frozenset[str]) -> None:
    for profile in sorted(profiles & shared.profiles_since.keys()):
        since = shared.profiles_since[profile]
        if release_key(version) < release_key(since):
            raise UsageError(
                f"a fault of this scenario needs {profile}: {shared.system} {version} has none, {since} does",
                hint=f"leave that fault out, or set cluster.version to {since} or later",
            )


def _service(name: str, part: ServicePart, release: Release, path: Path, secure: Secure) -> Service:
    process = part.process
    if not (process.main or release.go or release.packages):
        raise UsageError(f"{path}: services.{name}.x-brokerstorm.main: is missing")
    plain = {**release.templates, **process.templates}

    def found(templates: Mapping[str, str]) -> dict[str, Path]:
        return {target: path.parent / source for target, source in templates.items()}

    # The volume with a name; folders of the host are mounted by path.
    volumes = [volume.split(":") for volume in part.volumes if "/" not in volume.partition(":")[0]]
    of_version = {
        "args": secure.args or release.args.get(name, process.args),
        "jvm": [*process.jvm, *release.jvm, *secure.jvm],
        "templates": found({**plain, **secure.templates}),
        "plain": found({target: plain[target] for target in secure.templates}),
        "management": found(process.management),
        "private": found(secure.private),
        "endpoints": {name: process.endpoints.get(name, name) for name in _ENDPOINTS},
    }
    return Service.model_construct(
        **{**dict(process), **of_version},
        name=name,
        after={name: one.condition for name, one in part.depends_on.items()},
        image=part.image,
        data_mount=volumes[-1][1] if volumes else "",
    )


def _start_order(services: Sequence[Service], path: Path) -> tuple[Service, ...]:
    """Services so that each comes after those it depends on; one that the topology lacks is left
    out."""
    there = {service.name: service for service in services}
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for service in services:
        sorter.add(service.name, *(name for name in service.after if name in there))
    try:
        names = list(sorter.static_order())
    except CycleError as error:
        raise UsageError(
            f"{path}: services depend on each other: {' -> '.join(error.args[1])}"
        ) from None
    depth: dict[str, int] = {}
    for name in names:
        depth[name] = max((depth[one] + 1 for one in there[name].after if one in there), default=0)
    # The file's order within a wave, so that a start is the same every time.
    return tuple(sorted(services, key=lambda service: depth[service.name]))


def _interpolate(value: Any, variables: Mapping[str, str], path: Path, at: str) -> Any:
    """Compose's ``${NAME}``, ``${NAME:-default}``, ``${NAME:?message}`` in every string below
    ``value``."""
    if isinstance(value, dict):
        return {
            k: _interpolate(v, variables, path, f"{at}.{k}" if at else str(k))
            for k, v in value.items()
        }
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
