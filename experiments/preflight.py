"""Checks a run before it starts: `plan`, `doctor`, `run` and `repro` make the same ones."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.plans import JARS
from experiments.resolved import (
    ClientProcess,
    Resolved,
    clients_of,
    cluster_of,
    refuse_impossible,
    refuse_on_external,
)
from harness.contracts.rows import EVERY_REPLICA
from harness.errors import BrokerstormError, EnvironmentNotReady, Exit, ScenarioError, UsageError
from harness.node_settings import node_configs
from harness.rundir import Document
from harness.systems import SYSTEMS
from harness.toolchains.cache import cache_folder
from harness.toolchains.own_builds import PREFIX, UNKNOWN, in_words, own_build

if TYPE_CHECKING:
    from experiments.versions import Releases
    from faults import Timeline
    from harness.connections.security import Security
    from harness.contracts.plan import Plan
    from harness.contracts.worker import ProcessSpec
    from harness.need import Need
    from harness.plan.estimate import Estimate
    from harness.scenario.model import Scenario
    from harness.workers.spec import WorkerSpec

_MB = 1_000_000
#: Limits that let nothing happen when they are 0; ``call`` and the stalls have a meaning of their
#: own there.
_PHASES = ("ready", "recovery", "drain", "audit")
#: A load from which on faults that are over early are most likely forgotten.
_LONG_S = 600.0


@dataclass(frozen=True, slots=True)
class Preflight:
    """The facts about some plans that are known before any is run.

    Attributes:
        checks: of the machine; each says what it found.
        warnings: of what cannot be as expected, or would prove nothing.
        unchecked: what only the run itself can check.
    """

    checks: tuple[Need, ...]
    warnings: tuple[str, ...]
    estimate: Estimate
    unchecked: tuple[str, ...] = ()

    @property
    def missing(self) -> list[Need]:
        """The checks for which a run would be refused."""
        return [check for check in self.checks if check.needed and not check.ok]

    @property
    def exit_code(self) -> Exit:
        """The exit code of a dry run: a lack of memory, disk or ports may have passed when the run
        starts."""
        return Exit.ENVIRONMENT if any(not check.passing for check in self.missing) else Exit.PASS

    def require(self) -> Preflight:
        """Refuse to continue when a check failed.

        Raises:
            EnvironmentNotReady: names every failed check and the remedies.
        """
        from harness.doctor.machine import require

        require(self.checks)
        return self

    def document(self) -> Document:
        """For ``--json``."""
        checks = [asdict(check) for check in self.checks]
        return {
            "checks": checks,
            "warnings": list(self.warnings),
            "unchecked": list(self.unchecked),
            "estimate": asdict(self.estimate),
        }


def preflight(
    resolved: Resolved,
    run_dir: Path,
    *,
    tell_docker: bool = False,
    ask_indexes: bool = True,
    ask_clients: bool = True,
) -> Preflight:
    """Check what every run checks before it starts.

    For the runtime "auto", the requirements of processes are checked: what Docker lacks is the
    reason to use those.

    Args:
        run_dir: the folder of runs, whose disk is checked.
        tell_docker: for the runtime "auto", report what Docker lacks, too.
        ask_indexes: refuse versions of clients and brokers that are not here and that their package
            index does not have, and warn of those for which it could not be asked; never with
            ``offline``.
        ask_clients: ask every client that is built whether it takes its options.

    Raises:
        ScenarioError: a fault that no cluster of this system has the means for, or an option that a
            client refuses.
        UsageError: a version or a broker setting that there is not, or something that only a load
            from this machine can do.
    """
    options = resolved.options
    if options.external:
        refuse_unspoken(resolved, options.external.connection.security)
    if options.load:
        refuse_from_elsewhere(resolved)
    unchecked = _refuse_options(resolved) if ask_clients else []
    checks = [
        *_machine_checks(resolved, run_dir),
        *_client_checks(resolved),
        *_image_checks(resolved),
        *_application_checks(resolved),
    ]
    if options.external:
        for timeline in resolved.timelines:
            refuse_on_external(timeline, options.external)
    else:
        checks += [*fault_checks(resolved), *_described(resolved)]
        checks += _docker(resolved, tell_docker=tell_docker)
        checks += _databases(resolved)
    warnings = [
        warning
        for plan, timeline in zip(resolved.plans, resolved.timelines, strict=True)
        for warning in _warnings(plan, timeline)
    ]
    if ask_indexes and not options.offline:
        warnings += _refuse_unknown_versions(resolved)
    return Preflight(
        tuple(checks), tuple(dict.fromkeys(warnings)), resolved.estimate, tuple(unchecked)
    )


def refuse_unspoken(resolved: Resolved, security: Security) -> None:
    """Refuse clients that cannot do what a cluster asks of them; the reader of the audit is one of
    them.

    Raises:
        UsageError: the worker has no words for it.
        EnvironmentNotReady: a file of keys or certificates cannot be read.
    """
    for client in resolved.clients:
        client.worker.secure_options(security)


def refuse_from_elsewhere(resolved: Resolved) -> None:
    """Refuse what only clients of this machine can do.

    Raises:
        UsageError: the first such thing.
    """
    from faults.kit.clients import ClientParams, is_client
    from harness.plan.rates import is_open

    if resolved.options.secure:
        raise UsageError(
            "--secure: the secrets of a cluster of ours go to no other machine",
            hint="`up --secure` writes a connection file, which --cluster takes",
        )
    for plan, timeline in zip(resolved.plans, resolved.timelines, strict=True):
        if is_open(plan):
            raise UsageError(
                "load.rate: at_most is measured on this machine, so it cannot be used with --load-master",
                hint="set the rate of the load: --set load.rate=50000",
            )
        for firing in timeline.firings:
            own = firing.params
            if own.needs_pid if isinstance(own, ClientParams) else is_client(firing.target):
                raise UsageError(
                    f"fault {firing.kind} hits processes of this machine only",
                    hint="remove --load-master: the load of this machine can do it",
                )


# ----- the machine --------------------------------------------------------------------------------


def _machine_checks(resolved: Resolved, run_dir: Path) -> list[Need]:
    from harness.doctor import machine

    return machine.checks(
        *resolved.clusters,
        clients_mb=resolved.estimate.clients_mb,
        disk_mb=resolved.estimate.disk_bytes // _MB,
        folder=run_dir,
        runtime=resolved.checked_runtime,
    )


def _docker(resolved: Resolved, *, tell_docker: bool) -> list[Need]:
    """The checks of Docker. Two versions have an image each; they share engine and plugin."""
    from harness.doctor.docker import docker_checks

    wanted = resolved.runtime
    if wanted != "docker" and not (tell_docker and wanted == "auto"):
        return []
    found = [
        check
        for cluster in dict.fromkeys(map(cluster_of, resolved.plans))
        for check in docker_checks(*cluster, needed=wanted == "docker")
    ]
    return list(
        {(check.name, check.name == "images" and check.text): check for check in found}.values()
    )


def _client_checks(resolved: Resolved) -> list[Need]:
    from harness.need import Need

    checks = []
    for client in resolved.clients:
        found = client.readiness
        # Jars that the user brings with --client-jars may be there when it is run.
        brought = client.version.startswith(JARS)
        checks.append(
            Need(f"client {client.library}", found.ok, found.detail, found.remedy, passing=brought)
        )
    for plan in resolved.plans:
        checks += [check for check in _codec_checks(plan) if check not in checks]
    return checks


def _application_checks(resolved: Resolved) -> list[Need]:
    """Whether this machine can limit the applications that have limits.

    Raises:
        ScenarioError: a program cannot know the password of a cluster of ours.
    """
    from harness.clusters.limits.groups import why_not
    from harness.need import Need

    applications = [each for plan in resolved.plans for each in plan.applications]
    for each in applications:
        if resolved.options.secure and not any("{password}" in text for text in each.env.values()):
            raise ScenarioError(
                f"applications.{each.name}.env: has no {{password}}, without which the program cannot"
                " connect to a cluster with --secure",
                hint="remove --secure, or add variables with {password}, {user}, {protocol},"
                " {mechanism} and {ca}",
            )
    asked = {
        "cpu": any(each.cpu_cores is not None for each in applications),
        "memory": any(each.memory_bytes is not None for each in applications),
    }
    checks = []
    for controller in (name for name, is_asked in asked.items() if is_asked):
        reason = why_not(controller)
        text = reason or f"control groups can limit {controller} here"
        remedy = f"remove limits.{controller} of the applications, or run as root"
        checks.append(Need(f"application {controller}", not reason, text, remedy))
    return checks


def _image_checks(resolved: Resolved) -> list[Need]:
    """Whether applications in containers can run, and their images are in the engine.

    Raises:
        ScenarioError: the brokers are not in containers.
    """
    from harness.clusters.docker.programs import why_not
    from harness.need import Need

    images = {
        each.image: each.name for plan in resolved.plans for each in plan.applications if each.image
    }
    for name in images.values():
        options = resolved.options
        if resolved.checked_runtime != "docker" or options.secure:
            here = "--secure" if options.secure else "--runtime process"
            here = "--cluster" if options.external else here
            first = f"remove {here}" if options.secure or options.external else "--runtime docker"
            raise ScenarioError(
                f"applications.{name}.image: needs brokers in containers, and this run has {here}",
                hint=f"{first}, or write the program into run instead of image",
            )
    checks = []
    for image, name in images.items():
        problem, remedy = why_not(image)
        text = f"applications.{name}.image: {problem}" if problem else f"{image} is in the engine"
        checks.append(Need("application image", not problem, text, remedy))
    return checks


def _codec_checks(plan: Plan) -> Iterator[Need]:
    """Consumers whose client lacks a package for the codec of a producer: they would seem to
    stall."""
    from harness.need import Need
    from harness.workers import environments, load_worker

    for consumer in plan.consumers:
        worker = load_worker(consumer.client, plan.workers)
        needed = worker.codec.packages if worker.codec else {}
        version = consumer.client_version or worker.default_version
        for producer in plan.producers:
            package = needed.get(producer.codec.partition(" ")[0])
            topics = {plan.lane_groups[group].topic for group in producer.groups}
            if not package or not topics.intersection(consumer.topics):
                continue
            if environments.has_package(worker, version, package):
                continue
            options = load_worker(producer.client, plan.workers).codec
            remedy = ""
            if environments.is_beside(worker, version):
                remedy = f"run `{sys.executable} -m pip install {package}`, or "
            if options and options.options:
                remedy += f"write `options: {{{options.options[0]}: none}}` of this producer"
            else:
                remedy += "let another client read this topic"
            text = (
                f"{consumer.name} ({consumer.client}) cannot read what {producer.name} ({producer.client}) "
                f"writes: its environment has no {package}"
            )
            yield Need(f"codec {producer.codec.partition(' ')[0]}", False, text, remedy)


def _refuse_unknown_versions(resolved: Resolved) -> list[str]:
    """Refuse versions that do not exist; nothing is asked about those that are here, nor about
    versions of brokers that do not run as processes.

    Returns:
        Sentences about versions that could not be checked.

    Raises:
        UsageError: every version that does not exist, and the versions there are instead.
    """
    from experiments.versions import Releases

    unchecked: list[str] = []
    releases = Releases(cache_folder() / "releases", tell=unchecked.append)
    asked = [
        *_absent_clients(releases, resolved),
        *(_absent_brokers(releases, resolved) if resolved.checked_runtime == "process" else ()),
    ]
    unknown: dict[str, str] = {}

    def others(one: tuple[str, Callable[[], str]]) -> str | BrokerstormError:
        try:
            return one[1]()
        except BrokerstormError as error:
            return error

    with ThreadPoolExecutor(4) as pool:
        for (what, _), found in zip(asked, pool.map(others, asked), strict=True):
            if isinstance(found, BrokerstormError):
                unchecked.append(f"whether there is {what} was not checked: {found}")
            elif found:
                unknown[what] = found
    if unknown:
        hints = list(unknown.values())
        if len(unknown) > 1:
            hints = [f"{what}: {hint}" for what, hint in unknown.items()]
        raise UsageError(f"there is no {', no '.join(unknown)}", hint="; ".join(hints))
    return unchecked


def _absent_clients(
    releases: Releases, resolved: Resolved
) -> Iterator[tuple[str, Callable[[], str]]]:
    """The clients that are not on this machine, each with the question which other versions there
    are."""
    from experiments.versions import other_clients

    for client in resolved.clients:
        if client.version and client.readiness.ok and not client.readiness.fetched:
            name = f"{client.library} {client.version}"
            yield name, partial(other_clients, releases, client.worker, client.version)


def _absent_brokers(
    releases: Releases, resolved: Resolved
) -> Iterator[tuple[str, Callable[[], str]]]:
    """The absent brokers, also of versions after an upgrade; see `_absent_clients`."""
    from experiments.versions import other_brokers
    from harness.clusters import is_fetched, spec_of

    for system, version, _ in resolved.clusters:
        spec = spec_of(system, version)
        try:
            is_here = bool(spec.own) or is_fetched(spec)
        except EnvironmentNotReady:  # `harness.doctor.machine` names the missing tool
            continue
        if not is_here:
            yield f"{system} {spec.version}", partial(other_brokers, releases, system, spec.version)


def _refuse_options(resolved: Resolved) -> list[str]:
    """Ask every client that can be asked without a broker whether it takes its options.

    A client names one option at a time: it is asked again without that one.

    Returns:
        A sentence about each client that could not be asked.

    Raises:
        ScenarioError: a line for each refused option, in the client's own words.
    """
    processes = resolved.processes
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(_refusals, processes))
    lines, unasked = [], []
    for process, refused in zip(processes, answers, strict=True):
        if refused is None:
            asked = process.spec.client
            client = f"{asked.library} {in_words(asked.version)}".rstrip()
            why = "its worker is not built yet, or gave no answer"
            unasked.append(f"options of {client} were not checked: {why}; the run asks it")
        else:
            lines += [_option_line(process, text, resolved.scenario) for text in refused]
    if lines:
        lines = list(dict.fromkeys(lines))
        raise ScenarioError(lines[0], further=lines[1:])
    return list(dict.fromkeys(unasked))


def _refusals(process: ClientProcess) -> list[str] | None:
    """Return a client's objections to its options, until it takes the rest or names none of them;
    None if it cannot be asked."""
    from harness.workers import refused_options

    spec = process.spec
    left = dict(spec.client.options)
    said: list[str] = []
    while text := refused_options(process.worker, spec):
        said.append(text)
        option = _named_option(text, left)
        if not option:
            return said
        del left[option]
        spec = spec.model_copy(
            update={"client": spec.client.model_copy(update={"options": dict(left)})}
        )
    return None if text is None and not said else said


def _option_line(process: ClientProcess, text: str, scenario: Scenario | None) -> str:
    from harness.scenario.file import option_place

    spec = process.spec
    option = _named_option(text, spec.client.options)
    place = (
        option_place(scenario, process.variant, spec.name, option) if scenario and option else ""
    )
    line = f"options of {spec.name}: {_with_near_name(text, process.worker, spec)}"
    return f"{place}: {line}" if place else line


def _named_option(text: str, options: Mapping[str, object]) -> str:
    """The longest option that a client's words are about; empty = it names none."""
    return max((each for each in options if each in text), key=len, default="")


