"""Opens a cluster: compose file + version -> jars or images, addresses, runtime and admin.

cluster = open_cluster("kafka", run_id=..., folder=run_dir.cluster)
cluster.up()          # returns when it works
...
cluster.down()        # or cluster.keep(), and attach_cluster(folder) from another process
"""

from __future__ import annotations

import json
import os
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any, Generic, TypeVar

from harness.clusters.assembly import ClusterAdmin, assembly_of
from harness.clusters.layout import addresses
from harness.clusters.layout.compose import ClusterSpec, compose_file, read_compose
from harness.clusters.layout.distribution import pinned
from harness.clusters.layout.runtime import NodeRuntime
from harness.clusters.network import toxiproxy
from harness.clusters.sources import SOURCES, Place, Source
from harness.connections.security import Security
from harness.errors import EnvironmentNotReady, UsageError
from harness.protocols.cluster import Node
from harness.rundir import write_json
from harness.systems import SYSTEMS
from harness.systems.base import Request
from harness.toolchains import jars

STATE_FILE = "cluster.json"
_STATE_VERSION = 4

A = TypeVar("A", bound=ClusterAdmin)


class BrokerCluster(Generic[A]):
    """protocols.Cluster for any system on any runtime.

    Attributes:
        facts: what a report should say of where it ran, by name.
        bootstrap: what clients are given to connect to.
        admin_url: what workers are given to administrate; empty when the system has no such endpoint.
        security: what it asks of clients; None = nothing.
    """

    def __init__(
        self,
        runtime: NodeRuntime,
        admin: A,
        *,
        bootstrap: str,
        admin_url: str,
        security: Security | None = None,
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

    def request(self, port: str, ballast: int = 0) -> Request | None:
        """As `System.request`."""
        return SYSTEMS[self.system].request(port, ballast)

    def up(self, *, timeout_s: float = 60.0) -> None:
        """Start, and return when it works, internal topics included: the first fault must not meet their
        creation.

        Raises:
            EnvironmentNotReady: a node died (its last log lines) or what is missing at the timeout.
        """
        self.runtime.up()
        self.admin.watch = self.runtime.check
        try:
            self.admin.wait_ready([], timeout_s=timeout_s, run_tag=zlib.crc32(self.runtime.run_id.encode()))
        finally:
            self.admin.watch = lambda: None

    def down(self) -> None:
        """End every node, drop the data, forget the cluster. Idempotent."""
        self.admin.close()
        self.runtime.down()
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
    broker_config: Mapping[str, Any] | None = None,
    needs: frozenset[str] = frozenset(),
    offline: bool = False,
    on_progress: jars.Progress | None = None,
) -> BrokerCluster[Any]:
    """A cluster that is ready to be started; nothing runs yet, but its addresses are taken.

    Args:
        run_id: in the environment of every process and on the label of every container, for `clean`.
        folder: the cluster's folder, one sub-folder a node (`RunDir.cluster`).
        version: of the brokers, empty = the compose file's default.
        topology: which nodes there are, empty = the compose file's first.
        runtime: "process" or "docker" (`harness.clusters.runtime_choice.choose` decides for "auto").
        broker_config: native settings laid over the template.
        needs: what faults need of it from its start on (`faults.needs_of`).
        offline: jars from the cache only, images of the engine only.
        on_progress: called with a text and the share done or None, while jars or images are fetched.

    Raises:
        UsageError: unknown system, version or topology, a setting that the runtime owns, a need that the
            runtime cannot give.
        EnvironmentNotReady: no Java or too old, jars not to be had, no free addresses; no engine, no images;
            no Go for the network proxy.
    """
    spec = spec_of(system, version, topology, run_id=run_id)
    source = SOURCES[runtime].get(spec, offline=offline, on_progress=on_progress)
    if needs & source.proxied:
        toxiproxy.fetch(offline=offline, on_progress=on_progress)
    block = addresses.claim(
        run_id, folder, spec.ports.values(), runtime=runtime, living=_runs_with_containers
    )
    try:
        settings = dict(broker_config or {})
        where = Place(run_id, folder.resolve(), block, settings, needs)
        described = source.runtime(spec, where)
        described.require(needs)
        described.layout.check_conf()
        source.make_quick(spec, where, on_progress or (lambda text, share: None))
        cluster = _assemble(source.runtime(spec, where))
        write_json(folder / STATE_FILE, _state(runtime, spec, where, source))
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
    broker_config: Mapping[str, Any] | None = None,
    needs: frozenset[str] = frozenset(),
) -> BrokerCluster[Any]:
    """The cluster that `open_cluster` would make, for asking what it can do; nothing is fetched or claimed.

    Raises:
        UsageError: unknown system, version or topology, or a setting that the runtime owns.
    """
    spec = spec_of(system, version, topology)
    where = Place("described", Path("/nonexistent"), addresses.CHECK_BLOCK, dict(broker_config or {}), needs)
    described = SOURCES[runtime].absent().runtime(spec, where)
    described.layout.check_conf()
    return _assemble(described)


