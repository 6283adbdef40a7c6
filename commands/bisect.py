"""The command bisect: the release, or the commit, that broke or fixed it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from commands import completion
from commands.console import Settings, command, tell, write
from commands.options import (
    master_option,
    offline_option,
    refuse_beside_resume,
    runtime_option,
    seconds,
    seed_option,
    set_option,
)
from commands.tables import in_time, paragraph, table
from harness.errors import UsageError
from harness.invocation import for_terminal

if TYPE_CHECKING:
    from analysis.verdict.bisection import Evidence
    from experiments.bisect.rounds import Bisected

_HEAD = {
    "found": "FOUND",
    "narrowed": "NARROWED",
    "not confirmed": "NOT CONFIRMED",
    "unknown": "UNKNOWN",
}


@command(
    "bisect",
    example="brokerstorm bisect sarama-2377 --bad 1.30.0 --good 1.43.3\n"
    "brokerstorm bisect sarama-2377 --repo ../sarama --good v1.38.0 --bad v1.37.2",
)
@click.argument("scenario", required=False, shell_complete=completion.bugs)
@click.option(
    "--client",
    default="",
    shell_complete=completion.workers,
    help="Client library to search the versions of; default: the client of the bug.",
)
@click.option(
    "--good",
    default="",
    metavar="VERSION",
    help="Version that does not show the problem; default: the fixed version of the bug, if it has one.",
)
@click.option(
    "--bad",
    default="",
    metavar="VERSION",
    help="Version that shows the problem; default: the affected version of the bug, if it has one.",
)
@click.option(
    "--repo",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Git checkout of the client, to search commits instead of releases; it is only read.",
)
@click.option(
    "--pair",
    default="",
    shell_complete=completion.pairs,
    help="Version pair of a known bug; default: its first pair.",
)
@click.option(
    "--variant",
    default="",
    shell_complete=completion.variants,
    help="Variant of the scenario to run at each version.",
)
@click.option(
    "--class",
    "cls",
    default="",
    shell_complete=completion.classes,
    help="Anomaly class to look for; default: the class that the variant expects, otherwise any violation.",
)
@click.option(
    "--error",
    type=click.FloatRange(0, 0.5, min_open=True, max_open=True),
    default=0.05,
    show_default=True,
    help="Maximum probability of a wrong answer.",
)
@click.option(
    "--rate",
    type=click.FloatRange(0.02, 1, min_open=True),
    default=0.5,
    show_default=True,
    help="Minimum share of rounds in which a bad version shows the problem.",
)
@seed_option
@set_option
@click.option("--budget", callback=seconds, metavar="TIME", help="Total time (e.g. 3h).")
@click.option("--resume", metavar="RUN", help="Continue an interrupted bisection.")
@offline_option
@runtime_option
@master_option
def bisect(settings: Settings, resume: str | None, budget: float | None, **given: Any) -> int:
    """Find the first bad, or the first fixed, version of a client.

    Each version is run until a sequential test is certain enough, so this also works for a bug that
    shows only in some rounds. SCENARIO is a scenario, a bug or a file. A version that is not
    available, cannot be built or does not run is skipped.

    The exit code is 0 if the version is found, 1 if --good shows the problem or --bad does not, and
    3 if skipped versions or the budget leave the answer open.
    """
    from experiments.bisect.question import BisectRequest
    from experiments.bisect.rounds import begin, play, resumed

    if resume is not None:
        refuse_beside_resume("a bisection", "budget", "offline")
        root, asked = resumed(settings.run_dir, resume)
    elif given["scenario"] is None:
        raise UsageError(
            "which scenario?", hint="`brokerstorm list bugs` and `list scenarios` show them"
        )
    else:
        root, asked = begin(settings, BisectRequest(**given), tell)
    found = play(settings, root, asked, offline=given["offline"], budget_s=budget)
    settings.show(found.document(), lambda: _show(found, root.root))
    return found.exit_code


def _show(found: Bisected, folder: Path) -> None:
    asked, answer = found.question, found.answer
    is_commit = bool(asked.repo)
    write(f"{_HEAD[answer.outcome]}  {_sentence(found, is_commit)}")
    paragraph(f"{asked.scenario}, {asked.client}, seed {asked.seed}", indent="  ")
    if found.release_notes:
        paragraph(
            f"{'commit' if is_commit else 'release notes'}: {found.release_notes}", indent="  "
        )
    paragraph(
        f"error of all answers together: at most {100 * found.error:.2g} %, for what a bad version "
        f"shows in {100 * asked.rate:.0f} % of its rounds or more",
        indent="  ",
    )
    for side in found.sides:
        exposure = f", {asked.counter} {_span(side.met)}" if side.met else ""
        runs = ", ".join(look.folder for look in side.looks)
        paragraph(
            f"{_short(side.version, is_commit)}: {side.shown} of {side.counted} rounds{exposure}, "
            f"p {side.p_value:.2g}: {runs}",
            indent="  ",
            hanging="  ",
        )
    write("")
    table(
        [["", "version", "rounds", "answer", "time"], *_rows(found.steps, is_commit)], indent="  "
    )
    aside = len(found.set_aside)
    more = f", {aside} more did not count before a --resume" if aside else ""
    paragraph(
        f"{found.rounds} rounds, {found.counted} of them count{more}; {in_time(found.spent_s)}",
        indent="  ",
    )
    if answer.outcome in ("narrowed", "unknown"):
        again = for_terminal(f"brokerstorm bisect --resume {found.bisect_id}")
        paragraph(f"{again} tries the skipped versions again and continues", indent="  ")
    table([["repeat", for_terminal(asked.command)], ["rounds", str(folder)]], indent="  ")


def _sentence(found: Bisected, is_commit: bool) -> str:
    """``1.38.0 is the first fixed: 1.37.2 shows hang, 1.38.0 does not``."""
    asked, answer = found.question, found.answer
    if answer.outcome not in ("found", "narrowed"):
        return answer.why
    first, before = _short(answer.first, is_commit), _short(answer.before, is_commit)
    what = "a violation" if asked.expect == "clean" else asked.expect
    bad, good = (before, first) if asked.is_fix else (first, before)
    sides = f"{bad} shows {what}, {good} does not"
    if answer.outcome == "found":
        return f"{first} is the {asked.direction}: {sides}"
    between = ", ".join(_short(each, is_commit) for each in answer.between)
    return f"the {asked.direction} is {first} or one that was skipped before it: {between}; {sides}"


def _rows(steps: Sequence[Evidence], is_commit: bool) -> list[list[str]]:
    return [
        [
            str(number),
            _short(step.version, is_commit),
            str(len(step.looks)),
            step.text,
            in_time(sum(look.duration_s for look in step.looks)),
        ]
        for number, step in enumerate(steps, start=1)
    ]


def _short(version: str, is_commit: bool) -> str:
    from experiments.bisect.question import label_of

    return label_of(version, is_commit)


def _span(met: list[int]) -> str:
    return f"{met[0]:,}" if min(met) == max(met) else f"{min(met):,} to {max(met):,}"
