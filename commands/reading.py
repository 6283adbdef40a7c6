"""Reads finished runs: analyze, show, compare, explain. No broker is needed."""

from __future__ import annotations

import difflib
import shlex
import sys
import webbrowser
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from commands import completion
from commands.console import Settings, command, write
from experiments.plans import read_plan
from harness.errors import Exit, UsageError
from harness.rundir import NIGHT_FILE, RunDir, find_night, resolved

if TYPE_CHECKING:
    from analysis.findings import Result
    from analysis.spark.session import WarmSession
    from analysis.verdict.campaign import Campaign
    from harness.contracts.plan import Plan
    from harness.progress.view import BaseProgress


def _find(settings: Settings, name: str | None) -> RunDir:
    from experiments.bundle.opening import run_of

    return run_of(settings.run_dir, name)


@command(
    "analyze", example="brokerstorm analyze\nbrokerstorm analyze RUN --master spark://host:7077"
)
@click.argument("run", required=False, shell_complete=completion.runs)
@click.option("--master", metavar="URL", help="Spark master that judges the run; default: local.")
@click.option(
    "--import",
    "source",
    metavar="DIR",
    help="Judge tables that another tool recorded, as a new run.",
)
@click.option(
    "--hits",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write every hit to this Parquet file, not only the examples.",
)
def analyze(
    settings: Settings, run: str | None, master: str | None, source: str | None, hits: Path | None
) -> int:
    """Judge a run again from its captured data.

    RUN is an id from `list runs`, a folder or a URL (see `upload`); default: the latest. An
    interrupted run is judged by the data that was captured until then. The exit code is the
    verdict, as for `run`.

    With --import, DIR (a folder, or a URI that PyArrow reads) contains the tables sends and log,
    and deliveries if there are any, as CSV, JSON Lines or Parquet. Its file import.yaml states what
    the rows do not. Every row is checked before anything is judged. See
    docs/howto/judge-another-capture.md.

    With --hits, FILE gets one row for each message or window of each class; docs/querying.md shows
    queries.
    """
    from analysis.spark.session import WarmSession

    if hits is not None:
        from analysis.verdict.hits_file import require_writable

        require_writable(hits)
    if source is not None:
        if run is not None:
            raise UsageError(f"--import cannot be combined with RUN ({run})")
        return _analyze_import(settings, source, master, hits)
    root = _find(settings, run)
    if hits is not None and root.campaign.exists():
        rounds_there = ", ".join(f"{root.run_id}/{each.run_id}" for each in root.rounds())
        raise UsageError(
            f"{root.run_id} holds several runs, and --hits requires one",
            hint=f"its rounds: {rounds_there}",
        )
    rounds = planned_rounds(root) if root.campaign.exists() else []
    captured = [each for each in rounds if each.manifest.exists()]
    if root.campaign.exists() and not captured:
        raise UsageError(f"{root.root} contains no run with captured data")
    with closing(settings.progress()) as progress, WarmSession(master) as session:
        session.start()
        # What takes time to import is imported while Spark starts.
        from commands import summaries
        from harness.stored import give_back

        if not captured:
            _, result = _judge(settings, root, session, progress, hits)
            give_back(root, [root.result, root.report, root.junit])
            progress.close()
            return summaries.show_result(settings, root, result)
        campaign = _judge_rounds(settings, root, rounds, session, progress)
        give_back(
            root, [path for each in rounds for path in (each.result, each.report, each.junit)]
        )
        give_back(root, [root.campaign, root.report, root.junit])
    return summaries.show_campaign(settings, root, campaign)


def _judge_rounds(
    settings: Settings,
    root: RunDir,
    rounds: Sequence[RunDir],
    session: WarmSession,
    progress: BaseProgress,
) -> Campaign:
    """Judge the rounds that were captured, and say what all of them together show."""
    from analysis.report.documents import read_begun
    from experiments.judging import number_of, outcome_of, summarize

    asked = read_begun(root)
    plans, question, judged = [read_plan(each) for each in rounds], asked.question, []
    for each in rounds:
        if each.manifest.exists():
            plan, result = _judge(settings, each, session, progress)
            number = number_of(plan, plans)
            judged.append(outcome_of(plan, each, result, number=number, question=question))
    return summarize(
        root,
        plans,
        judged,
        command=asked.command,
        about=asked.about,
        duration_s=0.0,
        names=[each.run_id for each in rounds],
        question=question,
    )


