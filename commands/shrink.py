"""The command `shrink`: the smallest scenario that still shows a class."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from commands import completion
from commands.console import Settings, command
from commands.options import (
    FileToWrite,
    RenamedOption,
    master_option,
    offline_option,
    refuse_beside_resume,
    runtime_option,
    seconds,
    seed_option,
    set_option,
)
from commands.tables import paragraph
from harness.errors import Exit, UsageError

if TYPE_CHECKING:
    from experiments.shrink.search import Search
    from harness.rundir import RunDir


@command(
    "shrink",
    example="brokerstorm shrink kafka-quick --budget 20m\nbrokerstorm shrink latest --class acked-lost",
)
@click.argument("target", required=False, shell_complete=completion.scenarios)
@click.option(
    "--class",
    "cls",
    default="",
    metavar="CLASS",
    shell_complete=completion.classes,
    help="Anomaly class to keep; default: the expected class, or the only one that shows.",
)
@click.option(
    "--budget", callback=seconds, metavar="TIME", help="Total time of all rounds (e.g. 20m)."
)
@click.option(
    "--output",
    "--out",
    "out",
    cls=RenamedOption,
    metavar="FILE",
    type=FileToWrite(),
    help="File for the smallest scenario; default: smallest.yaml in the folder of the search.",
)
@click.option("--resume", metavar="RUN", help="Continue the interrupted search in this folder.")
@click.option(
    "--variant",
    default="",
    shell_complete=completion.variants,
    help="Variant to shrink; default: the affected variant of a bug, or the only one that shows a class.",
)
@seed_option
@set_option
@offline_option
@runtime_option
@master_option
def shrink(settings: Settings, target: str | None, budget: float | None, **given: Any) -> int:
    """Find the smallest scenario that still shows an anomaly.

    Removes faults, topics, clients and options, and lowers partitions, rate and time, while the
    class still shows. TARGET is a scenario, a known bug or a run. Every candidate is run at least
    twice. The smallest scenario so far is always in a file. The exit code is 0 if a scenario was
    found and 3 if TARGET does not show the class.
    """
    from experiments.shrink.rounds import ShrinkRequest
    from experiments.shrink.rounds import shrink as play

    resume = given["resume"]
    if (target is None) == (resume is None):
        raise UsageError("which scenario or run?", hint="name one, or a search to --resume")
    if resume is not None:
        refuse_beside_resume("a search", "budget", "out", "offline", "runtime", "master")
    root, search, out = play(settings, ShrinkRequest(target=target or "", budget_s=budget, **given))
    return _show(settings, search, root, out)


def _show(settings: Settings, search: Search, root: RunDir, out: Path) -> int:
    from experiments.shrink.document import left_out, not_tried
    from experiments.shrink.reductions import cost

    code = Exit.PASS if search.shows else Exit.UNKNOWN
    (seconds, messages), (less_s, fewer) = cost(search.shape.data), cost(search.smallest)
    steps = list(search.steps.values())
    played = sum(not each.is_unusable for rounds in search.played.values() for each in rounds)
    untried = not_tried(search) if search.shows else 0
    document = {
        "exit_code": int(code),
        "class": search.cls,
        "shown": search.shows,
        "is_whole": search.is_whole,
        "file": str(out) if search.shows else "",
        "folder": str(root.root),
        "scenario": search.smallest,
        "left_out": left_out(search),
        "not_tried": untried,
        "rounds": played,
        "steps": [{"tried": each.tried, "said": each.said, "shown": each.shown} for each in steps],
    }

    def text() -> None:
        if not search.shows:
            begun = f"rounds played: {played}, too few to say" if played else "no round was played"
            said = steps[0].said if steps else begun
            paragraph(f"{search.cls or 'a class'} cannot be kept: the scenario as it is: {said}")
            if not steps:
                paragraph(f"`brokerstorm shrink --resume {root.run_id}` continues")
            return
        paragraph(f"{search.cls} still shows without:")
        nothing = "nothing: all of it is needed" if search.is_whole else "nothing so far"
        for line in left_out(search) or [nothing]:
            paragraph(line, indent="  ")
        paragraph(
            f"a round: {less_s:g} s and {fewer:,} messages, was {seconds:g} s and {messages:,}"
            f" · {len(steps)} steps, {played} rounds"
        )
        if not search.is_whole:
            paragraph(
                f"not tried: {untried} parts; `brokerstorm shrink --resume {root.run_id}` continues"
            )
        paragraph(f"{out} written; `brokerstorm run {out}` runs it")

    settings.show(document, text)
    return int(code)
