"""What network faults need of the machine: the proxy, which is built with Go on first use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.doctor.machine import Check
    from harness.plan.model import Plan
    from harness.toolchains.jars import Progress

#: Values of `up --needs`: those of `harness.protocols.network`, which is not imported for a list.
PEER_DETOURS, PEER_CUTS = "peer-detours", "peer-cuts"
DETOURS = ("client-detours", PEER_DETOURS, PEER_CUTS)


def network_checks(plans: Sequence[Plan], runtime: str = "process") -> list[Check]:
    """Whether the proxy can be had, when the faults of these plans need it, and, for the runtime "docker",
    whether this machine lets us between containers."""
    from harness.clusters.network import toxiproxy
    from harness.doctor.machine import Check

    needs = needs_of_plans(plans) & set(DETOURS)
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


def fetch_proxy(plans: Sequence[Plan], report: Progress) -> dict[str, str]:
    """Build the proxy when the faults of these plans need it; name -> where it is.

    Raises:
        EnvironmentNotReady: no Go, or it does not build.
    """
    from harness.clusters.network import toxiproxy

    if not _has_network_faults(plans):
        return {}
    return {f"toxiproxy {toxiproxy.VERSION}": str(toxiproxy.fetch(on_progress=report))}


def fetch_proxy_image(client: Any, plans: Sequence[Plan], report: Progress) -> dict[str, str]:
    """As `fetch_proxy`, the image for clusters in containers; tag -> what it is.

    Args:
        client: of the Docker engine (`docker.DockerClient`).
    """
    from harness.clusters.docker import proxy

    if PEER_DETOURS not in needs_of_plans(plans):
        return {}
    return {proxy.provide(client, on_progress=report): "the network proxy"}


def needs_of_plans(plans: Iterable[Plan]) -> frozenset[str]:
    """What a cluster must be started with for the faults of these plans."""
    import faults
    from commands import wiring

    return faults.needs_of(wiring.timeline_of(plan) for plan in plans)


def _has_network_faults(plans: Sequence[Plan]) -> bool:
    return bool(needs_of_plans(plans) & set(DETOURS))
