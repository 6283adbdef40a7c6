"""Finds messages whose transaction came out otherwise than asked for, and counts them for a second
pass.

A transaction spans streams, so it may lie in several buckets. One bucket has whole streams: it sees
a message that is visible though its transaction was aborted, one that a marker of another
transaction ended, and one that no marker ended. Whether all or nothing of it is visible is for the
second pass to say (`analysis.kernels.atomicity`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from analysis.capture.bucket import Array, chunks, is_constant
from analysis.kernels.atoms import Atoms
from analysis.kernels.evidence import LogEvidence
from analysis.kernels.history import BucketHistory
from analysis.kernels.hits import BITS, Hits, Note, hits, split_index
from analysis.kernels.presence import absence, place, stream_of_rows
from analysis.kernels.removal import Removal, power_cuts, removed_sends
from harness.records import Asked, Event, Outcome, Txn

_NONE = -1


class Membership:
    """Which transaction each message of a bucket was sent in, and what became of it in the log."""

    def __init__(self, history: BucketHistory) -> None:
        self._history = history
        self.table = history.context.transactions
        #: By slot, index into the table; -1 = none.
        self.of_slot = self._by_slot()

    def __bool__(self) -> bool:
        return len(self.of_slot) > 0

    def _by_slot(self) -> npt.NDArray[np.int32]:
        history = self._history
        if not len(self.table):
            return np.empty(0, np.int32)  # no column is read where no client used transactions
        number = history.bucket.sends["transaction"]
        if not len(number) or (is_constant(number) and not number[0]):
            return np.empty(0, np.int32)
        of_row = self.table.index(history.bucket.sends["instance"], number)
        history.bucket.sends.drop("instance", "transaction")
        out = np.full(history.n_slots, _NONE, np.int32)
        for part in chunks(history.n_slots):
            row = history.sent[part]
            out[part] = np.where(row >= 0, of_row[row], _NONE)
        # A send that the client refused at once never came to be in it.
        refused = (history.outcome == Outcome.FAIL) & (out >= 0)
        out[refused & (self.table.outcome[out] != Outcome.ABORTED)] = _NONE
        return out

    @cached_property
    def state(self) -> npt.NDArray[np.uint8]:
        """By slot, the state of the transaction of an invisible copy; NONE where there is no such
        copy."""
        out = np.zeros(self._history.n_slots, np.uint8)
        for rows, slots in (self._history.invisible, self._history.unsettled):
            own = slots >= 0
            out[slots[own]] = self._history.bucket.log["txn"][rows[own]]
        return out


def judge(history: BucketHistory, member: Membership) -> list[Hits]:
    """aborted-read in the log, hanging-transaction, mixed-transaction, intermediate-read, and
    acked-lost of messages whose transaction no journal knows."""
    unknown = [*_acked_and_withheld(history, member), *_aborted_by_outcome(history, member)]
    if not member:
        return unknown
    return [
        *unknown,
        *_aborted(history, member),
        *_hanging(history, member),
        *_mixed(history, member),
        *_early(history, member),
    ]


def never_visible(history: BucketHistory, member: Membership) -> Array:
    """Slots, ascending, whose end in the log was not read and that no reader of committed data may
    see: the journal, or the outcome where there is no journal, says that they were not
    committed."""
    _, slots = history.unsettled
    slots = np.unique(slots[slots >= 0])
    aborted = history.outcome[slots] == Outcome.ABORTED
    if member:
        of = member.of_slot[slots]
        aborted = np.where(of >= 0, ~member.table.may_be_committed[of], aborted)
    return np.asarray(slots[aborted], np.int64)


def _of_no_transaction(member: Membership, slots: Array) -> Array:
    """Return the slots that are in no transaction of the journal."""
    return slots[member.of_slot[slots] < 0] if member else slots


def _acked_and_withheld(history: BucketHistory, member: Membership) -> list[Hits]:
    """Acknowledged messages that the log holds as aborted or open, though no transaction of theirs
    is known: whether their application asked for that is not known either."""
    rows, hidden = history.invisible
    slots, at = np.unique(hidden, return_index=True)
    rows, slots = rows[at[slots >= 0]], slots[slots >= 0].astype(np.int64)
    own = (history.outcome[slots] == Outcome.OK) & ~history.present[slots]
    own &= ~np.isin(slots, history.unsettled[1])
    own[own] = np.isin(slots[own], _of_no_transaction(member, slots[own]))
    own[own] = ~history.sent_otherwise(slots[own])
    rows, slots = rows[own].astype(np.int64), slots[own]
    if not len(slots):
        return []
    return [
        hits(
            "acked-lost",
            slot=slots,
            t_ns=history.times(slots),
            split="withheld",
            stream=stream_of_rows(history, slots, rows),
            row=rows,
        )
    ]


def _aborted_by_outcome(history: BucketHistory, member: Membership) -> list[Hits]:
    """Visible messages whose outcome is aborted, and whose transaction no journal knows. Where the
    log says nothing of a transaction either, its end may not have been read."""
    slots = np.flatnonzero((history.outcome == Outcome.ABORTED) & history.present)
    slots = _of_no_transaction(member, slots)
    if not len(slots):
        return []
    row = history.first[slots].astype(np.int64)
    is_ended = history.bucket.log.take("txn", row) == Txn.COMMITTED
    return [
        hits(
            "aborted-read",
            slot=slots,
            t_ns=history.times(slots),
            split="in the log",
            unmet=np.where(is_ended, 0, BITS["markers-read"]),
            stream=stream_of_rows(history, slots, row),
            row=row,
        )
    ]


def _aborted(history: BucketHistory, member: Membership) -> list[Hits]:
    """Visible messages of transactions that were aborted, or whose commit was never requested."""
    never = ~member.table.may_be_committed
    slots = np.flatnonzero((member.of_slot >= 0) & history.present)
    slots = slots[never[member.of_slot[slots]]]
    if not len(slots):
        return []
    row = history.first[slots].astype(np.int64)
    return [
        hits(
            "aborted-read",
            slot=slots,
            t_ns=history.times(slots),
            split="in the log",
            stream=stream_of_rows(history, slots, row),
            row=row,
            note=lambda i: Note(detail=member.table.name(int(member.of_slot[slots[i]]))),
        )
    ]


def _hanging(history: BucketHistory, member: Membership) -> list[Hits]:
    """Messages whose transaction has no end in the log."""
    slots = np.flatnonzero((member.of_slot >= 0) & (member.state == Txn.OPEN) & ~history.present)
    if not len(slots):
        return []
    rows, hidden = history.invisible
    row = np.full(history.n_slots, -1, np.int64)
    row[hidden[hidden >= 0]] = rows[hidden >= 0]
    ended = np.isin(member.table.outcome[member.of_slot[slots]], (Outcome.OK, Outcome.ABORTED))
    names = [split_index("hanging-transaction", name) for name in ("ended", "never ended")]
    stream = stream_of_rows(history, slots, row[slots])
    return [
        hits(
            "hanging-transaction",
            slot=slots,
            t_ns=history.times(slots),
            split=np.where(ended, *names),
            unmet=unread_markers(history, stream),
            stream=stream,
            row=row[slots],
            note=lambda i: Note(detail=member.table.name(int(member.of_slot[slots[i]]))),
        )
    ]


def unread_markers(history: BucketHistory, stream: Array) -> Array:
    """The bit of markers-read for each of these streams whose markers were not read to the end."""
    context = history.context
    bounds = [context.stream_bounds(number) for number in range(len(context.streams) + 1)]
    is_marked = np.array([each.is_marked for each in bounds])
    return np.where(is_marked[stream], 0, BITS["markers-read"])


@dataclass(frozen=True, slots=True)
class _Stretches:
    """Runs of consecutive log rows that agree in stream, marker and transaction, each by its first
    row."""

    row: Array
    marker: Array  # one number a marker: stream and position
    transaction: Array
    stream: Array

    def disagreeing(self, by: Array, what: Array) -> Array:
        """Stretches whose ``what`` differs from the first stretch's with the same ``by``."""
        _, first, group = np.unique(by, return_index=True, return_inverse=True)
        return np.flatnonzero(what != what[first[group.ravel()]])


