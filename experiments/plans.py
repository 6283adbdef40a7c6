"""From a scenario to checked plans; nothing is started or touched."""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.resolved import Resolved, RoundOptions, node_roles, refuse_impossible
from harness.contracts.rows import EVERY_REPLICA
from harness.errors import EnvironmentNotReady, ScenarioError, UsageError
from harness.rundir import RunDir, resolved
from harness.systems import SYSTEMS
from harness.toolchains.own_builds import PREFIX

if TYPE_CHECKING:
    from harness.clusters.external import External
    from harness.contracts.plan import Plan
    from harness.scenario.model import Scenario

#: The option that says how long the load lasts (`harness.scenario.file.load_scenario`).
FOR = "--for"
#: Of a fresh seed.
MAX_SEED = 1_000_000
#: A client version that is a folder of jars (`harness.workers.java_build`).
JARS = "jars:"
#: Jars that an error names.
MOST_NAMED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioRequest:
    """The rounds that a command asks for.

    Attributes:
        scenario: a name or a file; empty = the replayed run.
        overrides: texts of ``--set``.
        seed: the seed of the first round; None = a new one.
        for_s: the duration of the load in seconds; None = as the scenario says.
        rounds: the number of rounds of each variant; None = as the scenario says.
        variant: the only variant to run; empty = all of them.
    """

    scenario: str
    overrides: tuple[str, ...] = ()
    seed: int | None = None
    for_s: float | None = None
    rounds: int | None = None
    variant: str = ""


def resolve(asked: ScenarioRequest, options: RoundOptions) -> Resolved:
    """Read the scenario of a request and choose its rounds, at the rate of the replayed run if
    there is one. Without a scenario, the replayed run itself is the only round.

    Raises:
        ScenarioError: a line for each problem, with place, key, value and what is allowed.
        UsageError: the variant does not exist, or the cluster of ``options`` does not fit.
    """
    from harness.plan.rates import as_recorded

    replayed = read_plan(options.replay) if options.replay else None
    if asked.scenario:
        name, overrides = asked.scenario, asked.overrides
        scenario = read_scenario(name, overrides, external=options.external, for_s=asked.for_s)
        seed = drawn(asked.seed)
        plans = choose_plans(scenario, seed=seed, rounds=asked.rounds, variant=asked.variant)
    else:
        assert replayed is not None
        scenario, seed, plans = None, replayed.seed, [replayed]
    if replayed is not None:
        plans = [as_recorded(plan, replayed) for plan in plans]
    replays = f"--replay {options.replay.root}" if options.replay else ""
    plans = on_external(
        plans, options.external, named=shlex.quote(asked.scenario) if asked.scenario else replays
    )
    return Resolved(plans=plans, options=options, scenario=scenario, seed=seed)


def resolve_scenario(
    scenario: Scenario,
    options: RoundOptions,
    *,
    seed: int,
    rounds: int | None = None,
    variant: str = "",
) -> Resolved:
    """Resolve a scenario that was read already; see `resolve`."""
    plans = choose_plans(scenario, seed=seed, rounds=rounds, variant=variant)
    plans = on_external(plans, options.external)
    return Resolved(plans=plans, options=options, scenario=scenario, seed=seed)


def external_of(file: Path | None, *, all_there: bool = True) -> External | None:
    """The cluster of a connection file (``--cluster``), which was asked who it is; None without a
    file.

    Args:
        all_there: as of `identified`.

    Raises:
        BrokerstormError: as `read_connection` and `identified`.
    """
    if file is None:
        return None
    from harness.clusters.external import identified
    from harness.connections.file import read_connection

    return identified(read_connection(file), all_there=all_there)


def drawn(seed: int | None) -> int:
    """The seed that was asked for, or a fresh one."""
    return secrets.randbelow(MAX_SEED) if seed is None else seed


def read_scenario(
    name: str,
    overrides: Sequence[str] = (),
    *,
    external: External | None = None,
    for_s: float | None = None,
) -> Scenario:
    """A scenario checked against the workers, classes and fault kinds there are.

    Args:
        external: the cluster that it is to run on; None = one that we start.
        for_s: how long the load lasts; None = as the scenario says.

    Raises:
        ScenarioError: one line with place, key, value and what is allowed.
    """
    import faults
    from analysis.classes import CLASSES
    from harness.plan.build import topic_plans
    from harness.scenario.file import load_scenario
    from harness.workers import known_workers

    def check_faults(scenario: Scenario) -> None:
        cluster = scenario.cluster
        ours = (scenario.system, cluster.version, cluster.topology)
        inventory = faults.inventory_of(
            topics=topic_plans(scenario),
            nodes=external.roles if external else node_roles(*ours),
            output_endpoints=[name for name, each in scenario.applications.items() if each.to.http],
            system=scenario.system,
        )
        timeline = faults.compile(scenario.faults, inventory, seed=0, load_s=scenario.load.duration)
        if external:
            return
        with suppress(EnvironmentNotReady):  # of this machine: `experiments.preflight` says it
            refuse_impossible(timeline, ours, "process", {})

    return load_scenario(
        name,
        overrides=[*overrides, *([] if for_s is None else [f"{FOR} {_time_text(for_s)}"])],
        clients=known_workers,
        classes=list(CLASSES),
        check_faults=check_faults,
        pin=pinned_version,
        reserved=None if external else _reserved_settings,
    )


