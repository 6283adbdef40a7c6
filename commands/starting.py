"""The commands list, new, plan, run and repro."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from commands import completion
from commands.console import SCHEMA_VERSION, Settings, command
from commands.options import (
    FileToWrite,
    keep_up_option,
    master_option,
    offline_option,
    runtime_option,
    seed_option,
    set_option,
    variant_option,
)
from commands.tables import paragraph
from harness.errors import Exit, UsageError
from harness.scenario.bundled import bundled_bugs
from harness.systems import DEFAULT, SYSTEMS

KINDS = ("scenarios", "bugs", "suites", "faults", "workers", "systems", "runs", "classes")


@command("list", example="brokerstorm list faults")
@click.argument("kind", type=click.Choice(KINDS), default="scenarios")
def list_(settings: Settings, kind: str) -> int:
    """Show what there is: scenarios, bugs, suites, faults, runs."""
    from commands import inventory

    items = getattr(inventory, kind)(settings)
    document = {"schema_version": SCHEMA_VERSION, "kind": kind, "items": items}
    settings.show(document, lambda: inventory.show(kind, items, settings))
    return Exit.PASS


@command("new", example="brokerstorm new mine.yaml\nbrokerstorm new mine.yaml --from pulsar-storm")
@click.argument("file", type=FileToWrite())
@click.option("--system", type=click.Choice(list(SYSTEMS)), help=f"The broker; default {DEFAULT.name}.")
@click.option(
    "--from",
    "ready",
    metavar="SCENARIO",
    shell_complete=completion.ready,
    help="A copy of a name from `list scenarios` or `list bugs`.",
)
@click.option("--suite", is_flag=True, help="A suite, of what runs every night.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def new(
    settings: Settings, file: Path, system: str | None, ready: str | None, suite: bool, force: bool
) -> int:
    """Write a commented scenario, or a suite, to edit."""
    from harness.scenario.schema import copied_scenario, new_scenario
    from suites.file import new_suite

    if ready and system:
        raise UsageError(f"--from {ready} is of a system already", hint="leave out --system")
    if suite and (ready or system):
        raise UsageError("--suite writes a suite of all systems", hint="leave out --from and --system")
    path = file if file.suffix else file.with_suffix(".yaml")
    if path.exists() and not force:
        raise UsageError(f"{path} exists", hint="--force writes over it")
    if suite:
        text = new_suite(path)
    else:
        text = copied_scenario(path, ready) if ready else new_scenario(path, system or DEFAULT.name)
    try:
        path.write_text(text)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
    verb = "suite run" if suite else "repro" if ready in bundled_bugs() else "run"
    document = {"schema_version": SCHEMA_VERSION, "file": str(path)}
    settings.show(document, lambda: paragraph(f"{path} written; `brokerstorm {verb} {path}` runs it"))
    return Exit.PASS


@command("plan", example="brokerstorm plan kafka-storm --seed 7")
@click.argument("scenario", shell_complete=completion.scenarios)
@seed_option
@set_option
@variant_option
@runtime_option
def plan(
    settings: Settings,
    scenario: str,
    seed: int | None,
    overrides: tuple[str, ...],
    variant: str,
    runtime: str,
) -> int:
    """Dry run: show what a run would do; nothing is started.

    The checks are those of `run`: a scenario that `run` refuses is refused here, and what this machine lacks
    is listed. With -v, what each fault sends.
    """
    from commands.plan_text import show_plans, show_preflight
    from commands.plans import choose_plans, read_scenario, timeline_of, timeline_rows
    from commands.preflight import preflight

    loaded = read_scenario(scenario, overrides)
    chosen = 0 if seed is None else seed
    rounds = choose_plans(loaded, seed=chosen, variant=variant)
    checked = preflight(rounds, settings.run_dir, runtime, ask_indexes=True)
    plans = [each for each in rounds if each.seed == chosen]
    timelines = [timeline_of(each) for each in plans]
    document = {
        "schema_version": SCHEMA_VERSION,
        "plans": [
            {**each.model_dump(), "timeline": timeline_rows(timeline)}
            for each, timeline in zip(plans, timelines, strict=True)
        ],
        **checked.document(),
    }

    def text() -> None:
        draws_seed = seed is None and any(each.faults for each in plans)
        show_plans(plans, timelines, draws_seed=draws_seed, commands=settings.verbose > 0)
        show_preflight(checked, len(rounds))

    settings.show(document, text)
    return Exit.PASS


@command(
    "run", example="brokerstorm run kafka-quick\nbrokerstorm run kafka-storm --seed 7 --set load.rate=20000"
)
@click.argument("scenario", required=False, shell_complete=completion.scenarios)
@seed_option
@set_option
@click.option("--rounds", type=click.IntRange(1, 1000), help="Times each variant is run.")
@variant_option
@click.option(
    "--replay",
    metavar="RUN",
    shell_complete=completion.runs,
    help="Use the fault times and targets of RUN.",
)
@keep_up_option
@offline_option
@runtime_option
@master_option
def run(settings: Settings, replay: str | None, **given: Any) -> int:
    """Run a scenario on a live cluster and judge it.

    Starts a cluster, drives load through faults and reports what happened to every message. SCENARIO is
    a name from `list scenarios` or a file. The exit code is the verdict: 0 pass (or every variant as
    expected), 1 fail, 3 unknown.
    """
    from commands.running import RunRequest, run_request
    from harness.rundir import find_run

    replayed = find_run(settings.run_dir, replay) if replay else None
    if given["scenario"] is None and replayed is None:
        raise UsageError("which scenario?", hint="`brokerstorm list scenarios` shows them")
    return run_request(settings, RunRequest(replay=replayed, **given))


@command(
    "repro", example="brokerstorm repro pulsar-18911 --quick\nbrokerstorm repro pulsar-12779 --rounds 10"
)
@click.argument("bug", shell_complete=completion.bugs)
@click.option(
    "--pair",
    default="",
    shell_complete=completion.pairs,
    help="The versions to compare; default: the first pair of the bug file.",
)
@click.option("--rounds", type=click.IntRange(1, 1000), help="Counted rounds of each version; default 10.")
@click.option("--quick", is_flag=True, help="Stop at the first hit and one fixed round: no rate, no p.")
@seed_option
@set_option
@click.option(
    "--client-jars",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder that holds one folder of jars per version that no repository has.",
)
@keep_up_option
@offline_option
@runtime_option
@master_option
def repro(settings: Settings, **given: Any) -> int:
    """Reproduce a known bug: affected version against fixed version.

    Rounds of both take turns on one cluster, each pair with the same seed and the same faults. BUG is a
    name from `list bugs` or a file. The exit code is 0 if the bug is reproduced (with --quick: seen in
    the affected version and not in the fixed one), 1 if it is not, 3 if that could not be decided.
    """
    from commands.repro import ReproRequest, repro_request

    return repro_request(settings, ReproRequest(**given))