def _mixed(history: BucketHistory, member: Membership) -> list[Hits]:
    """Transactions of which a stream has several ends, and ends that several transactions share."""
    own = _stretches(history, member)
    streams = own.transaction * (len(history.context.streams) + 1) + own.stream
    found = []
    for split, by, what in (
        ("ended in parts", streams, own.marker),
        ("ended with another", own.marker, own.transaction),
    ):
        at = own.disagreeing(by, what)
        _, once = np.unique(np.column_stack([by[at], what[at]]), axis=0, return_index=True)
        at = at[once]
        if len(at):
            found.append(_of_stretches(history, member, own, at, split))
    return found


def _of_stretches(
    history: BucketHistory, member: Membership, own: _Stretches, at: Array, split: str
) -> Hits:
    def note(i: int) -> Note:
        end = int(history.bucket.log["txn_end"][own.row[at[i]]])
        return Note(
            detail=f"{member.table.name(int(own.transaction[at[i]]))}; the marker at {end} ended this part"
        )

    return hits(
        "mixed-transaction",
        slot=np.full(len(at), -1),
        t_ns=member.table.t_asked_ns[own.transaction[at]],
        split=split,
        stream=own.stream[at],
        row=own.row[at],
        note=note,
    )


def _stretches(history: BucketHistory, member: Membership) -> _Stretches:
    slot = history.log_slot.astype(np.int64)
    for rows, hidden in (history.invisible, history.unsettled):
        slot[rows] = hidden
    end, stream = history.bucket.log["txn_end"], history.bucket.log["stream"]
    rows = np.flatnonzero((slot >= 0) & (end >= 0))
    transaction = member.of_slot[slot[rows]].astype(np.int64)
    rows, transaction = rows[transaction >= 0], transaction[transaction >= 0]
    marker = stream[rows].astype(np.int64) << 44 | end[rows]
    new = (np.diff(marker, prepend=-1) != 0) | (np.diff(transaction, prepend=-1) != 0)
    return _Stretches(rows[new], marker[new], transaction[new], stream[rows[new]].astype(np.int64))