def _analyze_import(settings: Settings, source: str, master: str | None, hits: Path | None) -> int:
    """Make a run of another tool's tables, and judge it."""
    from analysis.spark.session import WarmSession
    from commands import summaries
    from harness.importing.capture import import_run
    from harness.importing.source import ImportSource

    tables = ImportSource.open(source if "://" in source else str(resolved(Path(source))))
    with closing(settings.progress()) as progress:
        progress.phase("import", source)
        run = import_run(tables, settings.run_dir)  # before seconds are spent on a session
        with WarmSession(master) as session:
            session.start()
            _, result = _judge(settings, run, session, progress, hits)
    return summaries.show_result(settings, run, result)


def planned_rounds(root: RunDir) -> list[RunDir]:
    """Rounds that were run, in their order, and then those that it never came to."""
    known = [each for each in root.rounds() if each.plan.exists()]
    planned = [RunDir(path.parent) for path in sorted(root.root.glob("*/plan.json"))]
    return [*known, *(each for each in planned if each.root not in {run.root for run in known})]


def _judge(
    settings: Settings,
    run: RunDir,
    session: WarmSession,
    progress: BaseProgress,
    hits: Path | None = None,
) -> tuple[Plan, Result]:
    """Seal what is not sealed yet, and judge."""
    from experiments.judging import judge_run
    from harness.seal.seal import seal

    plan = read_plan(run)
    progress.phase("seal", run.run_id)
    seal(run, plan)
    progress.phase("judge", run.run_id)
    in_campaign = (run.root.parent / run.campaign.name).exists()
    return plan, judge_run(settings, run, session, in_campaign=in_campaign, hits=hits)


@command("show", example="brokerstorm show --html")
@click.argument("run", required=False, shell_complete=completion.runs)
@click.option("--html", is_flag=True, help="Open the report in the browser and print its path.")
def show(settings: Settings, run: str | None, html: bool) -> int:
    """Show the verdict of a run again.

    RUN is an id from `list runs` or `list nights`, or a folder; default: the latest run. The exit
    code is the one of the verdict.
    """
    from analysis.report.documents import read_campaign, read_result
    from commands import summaries

    if (folder := find_night(settings.run_dir, run)) is not None:
        return _show_night(settings, folder, html=html)
    root = _find(settings, run)
    if root.campaign.exists():
        campaign = read_campaign(root)
        code = campaign.exit_code if html else summaries.show_campaign(settings, root, campaign)
    else:
        result = read_result(root)
        code = result.exit_code if html else summaries.show_result(settings, root, result)
    if html:
        if not (root.report.exists() and _is_drawn_here(settings, root)):
            _draw_pages(root)
        _open_page(settings, root.report)
    return code


def _is_drawn_here(settings: Settings, root: RunDir) -> bool:
    """Whether the page of a run can only be one that this machine has drawn: a page that came with
    a run (a bundle, a copy, a run at a URL) may be anybody's, scripts and all."""
    above = RunDir(root.root.parent)
    is_from_a_bundle = root.bundle.exists() or above.bundle.exists()
    return not is_from_a_bundle and resolved(settings.run_dir) in root.root.parents


def _show_night(settings: Settings, folder: Path, *, html: bool) -> int:
    """Show a night as it ended; the exit code of its `suite run`."""
    from commands.summaries import print_night
    from experiments.nights.document import read_outcome
    from experiments.nights.night import NightDir

    night = NightDir(folder)
    outcome = read_outcome(night)
    if html:
        place = resolved(folder)
        if resolved(settings.run_dir) not in place.parents:
            parent, name = shlex.quote(str(place.parent)), shlex.quote(place.name)
            raise UsageError(
                f"{folder} is not in the folder of runs {settings.run_dir}, so its page may come from anyone",
                hint=f"if you trust it: `brokerstorm --run-dir {parent} show --html {name}`",
            )
        _open_page(settings, night.run.report)
    else:
        settings.show(outcome.document(), lambda: print_night(outcome, night.run.report))
    return outcome.exit_code


def _open_page(settings: Settings, page: Path) -> None:
    """Open a report in the browser, and print its path."""
    webbrowser.open(resolved(page).as_uri())
    settings.show({"report": str(page)}, lambda: write(str(page)))


