"""Compares outcomes with the log: acknowledged and absent, refused and present, unknown and
either."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from analysis.capture.bucket import Array, is_constant, piecewise, piecewise_each
from analysis.kernels.evidence import Bits, LogEvidence
from analysis.kernels.history import BucketHistory
from analysis.kernels.hits import BITS, Hits, Note, hits, split_index
from analysis.kernels.labels import name_of, place_of
from analysis.kernels.removal import Removal, removed_sends
from harness.records import Outcome

#: Ledger that a broker's deduplication gives a send it drops.
DROPPED = -1


def judge(history: BucketHistory) -> list[Hits]:
    """acked-lost, dedup-silent-loss, false-nack, wrong-ack-position, info-stored,
    info-not-stored."""
    return [*_lost(history), *_false_nack(history), *_misplaced(history), *_unknown(history)]


def _lost(history: BucketHistory) -> list[Hits]:
    """Return acked-lost, and the part of it that the broker acknowledged as repeats
    (dedup-silent-loss)."""
    claimed, _ = history.corrupt_claims
    slots = history.acked_absent
    slots = slots[~np.isin(slots, claimed)] if len(claimed) else slots
    slots = slots[~history.sent_otherwise(slots)]
    if not len(slots):
        return []
    evidence = LogEvidence(history)

    def answer(own: Array) -> tuple[Array, ...]:
        where = place(history, own)
        unmet = evidence.absent(own, *where)
        return evidence.is_read(unmet, *where), *where, unmet

    read, *told = piecewise_each(answer, slots)
    if not read.all():
        slots, told = slots[read], [each[read] for each in told]
    stream, position, unmet = told
    removal = removed_sends(history, slots, stream, position)
    dropped = is_dropped(history, slots) & (removal == Removal.NOT)
    found = []
    for cls, kept in (("acked-lost", ~dropped), ("dedup-silent-loss", dropped)):
        chosen = (slots, stream, unmet, removal)
        own, stream_of, unmet_of, removal_of = (
            each if kept.all() else each[kept] for each in chosen
        )
        if len(own):
            found.append(
                hits(
                    cls,
                    slot=own,
                    t_ns=history.times(own),
                    split=_shape(history, own, removal_of) if cls == "acked-lost" else "",
                    unmet=unmet_of | LogEvidence(history).producer_ended(own),
                    stream=stream_of,
                    note=_what_lies_there(history, own)
                    if cls == "acked-lost"
                    else _namesake(history, own),
                )
            )
    return found


def is_read(history: BucketHistory, slots: Array) -> Array:
    """Return which absent messages have a place that was read. About the others nothing is
    known."""
    evidence = LogEvidence(history)

    def answer(own: Array) -> Array:
        where = place(history, own)
        return evidence.is_read(evidence.absent(own, *where), *where)

    return piecewise(answer, slots)


def unread(history: BucketHistory) -> dict[str, int]:
    """Messages that may or may not be stored, by outcome: their place was not read, or
    (``undecided``) the log has them in a transaction that may become visible yet."""
    unread = {
        "acked_unread": history.acked_absent,
        "info_unread": _unknown_and_absent(history),
    }
    counts = {name: int(np.count_nonzero(~is_read(history, own))) for name, own in unread.items()}
    undecided = history.outcome[history.undecided]
    _, unended = history.unsettled
    acked = np.unique(unended[unended >= 0])
    acked = acked[(history.outcome[acked] == Outcome.OK) & ~history.present[acked]]
    return counts | {
        "info_undecided": int(np.count_nonzero(undecided == Outcome.INFO)),
        "acked_undecided": len(acked),
    }


def _unknown_and_absent(history: BucketHistory) -> Array:
    """Slots of unknown outcome that the log does not hold, or holds as aborted."""
    absent = (history.outcome == Outcome.INFO) & ~history.present
    absent[history.undecided] = False
    return np.flatnonzero(absent)


def is_dropped(history: BucketHistory, slots: Array) -> Array:
    """Acknowledged at -1:-1: the broker took the message for a repeat and dropped it."""
    ledger = history.bucket.sends["ledger"]
    if not len(ledger) or (is_constant(ledger) and ledger[0] != DROPPED):
        return np.zeros(len(slots), np.bool_)
    return np.asarray(
        (history.of_send("ledger", slots) == DROPPED) & (history.outcome[slots] == Outcome.OK)
    )


def _namesake(history: BucketHistory, slots: Array) -> Callable[[int], Note]:
    """The message in the log that has the lost one's sequence id, or the first with a higher
    one."""

    def note(i: int) -> Note:
        own = slots[i : i + 1]
        name, number = (
            int(history.of_send(column, own)[0]) for column in ("client_name", "client_seq")
        )
        if not name:
            return Note()
        log, stream = history.bucket.log, int(expected_stream(history, own)[0])
        rows = np.flatnonzero((log["client_name"] == name) & (history.log_slot >= 0))
        rows = rows[log["stream"][rows] == stream] if stream else rows
        ids = log["client_seq"][rows]
        above = rows[ids >= number]
        if not len(above):
            return Note(detail=f"its sequence id {number} is above all in the log")
        row = int(above[0])
        holder = f"{name_of(history, int(history.log_slot[row]), row)} at {place_of(history, row)}"
        held = int(log["client_seq"][row])
        if held == number:
            return Note(detail=f"its sequence id {number} is that of {holder}")
        return Note(detail=f"its sequence id {number}; overtaken by {held}, {holder}")

    return note


def absence(history: BucketHistory, slots: Array) -> tuple[Array, Bits]:
    """Stream where each absent message should be, and whether absence there is proved."""
    evidence = LogEvidence(history)

    def answer(own: Array) -> tuple[Array, Array]:
        where = place(history, own)
        return where[0], evidence.absent(own, *where)

    stream, unmet = piecewise_each(answer, slots)
    return stream, unmet


def place(history: BucketHistory, slots: Array) -> tuple[Array, Array]:
    """Stream and position where messages should be; 0 and -1 where unknown."""
    stream, position = (
        history.of_send("stream", slots).astype(np.int64),
        history.of_send("position", slots),
    )
    named = stream > 0
    if named.all():
        return stream, position
    return np.where(named, stream, expected_stream(history, slots)), np.where(named, position, -1)


def stream_of_rows(history: BucketHistory, slots: Array, row: Array) -> Array:
    """Stream of log rows; of messages without one (taken from a queue), their lane's."""
    column = history.bucket.log["stream"]
    found = column[row].astype(np.int64) if len(column) else np.zeros(len(row), np.int64)
    return np.where(row >= 0, found, expected_stream(history, slots))


