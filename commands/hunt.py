"""The command `hunt`: rounds that are changed again and again, in search of unknown defects."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from commands import completion
from commands.console import Settings, command
from commands.options import (
    master_option,
    offline_option,
    refuse_beside_resume,
    runtime_option,
    seconds,
    seed_option,
    set_option,
)
from commands.tables import paragraph
from harness.errors import UsageError
from harness.rundir import read_json
from harness.systems import SYSTEMS

if TYPE_CHECKING:
    from experiments.hunt.search import Discovery, Hunt
    from harness.rundir import RunDir


@command(
    "hunt",
    example="brokerstorm hunt --client kafka-clients --budget 30m\n"
    "brokerstorm hunt my.yaml --budget 8h --corpus corpus/",
)
@click.argument("scenario", required=False, shell_complete=completion.scenarios)
@click.option(
    "--client",
    default="",
    metavar="NAME[@VERSION]",
    shell_complete=completion.workers,
    help="Client of all producers and consumers; default: those of SCENARIO. VERSION may be "
    "`latest`.",
)
@click.option(
    "--system",
    type=click.Choice([*SYSTEMS]),
    help="System to begin on without SCENARIO; default: the one of the client.",
)
@click.option(
    "--budget",
    callback=seconds,
    metavar="TIME",
    help="Total time of all rounds (e.g. 30m, 8h). Required, unless --rounds is given.",
)
@click.option(
    "--rounds", type=click.IntRange(min=1), metavar="N", help="Play N rounds, repeats included."
)
@click.option(
    "--corpus",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Folder of scenarios that showed something new: they are played first, and new ones are "
    "added. Default: a folder in the folder of the hunt. With --resume, new ones are added only.",
)
@click.option(
    "--known",
    multiple=True,
    metavar="CLASS",
    shell_complete=completion.classes,
    help="Class of anomalies to ignore; may be repeated.",
)
@click.option(
    "--reference",
    default="",
    metavar="NAME[@VERSION]",
    shell_complete=completion.workers,
    help="Client that plays each finding, too; `none` for no other. Default: another client of the "
    "system.",
)
@click.option(
    "--resume",
    metavar="RUN",
    help="Continue the hunt in this folder; give --budget or --rounds, and --corpus, again.",
)
@click.option(
    "--variant", default="", shell_complete=completion.variants, help="Variant of SCENARIO to use."
)
@seed_option
@set_option
@offline_option
@runtime_option
@master_option
def hunt(
    settings: Settings,
    scenario: str | None,
    system: str | None,
    budget: float | None,
    known: tuple[str, ...],
    **given: Any,
) -> int:
    """Look for unknown defects of a client or of brokers.

    Each round changes faults, load or settings of a scenario that showed something new: a class of
    anomalies, an error, a line in a log, two faults at the same time. Without SCENARIO, it begins
    with a short load without faults. A round that breaks a promise is played twice more and kept as
    a scenario. The exit code is 1 if a promise was broken, 0 if none was, and 3 if no round was
    judged.
    """
    from analysis.classes import CLASSES
    from experiments.hunt.hunting import HuntRequest
    from experiments.hunt.hunting import hunt as play
    from harness.errors import did_you_mean

    if given["resume"] is not None:
        refuse_beside_resume("a hunt", "budget", "rounds", "corpus", "offline", "runtime", "master")
    if budget is None and given["rounds"] is None:
        raise UsageError("--budget or --rounds is required", hint="add --budget 30m")
    for each in known:
        if each not in CLASSES:
            raise UsageError(f"--known {each} is not a class", hint=did_you_mean(each, CLASSES))
    request = HuntRequest(
        scenario=scenario or "", system=system or "", budget_s=budget, known=known, **given
    )
    root, hunting, corpus = play(settings, request)
    return _show(settings, root, hunting, corpus)


def _show(settings: Settings, root: RunDir, hunting: Hunt, corpus: Path) -> int:
    from experiments.hunt.hunting import RESULT

    def text() -> None:
        paragraph(
            f"{hunting.judged} of {hunting.played} rounds judged · {len(hunting.seen)} features · "
            f"{hunting.corpus_entries} scenarios in {corpus}"
        )
        for each in hunting.found:
            _show_found(root, each)
        if not hunting.found:
            paragraph("nothing was found: no promise was broken in these rounds")
        more = "" if root.root in corpus.parents else f" --corpus {shlex.quote(str(corpus))}"
        paragraph(f"`brokerstorm hunt --resume {root.run_id} --budget 30m{more}` continues")

    settings.show(read_json(root.root / RESULT), text)
    return int(hunting.exit_code)


def _show_found(root: RunDir, found: Discovery) -> None:
    from experiments.hunt.discoveries import (
        bundle_file,
        differs_from_reference,
        found_file,
        known_bugs,
        smallest_file,
    )

    path = found_file(root, found)
    paragraph(f"{found.number}. {', '.join(found.what)}")
    paragraph(f"in {found.shown} of {len(found.rounds)} rounds; {path}", indent="   ")
    if found.reference_judged:
        paragraph(
            f"the reference client shows it in {found.reference_shown} of "
            f"{found.reference_judged} rounds of the same plan",
            indent="   ",
        )
    if like := known_bugs(found):
        paragraph(f"known bugs of this class and client: {', '.join(like)}", indent="   ")
    first, name = root.root / found.rounds[0], shlex.quote(str(path))
    paragraph(f"`brokerstorm show {first}` has the evidence", indent="   ")
    if not found.is_violation:
        seed = found.entry.seed
        paragraph(f"`brokerstorm run {name} --seed {seed}` plays it again", indent="   ")
        return
    if differs_from_reference(found):
        paragraph(f"`brokerstorm repro {name} --quick` compares the two clients", indent="   ")
    smallest = smallest_file(root, found)
    if smallest.exists():
        paragraph(f"{smallest} is the smallest scenario so far", indent="   ")
    else:
        variant = " --variant affected" if differs_from_reference(found) else ""
        shrink = f"shrink {name}{variant} --class {found.what[0]} --seed {found.entry.seed}"
        paragraph(f"`brokerstorm {shrink}` makes it smaller", indent="   ")
    if (bundle := bundle_file(root, found)).exists():
        paragraph(f"{bundle} is a bundle for a report", indent="   ")
