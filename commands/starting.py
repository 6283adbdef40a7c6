"""The commands list, new and plan."""

from __future__ import annotations

import json
from pathlib import Path

import click

from commands import completion
from commands.console import Settings, command
from commands.options import (
    FileToWrite,
    connection_option,
    for_option,
    runtime_option,
    seed_option,
    set_option,
    variant_option,
)
from commands.tables import paragraph
from experiments.plans import ScenarioRequest, external_of, resolve
from experiments.preflight import preflight
from experiments.resolved import RoundOptions
from harness.errors import Exit, UsageError
from harness.scenario.bundled import SCHEMA_FILE, bundled_bugs
from harness.systems import DEFAULT, SYSTEMS

KINDS = ("scenarios", "bugs", "suites", "faults", "workers", "systems", "runs", "nights", "classes")


@command("list", example="brokerstorm list faults\nbrokerstorm list runs NIGHT")
@click.argument("kind", metavar="[KIND]", type=click.Choice(KINDS), default="scenarios")
@click.argument("inside", metavar="[NIGHT|URL]", required=False, shell_complete=completion.nights)
def list_(settings: Settings, kind: str, inside: str | None) -> int:
    """List scenarios, bugs, faults, runs, nights and more.

    KIND is one of scenarios (default), bugs, suites, faults, workers, systems, runs, nights and
    classes.

    `list runs NIGHT` lists the runs of one night of a suite, with the names that other commands
    accept. `list runs URL` lists the runs that `upload` copied there.
    """
    from commands import inventory

    if inside is not None and kind != "runs":
        raise UsageError(
            f"`list {kind}` takes no further name: {inside}", hint="only `list runs NIGHT` does"
        )
    items = (
        getattr(inventory, kind)(settings)
        if inside is None
        else inventory.runs_of(settings, inside)
    )
    document = {"kind": kind, "items": items}
    settings.show(document, lambda: inventory.show(kind, items, settings))
    return Exit.PASS