def expected_stream(history: BucketHistory, slots: Array) -> Array:
    """Stream that the lane fixes; 0 where the client chooses."""
    lane = history.groups.lane
    known = (lane >= 0) & (lane < history.context.n_lanes)
    out = np.zeros(len(lane), np.int64)
    out[known] = history.context.lane_stream[lane[known]]
    return history.by_group(out, slots)


def _shape(history: BucketHistory, slots: Array, removal: Array) -> Array:
    """Index of removed, compacted or power, or of prefix, middle, tail or all: where the hole is
    among what its lane has stored."""
    removed, compacted, power = (
        split_index("acked-lost", name) for name in ("removed", "compacted", "power")
    )
    shape = np.where(removal == Removal.POWER, power, removed)
    shape = np.where(removal == Removal.COMPACTED, compacted, shape).astype(np.int8)
    rest = np.flatnonzero(removal == Removal.NOT)
    if len(rest):
        shape[rest] = _shape_of(history, slots[rest])
    return shape


def _shape_of(history: BucketHistory, slots: Array) -> Array:
    stored = np.flatnonzero(history.present & (history.sent >= 0))
    groups = history.groups
    low = np.full(len(groups), np.iinfo(np.int64).max)
    high = np.full(len(groups), -1)
    identity = history.identity(slots)
    group = history.group(slots)
    own = np.unique(group)
    begin = np.searchsorted(stored, groups.start[own])
    end = np.searchsorted(stored, groups.start[own + 1])
    some = end > begin
    low[own[some]] = stored[begin[some]] - groups.start[own[some]]
    high[own[some]] = stored[end[some] - 1] - groups.start[own[some]]
    sparse = stored[stored >= history.n_dense] - history.n_dense
    np.minimum.at(low, history.sparse_group[sparse], history.sparse[sparse, 2])
    np.maximum.at(high, history.sparse_group[sparse], history.sparse[sparse, 2])
    seq, lowest, highest = identity[:, 2], low[group], high[group]
    shapes = ("all", "prefix", "tail", "middle")
    return np.select(
        [highest < 0, seq < lowest, seq > highest, seq >= lowest],
        [split_index("acked-lost", name) for name in shapes],
    )