def _early(history: BucketHistory, member: Membership) -> list[Hits]:
    """Deliveries to readers of committed data before anybody asked for the commit."""
    table, strict = history.bucket.deliveries, history.context.committed_sessions
    if not table.rows or not strict:
        return []
    given = np.flatnonzero((table["event"] == Event.DELIVER) & (history.delivery_slot >= 0))
    given = given[np.isin(table["session"][given], strict)]
    slots = history.delivery_slot[given].astype(np.int64)
    of = member.of_slot[slots]
    asked = (member.table.asked[of] & Asked.COMMIT) > 0
    given_ns = table["t_ns"][given] + history.context.clock_bound_ns
    early = (of >= 0) & asked & (given_ns < member.table.t_asked_ns[of])
    given, slots, of = given[early], slots[early], of[early]
    if not len(given):
        return []
    return [
        hits(
            "intermediate-read",
            slot=slots,
            t_ns=table["t_ns"][given],
            stream=table["stream"][given].astype(np.int64),
            delivery=given,
            session=table["session"][given].astype(np.int64),
            note=lambda i: Note(detail=member.table.name(int(of[i]))),
        )
    ]


def atoms(history: BucketHistory, member: Membership) -> Atoms | None:
    """Return what the second pass needs from this bucket; None if nothing was sent in a
    transaction."""
    if not member:
        return None
    slots = np.flatnonzero(member.of_slot >= 0)
    of, seen = member.of_slot[slots], history.present[slots]
    unsure = ~seen & np.isin(member.state[slots], (Txn.OPEN, Txn.UNKNOWN))
    gone = np.flatnonzero(~seen & ~unsure & (member.state[slots] == Txn.NONE))
    _, unproved = absence(history, slots[gone])
    unsure[gone] = (unproved | LogEvidence(history).producer_ended(slots[gone])) > 0
    removal = _removal(history, member, slots, gone)
    removal[seen | unsure] = Removal.NOT
    size = len(member.table)
    kinds = (slice(None), seen, unsure, removal == Removal.REMOVED, removal == Removal.POWER)
    counts = [np.bincount(of[flags], minlength=size) for flags in kinds]
    own = np.flatnonzero(counts[0])
    examples = [_first(history, of, slots, flags, size)[own] for flags in (seen, ~seen & ~unsure)]
    return Atoms(own, *(count[own] for count in counts), *examples)


def _removal(history: BucketHistory, member: Membership, slots: Array, gone: Array) -> Array:
    """How invisible messages were taken away: messages that the log does not hold (``gone``: their
    indexes), and messages aborted by a marker that lies where the power cut had taken the log."""
    removal = np.zeros(len(slots), np.int8)
    if not any(fault.effective for fault in history.context.faults):
        return removal
    removal[gone] = removed_sends(history, slots[gone], *place(history, slots[gone]))
    rows, hidden = history.invisible
    at = np.flatnonzero(member.state[slots] == Txn.ABORTED)
    order = np.argsort(hidden, kind="stable")
    row = rows[order[np.searchsorted(hidden[order], slots[at])]]
    stream = history.bucket.log["stream"][row].astype(np.int64)
    position, end = history.bucket.log["position"][row], history.bucket.log["txn_end"][row]
    done_ns = member.table.t_done_ns[member.of_slot[slots[at]]]
    for number in np.unique(stream).tolist():
        for began_at, back_ns in power_cuts(history.context, number):
            cut = (
                (stream == number) & (position < began_at) & (end >= began_at) & (done_ns < back_ns)
            )
            removal[at[cut]] = Removal.POWER
    return removal


def _first(
    history: BucketHistory, of: Array, slots: Array, flags: npt.NDArray[np.bool_], size: int
) -> Array:
    """By transaction, lane, seq and stream of its first message that has the flag; lane -1 =
    none."""
    own = np.flatnonzero(flags)[::-1]
    first = np.full(size, -1, np.int64)
    first[of[own]] = slots[own]
    known = np.flatnonzero(first >= 0)
    out = np.full((size, 3), -1, np.int64)
    out[known, :2] = history.identity(first[known])[:, 1:3]
    out[known, 2] = stream_of_rows(
        history, first[known], history.first[first[known]].astype(np.int64)
    )
    return out
