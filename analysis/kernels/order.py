"""Judges the order of first appearances within one instance, lane and stream, of messages sent
once.

A message is *late* when the first copy of one sent after it lies before its own first copy:

    1 3 [2] 4          2 is late: producer-reorder
    1 2 3 [2] [3] 4    first appearances in order: duplicates, no reorder
    1 (4) 2 3 [4]      4 is premature and repeated in place: one root cause; 2 and 3 its symptoms

Whether anything is late at all is one pass per group: the running minimum, from the end, of first
rows. Only groups with a late message are looked at closer. Groups spread over several streams (a
routed topic) are first tested stream by stream in log order. Sequences that were never sent are
taken out beforehand: one phantom with a huge sequence would make everything after it late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from analysis.capture.bucket import Array, is_constant, narrow
from analysis.kernels.history import BucketHistory
from analysis.kernels.hits import BITS, Hits, Note, hits
from analysis.kernels.labels import count_of, place_of, some_of
from harness.records import Outcome

_SHOWN = 4


def judge(history: BucketHistory) -> list[Hits]:
    """producer-reorder and premature-then-repeat. What remains in a queue tells no order."""
    found: list[Hits] = []
    if history.context.has_queues:
        return found
    for sequence in _disordered(history):
        found += _hits(history, sequence)
    return found


@dataclass(frozen=True, slots=True)
class _Sequence:
    """Stored messages by (key, slot): a key is one group in one stream. First and last row of
    each."""

    key: Array
    slot: Array
    first: Array
    last: Array


def _disordered(history: BucketHistory) -> Iterator[_Sequence]:
    """The groups, or their parts in one stream, in which some message is late."""
    low, high = history.spread
    capped = np.unique(history.sparse_group[(history.sparse[:, 3] == 0) & _sent_sparse(history)])
    many = np.zeros(len(history.groups), np.bool_)
    many[low < high] = True
    many[capped] = True
    many[high < 0] = False
    affected = _late_groups(history, ~many)
    if len(affected):
        yield _whole_groups(history, affected)
    if many.any():
        yield from _by_stream(history, many)


def _sent_sparse(history: BucketHistory) -> Array:
    return history.sent[history.n_dense :] >= 0


def _late_groups(history: BucketHistory, wanted: Array) -> Array:
    """Return the wanted groups that have a late message."""
    found = []
    for own, slots, starts in history.batches():
        # First rows that never go down are in order, also with rows of unsent messages among them.
        # Where they do it may be no more than the -1 of a message that is not stored.
        first = history.first[slots]
        down = first[1:] < first[:-1]
        down[starts[1:] - 1] = False  # from one group to the next
        if down.any():
            group = _with_late(own, starts, first, history.sent[slots])
            found.append(group[wanted[group]])
    return np.concatenate(found) if found else np.empty(0, np.int64)


def _with_late(groups: Array, starts: Array, first: Array, sent: Array) -> Array:
    """Return the groups with a late message: a stored one with a higher row than a message that was
    sent after it.
    """
    stored = (sent >= 0) & (first >= 0)
    first = first[stored]
    down = np.flatnonzero(first[1:] < first[:-1])
    if not len(down):
        return groups[:0]
    slots = np.flatnonzero(stored)
    group, after = (np.searchsorted(starts, slots[at], side="right") - 1 for at in (down, down + 1))
    return np.asarray(groups[np.unique(group[group == after])])


def _whole_groups(history: BucketHistory, groups: Array) -> _Sequence:
    slots = history.slots_of_groups(groups)
    slots = slots[
        (slots < history.n_dense) & (history.sent[slots] >= 0) & (history.first[slots] >= 0)
    ]
    first = history.first[slots].astype(np.int64)
    last = first.copy()
    at = np.searchsorted(slots, history.extra_slots)
    inside = at < len(slots)
    inside[inside] = slots[at[inside]] == history.extra_slots[inside]
    np.maximum.at(last, at[inside], history.extra_rows[inside])
    return _Sequence(history.group(slots), slots, first, last)


def _by_stream(history: BucketHistory, wanted: Array) -> Iterator[_Sequence]:
    """Groups with messages in several streams, stream by stream, if something in there is not in
    order."""
    stream = history.bucket.log["stream"]
    inner = [] if is_constant(stream) else (np.flatnonzero(stream[1:] != stream[:-1]) + 1).tolist()
    group_of = _groups_of_slots(history, wanted)
    begin = 0
    for end in [*inner, len(stream)]:
        slots = history.log_slot[begin:end]
        group = group_of[slots]
        rows = np.flatnonzero(group >= 0)
        slots, group, rows = slots[rows].astype(np.int64), group[rows], rows + begin
        if len(rows):
            affected = _descending(slots, group)
            chosen = np.isin(group, affected)
            if chosen.any():
                yield _of_rows(rows[chosen], slots[chosen], group[chosen])
        begin = end


def _groups_of_slots(history: BucketHistory, wanted: Array) -> Array:
    """The group of each slot that was sent once, of the wanted groups; -1 for others, as for slot
    -1."""
    number = np.where(wanted, np.arange(len(wanted)), -1)
    once = np.where(history.sparse[:, 3] == 0, number[history.sparse_group], -1)
    of_slot = np.concatenate([np.repeat(number, history.groups.sizes), once]).astype(np.int32)
    return np.append(np.where(history.sent >= 0, of_slot, np.int32(-1)), np.int32(-1))


def _descending(slots: Array, group: Array) -> Array:
    """Groups whose slots do not only grow in log order."""
    if (group != group[0]).any():
        order = np.argsort(narrow(group), kind="stable")
        slots, group = slots[order], group[order]
    down = (slots[1:] < slots[:-1]) & (group[1:] == group[:-1])
    return np.unique(group[1:][down])


def _of_rows(rows: Array, slots: Array, group: Array) -> _Sequence:
    order = np.lexsort((rows, slots, group))
    rows, slots, group = rows[order], slots[order], group[order]
    new = np.append(True, slots[1:] != slots[:-1])
    begin = np.flatnonzero(new)
    end = np.append(begin[1:], len(rows)) - 1
    return _Sequence(group[begin], slots[begin], rows[begin], rows[end])


@dataclass(frozen=True, slots=True)
class _Order:
    premature: Array
    late: Array


def _examine(s: _Sequence, n: int) -> _Order:
    """Which messages are premature and repeated in place, and which late ones they do not
    explain."""
    offset = np.append(0, np.cumsum(s.key[1:] != s.key[:-1])) * n
    first, last = s.first + offset, s.last + offset
    # Values of earlier keys are smaller and of later ones larger, so neither bound reaches across
    # keys.
    highest_before = np.append(-1, np.maximum.accumulate(first)[:-1])
    premature = (last > first) & (first < highest_before) & (last > highest_before)
    settled = np.where(premature, last, first)
    lowest_after = np.append(np.minimum.accumulate(settled[::-1])[::-1][1:], np.iinfo(np.int64).max)
    return _Order(premature, (settled > lowest_after) & ~premature)


def _hits(history: BucketHistory, s: _Sequence) -> list[Hits]:
    order = _examine(s, history.bucket.log.rows + 1)
    found = []
    for cls, flags, words in (
        ("premature-then-repeat", order.premature, _repeat_words),
        ("producer-reorder", order.late, _late_words),
    ):
        at = np.flatnonzero(flags)
        if len(at):
            slots, row = s.slot[at], s.first[at]
            found.append(
                hits(
                    cls,
                    slot=slots,
                    t_ns=history.times(slots),
                    unmet=_lost_connection(history, slots) if cls == "producer-reorder" else 0,
                    stream=history.bucket.log["stream"][row].astype(np.int64),
                    row=row,
                    note=words(history, s, at),
                )
            )
    return found


def _lost_connection(history: BucketHistory, slots: Array) -> Array:
    """Return the missing evidence of late messages, bits by message: a message without an
    acknowledgement may have been on a connection that had ended, where brokers keep the order of
    each connection only."""
    answered = history.outcome[slots] == Outcome.OK
    is_kept = answered | (not history.context.orders_by_connection)
    return np.where(is_kept, 0, BITS["connection-kept"])


def _repeat_words(history: BucketHistory, s: _Sequence, at: Array) -> Callable[[int], Note]:
    def note(i: int) -> Note:
        me = int(at[i])
        own = np.arange(np.searchsorted(s.key, s.key[me]), me)
        behind = own[s.first[own] > s.first[me]]
        seqs = [str(seq) for seq in history.identity(s.slot[behind[:_SHOWN]])[:, 2].tolist()]
        here, again = place_of(history, int(s.first[me])), place_of(history, int(s.last[me]))
        late = f"{count_of(len(behind), 'earlier message')} late after it ({some_of(seqs, len(behind))})"
        ahead = own[s.first[own] < s.first[me]][-1:]
        shown = np.concatenate([s.first[ahead], s.first[behind[:_SHOWN]], s.last[me : me + 1]])
        ids = _client_ids(history, shown, int(s.first[me]))
        return Note(
            detail=f"first at position {here}, again in its place at {again}{ids}", symptoms=(late,)
        )

    return note


def _late_words(history: BucketHistory, s: _Sequence, at: Array) -> Callable[[int], Note]:
    def note(i: int) -> Note:
        me = int(at[i])
        after = np.arange(me + 1, np.searchsorted(s.key, s.key[me], side="right"))
        ahead = after[s.first[after] < s.first[me]]
        first = ahead[int(np.argmin(s.first[ahead]))]
        seq = history.identity_of(int(s.slot[first]))[2]
        many = count_of(len(ahead), "message")
        ids = _client_ids(history, s.first[first : first + 1], int(s.first[me]))
        return Note(detail=f"stored after {many} sent later, the first of them {seq}{ids}")

    return note


def _client_ids(history: BucketHistory, rows: Array, witness: int) -> str:
    """Return the numbers that the client itself gave to these log rows, in their order; empty if it
    shows no numbers.
    """
    log = history.bucket.log
    if not log["client_name"][witness]:
        return ""
    shown = np.unique(np.append(rows, witness))
    ids = [
        (f"[{number}]" if row == witness else str(number))
        for row, number in zip(shown.tolist(), log["client_seq"][shown].tolist(), strict=True)
    ]
    return f"; the client's own sequence ids: {' '.join(ids)}"