def _what_lies_there(history: BucketHistory, slots: Array) -> Callable[[int], Note]:
    def note(i: int) -> Note:
        if history.context.has_queues:
            return Note(detail="not delivered, and it does not remain in the queue")
        row = int(history.acked_rows(slots[i : i + 1])[0])
        if row < 0:
            return Note()
        holder = name_of(history, int(history.log_slot[row]), row)
        return Note(detail=f"its position {place_of(history, row)} holds {holder}")

    return note


def _false_nack(history: BucketHistory) -> list[Hits]:
    slots = np.flatnonzero((history.outcome == Outcome.FAIL) & history.present)
    # The client may repeat an error that a fault made up.
    unmet = BITS["answers-kept"] if history.context.has_false_errors else 0
    return [_stored(history, "false-nack", slots, unmet)] if len(slots) else []


def _misplaced(history: BucketHistory) -> list[Hits]:
    claimed, _ = history.corrupt_claims
    slots = history.ack_elsewhere[~np.isin(history.ack_elsewhere, claimed)]
    if not len(slots):
        return []
    slots = slots[removed_sends(history, slots, *place(history, slots)) == Removal.NOT]
    if not len(slots):
        return []
    stream, position = (
        history.of_send("stream", slots).astype(np.int64),
        history.of_send("position", slots),
    )
    unmet = LogEvidence(history).absent(slots, stream, position)

    def note(i: int) -> Note:
        there = _what_lies_there(history, slots)(i).detail
        return Note(detail=there or f"nothing lies at position {int(position[i])}")

    return [_stored(history, "wrong-ack-position", slots, unmet & EVIDENCE_OF_PLACE, note)]


#: A copy that is there needs no readiness; only the place that the acknowledgement named must be
#: read.
EVIDENCE_OF_PLACE = np.uint16(BITS["audit-complete"])


def _unknown(history: BucketHistory) -> list[Hits]:
    found = []
    stored = np.flatnonzero((history.outcome == Outcome.INFO) & history.present)
    if len(stored):
        found.append(_stored(history, "info-stored", stored))
    absent = _unknown_and_absent(history)
    absent = absent[is_read(history, absent)]
    if len(absent):
        stream, unmet = absence(history, absent)
        unmet &= EVIDENCE_OF_PLACE
        times = history.times(absent)
        found.append(hits("info-not-stored", slot=absent, t_ns=times, unmet=unmet, stream=stream))
    return found


def _stored(
    history: BucketHistory,
    cls: str,
    slots: Array,
    unmet: Array | int = 0,
    note: Callable[[int], Note] | None = None,
) -> Hits:
    """Hits of messages that the log (or a queue) has, shown at their first copy."""
    row = history.first[slots].astype(np.int64)
    return hits(
        cls,
        slot=slots,
        t_ns=history.times(slots),
        unmet=unmet,
        stream=stream_of_rows(history, slots, row),
        row=row,
        note=note,
    )
