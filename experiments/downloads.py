"""Downloads and builds what plans need, before or apart from a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from experiments.plans import clusters_of, needs_of
from experiments.preflight import clients_of
from harness.toolchains.own_builds import in_words

if TYPE_CHECKING:
    from harness.contracts.plan import Plan
    from harness.toolchains.jars import Progress


def fetch_files(plans: Sequence[Plan], report: Progress) -> dict[str, str]:
    """Jars and clients; name -> where it is."""
    from harness.clusters import fetch_cluster, spec_of
    from harness.workers import launch, load_worker

    folders: dict[str, str] = fetch_tools(plans, report)
    for system, asked, _ in clusters_of(plans):
        where = fetch_cluster(system, asked, on_progress=report)
        folders[f"{system} {spec_of(system, asked).version}"] = str(where)
    for plan in plans:
        for name, version in clients_of(plan):
            worker = load_worker(name, plan.workers)
            argv, _ = launch(worker, version, on_progress=report)
            # Python, Go: the program itself; Java: compiled classes and the client's jars
            found = argv[argv.index("-cp") + 1] if "-cp" in argv else argv[0]
            folders[f"{name} {in_words(version or worker.default_version)}"] = found
    return folders


def fetch_spark(report: Progress) -> None:
    """The archive of Spark's classes, once for this machine."""
    from analysis.spark.session import record_classes

    report("class archive of Spark, so that it starts in half the time", None)
    record_classes()


def fetch_tools(plans: Sequence[Plan], report: Progress) -> dict[str, str]:
    """Build the programs of ours that the faults of these plans need; name -> where it is.

    Raises:
        EnvironmentNotReady: no Go, or it does not build.
    """
    from harness.clusters.sources import ProcessSource

    tools = ProcessSource.tools_for(needs_of(plans))
    return {tool.name: str(tool.fetch(on_progress=report)) for tool in tools}


def fetch_proxy_image(client: Any, plans: Sequence[Plan], report: Progress) -> dict[str, str]:
    """As `fetch_tools`, the image for clusters in containers; tag -> what it is.

    Args:
        client: of the Docker engine (`docker.DockerClient`).
    """
    from harness.clusters.docker import proxy
    from harness.protocols.network import PEER_DETOURS

    if PEER_DETOURS not in needs_of(plans):
        return {}
    return {proxy.provide(client, on_progress=report): "the network proxy"}
