"""Rounds to play, with everything that follows from them before anything is started or touched.

`Resolved` is the one object that dry runs, checks, downloads and the campaign take. It compiles the
timelines and looks the workers up once, when they are first asked for.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import ScenarioError
from harness.protocols.versions import versions_of
from harness.rundir import RunDir
from harness.systems import SYSTEMS

if TYPE_CHECKING:
    from experiments.load_request import LoadRequest
    from experiments.windows import WindowRequest
    from faults import Timeline
    from harness.clusters import BrokerCluster
    from harness.clusters.external import External
    from harness.contracts.plan import Plan
    from harness.contracts.worker import ProcessSpec
    from harness.plan.estimate import Estimate
    from harness.scenario.model import Scenario
    from harness.telemetry.request import MetricsRequest
    from harness.workers.spec import Readiness, WorkerSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundOptions:
    """Options of a command that say where its rounds run, and how; not which rounds.

    Attributes:
        runtime: "auto", "process" or "docker".
        external: the existing cluster to use; None = clusters that we start.
        secure: the clusters that we start have TLS and users.
        offline: nothing is downloaded, and no package index is asked.
        keep_up: the cluster of the last round stays up if all went well.
        master: URL of the Spark cluster that judges; None = this machine.
        replay: the run whose fault times and targets are used; None = the scenario's.
        metrics: where metrics of the runs go; None = as the environment says.
        judges_cut: a round whose load a signal shortens is audited and judged, too.
        windows: how a round is judged while it runs; None = only at the end.
        load: the Spark cluster whose executors make the load; None = this machine.
        brief: rounds are short and many: this process judges small ones, without Spark, and
            their pages are drawn when they are looked at.
    """

    runtime: str = "auto"
    external: External | None = None
    secure: bool = False
    offline: bool = False
    keep_up: bool = False
    master: str | None = None
    replay: RunDir | None = None
    metrics: MetricsRequest | None = None
    judges_cut: bool = False
    windows: WindowRequest | None = None
    load: LoadRequest | None = None
    brief: bool = False


@dataclass(frozen=True)
class UsedClient:
    """A client library in one version, with its worker; empty version = the default of the
    worker."""

    worker: WorkerSpec
    version: str

    @property
    def library(self) -> str:
        """The name in scenarios."""
        return self.worker.library

    @cached_property
    def readiness(self) -> Readiness:
        """Whether it can be used on this machine; nothing is built or downloaded."""
        from harness.workers import readiness

        return readiness(self.worker, self.version)


@dataclass(frozen=True, slots=True)
class ClientProcess:
    """A process of a client as a run would start it, on a cluster that is not there.

    Attributes:
        variant: the variant that it is a client of.
    """

    variant: str
    worker: WorkerSpec
    spec: ProcessSpec


@dataclass(frozen=True, eq=False, kw_only=True)
class Resolved:
    """Rounds to play and what follows from them.

    Attributes:
        plans: every round of every variant, in the order of playing.
        scenario: the source of the plans, for the lines of errors; None = another run, or several
            scenarios.
        seed: the seed of the first round.
    """

    plans: Sequence[Plan]
    options: RoundOptions = field(default_factory=RoundOptions)
    scenario: Scenario | None = None
    seed: int = 0
    _compiled: dict[str, Timeline] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def runtime(self) -> str:
        """The runtime that is wanted: "docker" for "auto" if an application is in an image."""
        asked = self.options.runtime
        has_images = any(each.image for plan in self.plans for each in plan.applications)
        return "docker" if asked == "auto" and has_images else asked

    @property
    def checked_runtime(self) -> str:
        """The runtime that checks are about: "process" for "auto", because it is used where Docker
        cannot be; empty for a cluster that we do not start."""
        if self.options.external:
            return ""
        return "docker" if self.runtime == "docker" else "process"

    @cached_property
    def timelines(self) -> list[Timeline]:
        """The compiled faults of each plan.

        Raises:
            ScenarioError: a fault step that cannot be used.
        """
        return [self.timeline(plan) for plan in self.plans]

    def timeline(self, plan: Plan) -> Timeline:
        """The compiled faults of one plan. It need not be one of `plans`: each round is played
        under a tag of its own, and some strategies decide on their rounds as they go."""
        from harness.run.worker_specs import coordinated

        key = key_of(plan)
        if key not in self._compiled:
            try:
                self._compiled[key] = _compiled(plan)
            except ScenarioError as problem:
                if self.scenario is None:
                    raise
                from harness.scenario.file import fault_problem

                raise fault_problem(self.scenario, plan.variant, problem) from None
        found = self._compiled[key]
        # Only the names at the brokers differ from tag to tag.
        names = replace(found.inventory, topics=tuple(plan.topics), coordinated=coordinated(plan))
        return replace(found, inventory=names)

    @cached_property
    def needs(self) -> frozenset[str]:
        """Return the needs that a cluster must be started with for the faults of all plans."""
        import faults

        return faults.needs_of(self.timelines)

    @cached_property
    def clusters(self) -> list[tuple[str, str, str]]:
        """System, version and topology of each cluster, with the versions that upgrades lead to."""
        import faults

        found = []
        for plan, timeline in zip(self.plans, self.timelines, strict=True):
            upgrades = versions_of(faults.needs_of([timeline])).values()
            found.append(cluster_of(plan))
            found += [(plan.system, version, plan.topology) for version in upgrades]
        return list(dict.fromkeys(found))

    @cached_property
    def clients(self) -> list[UsedClient]:
        """The clients of all plans, each once.

        Raises:
            UsageError: a library without a worker.
        """
        used = [client for plan in self.plans for client in clients_of(plan)]
        return list({(each.worker.folder, each.version): each for each in used}.values())

    @cached_property
    def processes(self) -> list[ClientProcess]:
        """The processes of the clients, once for each role, library, version and set of options."""
        found = {}
        for plan in self.plans:
            for process in _processes_of(plan):
                found[f"{process.spec.role} {process.spec.client}"] = process
        return list(found.values())

    @cached_property
    def estimate(self) -> Estimate:
        """Messages, bytes, memory and time of all rounds."""
        from harness.plan.estimate import estimate
        from harness.workers import load_worker

        return estimate(self.plans, lambda client, folders: load_worker(client, folders).language)


def key_of(asked: Any) -> str:
    """The same text for what is the same: a document, or a plan, whose tag says nothing."""
    from harness.contracts.plan import Plan
    from harness.plan.build import with_tag

    document = with_tag(asked, 1).model_dump(mode="json") if isinstance(asked, Plan) else asked
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:16]


def clients_of(plan: Plan) -> list[UsedClient]:
    """Every client of a run, each once; the readers of the log too.

    Raises:
        UsageError: a library without a worker.
    """
    from harness.workers import load_worker

    producers = [(each.client, each.client_version) for each in plan.producers]
    consumers = [(each.client, each.client_version) for each in plan.consumers]
    named = dict.fromkeys([*producers, *consumers, SYSTEMS[plan.system].audit])
    return [
        UsedClient(load_worker(library, plan.workers, system=plan.system), version)
        for library, version in named
    ]


def _processes_of(plan: Plan) -> list[ClientProcess]:
    from harness.clusters import describe_cluster
    from harness.run.worker_specs import Endpoints, client_spec

    cluster = describe_cluster(plan.system, version=plan.version, topology=plan.topology)
    where, run = Endpoints.from_cluster(cluster), RunDir(Path())
    workers = {client.library: client.worker for client in clients_of(plan)}
    specs = [client_spec(plan, run, client, where) for client in plan.clients]
    return [ClientProcess(plan.variant, workers[spec.client.library], spec) for spec in specs]


def cluster_of(plan: Plan) -> tuple[str, str, str]:
    """System, version and topology of the cluster that a plan needs."""
    return plan.system, plan.version, plan.topology


def node_roles(system: str, version: str = "", topology: str = "") -> dict[str, tuple[str, ...]]:
    """Nodes of a system's cluster, each with its roles."""
    from harness.clusters import spec_of

    return {
        service.name: tuple(service.roles) for service in spec_of(system, version, topology).nodes
    }