def _reserved_settings(scenario: Scenario) -> frozenset[str]:
    """Settings of the brokers that the runtime decides: who a node is, and where it listens."""
    from harness.clusters import spec_of

    cluster = scenario.cluster
    try:
        version = pinned_version(scenario, "", cluster.version)
        return spec_of(scenario.system, version, cluster.topology).reserved
    except (UsageError, EnvironmentNotReady):  # refused later, with its own words
        return frozenset()


def _time_text(seconds: float) -> str:
    """Seconds as a user writes them: ``99h``, ``90s``."""
    for unit, unit_s in (("h", 3600), ("m", 60)):
        if seconds and seconds % unit_s == 0:
            return f"{seconds / unit_s:.12g}{unit}"
    return f"{seconds:.12g}s"


def pinned_version(scenario: Scenario, client: str, version: str) -> str:
    """A version of a client, or of the brokers, that means the same to the end of the command.

    Raises:
        UsageError: a build of the user's that is not there, or is another one's.
        EnvironmentNotReady: git cannot be asked.
    """
    from harness.clusters import pinned as pinned_brokers
    from harness.workers import load_worker
    from harness.workers import pinned as pinned_client

    if not client:
        return pinned_brokers(scenario.system, version)
    return pinned_client(load_worker(client, scenario.worker_folders), version)


def choose_plans(
    scenario: Scenario, *, seed: int, rounds: int | None = None, variant: str = ""
) -> list[Plan]:
    """The plans of a run; ``rounds`` and ``variant`` narrow the scenario.

    Raises:
        UsageError: no such variant.
        ScenarioError: settings that the client refuses.
    """
    from harness.plan.build import build_plans
    from harness.scenario.file import located

    if variant and variant not in scenario.variants:
        known = ", ".join(scenario.variants) or "none"
        raise UsageError(
            f"{scenario.name} has no variant {variant!r}", hint=f"its variants: {known}"
        )
    wanted = scenario if rounds is None else scenario.model_copy(update={"rounds": rounds})
    try:
        plans = build_plans(wanted, seed=seed)
    except ScenarioError as problem:
        raise located(scenario, problem) from None
    return [plan for plan in plans if not variant or plan.variant == variant]


def on_external(plans: Sequence[Plan], external: External | None, *, named: str = "") -> list[Plan]:
    """The plans for a cluster that somebody else started; as they are without one.

    Raises:
        ScenarioError: they ask for a cluster that is made for them.
        UsageError: a client that cannot do what the cluster asks.
    """
    from harness.contracts.plan import ExternalPlan
    from harness.plan.build import with_tag

    _refuse_elsewhere(plans, external, named)
    if external is None:
        return [plan.model_copy(update={"external": None}) for plan in plans]
    file = external.connection.file
    for plan in plans:
        if plan.system != file.system:
            raise UsageError(
                f"{plan.scenario} is for {plan.system}, and --cluster is {file.system}"
            )
        lacks = external.found.lacks if any(each.transactions for each in plan.producers) else {}
        if set_to := ", ".join(f"{key}={value}" for key, value in lacks.items()):
            raise ScenarioError(
                f"transactions: the brokers of --cluster have {set_to}, which only its owner sets",
                hint="switch transactions on there: docs/howto/test-transactions.md",
            )
        if plan.audit == EVERY_REPLICA:
            raise ScenarioError(
                f"audit: {plan.audit}: the brokers of --cluster are asked through their leaders",
                hint="leave it out there: --set audit=leader",
            )
        needed = SYSTEMS[plan.system].transactional_config
        if given := ", ".join(
            key for key, value in plan.broker_config.items() if needed.get(key) != value
        ):
            raise ScenarioError(
                f"cluster.config: {given}: the brokers of --cluster are not ours to set",
                hint="set it there, and leave it out here: --set cluster.config={}",
            )
    planned = ExternalPlan(
        file=str(resolved(external.connection.path)),
        cluster_id=external.found.cluster_id,
        prefix=file.topics.prefix,
        nodes={name: list(roles) for name, roles in external.roles.items()},
    )
    copies = file.topics.replication or external.found.replication
    changed = {"external": planned, "broker_config": {}}
    found = [_replicated(plan.model_copy(update=changed), copies) for plan in plans]
    return [with_tag(plan, plan.run_tag) for plan in found]


