"""`trace`: one message through all tables, named or the first that a run or one of its classes
shows."""

from __future__ import annotations

import difflib
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from commands import completion
from commands.console import Settings, command
from harness.errors import Exit, UsageError
from harness.invocation import for_terminal
from harness.rundir import RunDir

if TYPE_CHECKING:
    from analysis.findings import Result

#: What is held in memory of the logs, at most.
MOST_LOG_LINES = 10_000


@command(
    "trace",
    example="brokerstorm trace --first\nbrokerstorm trace --first acked-lost RUN\n"
    "brokerstorm trace 1/3/88121\nbrokerstorm trace orders-3@41203 RUN",
)
@click.argument("message", required=False, shell_complete=completion.runs)
@click.argument("run", required=False, shell_complete=completion.runs)
@click.option(
    "--log-lines",
    type=click.IntRange(0, MOST_LOG_LINES),
    metavar="N",
    help="Show up to N full lines of client and broker logs around the message; 0 shows none; "
    "default: the 12 most relevant lines, folded.",
)
@click.option(
    "--first",
    is_flag=True,
    help="Trace the first example message of RUN: trace --first [CLASS] [RUN].",
)
def trace(
    settings: Settings, message: str | None, run: str | None, log_lines: int | None, first: bool
) -> int:
    """Follow one message through all tables and logs.

    MESSAGE is instance/lane/seq, as in findings, or topic-partition@offset. RUN defaults to the
    latest. In a scenario with variants, it defaults to the first run that has the message as an
    example.

    With --first, traces the message that the summary of RUN shows first, or the first example of
    CLASS.
    """
    from analysis.report.documents import trace_document
    from analysis.report.terminal import console
    from analysis.report.terminal_lookups import print_trace
    from analysis.report.trace import trace as look_up
    from analysis.report.trace_logs import LOG_LINES
    from experiments.bundle.opening import run_of

    if first:
        cls, wanted = _class_and_run(settings.run_dir, message, run)
        holder, message = _first(run_of(settings.run_dir, wanted), cls)
    elif message is None:
        raise UsageError(
            "no message given",
            hint="`brokerstorm trace --first` traces the first one that was found",
        )
    else:
        holder = _run_of_message(run_of(settings.run_dir, run), message)
    found = look_up(holder, message, log_lines=LOG_LINES if log_lines is None else log_lines)
    beyond = len(found.logs.lines) + sum(found.logs.left_out.values())
    again = (
        f"`brokerstorm trace {found.message or message} {shlex.quote(str(holder.root))} "
        f"--log-lines {beyond}`"
    )
    settings.show(
        trace_document(found),
        lambda: print_trace(
            console(sys.stdout, color=settings.color),
            found,
            folded=log_lines is None,
            more_with=for_terminal(again),
        ),
    )
    return Exit.PASS


def _class_and_run(run_dir: Path, *given: str | None) -> tuple[str, str | None]:
    """The two words with --first, in either order: a class, and anything else is a run.

    Raises:
        UsageError: two words of which none is a class, or one that is not a run and nearly a class.
    """
    from analysis.classes import CLASSES

    words = [word for word in given if word is not None]
    named = next((word for word in words if word in CLASSES), "")
    others = [word for word in words if word != named]
    if len(others) > 1:
        raise UsageError(
            f"--first takes a class and a run; neither {others[0]!r} nor {others[1]!r} is a class",
            hint="`brokerstorm list classes` shows them",
        )
    near = difflib.get_close_matches(others[0], CLASSES, n=1) if others and not named else []
    if near and not any(path.exists() for path in (run_dir / others[0], Path(others[0]))):
        raise UsageError(
            f"{others[0]!r} is neither a class nor a run; did you mean {near[0]}?",
            hint="`brokerstorm list classes` and `brokerstorm list runs` show them",
        )
    return named, others[0] if others else None


def _first(root: RunDir, cls: str) -> tuple[RunDir, str]:
    """The run and its message to trace."""
    shown = next(_shown_first(root, cls), None)
    if shown is None:
        what = f"no example message of {cls}" if cls else "no example message"
        raise UsageError(
            f"{root.root} shows {what}", hint=f"`brokerstorm show {root.root}` shows its findings"
        )
    return shown


def _shown_first(root: RunDir, cls: str) -> Iterator[tuple[RunDir, str]]:
    """Yield the witness that the summary shows first, then any other witness."""
    from analysis.report.campaign_words import first_witness
    from analysis.report.documents import read_campaign, read_result
    from analysis.report.result_words import is_message

    if root.campaign.exists():
        for variant in read_campaign(root).variants:
            if (
                (first := first_witness(variant)) is not None
                and cls in ("", first[1])
                and is_message(first[2])
            ):
                yield RunDir(root.root / first[0].path), first[2].message
    for each in _judged(root):
        for message in _messages(read_result(each), cls):
            yield each, message


def _messages(result: Result, cls: str) -> Iterator[str]:
    """Witnesses of a class, or of any, violations before the others."""
    from analysis.report.result_words import is_message

    for finding in (*result.violations(), *result.findings):
        if cls in ("", finding.cls):
            yield from (witness.message for witness in finding.witnesses if is_message(witness))


def _run_of_message(root: RunDir, message: str) -> RunDir:
    """The run itself, or the one of a campaign that shows the message."""
    from analysis.report.documents import read_result

    runs = _judged(root)
    for each in runs if root.campaign.exists() else ():
        shown = (w.message for finding in read_result(each).findings for w in finding.witnesses)
        if message.strip() in shown:
            return each
    return runs[0]


def _judged(root: RunDir) -> list[RunDir]:
    """The run itself, or those runs of a campaign that have been judged: at least one."""
    if not root.campaign.exists():
        return [root]
    rounds = [each for each in root.rounds() if each.result.exists()]
    if not rounds:
        raise UsageError(
            f"{root.root} has not been judged", hint=f"`brokerstorm analyze {root.root}` judges it"
        )
    return rounds
