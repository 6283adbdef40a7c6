"""Finds refused messages of a log that their group was never given again: refused-not-redelivered.

A message is refused when the session that was given it last gave it back afterwards, and no member
of the group ever acknowledged it. It has to be given again; that it was not is shown in one of two
ways:

    the group was drained       brokers count the message as settled, and no consumer settled it
    the group was not drained   it was due, after the redelivery delay, for longer than limits.stall

A dead letter policy or a limit of deliveries takes a message that was given as often as it allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.capture.bucket import Array
from analysis.capture.context import SETTLE_NS
from analysis.kernels import dropping
from analysis.kernels.acks import NEVER, GroupAcks
from analysis.kernels.hits import BITS, Hits, Note, hits, split_index
from analysis.kernels.labels import place_of
from analysis.kernels.lookup import distinct
from analysis.kernels.matching import Given
from analysis.kernels.stall import group_end_ns, holdings_of, idle_spans
from harness.records import Event

_CLASS = "refused-not-redelivered"
#: Clients look for refused messages that are due at most this often, in times of the delay.
_DELAYS = 2


@dataclass(frozen=True, slots=True)
class _Refused:
    """Refused messages: log rows, and of each its last delivery, its refusal and how often it was
    sent.

    Attributes:
        given: times that the group was given it, as journalled.
        counted: times that the broker had sent it, by the client's redelivery count; 0 = not shown.
    """

    row: Array
    delivery: Array
    refused_ns: Array
    given: Array
    counted: Array


def judge(groups: Sequence[Given]) -> list[Hits]:
    """refused-not-redelivered, one hit a message and group. Queues have a judge of their own."""
    found = []
    for given in groups:
        reading = given.history.context.reading(given.group)
        if reading.is_individual and reading.subscription != "queue":
            found += _of_group(given)
    return found


def _of_group(given: Given) -> list[Hits]:
    refused = _refused(given)
    if not len(refused.row):
        return []
    context = given.history.context
    reading = context.reading(given.group)
    limit = reading.max_deliveries or 0
    used_up = (limit > 0) & (np.maximum(refused.given, refused.counted) >= limit)
    if context.drained:
        missing = ~used_up
    else:
        missing = (
            ~used_up
            & (_waited_ns(given, refused) > max(context.stall_ns, 1))
            & (context.stall_ns > 0)
        )
    split = "gone from the backlog" if context.drained else "not given again"
    permitted, is_open = dropping.dropped(given, refused.row, were_refused=True)
    unmet = _unmet(given, refused)
    unmet[is_open] |= BITS["settings-known"]
    nothing = np.zeros(len(refused.row), np.uint32)
    return [
        *_hits(given, refused, np.flatnonzero(missing & ~permitted), split, unmet),
        *_hits(given, refused, np.flatnonzero(missing & permitted), "dropped", nothing),
        *_hits(
            given,
            refused,
            np.flatnonzero(used_up),
            "delivery limit",
            np.zeros(len(used_up), np.uint32),
        ),
    ]


def _refused(given: Given) -> _Refused:
    """Messages whose last delivery in the group was refused, and that were never acknowledged in
    it."""
    history = given.history
    table = history.bucket.deliveries
    nacks = _refusals(given)
    streams = _judged_streams(given, distinct(table["stream"][nacks]))
    delivery = given.of_streams(streams).astype(np.int64)
    if not len(delivery):
        none = np.empty(0, np.int64)
        return _Refused(none, none, none, none, none)
    acks = GroupAcks.from_given(given, streams)
    rows = acks.nacked.rows
    rows = rows[_is_message(given, rows)]
    rows = rows[(acks.called.first(rows) == NEVER) & (acks.confirmed.first(rows) == NEVER)]
    row = given.matching.row[delivery].astype(np.int64)
    own = np.isin(row, rows)
    delivery, row = delivery[own], row[own]
    order = np.lexsort((delivery, table["t_ns"][delivery], row))
    delivery, row = delivery[order], row[order]
    is_last = np.append(row[1:] != row[:-1], True)[: len(row)]
    begins = np.flatnonzero(np.append(True, is_last[:-1]))[: np.count_nonzero(is_last)]
    last = delivery[is_last]
    refused_ns = _refused_after(given, nacks, row[is_last], last)
    counted = table["redelivery"][delivery].astype(np.int64) + 1
    found = _Refused(
        row=row[is_last],
        delivery=last,
        refused_ns=refused_ns,
        given=np.diff(np.append(begins, len(row))),
        counted=np.maximum.reduceat(counted, begins) if len(begins) else counted,
    )
    kept = np.flatnonzero((refused_ns < NEVER) & ~_in_doubt(given, row, delivery, is_last))
    return _Refused(*(getattr(found, name)[kept] for name in _Refused.__slots__))


def _refusals(given: Given) -> Array:
    """Delivery rows of the group's refusals, ascending."""
    table, rows = given.history.bucket.deliveries, given.rows
    at = np.flatnonzero(table["event"][rows] == Event.NACK)
    return at if isinstance(rows, slice) else rows[at]


def _judged_streams(given: Given, streams: Array) -> Array:
    """Streams of the log, without those in which the group chose its own place or that were
    recreated."""
    context = given.history.context
    sought = {
        c.stream
        for c in given.matching.changes
        if c.event == Event.SEEK and _is_of(given, c.session)
    }
    kept = [
        s
        for s in streams.tolist()
        if 0 < s <= len(context.streams)
        and s not in sought
        and 0 not in sought
        and not context.remade[context.stream_topic[s]]
    ]
    return np.array(kept, streams.dtype)


