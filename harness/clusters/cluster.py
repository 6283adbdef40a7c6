"""Opens a cluster: compose file + version -> jars or images, addresses, runtime and admin.

cluster = open_cluster("kafka", run_id=..., folder=run_dir.cluster)
cluster.up()          # returns when it works
...
cluster.down()        # or cluster.keep(), and attach_cluster(folder) from another process
"""

from __future__ import annotations

import os
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from harness.clusters.assembly import ClusterAdmin, assembly_of
from harness.clusters.layout import addresses
from harness.clusters.layout.compose import ClusterLayout, compose_file, read_compose
from harness.clusters.layout.distribution import pinned
from harness.clusters.layout.runtime import NodeRuntime
from harness.clusters.process_runtime import ProcessRuntime
from harness.clusters.security.made import CONNECTION_FILE, ClusterSecurity, forget
from harness.clusters.sources import SOURCES, ClusterPlace, NodeSoftware, ProcessSource
from harness.connections.security import ANYBODY, Security
from harness.contracts import read_document
from harness.errors import EnvironmentNotReady, UsageError
from harness.protocols.cluster import Node
from harness.protocols.members import DYNAMIC_QUORUM, FOURTH_BROKER, SPARE_BROKER, SPARE_CONTROLLER
from harness.protocols.power import LosesPower
from harness.protocols.versions import versions_of
from harness.run_ids import checked_run_id
from harness.rundir import write_json
from harness.systems import system_of
from harness.systems.base import Request
from harness.toolchains import jars

STATE_FILE = "cluster.json"

A = TypeVar("A", bound=ClusterAdmin)


class BrokerCluster(Generic[A]):
    """protocols.Cluster for any system on any runtime.

    Attributes:
        facts: what a report should say of where it ran, by name.
        bootstrap: what clients are given to connect to.
        admin_url: what workers are given to administrate; empty when the system has no such
            endpoint.
        security: what it asks of clients; None = nothing.
        made: certificates and users, where the cluster is secure.
        authority: that which issued them, in the process that started the cluster.
    """

    def __init__(
        self,
        runtime: NodeRuntime,
        admin: A,
        *,
        bootstrap: str,
        admin_url: str,
        security: Security | None = None,
        made: ClusterSecurity | None = None,
    ) -> None:
        self.facts: Mapping[str, str] = runtime.facts
        self.system = runtime.spec.system
        own = runtime.spec.own
        self.version = own.label if own else runtime.spec.version
        self.topology = runtime.spec.topology
        self.runtime = runtime
        self.admin = admin
        self.bootstrap = bootstrap
        self.admin_url = admin_url
        self.security = security
        self.made = made

    @property
    def connection_file(self) -> Path | None:
        """For whoever connects to it from elsewhere, where the cluster is secure."""
        return self.runtime.folder / CONNECTION_FILE if self.made else None

    def request(self, port: str, ballast: int = 0) -> Request | None:
        """Make the request of `System.request`. A secure cluster answers a request in plain text
        only between nodes, and not on every system."""
        if self.made and port not in system_of(self.system).plain_ports:
            return None
        return assembly_of(self.system).request(self.runtime, port, ballast)

    def up(self, *, timeout_s: float = 60.0) -> None:
        """Start, and return when it works, internal topics included: the first fault must not meet
        their creation.

        Raises:
            EnvironmentNotReady: a node died (its last log lines) or what is missing at the timeout.
        """
        if self.made:
            self.made.make(self.runtime.layout)
        self.runtime.up()
        self.admin.watch = self.runtime.check
        try:
            self.admin.wait_ready(
                [], timeout_s=timeout_s, run_tag=zlib.crc32(self.runtime.run_id.encode())
            )
        finally:
            self.admin.watch = lambda: None
        assembly = assembly_of(self.system)
        assembly.admit(self.admin, self.made)
        self.facts = {**self.facts, **assembly.facts(self.admin)}
        if self.made:
            self._write_connection(self.made)
        if isinstance(self.runtime, LosesPower):
            self.runtime.keep_written()

    def _write_connection(self, made: ClusterSecurity) -> None:
        """Write down for clients how to connect."""
        assert self.security
        assembly, runtime = assembly_of(self.system), self.runtime
        where = {
            "bootstrap": self.bootstrap,
            **({"admin_url": self.admin_url} if self.admin_url else {}),
            **assembly.connection_parts(runtime),
        }
        cluster_id = assembly.cluster_id(runtime.run_id, self.admin)
        text = made.connection(self.system, cluster_id, where, assembly.access(made))
        (runtime.folder / CONNECTION_FILE).write_text(text)

    def down(self) -> None:
        """End every node, drop the data and the secrets, forget the cluster. Idempotent."""
        self.admin.close()
        self.runtime.down()
        forget(self.runtime.run_id)
        (self.runtime.folder / CONNECTION_FILE).unlink(missing_ok=True)
        (self.runtime.folder / STATE_FILE).unlink(missing_ok=True)

    def keep(self) -> None:
        """Let the nodes outlive this process; `clean` leaves them alone until asked by run id."""
        self.admin.close()
        addresses.keep(self.runtime.block, self.runtime.run_id)


