"""A cluster that somebody else started, as runs and faults see one: it has an admin, and nothing to
start."""

from __future__ import annotations

import os
import secrets
import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Protocol, cast

from harness.clusters.drivers import DrivenNodes, drivers_on
from harness.clusters.external.made import MadeBy, MadeNames
from harness.connections.file import Connection
from harness.connections.security import Security
from harness.errors import BrokerstormError, EnvironmentNotReady, UsageError
from harness.need import Need
from harness.protocols.cluster import Admin, Endpoint, Node, TopicSettings
from harness.protocols.nodes import SeenAway
from harness.systems import SYSTEMS, system_of
from harness.systems.base import Request

#: More, and times of brokers in the capture say little.
_APART_S: Final = 1.0
#: The topic that `doctor` makes, and deletes.
PROBED: Final = "doctor"
_READY_S: Final = 60.0


class ExternalAdmin(Admin, Protocol):
    """An admin that writes down what it makes; ``watch`` is called while it waits and may raise."""

    watch: Callable[[], None]

    def delete_made(self, made: Mapping[str, Sequence[str]]) -> None:
        """Delete what a run made, by the brokers' names, and strike it out.

        Raises:
            BrokerstormError: something is still there.
        """


@dataclass(frozen=True, slots=True)
class FoundCluster:
    """The facts that a cluster reports about itself.

    Attributes:
        version: of its brokers, empty when they do not tell.
        replication: copies of each message in topics that ask for no number; None = the scenario's.
        lacks: broker settings that transactions need, with their present values; empty = there are.
    """

    cluster_id: str
    version: str
    nodes: tuple[Node, ...]
    replication: int | None = None
    lacks: Mapping[str, str] = field(default_factory=dict)


class ExternalSystem(ABC):
    """How clusters of one system that others started are asked; `System.external` has it."""

    @abstractmethod
    def find(self, connection: Connection) -> FoundCluster:
        """Ask who it is, and nothing else.

        Raises:
            EnvironmentNotReady: no node answers, or none accepts our login.
        """

    @abstractmethod
    def admin(self, connection: Connection, found: FoundCluster, made: MadeNames) -> ExternalAdmin:
        """The admin; nothing is asked yet."""

    @abstractmethod
    def examine(self, connection: Connection, nodes: Sequence[Node], admin: Any) -> Iterator[Need]:
        """Try all that a run does there, on one topic of ours; who calls has it deleted."""


class ExternalRuntime:
    """protocols.Runtime of nodes that are not ours: no process, no log, no data of theirs is in
    reach.

    Attributes:
        drivers: what kills, pauses and starts them again; each has the abilities that it is named
            for.
    """

    name = "external"
    seen = SeenAway(gone="no longer answers", paused="answers nothing, its driver paused it")

    def __init__(
        self, run_id: str, nodes: Sequence[Node], drivers: Sequence[DrivenNodes] = ()
    ) -> None:
        self.run_id = run_id
        self.nodes = tuple(nodes)
        self.drivers = tuple(drivers)

    def up(self) -> None:
        """Nothing to do: others started it."""

    def down(self) -> None:
        """Close the drivers; the cluster stays."""
        for one in self.drivers:
            one.close()

    def pid(self, node: str) -> int | None:
        """Not available: what it needs of CPU and memory is not captured."""
        return None


class ExternalCluster:
    """protocols.Cluster over somebody else's brokers."""

    def __init__(
        self,
        connection: Connection,
        found: FoundCluster,
        runtime: ExternalRuntime,
        admin: ExternalAdmin,
        made: MadeNames,
    ) -> None:
        file = connection.file
        self.system = file.system
        self.version = found.version or "of its own"
        self.facts: Mapping[str, str] = {
            "runtime": f"external, {connection.path}",
            "cluster id": found.cluster_id,
            "not captured": "CPU, memory, logs and data of brokers: brokerstorm did not start them",
        }
        self.runtime = runtime
        self.admin = admin
        self.bootstrap = file.bootstrap
        self.admin_url = file.admin_url
        self.security: Security = connection.security
        self._made = made

    def request(self, port: str, ballast: int = 0) -> Request | None:
        """Make the request of `System.request`."""
        return SYSTEMS[self.system].request(port, ballast)

    def up(self, *, timeout_s: float = 60.0) -> None:
        """Return when it works, which it should already.

        Raises:
            EnvironmentNotReady: what is missing at the timeout.
        """
        self.admin.wait_ready(
            [], timeout_s=timeout_s, run_tag=zlib.crc32(self.runtime.run_id.encode())
        )

    def down(self) -> None:
        """Remove what was made on it. Idempotent.

        Raises:
            BrokerstormError: something is still there; the ledger keeps it.
        """
        try:
            self.admin.delete_made({kind: list(names) for kind, names in self._made.names.items()})
            self._made.close()
        finally:
            self.admin.close()


