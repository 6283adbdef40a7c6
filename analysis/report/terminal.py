"""Prints the summary of a run: the verdict and why first, then numbers, then where to look.

Everything reads the same without colour. When the stream is not a terminal, or colour is off
(``NO_COLOR``, ``--no-color``, ``TERM=dumb``), no escape code is written at all.
"""

from __future__ import annotations

import io
import os
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from analysis.findings import NOT_APPLICABLE, Finding, HangRow, Result, Status, Verdict, Witness
from analysis.report import words
from analysis.report.result_words import (
    STATUS_GLYPH,
    faults_line,
    finding_heading,
    is_message,
    latency_line,
    pass_sentence,
    rate_line,
    sends_line,
    transactions_line,
    witness_facts,
)
from harness.invocation import for_terminal

#: Witnesses printed of a class; the page and result.json have more.
SHOWN_WITNESSES = 3
SHOWN_CAUSES = 6
MAX_WIDTH, MIN_WIDTH, PIPE_WIDTH = 160, 60, 100
LABEL_WIDTH = 10

VERDICT_STYLE = {
    Verdict.PASS: "black on green",
    Verdict.FAIL: "bold white on red",
    Verdict.UNKNOWN: "black on yellow",
}
STATUS_STYLE = {
    Status.VIOLATION: "bold red",
    Status.SUSPECT: "yellow",
    Status.APPLICATION_ERROR: "yellow",
    Status.PERMITTED: "dim",
    Status.INFO: "dim",
}

#: Style and glyph of a threshold, by `Threshold.held`.
THRESHOLD_STYLE = {True: "", False: "bold red", None: "yellow"}
THRESHOLD_GLYPH = {True: "✓", False: "✗", None: "?"}


def console(file: IO[str], *, color: bool = True) -> Console:
    """A console for ``file``: plain text unless it is a terminal that shows colour."""
    if isinstance(file, io.TextIOWrapper):
        file.reconfigure(errors="replace")  # a C locale must not turn a verdict into a traceback
    terminal = file.isatty()
    wanted = color and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    made = Console(
        file=file,
        force_terminal=terminal,
        color_system="auto" if terminal and wanted else None,
        highlight=False,
        markup=False,
        emoji=False,
    )
    made.width = max(MIN_WIDTH, min(MAX_WIDTH, made.width)) if terminal else PIPE_WIDTH
    return made


def print_result(
    out: Console, result: Result, *, report: Path | None = None, verbose: bool = False
) -> None:
    """The summary of one run; ``verbose`` adds its environment."""
    parts: list[RenderableType] = [
        banner(result.verdict, _title(result), _subtitle(result)),
        _reasons(result),
        "",
    ]
    parts += [_numbers(result), ""]
    found = [finding for finding in result.findings if finding.count]
    if found:
        parts += [_findings_table(found), ""]
    for finding in found:
        if finding.status in (Status.VIOLATION, Status.SUSPECT, Status.APPLICATION_ERROR):
            parts += [_finding(finding, out.width), ""]
    for hang in result.hangs:
        parts += [_hang(hang, verbose=verbose), ""]
    if verbose and result.environment:
        facts = (words.fact(name, value) for name, value in result.environment.items())
        parts += [*(Text(f"{name}: {value}") for name, value in facts), ""]
    emit(out, *parts, _closing(result, report))


def emit(out: Console, *parts: RenderableType) -> None:
    """Print; without colour no line ends in blanks, so a log stays tidy."""
    if out.color_system is not None:
        out.print(*parts, sep="\n", crop=False)
        return
    with out.capture() as captured:
        out.print(*parts, sep="\n", crop=False)
    lines = [line.rstrip() for line in captured.get().splitlines()]
    out.file.write("\n".join(lines) + "\n")
    out.file.flush()