@command("new", example="brokerstorm new mine.yaml\nbrokerstorm new mine.yaml --from pulsar-storm")
@click.argument("file", type=FileToWrite())
@click.option(
    "--system",
    type=click.Choice(list(SYSTEMS)),
    help=f"Broker of the new file; default: {DEFAULT.name}.",
)
@click.option(
    "--from",
    "ready",
    metavar="SCENARIO",
    shell_complete=completion.ready,
    help="Copy this scenario or bug (see `list scenarios` and `list bugs`).",
)
@click.option("--suite", is_flag=True, help="Write a suite file, which says what runs every night.")
@click.option("--cluster", is_flag=True, help="Write a connection file for an existing cluster.")
@click.option(
    "--application", is_flag=True, help="Write a scenario that tests a program of your own."
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def new(
    settings: Settings,
    file: Path,
    system: str | None,
    ready: str | None,
    suite: bool,
    cluster: bool,
    application: bool,
    force: bool,
) -> int:
    """Write a scenario, suite or connection file to edit.

    The JSON Schema of the file is written next to it, for editors. Commit both files.
    """
    from harness.scenario.schema import compact_schema

    _refuse_mixed(system, ready, suite=suite, cluster=cluster)
    if application and (system or ready or suite or cluster):
        raise UsageError(
            "--application cannot be combined with --system, --from, --suite or --cluster",
            hint=f"brokerstorm new {file} --application",
        )
    path = file if file.suffix else file.with_suffix(".yaml")
    if path.exists() and not force:
        raise UsageError(f"{path} exists", hint="--force overwrites it")
    kind = "application" if application else system or DEFAULT.name
    text, source, then = _new_file(path, kind, ready, suite=suite, cluster=cluster)
    schema = path.with_name(source.name)
    _refuse_foreign(schema, source)
    try:
        path.write_text(text)
        schema.write_text(compact_schema(source.read_text()))
    except OSError as error:
        raise UsageError(f"cannot write {error.filename or path}: {error.strerror}") from error
    document = {"file": str(path), "schema": str(schema)}
    text = f"{path} written, and {schema.name} next to it for editors; `brokerstorm {then}"
    settings.show(document, lambda: paragraph(text))
    return Exit.PASS


def _refuse_mixed(system: str | None, ready: str | None, *, suite: bool, cluster: bool) -> None:
    if ready and system:
        raise UsageError(f"--from {ready} already determines the system", hint="remove --system")
    if suite and (ready or system):
        raise UsageError(
            "--suite cannot be combined with --from or --system", hint="remove --from and --system"
        )
    if cluster and (ready or suite):
        raise UsageError(
            "--cluster cannot be combined with --from or --suite", hint="remove --from and --suite"
        )


def _new_file(
    path: Path, kind: str, ready: str | None, *, suite: bool, cluster: bool
) -> tuple[str, Path, str]:
    """Return the text to write, its published schema, and the next command with what it does.
    ``kind``: a system, or application."""
    from experiments.nights.file import SCHEMA_FILE as SUITE_SCHEMA_FILE
    from experiments.nights.file import new_suite
    from harness.connections import schema as connections
    from harness.scenario.schema import copied_scenario, new_scenario

    if cluster:
        text = connections.new_connection(path, kind)
        return text, connections.SCHEMA_FILE, f"doctor --cluster {path}` checks it"
    if suite:
        return new_suite(path), SUITE_SCHEMA_FILE, f"suite run {path}` runs it"
    verb = "repro" if ready in bundled_bugs() else "run"
    text = copied_scenario(path, ready) if ready else new_scenario(path, kind)
    return text, SCHEMA_FILE, f"{verb} {path}` runs it"


def _refuse_foreign(schema: Path, source: Path) -> None:
    """Raise UsageError where a file that is not a schema of ours, of any version, has the name of
    one."""

    def title(path: Path) -> object:
        found = json.loads(path.read_text())
        return found.get("title") if isinstance(found, dict) else None

    try:
        is_ours = not schema.exists() or title(schema) == title(source)
    except (OSError, ValueError):
        is_ours = False
    if not is_ours:
        raise UsageError(
            f"{schema} is not a schema of brokerstorm",
            hint="the schema is written next to the file: choose another folder",
        )


@command("plan", example="brokerstorm plan kafka-storm --seed 7")
@click.argument("scenario", shell_complete=completion.scenarios)
@seed_option
@set_option
@for_option
@variant_option
@runtime_option
@connection_option
def plan(
    settings: Settings,
    scenario: str,
    seed: int | None,
    overrides: tuple[str, ...],
    for_s: float | None,
    variant: str,
    runtime: str,
    cluster_file: Path | None,
) -> int:
    """Show what a run would do, without starting it.

    Makes the same checks as `run`: it refuses every scenario that `run` would refuse, and lists
    what is missing on this machine. The exit code is 4 if a tool or client is missing. With -v it
    also shows what each fault sends.
    """
    from commands.plan_text import show_plans, show_preflight, timeline_rows

    chosen = 0 if seed is None else seed
    asked = ScenarioRequest(
        scenario=scenario, overrides=overrides, seed=chosen, for_s=for_s, variant=variant
    )
    resolved = resolve(asked, RoundOptions(runtime=runtime, external=external_of(cluster_file)))
    checked = preflight(resolved, settings.run_dir)
    rounds = zip(resolved.plans, resolved.timelines, strict=True)
    first = [(each, timeline) for each, timeline in rounds if each.seed == chosen]
    document = {
        "plans": [
            {**each.model_dump(), "timeline": timeline_rows(timeline)} for each, timeline in first
        ],
        **checked.document(),
    }

    def text() -> None:
        draws_seed = seed is None and any(each.faults for each, _ in first)
        show_plans(first, draws_seed=draws_seed, commands=settings.verbose > 0)
        show_preflight(checked, len(resolved.plans))

    settings.show(document, text)
    return checked.exit_code