def _compiled(plan: Plan) -> Timeline:
    import faults
    from harness.plan.endings import client_roles, clockless, endings
    from harness.run.worker_specs import coordinated

    inventory = faults.inventory_of(
        topics=plan.topics,
        nodes=plan.external.nodes if plan.external else node_roles(*cluster_of(plan)),
        clients=endings(plan),
        coordinated=coordinated(plan),
        clockless=clockless(plan),
        client_roles=client_roles(plan),
        applications={each.name: each.instance_names for each in plan.applications},
        output_endpoints=[each.name for each in plan.applications if each.takes_requests],
        system=plan.system,
    )
    return faults.compile(plan.faults, inventory, seed=plan.seed, load_s=plan.load_s)


# ----- what a cluster can do ----------------------------------------------------------------------


def refuse_on_external(timeline: Timeline, external: External) -> None:
    """Refuse faults that an existing cluster cannot have.

    Raises:
        ScenarioError: the first such fault.
    """
    import faults

    if needs := sorted(faults.needs_of([timeline])):
        raise ScenarioError(
            f"faults: {', '.join(needs)} can be given only to a cluster that brokerstorm starts",
            hint="remove these faults, or run without --cluster",
        )
    faults.refuse_unsupported(timeline, external.cluster("described", Path("/nonexistent")))


def refuse_impossible(
    timeline: Timeline,
    cluster: tuple[str, str, str],
    runtime: str,
    broker_config: Mapping[str, str],
    *,
    secure: bool = False,
) -> None:
    """Refuse what a cluster (system, version, topology) on a runtime could not do or would not
    take.

    Raises:
        ScenarioError: a fault that the cluster does not have the means for.
        UsageError: a broker setting that cannot be laid over the template.
        EnvironmentNotReady: a fault that this machine does not have the means for.
    """
    import faults

    settings = tuple(sorted(broker_config.items()))
    described = _described(cluster, runtime, settings, faults.needs_of([timeline]), secure)
    faults.refuse_unsupported(timeline, described)


@lru_cache(maxsize=64)  # a suite asks the same of a thousand cells
def _described(
    cluster: tuple[str, str, str],
    runtime: str,
    settings: tuple[tuple[str, str], ...],
    needs: frozenset[str],
    secure: bool,
) -> BrokerCluster[Any]:
    from harness.clusters import describe_cluster

    system, version, topology = cluster
    return describe_cluster(
        system,
        version=version,
        topology=topology,
        runtime=runtime,
        broker_config=dict(settings),
        needs=needs,
        secure=secure,
    )