def _with_near_name(text: str, worker: WorkerSpec, spec: ProcessSpec) -> str:
    """The client's own words with the option that they are about, and an option of a similar
    name."""
    option = _named_option(text, spec.client.options)
    if not option or "did you mean" in text or f"{option}=" in text:  # it is about the value
        return text
    near = difflib.get_close_matches(option, worker.option_names - {option}, n=1)
    return f"{option}: {text}{f'; did you mean {near[0]}?' if near else ''}"


def fault_checks(resolved: Resolved) -> list[Need]:
    """Whether this machine can give what the faults of these plans need of a cluster's start."""
    from harness.clusters.sources import SOURCES
    from harness.need import Need

    source = SOURCES[resolved.checked_runtime]
    checks = []
    for tool in source.tools_for(resolved.needs):
        ok, text, remedy = tool.readiness()
        checks.append(Need(tool.what, ok, text, remedy))
    for need in sorted(resolved.needs & source.runtime_type().gives):
        problem = source.runtime_type().why_not(need)
        remedy = source.runtime_type().hint
        checks.append(Need(f"fault needs {need}", not problem, problem or "can be given", remedy))
    return checks


def _described(resolved: Resolved) -> list[Need]:
    """Whether the clusters, as far as they can be described, can do what the faults ask."""
    from harness.need import Need

    options, problems = resolved.options, dict[str, str]()
    for plan, timeline in zip(resolved.plans, resolved.timelines, strict=True):
        try:
            refuse_impossible(
                timeline,
                cluster_of(plan),
                resolved.checked_runtime,
                plan.broker_config,
                secure=options.secure,
            )
        except EnvironmentNotReady as error:
            problems[str(error)] = error.hint
    return [Need("faults", False, text, hint) for text, hint in problems.items()]


