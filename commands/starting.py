"""The commands list, new, plan, run and repro."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import click

from commands import completion
from commands.console import Settings, command
from commands.options import (
    FileToWrite,
    connection_option,
    fail_fast_option,
    for_option,
    keep_up_option,
    load_address_option,
    load_master_option,
    load_port_option,
    load_store_option,
    load_tasks_option,
    master_option,
    max_time_option,
    offline_option,
    otlp_option,
    prometheus_option,
    runtime_option,
    seconds,
    secure_option,
    seed_option,
    set_option,
    variant_option,
    window_option,
)
from commands.tables import paragraph
from experiments.plans import (
    choose_plans,
    external_of,
    on_external,
    read_scenario,
    timeline_of,
    timeline_rows,
)
from experiments.preflight import preflight
from harness.errors import Exit, UsageError
from harness.rundir import find_run
from harness.scenario.bundled import SCHEMA_FILE, bundled_bugs
from harness.systems import DEFAULT, SYSTEMS
from harness.telemetry.request import metrics_request

KINDS = ("scenarios", "bugs", "suites", "faults", "workers", "systems", "runs", "nights", "classes")


@command("list", example="brokerstorm list faults\nbrokerstorm list runs NIGHT")
@click.argument("kind", metavar="[KIND]", type=click.Choice(KINDS), default="scenarios")
@click.argument("inside", metavar="[NIGHT|URL]", required=False, shell_complete=completion.nights)
def list_(settings: Settings, kind: str, inside: str | None) -> int:
    """List scenarios, bugs, faults, runs, nights and more.

    KIND is one of scenarios (default), bugs, suites, faults, workers, systems, runs, nights and classes.

    `list runs NIGHT` lists the runs of one night of a suite, with the names that other commands accept. `list
    runs URL` lists the runs that `upload` copied there.
    """
    from commands import inventory

    if inside is not None and kind != "runs":
        raise UsageError(f"`list {kind}` takes no further name: {inside}", hint="only `list runs NIGHT` does")
    items = getattr(inventory, kind)(settings) if inside is None else inventory.runs_of(settings, inside)
    document = {"kind": kind, "items": items}
    settings.show(document, lambda: inventory.show(kind, items, settings))
    return Exit.PASS


@command("new", example="brokerstorm new mine.yaml\nbrokerstorm new mine.yaml --from pulsar-storm")
@click.argument("file", type=FileToWrite())
@click.option(
    "--system", type=click.Choice(list(SYSTEMS)), help=f"Broker of the new file; default: {DEFAULT.name}."
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
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def new(
    settings: Settings,
    file: Path,
    system: str | None,
    ready: str | None,
    suite: bool,
    cluster: bool,
    force: bool,
) -> int:
    """Write a commented scenario, suite or connection file to edit.

    The JSON Schema of the file is written next to it, for editors. Commit both files.
    """
    from harness.scenario.schema import compact_schema

    _refuse_mixed(system, ready, suite=suite, cluster=cluster)
    path = file if file.suffix else file.with_suffix(".yaml")
    if path.exists() and not force:
        raise UsageError(f"{path} exists", hint="--force overwrites it")
    text, source, then = _new_file(path, system or DEFAULT.name, ready, suite=suite, cluster=cluster)
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
    path: Path, system: str, ready: str | None, *, suite: bool, cluster: bool
) -> tuple[str, Path, str]:
    """What to write, its published schema, and the command that comes next with what it does."""
    from experiments.nights.file import SCHEMA_FILE as SUITE_SCHEMA_FILE
    from experiments.nights.file import new_suite
    from harness.connections import schema as connections
    from harness.scenario.schema import copied_scenario, new_scenario

    if cluster:
        text = connections.new_connection(path, system)
        return text, connections.SCHEMA_FILE, f"doctor --cluster {path}` checks it"
    if suite:
        return new_suite(path), SUITE_SCHEMA_FILE, f"suite run {path}` runs it"
    verb = "repro" if ready in bundled_bugs() else "run"
    text = copied_scenario(path, ready) if ready else new_scenario(path, system)
    return text, SCHEMA_FILE, f"{verb} {path}` runs it"


def _refuse_foreign(schema: Path, source: Path) -> None:
    """Raise UsageError where a file that is no schema of ours, of any version, has the name of one."""

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
    """Dry run: show what a run would do, without starting anything.

    Makes the same checks as `run`: it refuses every scenario that `run` would refuse, and lists what is
    missing on this machine. The exit code is 4 if a tool or client is missing. With -v it also shows what
    each fault sends.
    """
    from commands.plan_text import show_plans, show_preflight

    external = external_of(cluster_file)
    loaded = read_scenario(scenario, overrides, external=external, for_s=for_s)
    chosen = 0 if seed is None else seed
    rounds = on_external(choose_plans(loaded, seed=chosen, variant=variant), external)
    checked = preflight(
        rounds, settings.run_dir, runtime, ask_indexes=True, external=external, scenario=loaded
    )
    plans = [each for each in rounds if each.seed == chosen]
    timelines = [timeline_of(each) for each in plans]
    document = {
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
    return checked.exit_code


#: What may be asked anew of a run that goes on; of the rest only what stands for nothing.
_OF_A_RESUMED_RUN: Final = frozenset({"offline", "master", "window_s", "fail_fast", "runtime"})


@command(
    "run", example="brokerstorm run kafka-quick\nbrokerstorm run kafka-storm --seed 7 --set load.rate=20000"
)
@click.argument("scenario", required=False, shell_complete=completion.scenarios)
@seed_option
@set_option
@for_option
@click.option("--rounds", type=click.IntRange(1, 1000), help="Number of rounds of each variant.")
@click.option("--until-hit", is_flag=True, help="Run rounds with new seeds until one shows a violation.")
@max_time_option
@window_option
@fail_fast_option
@variant_option
@click.option(
    "--replay",
    metavar="RUN",
    shell_complete=completion.runs,
    help="Use the fault times and targets of RUN.",
)
@click.option(
    "--resume",
    metavar="RUN",
    shell_complete=completion.runs,
    help="Continue RUN, which was killed, with its original options.",
)
@keep_up_option
@offline_option
@runtime_option
@connection_option
@secure_option
@master_option
@load_master_option
@load_tasks_option
@load_store_option
@load_port_option
@load_address_option
@otlp_option
@prometheus_option
def run(
    settings: Settings,
    replay: str | None,
    resume: str | None,
    otlp: str | None,
    prometheus: str | None,
    **given: Any,
) -> int:
    """Run a scenario on a live cluster and judge it.

    Starts a cluster, sends load while faults are injected, and reports what happened to every message.
    SCENARIO is a name from `list scenarios` or a file. The exit code is the verdict: 0 pass (or every variant
    as expected), 1 fail, 3 unknown.

    With --resume, RUN is a run whose command was killed. If its brokers still run, its clients restart and
    send the rest of the load. Otherwise the data that was captured is judged.
    """
    from commands.rounds import resume_request, run_request
    from experiments.bundle.opening import run_of
    from experiments.variants import RunRequest

    if resume is not None:
        others = [replay, *(value for name, value in given.items() if name not in _OF_A_RESUMED_RUN)]
        if any(others):
            raise UsageError(
                f"--resume {resume} reuses the original options; remove SCENARIO and the others",
                hint=f"brokerstorm run --resume {resume}",
            )
        return resume_request(settings, find_run(settings.run_dir, resume), RunRequest(replay=None, **given))
    replayed = run_of(settings.run_dir, replay) if replay else None
    if replayed is not None and replayed.campaign.exists():
        rounds = [f"{replayed.run_id}/{each.run_id}" for each in replayed.rounds()]
        raise UsageError(
            f"--replay {replay} holds several runs: name one of its rounds",
            hint=f"there are {', '.join(rounds[:10])}" if rounds else "none of its rounds was started",
        )
    if given["scenario"] is None and replayed is None:
        raise UsageError("which scenario?", hint="`brokerstorm list scenarios` shows them")
    metrics = metrics_request(otlp, prometheus)
    return run_request(settings, RunRequest(replay=replayed, metrics=metrics, **given))


@command(
    "repro",
    example="brokerstorm repro pulsar-18911 --quick\nbrokerstorm repro pulsar-12779 --rounds 10\n"
    "brokerstorm repro --all --budget 2h",
)
@click.argument("bug", required=False, default="", shell_complete=completion.bugs)
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="Check every known bug once, as with --quick; bugs not shown for longest come first.",
)
@click.option(
    "--budget",
    "budget_s",
    callback=seconds,
    metavar="TIME",
    help="Start no new bug after this time (e.g. 2h); requires --all.",
)
@click.option(
    "--pair",
    default="",
    shell_complete=completion.pairs,
    help="Version pair to compare; default: the first pair of the bug file.",
)
@click.option(
    "--rounds", type=click.IntRange(1, 1000), help="Number of counted rounds of each version; default: 10."
)
@click.option(
    "--quick",
    is_flag=True,
    help="Stop after the first round that shows the bug and one clean round; gives no rate and no p.",
)
@click.option(
    "--until-hit", is_flag=True, help="Run only the affected version, with new seeds, until it shows the bug."
)
@max_time_option
@seed_option
@set_option
@click.option(
    "--client-jars",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder with one subfolder of jars for each version that is in no repository.",
)
@click.option(
    "--affected",
    default="",
    metavar="VERSION",
    help="Version to use instead of the affected one; dir:PATH uses your own build.",
)
@click.option(
    "--fixed",
    default="",
    metavar="VERSION",
    help="Version to use instead of the fixed one; dir:PATH uses your own build, e.g. a candidate fix.",
)
@keep_up_option
@offline_option
@runtime_option
@master_option
@otlp_option
@prometheus_option
def repro(
    settings: Settings,
    every: bool,
    budget_s: float | None,
    otlp: str | None,
    prometheus: str | None,
    **given: Any,
) -> int:
    """Reproduce a known bug: affected version against fixed version.

    Rounds of both versions alternate on one cluster; each pair of rounds has the same seed and the same
    faults. BUG is a name from `list bugs`, a file, or the folder or bundle of an earlier `repro`, which is
    repeated with the same version pair, rounds and seed.

    The exit code is 0 if the bug is reproduced, 1 if it is not, and 3 if that could not be decided. With
    --quick, reproduced means: seen in the affected version and not in the fixed one. With --until-hit the
    exit code is 0 if the bug was seen and 1 if it was not; the summary then gives an upper bound of its rate.
    With --all it is the most urgent exit code of all bugs.
    """
    from commands.rounds import repro_all, repro_request
    from experiments.repro.request import ReproRequest, as_in_run

    request = ReproRequest(metrics=metrics_request(otlp, prometheus), **given)
    if every:
        return repro_all(settings, request, budget_s)
    if budget_s is not None:
        raise UsageError("--budget requires --all", hint="add --all; for one bug, use --until-hit --max-time")
    if not request.bug:
        raise UsageError("which bug?", hint="`brokerstorm list bugs` lists them; --all checks every one")
    return repro_request(settings, as_in_run(settings, request))
