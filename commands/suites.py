"""The commands suite plan and suite run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from commands import completion
from commands.console import CommandGroup, Settings, command, tell, write
from commands.histories import report, report_night
from commands.options import offline_option, refuse_beside_resume, runtime_option, seconds
from commands.tables import in_time, paragraph, table
from harness.errors import Exit
from harness.rundir import Document, new_run, resolved, write_json
from harness.toolchains.own_builds import in_words

if TYPE_CHECKING:
    from experiments.history.report import SuiteReport
    from experiments.history.store import History
    from experiments.nights.night import Night, NightDir, Turn
    from experiments.nights.planning import PlannedNight, SuiteRequest

_SHOWN_LEFT_OUT = 20


@click.group(
    "suite",
    cls=CommandGroup,
    example="brokerstorm suite plan quick\nbrokerstorm suite run quick --budget 15m",
)
def suite() -> None:
    """Run many scenarios, clients, brokers and seeds every night.

    A suite file says what runs. The result of every night is kept in a history, which shows what is
    new.
    """


def _narrowing(function: Any) -> Any:
    """The options that `suite plan` and `suite run` share."""
    for option in reversed(
        (
            click.option(
                "--only",
                multiple=True,
                metavar="PATTERN",
                help="Only cells whose name contains PATTERN, or matches it if it has * or ?; "
                "may be repeated.",
            ),
            click.option(
                "--shard",
                metavar="N/M",
                help="Part of the cells to run on this machine: 2/4 is the second of four.",
            ),
            click.option(
                "--budget", callback=seconds, metavar="TIME", help="Total time (e.g. 3h)."
            ),
            click.option(
                "--seed",
                type=click.IntRange(0, 2**63 - 1),
                help="Seed from which the seeds of all cells are derived; default: new seeds every night.",
            ),
            click.option(
                "--history",
                type=click.Path(dir_okay=False, path_type=Path),
                help="History file; default: history.sqlite in the folder of runs.",
            ),
            runtime_option,
            offline_option,
        )
    ):
        function = option(function)
    return function


def _request(given: dict[str, Any]) -> SuiteRequest:
    from experiments.nights.choice import Shard
    from experiments.nights.planning import SuiteRequest

    values = {**given, "budget_s": given["budget"], "suite": given["file"]}
    values["shard"] = Shard.parse(given["shard"]) if given["shard"] else None
    names = SuiteRequest.__dataclass_fields__
    return SuiteRequest(**{name: value for name, value in values.items() if name in names})


@contextmanager
def _history(path: Path, *, make: bool) -> Iterator[History | None]:
    """The history; None where there is none yet and none is to be made."""
    if not make and not path.exists():
        yield None
        return
    from experiments.history.store import History

    with History.open(path) as history:
        for note in history.notes:
            tell(note)
        yield history


@command("plan", example="brokerstorm suite plan nightly --budget 1h")
@click.argument("file", shell_complete=completion.suites)
@_narrowing
def plan(settings: Settings, file: str, **given: Any) -> int:
    """Dry run: show the cells of a suite and what fits the budget.

    Lists how long each cell will take, the cells that do not fit, and what is missing on this
    machine. FILE is a suite file, or the name of a ready suite. Versions such as `latest` are
    resolved now. The exit code is 4 if a tool or client is missing.
    """
    from experiments.nights.planning import check_night, history_path, plan_night

    request = _request({"file": file, **given})
    path = history_path(settings, request.history)
    with _history(path, make=False) as history:
        planned = plan_night(settings, request, history, path, tell)
    missing, warnings = check_night(planned, settings.run_dir)
    document = _plan_document(planned)
    document |= {"missing": [asdict(check) for check in missing], "warnings": warnings}

    def text() -> None:
        _show_plan(planned)
        rows = [["warning", each] for each in warnings]
        rows += [
            ["missing", f"here: {check.name}: {check.text}; {check.remedy}"] for check in missing
        ]
        table(rows)

    settings.show(document, text)
    return Exit.ENVIRONMENT if missing else Exit.PASS


def _plan_document(planned: PlannedNight) -> Document:
    choice, night = planned.choice, planned.night
    return {
        "kind": "suite-plan",
        "suite": night.suite,
        "seed": night.seed,
        "budget_s": night.budget_s,
        "expected_s": round(choice.total_s, 1),
        "cells": [
            {**asdict(cell), "expected_s": round(choice.expected_s[cell.id], 1)}
            for cell in choice.cells
        ],
        "left_out": [{"cell": cell, "why": why} for cell, why in night.left_out.items()],
    }


def _show_plan(planned: PlannedNight) -> None:
    choice, night = planned.choice, planned.night
    rounds: dict[str, list[Turn]] = {cell.id: [] for cell in choice.cells}
    for turn in night.turns:
        rounds[turn.cell].append(turn)
    rows = [["cell", "versions", "seeds", "about"]]
    for cell in choice.cells:
        client = f"{cell.client} {in_words(cell.client_version)}, " if cell.client_version else ""
        versions = f"{client}{cell.system} {in_words(cell.broker_version)}"
        sticky = sum(turn.is_sticky for turn in rounds[cell.id])
        seeds = f"{len(rounds[cell.id])}" + (f" ({sticky} red before)" if sticky else "")
        rows.append([cell.id, versions, seeds, in_time(choice.expected_s[cell.id])])
    table(rows)
    budget = f" of a budget of {in_time(night.budget_s)}" if night.budget_s is not None else ""
    paragraph(f"{len(choice.cells)} cells, about {in_time(choice.total_s)}{budget}")
    if night.left_out:
        paragraph(f"{len(night.left_out)} cells would not fit the budget:")
        for name, why in [*night.left_out.items()][:_SHOWN_LEFT_OUT]:
            paragraph(f"{name}: {why}", indent="  ")
        if len(night.left_out) > _SHOWN_LEFT_OUT:
            paragraph(f"and {len(night.left_out) - _SHOWN_LEFT_OUT} more", indent="  ")


@command("run", example="brokerstorm suite run nightly\nbrokerstorm suite run nightly --resume")
@click.argument("file", shell_complete=completion.suites)
@_narrowing
@click.option(
    "--night",
    metavar="NAME",
    help="Name of the night; machines that share one night use the same name, e.g. 20261122.",
)
@click.option("--resume", is_flag=True, help="Continue the latest night, which was interrupted.")
@click.option(
    "--fail-on",
    type=click.Choice(["new", "any", "none"]),
    help="What makes the exit code 1: a cell that failed and did not fail before, any failed cell, or "
    "nothing; default: `fail_on` of the suite.",
)
def run(settings: Settings, file: str, night: str | None, resume: bool, **given: Any) -> int:
    """Run a suite and keep every round in the history.

    A cell that breaks (exit code 4, 5 or 70) is run once more, and never stops the others. The
    following nights repeat the seeds of red cells in addition to new seeds. The exit code is 1 if a
    failed (red) cell counts under --fail-on, otherwise the exit code of a cell that broke,
    otherwise 3 if a cell is unknown, otherwise 0.
    """
    from experiments.nights.planning import history_path

    request = _request({"file": file, **given})
    if resume:
        return _resume(settings, request)
    path = history_path(settings, request.history)
    with _history(path, make=True) as history:
        assert history is not None
        return _begin(settings, request, history, path, night)


def _begin(
    settings: Settings, request: SuiteRequest, history: History, path: Path, name: str | None
) -> int:
    from experiments.nights.night import NightDir, night_named
    from experiments.nights.planning import keep_scenarios, plan_night

    planned = plan_night(settings, request, history, path, tell)
    run_dir, suite = resolved(settings.run_dir), planned.night.suite
    if name is None:
        night_dir = NightDir(new_run(run_dir, suite).root)
    else:
        night_dir = night_named(run_dir, name, max(history.nights(suite), default=""))
    night_dir.run.scenario.with_name("suite.yaml").write_text(planned.file.text)
    night_dir.save(planned.night)
    keep_scenarios(night_dir, planned.night)
    return _play(settings, night_dir, planned.night, history)


def _resume(settings: Settings, request: SuiteRequest) -> int:
    from experiments.nights.file import load_suite
    from experiments.nights.night import unfinished
    from experiments.nights.planning import refuse_edited

    refuse_beside_resume("a night", "file", "history", "offline", "runtime", "fail_on")
    night_dir = unfinished(settings.run_dir, load_suite(request.suite).suite.name)
    night = night_dir.load()
    refuse_edited(night_dir, night)
    fail_on, offline = request.fail_on or night.fail_on, request.offline or night.offline
    night = replace(night, fail_on=fail_on, offline=offline)
    with _history(request.history or Path(night.history), make=True) as history:
        assert history is not None
        return _play(settings, night_dir, night, history)


def _play(settings: Settings, night_dir: NightDir, night: Night, history: History) -> int:
    """Play what is left of a night, keep its document, show it; the exit code."""
    from experiments.folders import playing
    from experiments.nights.document import not_run_of, summarize
    from experiments.nights.planning import tidy
    from experiments.nights.playing import NightTurns

    with playing(night_dir.run, f"brokerstorm suite run {night.file} --resume"):
        with NightTurns(settings, night_dir, night, history, tell) as turns:
            turns.play()
        for skipped in not_run_of(night_dir, night):
            history.skip(night_dir.id, night.suite, skipped.cell, skipped.why)
        told = report_night(history, night_dir, night)
        document = summarize(
            night_dir, night, verdict=told.verdict, exit_code=told.exit_code, counts=told.counts
        ).document()
        write_json(night_dir.document, document)
        for line in tidy(settings.run_dir, night, history):
            tell(line)
    settings.show(document, lambda: _show_night(night_dir, told))
    return told.exit_code


def _show_night(night_dir: NightDir, told: SuiteReport) -> None:
    for cell in told.cells:
        for each in cell.rounds:
            reasons = "; ".join(each.reasons)
            sticky = ", red before" if each.is_sticky else ""
            line = f"{each.word:<7}  {cell.cell}, seed {each.seed}{sticky}"
            paragraph(line + (f": {reasons}" if reasons else ""), hanging=" " * 9)
    for hunt in told.hunts:
        if hunt.night == told.night:
            paragraph(f"{hunt.cell}: {hunt.text}")
    for name, why in told.not_run.items():
        paragraph(f"not run  {name}: {why}", hanging=" " * 9)
    paragraph(f"{told.suite}: {told.verdict}: {told.headline}")
    write(str(night_dir.run.report))


for _part in (plan, run, report):
    suite.add_command(_part)