def _refuse_elsewhere(plans: Sequence[Plan], external: External | None, named: str = "") -> None:
    """Refuse what an application that the user starts cannot have.

    Raises:
        ScenarioError: it needs a cluster that is there already, and one round.
    """
    for plan in plans:
        for application in plan.applications:
            if not application.runs_elsewhere:
                continue
            at = f"applications.{application.name}.run"
            command = f"brokerstorm run {named or plan.scenario} --cluster FILE"
            if external is None:
                raise ScenarioError(
                    f"{at}: is missing: without it, you start the program, which needs --cluster FILE",
                    hint=command,
                )
            if len(plans) > 1:
                raise ScenarioError(
                    f"{at}: is missing: an application that you start is tested in one round, and this"
                    f" scenario has {len(plans)}",
                    hint=f"{command} --variant {plan.variant} --rounds 1"
                    if plan.variant
                    else f"{command} --rounds 1",
                )
            for step in plan.faults:
                target = f"{step.get('target', '')} {step.get('link', '')}"
                if _names_application(target, application.name) or step.get("fault") == "scale":
                    raise ScenarioError(
                        f"faults: {step.get('fault')}: application {application.name} runs where you"
                        " started it, and --cluster has no way to its processes",
                        hint="leave this fault out, or write the program into run",
                    )


def _names_application(target: str, application: str) -> bool:
    """Whether the target or link of a fault means instances of an application."""
    own = application.replace(".", "_")
    names = (f"client:{application}", f"client:application-{own}", f"application:{application}")
    words = {"client:application", "applications", *names}
    prefixes = tuple(f"{name}-" for name in names)
    return any(word in words or word.startswith(prefixes) for word in target.split())


def _replicated(plan: Plan, replication: int | None) -> Plan:
    if replication is None:
        return plan
    topics = [topic.model_copy(update={"replication": replication}) for topic in plan.topics]
    return plan.model_copy(update={"topics": topics})


def for_a_new_run(plan: Plan) -> Plan:
    """The plan with a tag that no other run has."""
    from harness.plan.build import with_tag

    return with_tag(plan, (plan.run_tag + 1 + secrets.randbelow(2**32 - 2)) % 2**32 or 1)


def read_plan(run: RunDir) -> Plan:
    """The plan that a run was made from.

    Raises:
        UsageError: unreadable, or of another version.
    """
    from harness.contracts import read_document
    from harness.contracts.plan import Plan

    return read_document(run.plan, Plan)


def with_jars(plan: Plan, folder: Path | None) -> Plan:
    """``jars:0.5`` of a bug file is folder 0.5 of ``--client-jars``.

    Raises:
        UsageError: a version that only the user can bring, and they did not, or brought another.
    """

    from harness.workers import load_worker, pinned

    def found(client: str, version: str) -> dict[str, str]:
        name = version.removeprefix(JARS)
        if not version.startswith(JARS):
            return {}
        path = Path(name) if Path(name).is_absolute() else _jars_of(name, folder, plan.variant)
        number = f" {path.name}" if path.name[:1].isdigit() else ""
        return {
            "client_version": pinned(load_worker(client, plan.workers), f"{PREFIX}{path}{number}")
        }

    producers = [p.model_copy(update=found(p.client, p.client_version)) for p in plan.producers]
    consumers = [c.model_copy(update=found(c.client, c.client_version)) for c in plan.consumers]
    return plan.model_copy(update={"producers": producers, "consumers": consumers})


def _jars_of(version: str, folder: Path | None, variant: str) -> Path:
    where = folder / version if folder else Path("DIR") / version
    jars = sorted(path.name for path in where.glob("*.jar")) if folder else []
    if not jars:
        raise UsageError(
            f"{variant} needs jars that no repository has: there are none in {where}",
            hint=f"put the jars of version {version} into DIR/{version} and name DIR: --client-jars DIR",
        )
    # A pair of versions means nothing if both folders hold the same client.
    if not any(re.search(rf"[-_]{re.escape(version)}(?![0-9]|\.[0-9])", name) for name in jars):
        named = ", ".join(jars[:MOST_NAMED]) + (", ..." if len(jars) > MOST_NAMED else "")
        raise UsageError(
            f"{variant} is about version {version}, and no jar in {where} has it in its name: {named}",
            hint=f"the client's own jar must be there under its own name, such as client-{version}.jar",
        )
    return where.resolve()
