"""What the machine must have for some plans: one list of checks for doctor, run and repro."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from commands.network import network_checks
from commands.resources import resource_checks

if TYPE_CHECKING:
    from harness.doctor.machine import Check
    from harness.plan.model import Plan


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
    docker = _docker_checks(plans, needed=True) if runtime == "docker" else []
    limits = resource_checks(plans, runtime)
    return [*found.values(), *_client_checks(plans), *network_checks(plans, runtime), *limits, *docker]


def _clusters(plans: Sequence[Plan]) -> list[tuple[str, str, str]]:
    """System, version and topology of every cluster that these plans need, each once."""
    return list(dict.fromkeys((plan.system, plan.version, plan.topology) for plan in plans))


def _docker_checks(plans: Sequence[Plan], *, needed: bool) -> list[Check]:
    from harness.doctor.docker import docker_checks

    found = [check for cluster in _clusters(plans) for check in docker_checks(*cluster, needed=needed)]
    # Two versions have an image each; engine and plugin they share.
    return list(
        {(check.name, check.text if check.name == "images" else ""): check for check in found}.values()
    )


def _clients(plan: Plan) -> list[tuple[str, str]]:
    """Library and version of every worker of a run, the readers of its log too."""
    from harness.run.worker_specs import AUDIT_CLIENT

    producers = [(each.client, each.client_version) for each in plan.producers]
    consumers = [(each.client, each.client_version) for each in plan.consumers]
    return list(dict.fromkeys([*producers, *consumers, AUDIT_CLIENT[plan.system]]))


def _client_checks(plans: Sequence[Plan]) -> list[Check]:
    from harness.doctor.machine import Check
    from harness.workers import load_worker, readiness

    checks = []
    for name, version in dict.fromkeys(pair for plan in plans for pair in _clients(plan)):
        found = readiness(load_worker(name), version)
        checks.append(Check(f"client {name}", found.ok, found.detail, found.remedy))
    return checks
