"""Checks that doctor, run and repro make of the machine before anything starts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from commands.plans import needs_of

if TYPE_CHECKING:
    from harness.doctor.machine import Check
    from harness.plan.model import Plan

#: Values of `up --needs`: those of `harness.protocols.network`, which is not imported for a list.
PEER_DETOURS, PEER_CUTS = "peer-detours", "peer-cuts"
DETOURS = ("client-detours", PEER_DETOURS, PEER_CUTS)


def machine_checks(plans: Sequence[Plan], run_dir: Path, runtime: str = "process") -> list[Check]:
    """What the machine must have to run these plans with brokers as processes, or with runtime "docker".

    For "auto" it is what processes need: what Docker lacks is then the reason to use those.
    """
    from harness.doctor import machine

    found = {
        check.name: check
        for cluster in _clusters(plans)
        for check in machine.checks(
            *cluster, folder=run_dir, runtime="docker" if runtime == "docker" else "process"
        )
    }
    docker = docker_checks_of(plans, needed=True) if runtime == "docker" else []
    limits = _limit_checks(plans, runtime)
    return [*found.values(), *_client_checks(plans), *network_checks(plans, runtime), *limits, *docker]


def _clusters(plans: Sequence[Plan]) -> list[tuple[str, str, str]]:
    """System, version and topology of every cluster that these plans need, each once."""
    return list(dict.fromkeys((plan.system, plan.version, plan.topology) for plan in plans))


def docker_checks_of(plans: Sequence[Plan], *, needed: bool) -> list[Check]:
    from harness.doctor.docker import docker_checks

    found = [check for cluster in _clusters(plans) for check in docker_checks(*cluster, needed=needed)]
    # Two versions have an image each; engine and plugin they share.
    return list(
        {(check.name, check.text if check.name == "images" else ""): check for check in found}.values()
    )


def clients_of(plan: Plan) -> list[tuple[str, str]]:
    """Library and version of every worker of a run, the readers of its log too."""
    from harness.systems import SYSTEMS

    producers = [(each.client, each.client_version) for each in plan.producers]
    consumers = [(each.client, each.client_version) for each in plan.consumers]
    return list(dict.fromkeys([*producers, *consumers, SYSTEMS[plan.system].audit]))


def _client_checks(plans: Sequence[Plan]) -> list[Check]:
    from harness.doctor.machine import Check
    from harness.workers import load_worker, readiness

    checks = []
    used = [(*pair, tuple(plan.workers)) for plan in plans for pair in clients_of(plan)]
    for name, version, folders in dict.fromkeys(used):
        found = readiness(load_worker(name, folders), version)
        checks.append(Check(f"client {name}", found.ok, found.detail, found.remedy))
    return checks


def network_checks(plans: Sequence[Plan], runtime: str = "process") -> list[Check]:
    """Whether the proxy can be had, when the faults of these plans need it, and, for the runtime "docker",
    whether this machine lets us between containers."""
    from harness.clusters.network import toxiproxy
    from harness.doctor.machine import Check

    needs = needs_of(plans) & set(DETOURS)
    between = needs & {PEER_DETOURS, PEER_CUTS} if runtime == "docker" else frozenset()
    checks = []
    if needs - (between & {PEER_CUTS}):
        ok, text, remedy = toxiproxy.readiness()
        checks.append(Check("network proxy", ok, text, remedy))
    for need in sorted(between):
        from harness.clusters.docker.runtime import why_not

        problem = why_not(need)
        remedy = "leave its faults on peers out, or use --runtime process: docs/explanation/runtimes.md"
        checks.append(Check(f"network {need}", not problem, problem or "can be set", remedy))
    return checks


def _limit_checks(plans: Sequence[Plan], runtime: str) -> list[Check]:
    """Whether this machine can give what the resource faults of these plans need to a runtime, "process" or
    "docker"."""
    from harness.clusters.docker import volumes
    from harness.clusters.limits import node_limits
    from harness.doctor.machine import Check

    source = volumes if runtime == "docker" else node_limits
    checks = []
    for need in sorted(needs_of(plans) & source.GIVES):
        problem = source.why_not(need)
        remedy = "run as root on Linux, or leave the faults that need it out: docs/reference/faults.md"
        checks.append(Check(f"limit {need}", not problem, problem or "can be set", remedy))
    return checks
