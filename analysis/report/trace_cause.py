"""Says of one message which leader change lost or repeated it, as judging says it of its class."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from analysis.capture.context import Context
from analysis.kernels.cause import LOST, REPEATED
from analysis.kernels.changes import (
    Because,
    Changes,
    Ints,
    LoggedRows,
    LostAcks,
    lost,
    reached,
    repeated,
)
from analysis.kernels.partial import RawCause
from analysis.report.trace_tables import SealedRow
from analysis.verdict.causes import CauseWords
from harness.records import Outcome

#: Stream -> its rows in the log.
Written = Callable[[int], LoggedRows]


def cause_of(
    context: Context,
    sends: Sequence[SealedRow],
    log: Sequence[SealedRow],
    written: Written,
    *,
    was_taken: bool,
) -> str:
    """Return the cause for a message that was acknowledged and is lost, or that is in the log
    twice; empty for any other message, and where leaders were not recorded.

    Args:
        sends: its sends.
        log: its rows in the log, in log order.
        was_taken: a consumer was given it.
    """
    acked = next((row for row in sends if row.outcome == Outcome.OK), None)
    if acked is not None and not log:
        return _of_lost(context, acked, written, was_taken=was_taken)
    same = [row for row in log if row.attempt == log[0].attempt]
    if len(same) > 1 and same[0].stream == same[1].stream:
        return _of_copies(context, same[0], same[1])
    return ""


def _of_lost(context: Context, send: SealedRow, written: Written, *, was_taken: bool) -> str:
    stream = send.stream or int(context.lane_stream[send.lane])
    place = (send.position if send.stream else -1, send.ledger)
    in_queue = stream < len(context.is_queue) and bool(context.is_queue[stream])
    terms, bounds = context.terms.get(stream, ()), context.stream_bounds(stream)
    is_read = bounds.is_complete or (context.has_offsets and 0 <= place[0] < bounds.read_to)
    if not terms or not is_read or (in_queue and was_taken):
        return ""
    acks = LostAcks(*(_one(value) for value in (send.t_start_ns, send.t_done_ns, *place)))
    due_ns, repeats = _one(0), None
    if context.has_offsets:
        rows = written(stream)
        due_ns = reached(terms, rows)
        if context.instance(send.instance).promise.dedup is not False:
            repeats = rows.has_own_at(acks, _one(send.instance))
    found = lost(
        terms,
        acks,
        due_ns,
        has_offsets=context.has_offsets,
        has_positions=not in_queue,
        repeats=repeats,
    )
    return _said(context, LOST, stream, found, place, (-1, -1), send.t_done_ns)


def _of_copies(context: Context, first: SealedRow, second: SealedRow) -> str:
    stream = first.stream
    if stream >= len(context.is_queue) or context.is_queue[stream]:
        return ""
    low, again = ((row.position, row.ledger) for row in (first, second))
    places = [(_one(place[0]), _one(place[1])) for place in (low, again)]
    found = repeated(context.terms.get(stream, ()), *places, has_offsets=context.has_offsets)
    return _said(context, REPEATED, stream, found, low, again, 0)


def _said(
    context: Context,
    cls: str,
    stream: int,
    found: Changes,
    low: tuple[int, int],
    again: tuple[int, int],
    t_ns: int,
) -> str:
    raw = RawCause(
        because=Because(int(found.because[0])),
        stream=stream,
        term=int(found.term[0]),
        next=int(found.next[0]),
        other=int(found.other[0]),
        late=bool(found.late[0]),
        count=1,
        first_ns=t_ns,
        last_ns=t_ns,
        low=low,
        high=low,
        again=again,
    )
    return CauseWords(
        cls, context, [fault for fault in context.faults if fault.effective]
    ).sentence(raw)


def _one(value: int) -> Ints:
    return np.array([value], np.int64)