def _databases(resolved: Resolved) -> list[Need]:
    """Whether the databases answer that hold outputs of applications."""
    from harness.need import Need
    from harness.run.sql_outputs import SqlOutputs

    checks = []
    for application in {
        each.name: each for plan in resolved.plans for each in plan.applications
    }.values():
        if application.to_sql is None:
            continue
        system, problem, remedy = application.to_sql.system, "", ""
        try:
            SqlOutputs(application, shared=Path(), group="").check()
        except EnvironmentNotReady as error:
            problem, remedy = str(error), error.hint
        text = problem or f"{system} of application {application.name} can be used"
        checks.append(Need("database", not problem, text, remedy))
    return checks


# ----- the scenario -------------------------------------------------------------------------------


def _warnings(plan: Plan, timeline: Timeline) -> Iterator[str]:
    """Yield a warning for each thing that cannot be as expected, or would prove nothing."""
    where = f"{plan.variant}: " if plan.variant else ""
    of_plan = (
        *(*_of_limits(plan), *_of_sizes(plan), *_of_times(timeline), *_of_expectation(plan)),
        *_of_retention(plan),
        *_of_buckets(plan),
        *plan.notes,
        *SYSTEMS[plan.system].cluster_warnings(node_configs(plan.broker_config)),
    )
    for text in (*of_plan, *_of_builds(plan)):
        yield f"{where}{text}"


