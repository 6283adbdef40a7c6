"""Says of each stall that was noticed during the run what judging made of it: a finding, or why it
is none.

The run notices a consumer that is handed nothing while messages wait; it knows neither the
partitions nor what comes later. Judging (`analysis.kernels.stall`, `analysis.kernels.silence`)
does, and may say otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from analysis.capture.context import Context
from analysis.capture.hangs import hang_rows, noticed
from analysis.classes import CLASSES
from analysis.findings import HangRow, Status
from analysis.kernels.labels import count_of
from analysis.kernels.partial import Episode
from analysis.verdict.merge import judged_status
from harness.contracts.rows import EventRow

_CLASSES = ("stall", "backlog-stuck", "hang")
_MEANS = {
    Status.VIOLATION: "a violation",
    Status.SUSPECT: "only suspected",
    Status.PERMITTED: "permitted",
}


def judged_hangs(
    events: Sequence[EventRow],
    context: Context,
    episodes: Iterable[Episode],
    untested: Mapping[str, str],
) -> list[HangRow]:
    """The rows of `hang_rows`, stalls with ``judged``.

    Args:
        untested: class -> why nothing found proves nothing.
    """
    found = {e.session: e for e in episodes if e.cls in _CLASSES and e.session}
    rows = zip(noticed(events), hang_rows(events, context.epoch_ns), strict=True)
    return [
        replace(made, judged=_judged(row, context, found, untested))
        if made.kind == "stall"
        else made
        for row, made in rows
    ]


def _judged(
    row: EventRow, context: Context, found: Mapping[int, Episode], untested: Mapping[str, str]
) -> str:
    session = row.session
    if episode := found.get(session):
        status, _ = judged_status(episode, context)
        return f"judged as {episode.cls}, {_MEANS.get(status, status.value)}: {CLASSES[episode.cls].sentence}"
    topics = context.sessions[session].topics if session in context.sessions else ()
    queues = [
        stream
        for stream, name in enumerate(context.streams, start=1)
        if context.is_queue[stream] and name.rpartition("-")[0] in topics
    ]
    if why := untested.get("backlog-stuck" if queues else "stall"):
        return f"not judged: {why}"
    return (
        f"no violation: {_of_queues(context, queues) if queues else _of_partitions(context)}"
        + _subtracted(row, context, session)
    )


def _of_queues(context: Context, queues: Sequence[int]) -> str:
    rule = "a queue is judged by what remains after the drain and by the silence before it"
    if context.has_offsets:  # bounds are positions there, and do not say how many messages remained
        return f"{rule}, which was no longer than limits.stall ({context.stall_ns / 1e9:g} s) if any remained"
    if any(context.stays_full(context.stream_name(each).rpartition("-")[0]) for each in queues):
        return f"{rule}, and not at all if a consumer settles nothing"
    left = sum(context.stream_bounds(stream).read_to for stream in queues)
    remained = f"{count_of(left, 'message')} remained" if left else "nothing remained"
    more = (
        f", and that silence was no longer than limits.stall ({context.stall_ns / 1e9:g} s)"
        if left
        else ""
    )
    return f"{rule}; {remained}{more}"


def _of_partitions(context: Context) -> str:
    return (
        "no partition that it held was silent for longer than limits.stall "
        f"({context.stall_ns / 1e9:g} s) with acknowledged messages waiting in it"
    )


def _subtracted(row: EventRow, context: Context, session: int) -> str:
    """Time until it was noticed that does not count; empty if all of it does."""
    start, end = row.since_ns or 0, row.t_ns
    spans = [
        (f.start_ns, f.over_ns, f"fault #{f.id} ({f.kind} {f.hit})")
        for f in context.faults
        if f.effective
    ]
    frozen = context.sessions[session].frozen if session in context.sessions else ()
    spans += [(begin, until, "its process frozen") for begin, until in frozen]
    told = [
        f"{(min(until, end) - max(begin, start)) / 1e9:.1f} s with {what}"
        for begin, until, what in spans
        if min(until, end) > max(begin, start)
    ]
    if not told:
        return ""
    return f". Of the {(end - start) / 1e9:.1f} s until it was noticed, {' and '.join(told)} do not count"