def _state(runtime: str, spec: ClusterSpec, where: Place, source: Source) -> dict[str, Any]:
    """What `attach_cluster` makes the same cluster from."""
    return {
        "schema_version": _STATE_VERSION,
        "runtime": runtime,
        "system": spec.system,
        "version": spec.asked,
        "topology": spec.topology,
        "run_id": where.run_id,
        "block": where.block,
        "needs": sorted(where.needs),
        "broker_config": dict(where.settings),
        "source": source.state(),
    }


def fetch_cluster(system: str, version: str = "", *, on_progress: jars.Progress | None = None) -> Path:
    """Download and prepare all that a later start of this version needs; returns the folder of jars.

    Raises:
        UsageError, EnvironmentNotReady: as `open_cluster`.
    """
    run_id = f"fetch-{os.getpid()}"
    with tempfile.TemporaryDirectory() as folder:
        cluster = open_cluster(
            system, run_id=run_id, folder=Path(folder), version=version, on_progress=on_progress
        )
        cluster.down()
    return jars.jars_folder(spec_of(system, version).artifacts)


def attach_cluster(folder: Path) -> BrokerCluster[Any]:
    """The cluster that another process started in ``folder`` and kept.

    Raises:
        UsageError: there is none.
        EnvironmentNotReady: Java, or the engine that runs it, is gone.
    """
    path = folder / STATE_FILE
    try:
        state = json.loads(path.read_text())
        spec = spec_of(state["system"], state["version"], state["topology"], run_id=state["run_id"])
        where = Place(
            state["run_id"],
            folder.resolve(),
            state["block"],
            state["broker_config"],
            frozenset(state["needs"]),
        )
        source = SOURCES[state["runtime"]].restored(spec, state["source"])
    except (OSError, ValueError, KeyError) as error:
        raise UsageError(
            f"no cluster to attach to in {folder}: {path.name} is missing or unreadable",
            hint="start one with `brokerstorm up` or `run --keep-up`",
        ) from error
    cluster = _assemble(source.runtime(spec, where))
    cluster.runtime.adopt()
    addresses.take_over(where.block, where.run_id)
    return cluster


def _assemble(runtime: NodeRuntime) -> BrokerCluster[Any]:
    assembly = assembly_of(runtime.spec.system)
    nodes: Sequence[Node] = runtime.nodes
    return BrokerCluster(
        runtime,
        assembly.admin(runtime, runtime.is_reachable),
        bootstrap=assembly.bootstrap(nodes),
        admin_url=assembly.admin_url(nodes),
    )


def _runs_with_containers() -> set[str]:
    """Empty when no engine answers: then no container runs."""
    from harness.clusters.docker import engine

    try:
        with closing(engine.connect()) as client:
            return engine.runs(client)
    except EnvironmentNotReady:
        return set()


def spec_of(system: str, version: str = "", topology: str = "", *, run_id: str = "none") -> ClusterSpec:
    """The compose file of a system, resolved; touches nothing.

    Raises:
        UsageError: no such system, version or topology.
    """
    return _spec_of(system, pinned(system, version), topology, run_id)


@cache
def _spec_of(system: str, version: str, topology: str, run_id: str) -> ClusterSpec:
    variables = {"BROKERSTORM_RUN_ID": run_id}
    return read_compose(compose_file(system), version=version, topology=topology, variables=variables)
