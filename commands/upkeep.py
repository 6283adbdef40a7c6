"""The machine before and after: doctor, fetch, clean."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from commands import completion
from commands.clusters import heal_kept, kept_clusters
from commands.console import Settings, command, write
from commands.external import clean_external, doctor_external
from commands.options import connection_option, set_option
from commands.tables import show_checks, table
from experiments.downloads import fetch_files, fetch_proxy_image, fetch_spark
from experiments.leftovers import end_leftovers, remove
from experiments.plans import ScenarioRequest, resolve
from experiments.preflight import preflight
from experiments.resolved import Resolved, RoundOptions
from harness.errors import Exit, UsageError
from harness.run_ids import checked_run_id
from harness.rundir import find_run

if TYPE_CHECKING:
    from harness.clusters.leftovers import LeftAlone
    from harness.toolchains.jars import Progress

DEFAULT_SCENARIO = "kafka-quick"


@command("doctor", example="brokerstorm doctor kafka-storm")
@click.argument("scenario", required=False, shell_complete=completion.scenarios)
@connection_option
@click.option(
    "--runtime",
    type=click.Choice(["auto", "process", "docker"]),
    default="auto",
    help="Check for brokers as processes or in containers; auto checks processes and mentions Docker.",
)
def doctor(
    settings: Settings, scenario: str | None, cluster_file: Path | None, runtime: str
) -> int:
    """Check what a scenario needs, and how to install it.

    SCENARIO defaults to kafka-quick. The exit code is 4 if something is missing. With --cluster,
    the existing cluster is checked instead, on a topic that is created and deleted; SCENARIO is
    then optional.
    """
    if cluster_file:
        return doctor_external(settings, cluster_file, scenario, runtime)
    scenario = scenario or DEFAULT_SCENARIO
    resolved = resolve(ScenarioRequest(scenario=scenario, seed=0), RoundOptions(runtime=runtime))
    found = preflight(resolved, settings.run_dir, tell_docker=True)
    code = Exit.ENVIRONMENT if found.missing else Exit.PASS
    document = {"exit_code": int(code), **found.document()}

    settings.show(document, lambda: show_checks(scenario, found.checks, found.warnings))
    return code


@command(
    "fetch",
    example="brokerstorm fetch kafka-storm\nbrokerstorm fetch --images --system pulsar --version 2.8.1",
)
@click.argument("scenario", required=False, shell_complete=completion.scenarios)
@set_option
@click.option("--images", is_flag=True, help="Also build images for brokers in containers.")
@click.option(
    "--system",
    help="Build only the images of this system; requires --images; cannot be combined with SCENARIO.",
)
@click.option(
    "--version", default="", help="Version of --system; default: the version in its compose file."
)
def fetch(
    settings: Settings,
    scenario: str | None,
    overrides: tuple[str, ...],
    images: bool,
    system: str | None,
    version: str,
) -> int:
    """Download and build what a scenario needs.

    SCENARIO defaults to kafka-quick. --images is for machines without access to an image registry:
    it builds replacements with the names, folders and commands of the official images, from
    packages of the distribution and published jars. An official image that exists already is not
    changed.
    """
    _refuse_mixture(scenario, overrides, images, system, version)
    asked = None if system else scenario or DEFAULT_SCENARIO
    resolved = Resolved(plans=[])
    if asked:
        wanted = ScenarioRequest(scenario=asked, overrides=overrides, seed=0, rounds=1)
        resolved = resolve(wanted, RoundOptions())
    clusters = (
        [(system, version)] if system else [(plan.system, plan.version) for plan in resolved.plans]
    )
    with closing(settings.progress()) as progress:
        folders = fetch_files(resolved, progress.download)
        if resolved.plans:
            fetch_spark(progress.download)
        if images:
            folders |= _fetch_images(
                list(dict.fromkeys(clusters)), resolved.needs, progress.download
            )
    document = {"scenario": asked, "fetched": folders}
    settings.show(document, lambda: table([[name, where] for name, where in folders.items()]))
    return Exit.PASS


def _refuse_mixture(
    scenario: str | None, overrides: Sequence[str], images: bool, system: str | None, version: str
) -> None:
    if (system or version) and not images:
        raise UsageError(
            "--system and --version require --images", hint="add --images, or name a scenario"
        )
    if version and not system:
        raise UsageError(
            f"--version {version} requires --system", hint="for example --system kafka"
        )
    if system and scenario:
        raise UsageError(f"SCENARIO {scenario} cannot be combined with --system {system}")
    if system and overrides:
        raise UsageError(
            f"--set {overrides[0]} cannot be combined with --system", hint="remove --system"
        )


def _fetch_images(
    clusters: Sequence[tuple[str, str]], needs: frozenset[str], report: Progress
) -> dict[str, str]:
    """The compose plugin, an image a cluster, and the one of a proxy between nodes; name -> what it
    is."""
    from harness.clusters import spec_of
    from harness.clusters.docker import engine
    from harness.clusters.images import compose_plugin, standin

    with closing(engine.connect()) as client:
        found = {"compose plugin": compose_plugin.ensure(on_progress=report).text}
        for system, version in clusters:
            spec = spec_of(system, version)
            if spec.own:
                raise UsageError(f"there is no image of {spec.own.short}: it runs as processes")
            image = standin.provide(client, spec, on_progress=report)
            found[image.tag] = f"{image.kind}, {image.size_mb} MB"
        found |= fetch_proxy_image(client, needs, report)
    return found


@command("clean", example="brokerstorm clean --dry-run\nbrokerstorm clean")
@click.argument("name", metavar="[RUN]", required=False, shell_complete=completion.runs)
@click.option(
    "--all", "everything", is_flag=True, help="Also stop clusters that were left running."
)
@click.option("--dry-run", is_flag=True, help="Dry run: list leftovers without changing anything.")
@connection_option
def clean(
    settings: Settings, name: str | None, everything: bool, dry_run: bool, cluster_file: Path | None
) -> int:
    """Undo faults and remove what earlier runs left.

    Finds processes and addresses, by run id, of runs whose `brokerstorm` process has ended.
    Captured data and logs are kept. With RUN, only that run is cleaned, even if its cluster was
    kept on purpose. Clusters that were left running keep running; only their faults are undone.
    What belongs to another user or state folder is listed and not changed. The exit code is 5 if
    something could not be removed.

    With --cluster, removes what runs left on that cluster: workers that still send to it, faults,
    topics and groups.
    """
    if cluster_file:
        if everything:
            raise UsageError("--all cannot be combined with --cluster", hint="remove --cluster")
        return clean_external(settings, cluster_file, name, end=end_leftovers, dry_run=dry_run)
    return _clean_machine(settings, name, everything=everything, dry_run=dry_run)


def _refuse_name(settings: Settings, name: str, others: Sequence[LeftAlone]) -> None:
    """Refuse a run that left nothing of ours; one that is there is tidy.

    Raises:
        UsageError: it belongs to somebody else, or the run does not exist.
    """
    if others:
        raise UsageError(f"cannot clean {name}: its {others[0].why}", hint=others[0].command)
    find_run(settings.run_dir, name)


def _clean_machine(settings: Settings, name: str | None, *, everything: bool, dry_run: bool) -> int:
    """Remove what runs left on this machine."""
    from harness.clusters import leftovers

    run_id = checked_run_id(Path(name).name) if name else None
    found = leftovers.find(run_id)
    others = leftovers.find_others(run_id)
    left_alone = [one.describe() for one in others]
    if name and not found:
        _refuse_name(settings, name, others)
    kept = [] if name else kept_clusters()
    if everything:
        found += [one for claim in kept for one in leftovers.find(claim.run_id)]
        kept = []
    lines = [one.describe() for one in found]
    healed: list[str] = []
    if not dry_run:
        with settings.interrupts.deferred():
            remove(found)
            healed = [claim.run_id for claim in kept if heal_kept(claim)]
    document = {
        "dry_run": dry_run,
        "removed": [] if dry_run else lines,
        "found": lines,
        "healed": healed,
        "still_up": [claim.run_id for claim in kept],
        "left_alone": left_alone,
    }

    def text() -> None:
        for line in lines:
            write(f"{'found' if dry_run else 'removed'}  {line}")
        for run_id in healed:
            write(f"healed  {run_id}")
        if not lines and not healed:
            write("nothing was left to clean")
        for claim in kept:
            write(f"still up  {claim.run_id}; `brokerstorm down` stops it")
        for line in left_alone:
            write(f"left alone  {line}")

    settings.show(document, text)
    return Exit.PASS
