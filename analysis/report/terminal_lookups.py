"""Prints `trace`, `explain` and `compare`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from analysis.findings import FaultRow
from analysis.report import words
from analysis.report.compare import Comparison, change_text, value_text
from analysis.report.explain import Explanation
from analysis.report.terminal import emit, rows
from analysis.report.terminal_logs import fold, hang_parts, log_parts
from analysis.report.trace_model import Delivered, Neighbour, SendAttempt, Trace
from harness.contracts.message import MessageId

#: Keys of result.json that read badly in a table.
LABELS = {
    "target_per_s": "target",
    "achieved_per_s": "achieved",
    "offered_per_s": "offered",
    "achieved_outside_outages_per_s": "outside outages",
    "ratio_outside_outages": "share of target",
    "p999": "p99.9",
    "send_delay_p99": "send delay p99",
}

_STAMP = re.compile(r"^(\d{8}-\d{6})-")
_Moment = tuple[float, str, str]


def print_trace(out: Console, trace: Trace, *, folded: bool = True, more_with: str = "") -> None:
    """One message: who it is, what happened in order of time, where it is stored, what the logs
    say.

    Args:
        folded: lines of logs are cut, and stacks are shortened.
        more_with: the command that shows the lines of logs that are left out.
    """
    title = Text(trace.message or trace.asked, style="bold")
    where = " · ".join(
        filter(None, (f"lane {trace.lane}" if trace.lane else "", trace.producer, trace.run_id))
    )
    title.append(f"   {words.plain(where)}", style="dim")
    parts: list[RenderableType] = [title]
    if trace.classes:
        parts.append(Text(f"  an example of {', '.join(trace.classes)}", style="yellow"))
    parts += ["", _story(trace), ""]
    parts += _log_lines(trace, out.width)
    if trace.cause:
        parts.append(Text(f"cause: {words.plain(trace.cause)}"))
    parts += hang_parts(trace.hangs, folded=folded)
    parts += log_parts(trace.logs, folded=folded, more_with=more_with)
    emit(out, *parts)


def _story(trace: Trace) -> RenderableType:
    moments: list[_Moment] = []
    for send in trace.sends:
        moments += _send_moments(send)
    for delivery in trace.deliveries:
        moments += _delivery_moments(delivery)
    for fault in trace.faults:
        moments += _fault_moments(fault)
    moments += [
        (e.t_s, e.kind, f"{e.worker}: {e.text}" if e.text else e.worker) for e in trace.events
    ]
    moments += [
        (n.t_s, "leader", f"{n.source}: {fold(n)}") for n in trace.logs.lines if n.why == "leader"
    ]
    grid = Table.grid(padding=(0, 2))
    for t_s, what, text in sorted(moments, key=lambda moment: moment[0]):
        style = "red" if what == "fault" else ""
        grid.add_row(
            Text(words.clock(t_s), style="dim"), Text(what, style=style), Text(words.plain(text))
        )
    for send in trace.sends:
        if send.t_done_s is None:
            grid.add_row("", "info", Text(f"attempt {send.attempt} never got an outcome"))
    for group in trace.not_given:
        told = f"no delivery to {group.group} ({', '.join(group.members)}) is recorded"
        if group.incomplete:
            told += f"; the journal of {', '.join(group.incomplete)} is incomplete"
        grid.add_row("", "not given", Text(told))
    if not moments:
        grid.add_row("", "", "no send, delivery or fault is recorded for it")
    return grid


def _send_moments(send: SendAttempt) -> list[_Moment]:
    told = [f"attempt {send.attempt}"] if send.attempt else []
    if send.t_intended_s is None:
        told.append("its due time is not known")
    else:
        told.append(f"{words.millis((send.t_start_s - send.t_intended_s) * 1000)} after it was due")
    told += [] if send.kind == "load" else [send.kind]
    moments: list[_Moment] = [(send.t_start_s, "send", ", ".join(told))]
    if send.t_done_s is not None:
        parts = [f"after {words.millis((send.t_done_s - send.t_start_s) * 1000)}"]
        parts += [f"at {send.acked_at}"] if send.acked_at else []
        parts += [send.error] if send.error else []
        parts += [f"and later {send.late_outcome}"] if send.late_outcome else []
        moments.append((send.t_done_s, send.outcome, ", ".join(parts)))
    return moments


def _delivery_moments(delivery: Delivered) -> list[_Moment]:
    who = f"{delivery.consumer or 'session ' + str(delivery.session)} of {delivery.subscription}"
    text = f"{delivery.place} to {who}, assignment {delivery.epoch}".lstrip()
    if delivery.redelivery > 0:
        text += f", redelivery {delivery.redelivery}"
    if delivery.check != "ok":
        text += f", payload {delivery.check}"
    moments: list[_Moment] = [(delivery.t_s, "deliver", text)]
    if delivery.t_committed_s is not None:
        past = f", past {delivery.place}" if delivery.place else ""
        moments.append((delivery.t_committed_s, "commit", f"by {who}{past}"))
    return moments


def _fault_moments(fault: FaultRow) -> list[_Moment]:
    name = f"#{fault.id} {fault.kind} {fault.target}"
    moments: list[_Moment] = [
        (fault.t_s, "fault", name if fault.effective else f"{name} (had no effect)")
    ]
    if fault.until_s is not None:
        moments.append((fault.until_s, "fault", f"{name} undone"))
    return moments


def _log_lines(trace: Trace, width: int) -> list[RenderableType]:
    if not trace.log:
        lines: list[RenderableType] = [Text(trace.log_text)]
        for acked in trace.acked_places:
            head = Text(acked.place, style="bold").append(
                ", where it was acknowledged, ", style="not bold"
            )
            lines.append(head.append(f"holds {acked.holder or 'no message'}", style="not bold"))
            lines.append(Text(f"  {_neighbours(acked.around, width - 2)}"))
        return lines
    lines = []
    for stored in trace.log:
        head = Text(f"stored at {stored.place}", style="bold")
        notes = [f"attempt {stored.attempt}" if stored.attempt else "", stored.txn]
        notes += ["" if stored.check == "ok" else f"payload {stored.check}"]
        if stored.t_broker_s is not None:
            notes.append(f"broker time {words.clock(stored.t_broker_s)}")
        notes += [f"made of {stored.made_of}" if stored.made_of else ""]
        head.append(f"   {' · '.join(filter(None, notes))}", style="dim")
        lines += [head, Text(f"  {_neighbours(stored.around, width - 2)}")]
        for made in stored.made_into:
            ended = f" · {made.txn}" if made.txn else ""
            lines.append(
                Text(f"  {made.group} made {made.message} of it, stored at {made.place}{ended}")
            )
    return lines


def _neighbours(around: Sequence[Neighbour], width: int) -> str:
    """The log around a place; only the sequences when all rows are of one lane."""
    if not around:
        return "the log holds nothing near it"
    messages = [MessageId.parse(n.message) for n in around]
    short = len({message[:2] for message in messages if message}) == 1
    names = [m.in_lane if m and short else n.message for n, m in zip(around, messages, strict=True)]
    shown = [f"[{name}]" if n.mark == "!" else name for name, n in zip(names, around, strict=True)]
    while len(shown) > 1 and len(" ".join(shown)) + 8 > width:
        middle = next((i for i, n in enumerate(shown) if n.startswith("[")), 0)
        shown = shown[1:] if middle > len(shown) // 2 else shown[:-1]
    return f"... {' '.join(shown)} ..."


def print_explanation(out: Console, entry: Explanation) -> None:
    """A class in full."""
    parts: list[RenderableType] = [
        Text(entry.name, style="bold"),
        Padding(Text(entry.sentence), (0, 0, 1, 2)),
    ]
    lines: list[tuple[str, Text | str]] = [
        ("example", Text(entry.example, style="bold")),
        ("meaning", entry.explanation),
    ]
    lines += _several("breaks", entry.breaks)
    lines += _several(
        "needs", entry.evidence or ("no further evidence: the captured data itself shows it",)
    )
    lines += _several("splits", tuple(f"{name}: {text}" for name, text in entry.splits.items()))
    lines.append(("counted", entry.unit))
    emit(out, *parts, rows(lines))


def _several(label: str, texts: Sequence[str]) -> list[tuple[str, Text | str]]:
    return [(label if not i else "", text) for i, text in enumerate(texts)]


def print_class_list(out: Console, entries: Sequence[Explanation]) -> None:
    """Every class with its sentence."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    for entry in entries:
        table.add_row(Text(entry.name, style="bold"), Text(entry.sentence))
    emit(out, table)


def print_comparison(out: Console, comparison: Comparison) -> None:
    """Both runs and what changed, a section after the other."""
    parts: list[RenderableType] = [
        Text(f"! {caution}", style="yellow") for caution in comparison.cautions
    ]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("")
    table.add_column("")
    for name in (comparison.a, comparison.b):
        # The time of an id and its name in a line each: both ids fit next to the figures.
        shown = _STAMP.sub(lambda stamp: f"{stamp[1]}\n", words.plain(name))
        table.add_column(Text(shown), justify="right", overflow="fold")
    table.add_column("change", justify="right")
    section = ""
    for row in comparison.rows:
        style = "bold" if row.differs else "dim"
        label = row.section if row.section != section else ""
        section = row.section
        cells = (value_text(row.a, row.unit), value_text(row.b, row.unit), change_text(row))
        table.add_row(
            Text(label, style="dim"),
            Text(LABELS.get(row.name, row.name)),
            *(Text(cell, style=style) for cell in cells),
        )
    emit(out, *parts, *([""] if parts else []), table)