def _draw_pages(root: RunDir) -> None:
    """The pages of a run, and of the campaign that it is a round of: they lead to each other."""
    from analysis.report.html import write_pages  # and with it all of Bokeh

    above = RunDir(root.root.parent)
    write_pages(above if above.campaign.exists() else root)


@command(
    "compare",
    example="brokerstorm compare latest/unsafe-1 latest/safe-1\nbrokerstorm compare BEFORE AFTER",
)
@click.argument("run_a", metavar="RUN", shell_complete=completion.runs)
@click.argument("run_b", metavar="RUN", shell_complete=completion.runs)
def compare(settings: Settings, run_a: str, run_b: str) -> int:
    """Show what changed between two runs, campaigns or nights.

    Each variant of a campaign is compared with the variant of the same name: counts are sums over
    its rounds, rates and latencies are medians. Nights are compared cell by cell, from the history.
    `suite report` tells whether a difference is more than chance.
    """
    from analysis.report.compare import compare as of_runs
    from analysis.report.compare import compare_campaigns
    from analysis.report.documents import comparison_document, read_campaign, read_result
    from analysis.report.terminal import console
    from analysis.report.terminal_lookups import print_comparison

    nights = [name for name in (run_a, run_b) if (settings.run_dir / name / NIGHT_FILE).is_file()]
    if len(nights) == 2:
        return _compare_nights(settings, *nights)
    if nights:
        raise UsageError(
            f"{nights[0]} is a night and the other is not",
            hint="`brokerstorm list nights` lists nights",
        )
    one, other = _find(settings, run_a), _find(settings, run_b)
    several = [(name, run) for name, run in ((run_a, one), (run_b, other)) if run.campaign.exists()]
    if len(several) == 1:
        name, run = several[0]
        names = ", ".join(f"{name}/{each.run_id}" for each in run.rounds())
        raise UsageError(
            f"{name} holds several runs and the other is one: two runs or two campaigns can be compared",
            hint=f"there are {names}",
        )
    if several:
        comparison = compare_campaigns(read_campaign(one), read_campaign(other))
    else:
        comparison = of_runs(read_result(one), read_result(other))
    settings.show(
        comparison_document(comparison),
        lambda: print_comparison(console(sys.stdout, color=settings.color), comparison),
    )
    return Exit.PASS


def _compare_nights(settings: Settings, a: str, b: str) -> int:
    from analysis.report.documents import comparison_document
    from analysis.report.terminal import console
    from analysis.report.terminal_lookups import print_comparison
    from experiments.history.compare import compare_nights
    from experiments.history.store import History
    from experiments.nights.night import NightDir

    sides = []
    for name in (a, b):
        night = NightDir(settings.run_dir / name).load()
        with History.open(Path(night.history)) as history:
            sides.append((name, history.rounds(night.suite, since=name, until=name)))
    comparison = compare_nights(*sides)
    settings.show(
        comparison_document(comparison),
        lambda: print_comparison(console(sys.stdout, color=settings.color), comparison),
    )
    return Exit.PASS


def _fault_like(name: str) -> str:
    """The kind of fault whose name is nearest, if no class has a name that is near; empty = there
    is none."""
    from analysis.classes import CLASSES
    from faults.schedule.reference import kinds

    if name in CLASSES or difflib.get_close_matches(name, CLASSES, n=1):
        return ""
    return next(iter(difflib.get_close_matches(name, [each.kind for each in kinds()], n=1)), "")


@command("explain", example="brokerstorm explain acked-lost")
@click.argument("class_", metavar="[CLASS]", required=False, shell_complete=completion.classes)
def explain(settings: Settings, class_: str | None) -> int:
    """Explain an anomaly class, with an example.

    Without CLASS, all classes are listed.
    """
    from analysis.report.documents import explanation_document
    from analysis.report.explain import every_class
    from analysis.report.explain import explain as explain_one
    from analysis.report.terminal import console
    from analysis.report.terminal_lookups import print_class_list, print_explanation

    if class_ and (fault := _fault_like(class_)):
        raise UsageError(
            f"no anomaly class {class_!r}; did you mean the fault {fault}?",
            hint="`brokerstorm list faults` describes each fault, `list classes` the classes",
        )
    entries = [explain_one(class_)] if class_ else every_class()

    def text() -> None:
        out = console(sys.stdout, color=settings.color)
        if class_:
            print_explanation(out, entries[0])
        else:
            print_class_list(out, entries)

    settings.show(explanation_document(entries), text)
    return Exit.PASS
