"""The model of compose/<system>/compose.yaml.

Only the keys that one of our two runtimes honours are accepted: a key that is silently dropped is a
cluster that is silently different. What only the compose plugin reads may be anything.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model, field_validator


class _ComposePart(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def _flat(flags: Any) -> Any:
    if not isinstance(flags, list):
        return flags
    return [flag for one in flags for flag in (one if isinstance(one, list) else [one])]


def _by_name(depends_on: Any) -> Any:
    return {name: {} for name in depends_on} if isinstance(depends_on, list) else depends_on


Endpoint = Literal["client", "peer", "admin"]
#: A list in which an alias of YAML may mean several flags.
Flags = Annotated[list[str], BeforeValidator(_flat)]


class Dependency(_ComposePart):
    """The condition that a service waits for: that another process runs, that its client endpoint
    answers, or that it ended.
    """

    condition: Literal["service_started", "service_healthy", "service_completed_successfully"] = (
        "service_started"
    )
    required: bool = True


class Secure(_ComposePart):
    """The differences of a secure cluster: ``templates`` replace the plain ones, which they extend
    (``{% extends plain %}``), ``private`` files hold secrets and are rendered into ``{security}``,
    and there are further flags of the JVM and other arguments (empty means the same arguments).
    """

    templates: dict[str, str] = Field(default_factory=dict)
    private: dict[str, str] = Field(default_factory=dict)
    jvm: Flags = Field(default_factory=list)
    args: list[str] = Field(default_factory=list)


class ServiceProcess(_ComposePart):
    """``x-brokerstorm`` of a service, a node as a process: ``java <jvm> -cp <jars> <main> <args>``,
    or ``<program> <args>`` where the release names a program.

    ``jvm`` and ``args`` may hold ``{conf}``, ``{data}`` and ``{logs}``, folders of the node, and
    ``args`` the addresses of nodes as ``{<node>.<port>}``. ``templates`` maps the name of a
    rendered file in ``{conf}`` to its template; the user's settings go into ``settings``: those
    that begin with ``settings_prefix``, without it, or else those that begin with no service's.

    Attributes:
        endpoints: client, peer, admin -> the port's name in the compose file.
        memory_max_mb: of a process without a heap of its own size: one that wants more ends, not
            the machine.
        management: file with the password of the harness' account -> its template; settings of
            processes include it as ``{{ management.folder }}/NODE/FILE``, ``jvm`` and ``args`` as
            ``{management}/FILE``.
        once: a step of the start, not a node: it runs to its end before what depends on it starts.
        secure: what is different where the cluster is secure.
    """

    number: int = Field(ge=1)
    main: str = ""
    roles: list[str] = Field(default_factory=list)
    args: list[str] = Field(default_factory=list)
    jvm: Flags = Field(default_factory=list)
    templates: dict[str, str] = Field(default_factory=dict)
    management: dict[str, str] = Field(default_factory=dict)
    settings: str = ""
    settings_prefix: str = ""
    memory_mb: int = 0
    memory_max_mb: int = 0
    endpoints: dict[Endpoint, str] = Field(default_factory=dict)
    once: bool = False
    secure: Secure = Field(default_factory=Secure)


#: Keys of a service that the compose plugin reads.
_OF_THE_PLUGIN: Final = (
    *(
        "cgroup_parent",
        "command",
        "dns_opt",
        "dns_search",
        "environment",
        "healthcheck",
        "hostname",
        "labels",
    ),
    *("mem_limit", "networks", "ports", "stop_grace_period", "user"),
)
_ANYTHING: dict[str, Any] = dict.fromkeys(_OF_THE_PLUGIN, (Any, None))
_Plugin = create_model("_Plugin", __base__=_ComposePart, **_ANYTHING)


class ServicePart(_Plugin):
    """One of ``services``; ``profiles``: the topologies that it is part of, none = all."""

    process: ServiceProcess = Field(alias="x-brokerstorm")
    image: str = ""
    profiles: list[str] = Field(default_factory=list)
    volumes: list[str] = Field(default_factory=list)
    depends_on: Annotated[dict[str, Dependency], BeforeValidator(_by_name)] = Field(
        default_factory=dict
    )

    @field_validator("volumes")
    @classmethod
    def _have_names(cls, volumes: list[str]) -> list[str]:
        for volume in volumes:
            if ":" not in volume:
                raise ValueError(f"{volume!r} has no name, so `clean` could not find it")
        return volumes


class Release(_ComposePart):
    """The files that a system runs from, beginning with some version: Java and jars, or ``go``, the
    package of a program at its version, or ``packages`` of Debian with the script ``launcher`` that
    starts a node. ``suite`` of Debian has them if this machine's own package index does not.
    ``args``: services whose arguments changed.
    """

    from_: str = Field(alias="from")
    java: int = 0
    go: str = ""
    packages: list[str] = Field(default_factory=list)
    suite: str = ""
    launcher: str = ""
    coordinates: list[str] = Field(default_factory=list)
    archive: str = ""
    exclude: list[str] = Field(default_factory=list)
    managed: str = ""
    jvm: Flags = Field(default_factory=list)
    templates: dict[str, str] = Field(default_factory=dict)
    args: dict[str, list[str]] = Field(default_factory=dict)


class DetourPorts(_ComposePart):
    """Role of a node -> names of the ports that clients, and that other nodes, connect to;
    ``since``: the first release that can tell clients an address of their own."""

    clients: dict[str, list[str]] = Field(default_factory=dict)
    peers: dict[str, list[str]] = Field(default_factory=dict)
    since: str = "0.0"


class UnpackedFiles(_ComposePart):
    """The signs of an unpacked distribution: a file that starts it, the folder of its jars, and a
    pattern for the jar with the version in its name. For a program in Go, the distribution is its
    source: the file is ``go.mod``, jars are missing, and the pattern finds the version in
    ``version_file``.
    """

    start: str
    jars: str = ""
    version_in: str
    version_file: str = ""


class Shared(_ComposePart):
    """``x-brokerstorm`` of the file; newest of ``releases`` first. ``profiles_since``: a profile ->
    the first release that can have it."""

    system: str
    ports: dict[str, int]
    detours: DetourPorts = Field(default_factory=DetourPorts)
    reserved: list[str] = Field(default_factory=list)
    distribution: UnpackedFiles | None = None
    profiles_since: dict[str, str] = Field(default_factory=dict)
    releases: list[Release] = Field(min_length=1)


class ComposeFile(_ComposePart):
    """The whole file, without extensions of its own."""

    shared: Shared = Field(alias="x-brokerstorm")
    services: dict[str, ServicePart] = Field(min_length=1)
    name: Any = None
    networks: Any = None
    volumes: Any = None
