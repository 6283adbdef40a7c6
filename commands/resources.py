"""What resource faults need of the machine: control groups, volumes of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from commands.network import needs_of_plans

if TYPE_CHECKING:
    from harness.doctor.machine import Check
    from harness.plan.model import Plan


def resource_checks(plans: Sequence[Plan], runtime: str) -> list[Check]:
    """Whether this machine can give what the resource faults of these plans need to a runtime, "process" or
    "docker"."""
    from harness.clusters.docker import volumes
    from harness.clusters.limits import node_limits
    from harness.doctor.machine import Check

    source = volumes if runtime == "docker" else node_limits
    checks = []
    for need in sorted(needs_of_plans(plans) & source.GIVES):
        problem = source.why_not(need)
        remedy = "run as root on Linux, or leave the faults that need it out: docs/reference/faults.md"
        checks.append(Check(f"limit {need}", not problem, problem or "can be set", remedy))
    return checks