def banner(verdict: Verdict, title: str, subtitle: str) -> RenderableType:
    """Return the line with the verdict, a title and a subtitle."""
    line = Text(f" {verdict.value.upper()} ", style=VERDICT_STYLE[verdict])
    line.append("  ").append(words.plain(title), style="bold").append(
        f"   {words.plain(subtitle)}", style="dim"
    )
    return line


def rows(pairs: Iterable[tuple[str, Text | str]]) -> Table:
    """Labelled lines; a long one wraps under itself."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=LABEL_WIDTH, no_wrap=True)
    grid.add_column(ratio=1, overflow="fold")
    for label, text in pairs:
        grid.add_row(Text(label, style="dim"), text if isinstance(text, Text) else Text(text))
    return grid


def closing_lines(pairs: Iterable[tuple[str, Text | str]]) -> Group:
    """Labelled lines with paths and commands, never cut or wrapped: a copy of a line must work in a
    shell."""
    return Group(
        *(
            Text.assemble(
                (f"{label:<{LABEL_WIDTH}} ", "dim"), text, no_wrap=True, overflow="ignore"
            )
            for label, text in pairs
        )
    )


def _title(result: Result) -> str:
    return f"{result.scenario} · {result.variant}" if result.variant else result.scenario


def _subtitle(result: Result) -> str:
    load = result.duration_s.get("load")
    return (f"{words.seconds(load)} of load · " if load else "") + f"seed {result.seed}"


def _reasons(result: Result) -> RenderableType:
    reasons = [words.plain(reason) for reason in result.reasons] or [pass_sentence(result)]
    return Padding(Group(*(Text(reason) for reason in reasons)), (0, 0, 0, 2))


def _numbers(result: Result) -> RenderableType:
    stored = words.log_rows(result.rows) if "log" in result.rows else ""
    given = words.given(result.given, result.given_again, result.given_delay_ms)
    lines: list[tuple[str, Text | str]] = [
        ("sends", sends_line(result.sends)),
        *([("commits", transactions_line(result.transactions))] if result.transactions else []),
        ("found", stored),
        *([("given", given)] if given else []),
        *([("made", words.applications(result.applications))] if result.applications else []),
        ("rate", rate_line(result.rate)),
        ("latency", latency_line(result.latency_ms, result.no_intended_times)),
        ("faults", faults_line(result.faults)),
    ]
    return rows([*lines, *_thresholds(result), *_coverage(result), *_untested(result)])


def _thresholds(result: Result) -> list[tuple[str, Text | str]]:
    """A line for each threshold, whether it held or not."""
    return [
        (
            "required" if not i else "",
            Text(
                f"{THRESHOLD_GLYPH[each.held]} {words.plain(each.text)}",
                style=THRESHOLD_STYLE[each.held],
            ),
        )
        for i, each in enumerate(result.thresholds)
    ]


def _untested(result: Result) -> list[tuple[str, Text | str]]:
    """Classes that this run could not have shown, by reason; in one line those that its load cannot
    have."""
    reasons = words.by_reason(result.untested)
    foreign = [
        name for reason in reasons if reason.startswith(NOT_APPLICABLE) for name in reasons[reason]
    ]
    lines = [
        f"{', '.join(names)} ({reason})"
        for reason, names in reasons.items()
        if names[0] not in foreign
    ]
    if foreign:
        lines.append(
            f"{words.plural(len(foreign), 'class', 'classes')} that this load cannot show: see the "
            "report"
        )
    return [("not tested" if not i else "", line) for i, line in enumerate(lines)]


def _coverage(result: Result) -> list[tuple[str, Text | str]]:
    """Validity checks that did not hold; one line when all did."""
    gaps = [item for item in result.coverage if not item.ok]
    if not gaps:
        return [("coverage", f"all {len(result.coverage)} validity checks passed")]
    return [
        ("coverage" if not i else "", Text(f"? {words.plain(item.text)}", style="yellow"))
        for i, item in enumerate(gaps)
    ]


def _findings_table(findings: list[Finding]) -> RenderableType:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("finding", no_wrap=True)
    table.add_column("status", no_wrap=True)
    table.add_column("count", justify="right", no_wrap=True)
    table.add_column("promise", overflow="fold")
    for finding in findings:
        style = STATUS_STYLE[finding.status]
        table.add_row(
            Text(f"{STATUS_GLYPH[finding.status]} {finding.cls}", style=style),
            Text(finding.status.value, style=style),
            Text(words.count(finding.count)),
            Text(words.plain(finding.promise)),
        )
    return table


def _finding(finding: Finding, width: int) -> RenderableType:
    style = STATUS_STYLE[finding.status]
    parts: list[RenderableType] = [
        Text(f"{STATUS_GLYPH[finding.status]} {finding_heading(finding)}", style=style)
    ]
    parts.append(_inset(finding.sentence))
    if finding.status is Status.SUSPECT:
        parts.append(_inset(f"not proved: {finding.evidence}"))
    for witness in finding.witnesses[:SHOWN_WITNESSES]:
        parts.append(Padding(_witness(witness, finding.sentence, width), (0, 0, 0, 2)))
    if heading := words.causes_heading(finding):
        parts.append(_inset(f"cause: {heading}"))
        parts += [
            _inset(f"  {line}", "dim") for line in words.causes_by_fault(finding)[:SHOWN_CAUSES]
        ]
    for item in finding.attribution:
        parts.append(_inset(words.attribution(item), "dim"))
    return Group(*parts)


def _witness(witness: Witness, class_sentence: str, width: int) -> RenderableType:
    parts: list[RenderableType] = [Text(words.witness_line(witness, class_sentence), style="bold")]
    if witness.around:
        parts.append(_inset(words.sequence(witness.around, width - 6)))
    parts.append(_inset(witness_facts(witness), "dim"))
    if witness.cause:
        parts.append(_inset(words.plain(witness.cause)))
    if witness.error:
        parts.append(_inset(words.plain(witness.error)[:200], "dim"))
    return Group(*parts)


def _hang(hang: HangRow, *, verbose: bool) -> RenderableType:
    """A hang and the frame it waits in; ``verbose`` adds the stack."""
    seen = f"{hang.worker}, {hang.kind} noticed at {words.clock(hang.t_s)}: {hang.text}"
    parts: list[RenderableType] = [Text(words.plain(seen), style="bold")]
    if hang.judged:
        parts.append(_inset(hang.judged))
    if hang.where:
        parts.append(_inset(f"waits in {hang.where}"))
    if verbose and hang.stack:
        parts.append(_inset(hang.thread))
        parts += [
            Padding(Text(words.frame(line), style="dim", overflow="fold"), (0, 0, 0, 4))
            for line in hang.stack
        ]
    if hang.stacks:
        parts.append(_inset(f"every stack: {hang.stacks}", "dim"))
    return Group(*parts)


def _inset(text: str, style: str = "") -> RenderableType:
    return Padding(Text(words.plain(text), style=style, overflow="fold"), (0, 0, 0, 2))


def unknown_help() -> tuple[str, Text | str]:
    """The page that has every reason."""
    return "unknown", for_terminal(
        "docs/howto/when-it-says-unknown.md: what to do about each reason"
    )


def _closing(result: Result, report: Path | None) -> RenderableType:
    lines: list[tuple[str, Text | str]] = []
    if report is not None:
        lines.append(("report", str(report)))
    traced = next(
        (w.message for f in result.violations() for w in f.witnesses if is_message(w)), None
    )
    if traced is not None:
        where = [str(report.parent)] if report is not None else []
        lines.append(("trace", for_terminal(shlex.join(["brokerstorm", "trace", traced, *where]))))
    if result.verdict is Verdict.UNKNOWN:
        lines.append(unknown_help())
    lines.append(("repeat", for_terminal(words.plain(result.command))))
    lines.append(("exit", str(result.exit_code)))
    return closing_lines(lines)