def _is_of(given: Given, session: int) -> bool:
    return given.matching.group_of_session.get(session) == given.group


def _is_message(given: Given, rows: Array) -> Array:
    """Log rows of messages that a producer sent and that no fault removed."""
    history = given.history
    log, cut = history.bucket.log, history.context.cut
    slot = history.log_slot[rows]
    is_sent = slot >= 0
    is_sent[is_sent] = history.sent[slot[is_sent]] >= 0
    return np.asarray(is_sent & (log["position"][rows] >= cut[log["stream"][rows]]))


def _refused_after(given: Given, nacks: Array, rows: Array, last: Array) -> Array:
    """When the session of the last delivery of each row refused it afterwards; `NEVER` = it did
    not."""
    table = given.history.bucket.deliveries
    names = ("stream", "position", "ledger", "batch")
    place = given.history.places.rows(*(table[n][nacks] for n in names))
    at = np.searchsorted(rows, place)
    known = (place >= 0) & (at < len(rows))
    nacks, place, at = nacks[known], place[known], at[known]
    same = rows[at] == place if len(rows) else np.zeros(0, np.bool_)
    nacks, at = nacks[same], at[same]
    later = (table["session"][nacks] == table["session"][last[at]]) & (nacks > last[at])
    out = np.full(len(rows), NEVER)
    np.minimum.at(out, at[later], table["t_ns"][nacks[later]])
    return out


def _in_doubt(given: Given, row: Array, delivery: Array, is_last: Array) -> Array:
    """For each message: another session, whose clock may be off, may have been given it after the
    last delivery. ``row``, ``delivery``: by row and time."""
    bound_ns = given.history.context.clock_bound_ns
    table = given.history.bucket.deliveries
    number = np.cumsum(np.append(False, is_last[:-1]))[: len(row)]
    last = delivery[is_last][number]
    near = table["t_ns"][delivery] >= table["t_ns"][last] - bound_ns
    elsewhere = (table["session"][delivery] != table["session"][last]) & near & (bound_ns > 0)
    out = np.zeros(int(np.count_nonzero(is_last)), np.bool_)
    out[number[elsewhere]] = True
    return out


def _waited_ns(given: Given, refused: _Refused) -> Array:
    """How long each message was due, while a member ran and no fault was applied."""
    history = given.history
    delay_ns = _DELAYS * (history.context.reading(given.group).nack_delay_ns or 0)
    end_ns = group_end_ns(given)
    stream = history.bucket.log["stream"][refused.row]
    due_ns = refused.refused_ns + delay_ns
    waited = np.zeros(len(due_ns), np.int64)
    for number in distinct(stream).tolist():
        own = np.flatnonzero(stream == number)
        for start, end in idle_spans(given, holdings_of(given, number)):
            waited[own] += np.maximum(min(end, end_ns) - np.maximum(due_ns[own], start), 0)
    return waited


def _unmet(given: Given, refused: _Refused) -> Array:
    """Bits of the preconditions that do not hold for each refused message."""
    context = given.history.context
    reading = context.reading(given.group)
    is_whole = all(s.complete for s in context.group_sessions().get(given.group, []))
    is_stated = reading.max_deliveries is not None
    if not context.drained:
        is_stated = is_stated and reading.nack_delay_ns is not None
    base = 0 if is_whole else BITS["delivery-capture"]
    base |= 0 if context.readiness_restored else BITS["readiness-restored"]
    base |= 0 if is_stated else BITS["settings-known"]
    unmet = np.full(len(refused.row), base, np.uint32)
    if reading.max_deliveries:
        unmet[(refused.counted == 0) | _disturbed(given, refused)] |= BITS["attempts-known"]
    return unmet


def _disturbed(given: Given, refused: _Refused) -> Array:
    """Whether a fault was applied at or after the last delivery: the broker may then have sent the
    message to clients that never handed it over, and counted that."""
    last_ns = given.history.bucket.deliveries["t_ns"][refused.delivery]
    over = [f.over_ns + SETTLE_NS for f in given.history.context.faults if f.effective]
    return np.asarray(last_ns <= max(over, default=-1))


def _hits(given: Given, refused: _Refused, at: Array, split: str, unmet: Array) -> list[Hits]:
    if not len(at):
        return []
    history, table = given.history, given.history.bucket.deliveries
    row, delivery = refused.row[at], refused.delivery[at]

    def note(i: int) -> Note:
        refused_s = history.context.seconds(int(refused.refused_ns[at[i]]))
        where = f"position {place_of(history, int(row[i]))}"
        times = int(max(refused.given[at[i]], refused.counted[at[i]]))
        said = f"group {given.group}: {where}, refused at {refused_s:.3f} s, given {times} times"
        dropping = history.context.reading(given.group).may_drop
        return Note(detail=f"{said}; {dropping} lets the broker drop it" if dropping else said)

    return [
        hits(
            _CLASS,
            slot=history.log_slot[row],
            t_ns=refused.refused_ns[at],
            split=np.full(len(at), split_index(_CLASS, split)),
            unmet=unmet[at],
            stream=table["stream"][delivery].astype(np.int64),
            row=row,
            delivery=delivery,
            session=table["session"][delivery].astype(np.int64),
            note=note,
        )
    ]