def _of_limits(plan: Plan) -> Iterator[str]:
    for name in _PHASES:
        if not plan.limits[name]:
            yield f"limits.{name} is 0: that phase ends before anything can happen in it"


def _of_builds(plan: Plan) -> Iterator[str]:
    for client in clients_of(plan):
        own = own_build(client.version)
        if own and own.number == UNKNOWN:
            yield (
                f"the version of {client.library} from {own.path} is not known: it is taken for the newest, "
                f"whose defaults may promise more; state it: {PREFIX}{own.path} 1.2.0"
            )


def _of_sizes(plan: Plan) -> Iterator[str]:
    largest = plan.payload_max_bytes or plan.payload_bytes
    for topic in plan.topics:
        limit = SYSTEMS[plan.system].size_limit(topic.config, plan.broker_config)
        if 0 < limit < largest:
            yield (
                f"load.payload is {largest:,} B and {topic.declared or topic.name} takes "
                f"{limit:,} B at most: its brokers refuse every message"
            )


def _of_retention(plan: Plan) -> Iterator[str]:
    """Where the log is read along, brokers may forget what was read."""
    from harness.plan.hours import audit_follows

    for topic in () if audit_follows(plan) else plan.topics:
        kept_s = SYSTEMS[plan.system].retention_s(topic.config)
        if kept_s and kept_s < plan.warm_up_s + plan.load_s:
            yield (
                f"topic {topic.declared or topic.name} keeps {kept_s:g} s of its messages, and its log is "
                "read once the load is over: what is gone by then is unknown"
            )