@dataclass(frozen=True, slots=True)
class External:
    """A cluster that answered, and is the one that its file means."""

    connection: Connection
    found: FoundCluster

    @property
    def roles(self) -> dict[str, tuple[str, ...]]:
        """Nodes and what each is."""
        return {node.name: node.roles for node in self.found.nodes}

    def cluster(self, run_id: str, folder: Path) -> ExternalCluster:
        """The cluster for a run; nothing is made on it yet.

        Args:
            folder: of the run, for `clean`.
        """
        made = MadeNames(self.found.cluster_id, run_id, folder)
        system = _external_of(self.connection.file.system)
        admin = system.admin(self.connection, self.found, made)
        drivers = drivers_on(self.connection, self.found.nodes, admin)
        runtime = ExternalRuntime(run_id, self.found.nodes, drivers)
        return ExternalCluster(self.connection, self.found, runtime, admin, made)

    def examine(self) -> Iterator[Need]:
        """Whether runs can work there. One topic is made, and deleted.

        Raises:
            BrokerstormError: the cluster does not answer any more.
        """
        file = self.connection.file
        nodes = ", ".join(f"{node.name} ({node.client})" for node in self.found.nodes)
        about = f"{file.system} {self.found.version}, {self.found.cluster_id}: {nodes}"
        yield Need("cluster", True, about)
        cluster = self.cluster(f"doctor-{os.getpid()}-{time.time_ns()}", Path.cwd())
        try:
            system = _external_of(file.system)
            yield from system.examine(self.connection, self.found.nodes, cluster.admin)
        except BrokerstormError:
            with suppress(BrokerstormError):
                cluster.down()
            raise
        try:
            cluster.down()
        except BrokerstormError as error:
            yield Need("deletion", False, str(error), error.hint or "it must be allowed, too")
            return
        yield Need("deletion", True, "what was made is gone")

    def left_by(self, made: MadeBy) -> ExternalCluster:
        """The cluster as a run left it whose harness is gone: its `down` removes what that made."""
        return self.cluster(made.run_id, Path(made.folder))


def identified(connection: Connection, *, all_there: bool = True) -> External:
    """Ask a cluster who it is; nothing is made on it.

    Args:
        all_there: refuse it while a node of the file is away, perhaps by a fault that is to be
            healed.

    Raises:
        UsageError: the file does not say that it is yours, or which one it is; or it is another
            one.
        EnvironmentNotReady: no node answers, none accepts our login, or a node of the file is not
            there.
    """
    file, path = connection.file, connection.path
    if not file.yours:
        raise UsageError(
            f"{path}: yours is not true, so nothing is sent to {file.bootstrap}",
            hint="yours: true says that this cluster is yours to load and to hurt",
        )
    if not file.cluster_id:
        raise UsageError(
            f"{path}: cluster_id is missing, so nothing is sent to {file.bootstrap}",
            hint=f"get it with {SYSTEMS[file.system].ask_id}",
        )
    found = _external_of(file.system).find(connection)
    if found.cluster_id != file.cluster_id:
        raise UsageError(
            f"{path}: cluster_id is {file.cluster_id}, and {file.bootstrap} is {found.cluster_id}",
            hint="if that is the one you mean, write its id into the file",
        )
    if all_there:
        _refuse_absent(connection, found)
    return External(connection, found)


def try_topic(
    connection: Connection,
    admin: Any,
    kind: str,
    partitions: int,
    copies: int,
    config: Mapping[str, str] = MappingProxyType({}),
) -> tuple[str, Need | None]:
    """Make topic `PROBED`, and put a message through each of its partitions.

    Args:
        kind: what brokers call topics, in the plural.

    Returns:
        Its address, and why that was not possible; None = it was.
    """
    prefix = connection.file.topics.prefix
    address = SYSTEMS[connection.file.system].address(PROBED, secrets.randbits(32), prefix)
    admin.name_topics({PROBED: address}, ())
    try:
        admin.create_topics([TopicSettings(PROBED, partitions, copies, config)])
        admin.wait_ready([PROBED], timeout_s=_READY_S, run_tag=1)
    except BrokerstormError as error:
        return address, Need(
            kind, False, str(error), error.hint or f"{kind} {prefix}-* must be allowed"
        )
    return address, None


def clocks(apart: Mapping[str, tuple[float, float] | None]) -> Need:
    """How far the brokers' clocks are from ours.

    Args:
        apart: node -> how far its clock is ahead, and within what, seconds; None = it does not
            tell.
    """
    told = {node: found for node, found in apart.items() if found}
    if not told:
        return Need(
            "clocks",
            False,
            "no broker tells its time",
            "the capture's times are ours",
            needed=False,
        )
    text = ", ".join(f"{node} {s:+.3f} s (+-{within:.3f})" for node, (s, within) in told.items())
    ok = all(abs(s) - within < _APART_S for s, within in told.values())
    return Need(
        "clocks", ok, text, "set them by NTP: times of brokers say little else", needed=False
    )


def _refuse_absent(connection: Connection, found: FoundCluster) -> None:
    there = {str(node.client) for node in found.nodes}
    absent = [
        (name, one.address)
        for name, one in connection.file.nodes.items()
        if one.address not in there
    ]
    for name, address in absent[:1]:
        raise EnvironmentNotReady(
            f"{connection.path}: nodes.{name}: no broker is registered at {address}",
            hint=f"registered are {', '.join(sorted(there))}",
        )


def named_nodes(
    connection: Connection,
    brokers: Mapping[str, tuple[int, Endpoint]],
    admin: Mapping[str, Endpoint],
) -> tuple[Node, ...]:
    """The brokers, by the names of the connection file where it has one for their address.

    Args:
        brokers: name that the cluster has for it -> number and where clients find it.
        admin: the same names -> where the harness asks it.
    """
    wanted = {node.address: name for name, node in connection.file.nodes.items()}
    return tuple(
        Node(
            name=wanted.get(str(client), name),
            number=number,
            client=client,
            peer=client,
            admin=admin[name],
            folder=Path("/nonexistent"),
            roles=("broker",),
        )
        for name, (number, client) in brokers.items()
    )


def _external_of(system: str) -> ExternalSystem:
    return cast("ExternalSystem", system_of(system).required_external())
