"""Downloads and builds what plans need, before or apart from a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from experiments.resolved import Resolved
from harness.toolchains.own_builds import in_words

if TYPE_CHECKING:
    from harness.toolchains.jars import Progress


def fetch_files(resolved: Resolved, report: Progress) -> dict[str, str]:
    """Download brokers, build clients and programs of ours; name -> path."""
    from harness.clusters import fetch_cluster, spec_of
    from harness.toolchains.coordinates import Artifacts
    from harness.toolchains.jars import resolve
    from harness.workers import launch
    from harness.workers.environments import python_with

    folders: dict[str, str] = fetch_tools(resolved.needs, report)
    for system, asked, _ in resolved.clusters:
        where = fetch_cluster(system, asked, on_progress=report)
        folders[f"{system} {spec_of(system, asked).version}"] = str(where)
    for jars in sorted(
        {tuple(each.jars) for plan in resolved.plans for each in plan.applications} - {()}
    ):
        folders[jars[0]] = str(resolve(Artifacts(jars), on_progress=report))
    for packages in sorted(
        {tuple(each.packages) for plan in resolved.plans for each in plan.applications} - {()}
    ):
        folders[packages[0]] = str(python_with(packages))
    for client in resolved.clients:
        argv, _ = launch(client.worker, client.version, on_progress=report)
        # Python, Go: the program itself; Java: compiled classes and the client's jars
        found = argv[argv.index("-cp") + 1] if "-cp" in argv else argv[0]
        version = client.version or client.worker.default_version
        folders[f"{client.library} {in_words(version)}"] = found
    return folders


def fetch_spark(report: Progress) -> None:
    """The archive of Spark's classes, once for this machine."""
    from analysis.spark.session import record_classes

    report("class archive of Spark, so that it starts in half the time", None)
    record_classes()


def fetch_tools(needs: frozenset[str], report: Progress) -> dict[str, str]:
    """Build the programs of ours that faults need; name -> path.

    Args:
        needs: as of `Resolved.needs`.

    Raises:
        EnvironmentNotReady: no Go, or it does not build.
    """
    from harness.clusters.sources import ProcessSource

    tools = ProcessSource.tools_for(needs)
    return {tool.name: str(tool.fetch(on_progress=report)) for tool in tools}


def fetch_proxy_image(client: Any, needs: frozenset[str], report: Progress) -> dict[str, str]:
    """Build the image of the network proxy for clusters in containers, if faults need it; tag ->
    content.

    Args:
        client: of the Docker engine (`docker.DockerClient`).
    """
    from harness.clusters.docker import proxy
    from harness.protocols.network import PEER_DETOURS

    if PEER_DETOURS not in needs:
        return {}
    return {proxy.provide(client, on_progress=report): "the network proxy"}