def open_cluster(
    system: str,
    *,
    run_id: str,
    folder: Path,
    version: str = "",
    topology: str = "",
    runtime: str = "process",
    broker_config: Mapping[str, str] | None = None,
    needs: frozenset[str] = frozenset(),
    offline: bool = False,
    secure: bool = False,
    on_progress: jars.Progress | None = None,
) -> BrokerCluster[Any]:
    """A cluster that is ready to be started; nothing runs yet, but its addresses are taken.

    Args:
        run_id: in the environment of every process and on the label of every container, for
            `clean`.
        folder: the cluster's folder, one sub-folder a node (`RunDir.cluster`).
        version: of the brokers, empty = the compose file's default.
        topology: which nodes there are, empty = the compose file's first.
        runtime: "process" or "docker" (`harness.clusters.runtime_choice.choose` decides for
            "auto").
        broker_config: native settings laid over the template.
        needs: what faults need of it from its start on (`faults.needs_of`).
        offline: jars from the cache only, images of the engine only.
        secure: with TLS, users and rights.
        on_progress: called with a text and the share done or None, while jars or images are
            fetched.

    Raises:
        UsageError: unknown system, version or topology, a setting that the runtime owns, a need
            that the runtime cannot give, or not a run id.
        EnvironmentNotReady: no Java or too old, jars that are not available, no free addresses; no
            engine, no images; no Go for the programs that faults need.
    """
    spec = spec_of(system, version, topology, run_id=run_id, secure=secure, needs=needs)
    made = _made(system, run_id, secure, runtime)
    source = SOURCES[runtime].get(spec, offline=offline, on_progress=on_progress)
    for tool in source.tools_for(needs):
        tool.fetch(offline=offline, on_progress=on_progress)
    block = addresses.claim(
        run_id, folder, spec.ports.values(), runtime=runtime, living=_runs_with_containers
    )
    try:
        where = ClusterPlace(
            run_id, folder.resolve(), block, dict(broker_config or {}), needs, made
        )
        described = source.runtime(spec, where)
        described.require(needs)
        described.layout.check_conf()
        _make_quick(source, where, (system, version, topology), on_progress)
        cluster = _assemble(source.runtime(spec, where), where.security)
        _offer_versions(cluster, where, offline=offline, on_progress=on_progress)
        write_json(folder / STATE_FILE, asdict(_state(runtime, spec, where, source)))
    except BaseException:
        addresses.release(run_id)
        raise
    return cluster


def describe_cluster(
    system: str,
    *,
    version: str = "",
    topology: str = "",
    runtime: str = "process",
    broker_config: Mapping[str, str] | None = None,
    needs: frozenset[str] = frozenset(),
    secure: bool = False,
) -> BrokerCluster[Any]:
    """The cluster that `open_cluster` would make, for asking what it can do; nothing is fetched or
    claimed.

    Raises:
        UsageError: unknown system, version or topology, or a setting that the runtime owns.
    """
    spec = spec_of(system, version, topology, secure=secure, needs=needs)
    settings, made = dict(broker_config or {}), _made(system, "described", secure, runtime)
    where = ClusterPlace(
        "described", Path("/nonexistent"), addresses.CHECK_BLOCK, settings, needs, made
    )
    described = SOURCES[runtime].absent().runtime(spec, where)
    described.layout.check_conf()
    for version in versions_of(needs).values():
        spec_of(system, version, topology)
    return _assemble(described, made)


def _offer_versions(
    cluster: BrokerCluster[Any],
    where: ClusterPlace,
    *,
    offline: bool,
    on_progress: jars.Progress | None,
) -> None:
    """Have at hand what else the nodes may be started from: what `where.needs` names."""
    runtime, spec = cluster.runtime, cluster.runtime.spec
    for version in versions_of(where.needs).values():
        what = (spec.system, pinned(spec.system, version), spec.topology)
        other = spec_of(*what, run_id=where.run_id, secure=spec.is_secure, needs=where.needs)
        if other.asked == spec.asked:
            continue
        assert isinstance(runtime, ProcessRuntime)  # no other gives such a need
        software = ProcessSource.get(other, offline=offline, on_progress=on_progress)
        if not offline:
            _make_quick(software, where, what, on_progress)
        runtime.offer(version, software.launch(other, where))


def _made(system: str, run_id: str, secure: bool, runtime: str) -> ClusterSecurity | None:
    """Return what makes a cluster secure, before anything of it is written; None if the cluster is
    not secure.

    Raises:
        UsageError: this runtime cannot have it.
    """
    if not secure:
        return None
    if runtime != "process":
        raise UsageError("--secure: only processes; use --runtime process")
    return ClusterSecurity(run_id, assembly_of(system).secrets())


