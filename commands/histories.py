"""The commands suite report, history import, history merge, history upload and history export."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from commands import completion
from commands.console import CommandGroup, Settings, command, tell, write
from commands.options import FileToWrite, RenamedOption
from commands.tables import paragraph
from harness.errors import Exit, FailOn, UsageError
from harness.run_ids import is_run_id, run_id_from
from harness.rundir import Document, find_run, is_url

if TYPE_CHECKING:
    from experiments.history.report import SuiteReport
    from experiments.history.store import History
    from experiments.nights.night import Night, NightDir


def history_option(function: Any) -> Any:
    """``--history``, of every command that has one."""
    return click.option(
        "--history",
        "file",
        type=click.Path(dir_okay=False, path_type=Path),
        help="History file; default: history.sqlite in the folder of runs.",
    )(function)


@contextmanager
def opened(settings: Settings, file: Path | None, *, make: bool) -> Iterator[History]:
    """The history that is meant; what opening it had to do is reported.

    Raises:
        UsageError: there is none, and none is to be made.
    """
    from experiments.history.store import DEFAULT_NAME, History

    path = file or settings.run_dir / DEFAULT_NAME
    if not make and not path.exists():
        raise UsageError(
            f"no history at {path} yet",
            hint="`brokerstorm suite run` or `history import` creates one",
        )
    with History.open(path) as history:
        for note in history.notes:
            tell(note)
        yield history


# ----- suite report -------------------------------------------------------------------------------


@command(
    "report",
    example="brokerstorm suite report\nbrokerstorm suite report --output public --fail-on new",
)
@click.argument("name", metavar="[SUITE]", required=False)
@click.option("--night", metavar="NIGHT", help="Report this night (default: latest).")
@click.option(
    "--output",
    "--to",
    "to",
    cls=RenamedOption,
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the report to this folder, with every report that it links, ready to publish.",
)
@click.option(
    "--fail-on",
    type=click.Choice(["new", "any", "none"]),
    help="What makes the exit code 1: a cell that failed and did not fail before that night, any failed "
    "cell, or nothing; default: as the night was run, otherwise any.",
)
@history_option
def report(
    settings: Settings,
    name: str | None,
    night: str | None,
    to: Path | None,
    fail_on: FailOn | None,
    file: Path | None,
) -> int:
    """Write the report of a night: what is new, known, fixed or flaky.

    Includes trends. SUITE is the name of a suite; default: the suite that ran
    last. Writes report.html (one file, readable offline), summary.md, junit.xml and report.json to
    the folder of the night, and appends the summary to the file that GITHUB_STEP_SUMMARY names.
    With --output, the folder also contains the reports of the runs that the page links to. The exit
    code is the one of the night; a night that was ended early is unknown (3) unless a cell is red.
    """
    from experiments.history.report import night_of, read_report
    from experiments.history.summary import document, write_report
    from experiments.nights.document import unplayed_of
    from experiments.nights.night import NightDir, nights

    begun = []
    for each in nights(settings.run_dir):
        with suppress(UsageError):  # of another version
            begun += [] if each.is_over else [(each.load().suite, each.id)]
    with opened(settings, file, make=False) as history:
        suite, told = night_of(history, name, night, begun=begun)
        # A night of another machine may have any name, also one that leads out of the folder of
        # runs.
        own = NightDir(
            settings.run_dir / (told if is_run_id(told) else run_id_from(f"night-{told}"))
        )
        plan = own.load() if own.plan.exists() else None
        by_night = plan.fail_on if plan else "any"
        unplayed = unplayed_of(own, plan) if plan and not own.is_over else None
        made = read_report(history, suite, told, fail_on=fail_on or by_night, unplayed=unplayed)
    folder = to or (
        own.root if own.root.is_dir() else settings.run_dir / run_id_from(f"{made.suite}-report")
    )
    written = write_report(made, folder, publish=to is not None)
    settings.show(document(made), lambda: _show(made, written["page"]))
    return made.exit_code


def _show(made: SuiteReport, page: Path) -> None:
    paragraph(f"{made.suite}, {made.night}: {made.verdict}: {made.headline}")
    for row in made.findings:
        rate = f"{row.state.rate.hits} of {row.state.rate.rounds} rounds"
        paragraph(
            f"{row.state.standing.value:<6} {row.state.cls}  {row.state.cell}, {rate}",
            hanging=" " * 7,
        )
    for cell, why in made.not_run.items():
        paragraph(f"not run  {cell}: {why}", hanging=" " * 9)
    write(str(page))


def report_night(history: History, folder: NightDir, night: Night) -> SuiteReport:
    """Write the report of a night that is over into its folder."""
    from experiments.history.report import read_report
    from experiments.history.summary import write_report

    made = read_report(history, night.suite, folder.id, fail_on=night.fail_on)
    write_report(made, folder.root)
    return made


# ----- history ------------------------------------------------------------------------------------


@click.group(
    "history",
    cls=CommandGroup,
    example="brokerstorm history import runs/*\nbrokerstorm history merge shard-*/history.sqlite",
)
def history() -> None:
    """Add runs to the history, and export it for other tools."""


@command(
    "import", example="brokerstorm history import latest\nbrokerstorm history import runs/2026*"
)
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, shell_complete=completion.runs)
@history_option
def import_(settings: Settings, runs: tuple[str, ...], file: Path | None) -> int:
    """Add runs to the history, under the suite `imported`.

    The runs of one day form one night. RUN is an id from `list runs` or a folder. A run that is
    already in the history is not changed. A run that was not judged is reported and skipped.
    """
    from experiments.history.exchange import import_run

    found = [find_run(settings.run_dir, name) for name in runs]
    added = there = 0
    left_out = {}
    with opened(settings, file, make=True) as known:
        for run in found:
            try:
                more, old = import_run(known, run)
            except UsageError as error:
                left_out[str(run.root)] = str(error)
                continue
            added, there = added + more, there + old
        path = known.path

    def text() -> None:
        write(f"{path}: {added} rounds added, {there} were there")
        for run, why in left_out.items():
            paragraph(f"left out {run}: {why}", hanging="  ")

    settings.show(_taken(path, added, there, left_out), text)
    return Exit.USAGE if left_out and not added + there else Exit.PASS


@command(
    "merge",
    example="brokerstorm history merge shard-*/history.sqlite\n"
    "brokerstorm history merge s3://bucket/shard-2/history.sqlite",
)
@click.argument("others", metavar="FILE|URL...", nargs=-1, required=True)
@history_option
def merge(settings: Settings, others: tuple[str, ...], file: Path | None) -> int:
    """Add the rounds of other histories to this one.

    This joins the histories of machines that shared a night. FILE is a history file; URL is the
    address of one that `history upload` wrote. Rounds that are already here are not changed. A
    history that cannot be read is reported and skipped.
    """
    added: dict[str, int] = {}
    left_out: dict[str, str] = {}
    there = 0
    with (
        opened(settings, file, make=True) as known,
        TemporaryDirectory(prefix="brokerstorm-") as work,
    ):
        for other in others:
            try:
                added[other], old = known.merge(_here(other, Path(work)))
            except UsageError as error:
                left_out[other] = str(error)
                continue
            there += old
        path = known.path

    def text() -> None:
        for other, count in added.items():
            write(f"{other}: {count} rounds added")
        for other, why in left_out.items():
            paragraph(f"left out {other}: {why}", hanging="  ")
        write(f"{path}: {sum(added.values())} rounds added, {there} were there")

    settings.show(_taken(path, added, there, left_out), text)
    return Exit.USAGE if left_out else Exit.PASS


def _taken(path: Path, added: object, there: int, left_out: dict[str, str]) -> Document:
    """Return what a history took in; ``added``: rounds, by name of the source if there are
    several."""
    return {
        "history": str(path),
        "added": added,
        "already_there": there,
        "left_out": left_out,
    }


def _here(other: str, work: Path) -> Path:
    """A history file, or a copy of one at a URL.

    Raises:
        UsageError: the URL cannot be read.
    """
    if not is_url(other):
        return Path(other)
    from harness.stored import Folder

    address, mark, query = other.partition("?")
    folder, _, name = address.rpartition("/")
    Folder(f"{folder}{mark}{query}").fetch(name, work / "history.sqlite")
    return work / "history.sqlite"


@command("upload", example="brokerstorm history upload s3://bucket/shard-2")
@click.argument("url", metavar="URL")
@history_option
def upload(settings: Settings, url: str, file: Path | None) -> int:
    """Copy the history to a folder at a URL.

    Another machine adds it to its own history with `history merge`. URL is one that PyArrow opens:
    s3://, gs://, abfss://, hdfs:// or file://. An existing copy is replaced.
    """
    from harness.stored import Folder

    if not is_url(url):
        raise UsageError(f"{url} is not a URL", hint="write s3://BUCKET/FOLDER, or file:///FOLDER")
    there = Folder(url) / "history.sqlite"
    with (
        opened(settings, file, make=False) as known,
        TemporaryDirectory(prefix="brokerstorm-") as work,
    ):
        copy = Path(work) / "history.sqlite"
        known.copy_to(copy)
        Folder(url).put(copy, copy.name)
    settings.show({"url": there.url}, lambda: write(there.url))
    return Exit.PASS


@command("export", example="brokerstorm history export history.parquet")
@click.argument("target", metavar="FILE.parquet", type=FileToWrite())
@history_option
def export(settings: Settings, target: Path, file: Path | None) -> int:
    """Write the history as one Parquet file, one row per round.

    DuckDB, Spark and pandas can read it: docs/querying.md.
    """
    from experiments.history.exchange import export_parquet

    with opened(settings, file, make=False) as known:
        rows = export_parquet(known, target)
    settings.show(
        {"file": str(target), "rounds": rows},
        lambda: write(f"{target}: {rows} rounds"),
    )
    return Exit.PASS


for _part in (import_, merge, upload, export):
    history.add_command(_part)