def _of_buckets(plan: Plan) -> Iterator[str]:
    """Judging holds a bucket in memory, whatever its size."""
    from harness.memory import free_memory_mb, judging_mb

    groups = {consumer.group for consumer in plan.consumers}
    rows = plan.rate_per_s * (plan.warm_up_s + plan.load_s) * (2 + len(groups))
    shares: dict[int, float] = {}
    for lanes in plan.lane_groups:
        for bucket in lanes.buckets:
            share = 1 / len(lanes.buckets) / len(plan.lane_groups)
            shares[bucket] = shares.get(bucket, 0.0) + share
    largest = rows * max(shares.values(), default=0)
    needed_mb, free_mb = judging_mb(largest), free_memory_mb()
    if needed_mb > free_mb:
        yield (
            "judging holds a bucket at a time, a partition or more: the largest comes to "
            f"{largest:,.0f} rows, about {needed_mb / 1024:.0f} GiB, and {free_mb / 1024:.0f} are free: "
            "more partitions, or a shorter load"
        )


def _of_times(timeline: Timeline) -> Iterator[str]:
    for firing in timeline.firings:
        if firing.for_s and firing.t_s + firing.for_s > timeline.load_s:
            yield (
                f"faults[{firing.step}]: {firing.kind} at +{firing.t_s:g} s for {firing.for_s:g} s outlasts "
                f"the load of {timeline.load_s:g} s: it is undone when the load ends"
            )
    last_s = max((each.t_s + (each.for_s or 0.0) for each in timeline.firings), default=0.0)
    if timeline.firings and timeline.load_s >= _LONG_S and last_s < timeline.load_s / 2:
        yield (
            f"faults: the last one is over {last_s:g} s into a load of {timeline.load_s:g} s: those with "
            "`every` and without `until`, and a `mix`, last to its end"
        )