def _make_quick(
    source: NodeSoftware,
    where: ClusterPlace,
    what: tuple[str, str, str],
    on_progress: jars.Progress | None,
) -> None:
    """Record the classes that plain brokers load. Secure brokers can use the same archive."""
    spec = spec_of(*what, run_id=where.run_id)
    source.make_quick(
        spec, replace(where, security=None), on_progress or (lambda text, share: None)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """`STATE_FILE`: what `attach_cluster` makes the same cluster from. ``source``: of its
    software."""

    schema_version: Literal[5] = 5
    runtime: str
    system: str
    version: str
    topology: str
    run_id: str
    block: int
    needs: list[str]
    secure: bool
    broker_config: dict[str, str]
    source: dict[str, str]


def _state(
    runtime: str, spec: ClusterLayout, where: ClusterPlace, source: NodeSoftware
) -> ClusterState:
    return ClusterState(
        runtime=runtime,
        system=spec.system,
        version=spec.asked,
        topology=spec.topology,
        run_id=where.run_id,
        block=where.block,
        needs=sorted(where.needs),
        secure=where.security is not None,
        broker_config=dict(where.settings),
        source=source.state(),
    )


def fetch_cluster(
    system: str, version: str = "", *, on_progress: jars.Progress | None = None
) -> Path:
    """Download and prepare all that a later start of this version needs; returns where it is.

    Raises:
        UsageError, EnvironmentNotReady: as `open_cluster`.
    """
    run_id = f"fetch-{os.getpid()}"
    with tempfile.TemporaryDirectory() as folder:
        cluster = open_cluster(
            system, run_id=run_id, folder=Path(folder), version=version, on_progress=on_progress
        )
        cluster.down()
    spec = spec_of(system, version)
    return spec.program.place if spec.program else jars.jars_folder(spec.artifacts)


def is_fetched(spec: ClusterLayout) -> bool:
    """Whether the jars or the program that the nodes run from are in the cache.

    Raises:
        EnvironmentNotReady: the program is built with Go, which is not installed or too old.
    """
    return (
        spec.program.place.exists()
        if spec.program
        else jars.is_complete(jars.jars_folder(spec.artifacts))
    )


def attach_cluster(folder: Path) -> BrokerCluster[Any]:
    """The cluster that another process started in ``folder`` and kept.

    Raises:
        UsageError: there is none.
        EnvironmentNotReady: Java, or the engine that runs it, is gone.
    """
    path = folder / STATE_FILE
    try:
        state = read_document(path, ClusterState)
        needs = frozenset(state.needs)
        checked_run_id(state.run_id)
        what = (state.system, state.version, state.topology)
        spec = spec_of(*what, run_id=state.run_id, secure=state.secure, needs=needs)
        names = assembly_of(spec.system).secrets() if state.secure else ()
        where = ClusterPlace(
            state.run_id,
            folder.resolve(),
            state.block,
            state.broker_config,
            needs,
            ClusterSecurity.made_for(state.run_id, names) if state.secure else None,
        )
        source = SOURCES[state.runtime].restored(spec, state.source)
    except (UsageError, KeyError) as error:
        raise UsageError(
            f"no cluster to attach to in {folder}: {path.name} is missing or unreadable",
            hint="start one with `brokerstorm up` or `run --keep-up`",
        ) from error
    runtime = source.runtime(spec, where)
    runtime.management.restore()
    cluster = _assemble(runtime, where.security)
    _offer_versions(cluster, where, offline=True, on_progress=None)
    runtime.adopt()
    addresses.take_over(where.block, where.run_id)
    return cluster


def _assemble(runtime: NodeRuntime, made: ClusterSecurity | None) -> BrokerCluster[Any]:
    assembly = assembly_of(runtime.spec.system)
    nodes: Sequence[Node] = runtime.nodes
    access = assembly.access(made) if made else ANYBODY
    return BrokerCluster(
        runtime,
        assembly.admin(runtime, runtime.is_reachable, access),
        bootstrap=assembly.bootstrap(nodes, secure=made is not None),
        admin_url=assembly.admin_url(nodes, secure=made is not None),
        security=access.clients if made else None,
        made=made,
    )


def _runs_with_containers() -> set[str]:
    """Empty when no engine answers: then no container runs."""
    from harness.clusters.docker import engine

    try:
        with closing(engine.connect()) as client:
            return engine.runs(client)
    except EnvironmentNotReady:
        return set()


def spec_of(
    system: str,
    version: str = "",
    topology: str = "",
    *,
    run_id: str = "none",
    secure: bool = False,
    needs: frozenset[str] = frozenset(),
) -> ClusterLayout:
    """The compose file of a system, resolved; touches nothing. ``needs``: as of `open_cluster`.

    Raises:
        UsageError: no such system, version or topology, or a version that cannot have a need.
    """
    spare = {SPARE_BROKER} if FOURTH_BROKER in needs else set()
    profiles = needs & {SPARE_BROKER, SPARE_CONTROLLER, DYNAMIC_QUORUM} | spare
    return _spec_of(system, pinned(system, version), topology, run_id, secure, profiles)


@cache
def _spec_of(
    system: str, version: str, topology: str, run_id: str, secure: bool, profiles: frozenset[str]
) -> ClusterLayout:
    return read_compose(
        compose_file(system),
        version=version,
        topology=topology,
        variables={"BROKERSTORM_RUN_ID": run_id},
        secure=secure,
        profiles=profiles,
    )
