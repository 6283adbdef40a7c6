"""The command `shrink`: the smallest scenario that still shows a class."""

from __future__ import annotations

from typing import Any

import click

from commands import completion
from commands.console import Settings, command
from commands.options import (
    FileToWrite,
    master_option,
    offline_option,
    runtime_option,
    seconds,
    seed_option,
    set_option,
)
from harness.errors import UsageError


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
    help="The class that must stay. Default: the expected one, or the only one that shows.",
)
@click.option("--budget", callback=seconds, metavar="TIME", help="Time for all rounds, such as 20m.")
@click.option(
    "--out", type=FileToWrite(), help="The scenario; default: smallest.yaml in the folder of the search."
)
@click.option("--resume", metavar="RUN", help="Go on with a search that was cut off: its folder.")
@click.option(
    "--variant",
    default="",
    shell_complete=completion.variants,
    help="Which; default: of a bug the affected one, else the only one that shows a class.",
)
@seed_option
@set_option
@offline_option
@runtime_option
@master_option
def shrink(settings: Settings, target: str | None, budget: float | None, **given: Any) -> int:
    """Find the smallest scenario that still shows a class.

    Leaves out faults, topics, clients and options, lowers partitions, rate and time, and keeps what the class
    needs. TARGET is a scenario, a known bug or a run. Each question is asked in two rounds or more; the best
    so far is always in a file. Exit code 0: it was found; 3: TARGET does not show the class.
    """
    from commands.shrinks import ShrinkRequest, find_search, shrink_request

    resume = given["resume"]
    if (target is None) == (resume is None):
        raise UsageError("which scenario or run?", hint="name one, or a search to --resume")
    if resume is not None:
        asked = [given["cls"], given["variant"], given["overrides"], given["seed"]]
        if any(each or each == 0 for each in asked):
            raise UsageError("--resume goes on with what was asked", hint="leave out the other options")
        given["resume"] = find_search(settings.run_dir, resume)
    return shrink_request(settings, ShrinkRequest(target=target or "", budget_s=budget, **given))