def _of_expectation(plan: Plan) -> Iterator[str]:
    from analysis.classes import ASKS, CLASSES
    from analysis.classes.entry import CAPTURE, INFORMATION

    entry = CLASSES.get(plan.expect)
    if entry is None:
        return
    if entry.breaks in ((INFORMATION,), (CAPTURE,)):
        yield f"expect: {plan.expect} breaks no promise, so nothing found is counted as it"
    has = _abilities(plan)
    for ask in entry.asks:
        if not has.get(ask, True):
            yield f"expect: {plan.expect} cannot be shown: {ASKS[ask]}"


def _abilities(plan: Plan) -> dict[str, bool]:
    """By name in `analysis.classes.ASKS`: whether the run will have it, as far as the plan can
    tell."""
    handling = {producer.results for producer in plan.producers}
    removes = SYSTEMS[plan.system].removes_settled
    is_queue = all(removes(topic.config) for topic in plan.topics)
    return {
        "consumers": bool(plan.consumers),
        "log": not is_queue,
        "queues": is_queue,
        "fixed-lanes": any(group.mode != "routed" for group in plan.lane_groups),
        "ignored-results": "ignored" in handling,
        "resent": "resent" in handling,
        "rollbacks": any(consumer.rollback_every for consumer in plan.consumers),
        "replicas": plan.audit == EVERY_REPLICA,
        "self-reports": any(each.says_died for each in plan.producers)
        or any(each.says_died for each in plan.consumers),
        "watched-commits": any(each.watches_commits for each in plan.consumers),
    }
