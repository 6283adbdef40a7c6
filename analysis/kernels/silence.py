"""Finds queues that deliver nothing more although messages remain: hang after a rollback, and
backlog-stuck.

What remained after the drain waited until the end, so only the last silence of a queue needs to be
looked at.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.capture.context import SessionFacts
from analysis.kernels.history import BucketHistory
from analysis.kernels.hits import BITS, Hits, Note, hits
from analysis.kernels.labels import count_of
from analysis.kernels.stall import union, without
from harness.records import Event

_BACK = (Event.ROLLBACK_BEGIN, Event.ROLLBACK_END, Event.RECOVER)
_TOLD = (Event.DELIVER, *_BACK)


@dataclass(frozen=True, slots=True)
class Silence:
    """A session was given nothing from ``start_ns`` to ``end_ns``; the last thing it did was to
    give back."""

    stream: int
    session: int
    start_ns: int
    end_ns: int
    waiting: int
    after_back: bool


def judge(history: BucketHistory) -> list[Hits]:
    """hang (no delivery after a rollback) of sessions, and backlog-stuck of queues."""
    context = history.context
    if not context.has_queues or context.stall_ns <= 0:
        return []
    found = [
        s
        for stream, waiting in _remaining(history).items()
        for s in _of_queue(history, stream, waiting)
    ]
    unmet = 0 if context.readiness_restored else BITS["readiness-restored"]
    hanging = [s for s in found if s.after_back]
    stuck = [s for s in found if not s.after_back]
    out = []
    for cls, split, own in (
        ("hang", "no delivery after a rollback", hanging),
        ("backlog-stuck", "", stuck),
    ):
        if own:
            out.append(_hits(history, cls, split, own, unmet if cls == "backlog-stuck" else 0))
    return out


def _remaining(history: BucketHistory) -> dict[int, int]:
    """Messages left in each queue."""
    stream = history.bucket.log["stream"][history.log_slot >= 0]
    numbers, counts = np.unique(stream, return_counts=True)
    queues = history.context.is_queue
    return {
        n: c
        for n, c in zip(numbers.tolist(), counts.tolist(), strict=True)
        if n < len(queues) and queues[n]
    }


def _of_queue(history: BucketHistory, stream: int, waiting: int) -> list[Silence]:
    """Sessions that hang; if none does, the queue as a whole if it was silent."""
    context = history.context
    topic = context.stream_name(stream).rpartition("-")[0]
    if context.stays_full(topic):
        return []
    silences = [
        _silence(history, session, stream, waiting)
        for session in context.sessions.values()
        if topic in session.topics
    ]
    hanging = [s for s in silences if s.after_back and _is_long(history, s)]
    if hanging or not silences:
        return hanging
    latest = max(silences, key=lambda s: s.start_ns)
    return [latest] if _is_long(history, latest) else []


def _silence(history: BucketHistory, session: SessionFacts, stream: int, waiting: int) -> Silence:
    """From the last thing that the session was given or gave back, to its end."""
    table, context = history.bucket.deliveries, history.context
    low, high = (
        int(np.searchsorted(table["session"], session.number, side=s)) for s in ("left", "right")
    )
    event = table["event"][low:high]
    own = (table["stream"][low:high] == stream) | (event != Event.DELIVER)
    rows = np.flatnonzero(np.isin(event, _TOLD) & own) + low
    start_ns = (
        int(table["t_ns"][rows[-1]]) if len(rows) else session.start_ns or context.load_start_ns
    )
    after_back = bool(len(rows)) and int(table["event"][rows[-1]]) in _BACK
    end_ns = max(session.end_ns or context.end_ns, start_ns)
    return Silence(stream, session.number, start_ns, end_ns, waiting, after_back)


def _is_long(history: BucketHistory, silence: Silence) -> bool:
    """Longer than the limit, without the time in which a fault was applied or the process did not
    run."""
    context = history.context
    excused = [(f.start_ns, f.over_ns) for f in context.faults if f.effective]
    excused += context.sessions[silence.session].frozen
    idle = union(without([(silence.start_ns, silence.end_ns)], excused))
    return sum(b - a for a, b in idle) > context.stall_ns


def _hits(
    history: BucketHistory, cls: str, split: str, silences: list[Silence], unmet: int
) -> Hits:
    context = history.context

    def note(i: int) -> Note:
        s = silences[i]
        until_s, length_s = context.seconds(s.end_ns), (s.end_ns - s.start_ns) / 1e9
        remain = f"{count_of(s.waiting, 'message')} remaining"
        return Note(
            detail=f"session {s.session}: nothing for {length_s:.1f} s until {until_s:.1f} s, {remain}"
        )

    return hits(
        cls,
        slot=np.full(len(silences), -1),
        t_ns=np.array([s.start_ns for s in silences]),
        split=split,
        unmet=unmet,
        stream=np.array([s.stream for s in silences]),
        session=np.array([s.session for s in silences]),
        note=note,
    )
