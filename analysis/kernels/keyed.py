"""Judges the order of one key's messages, as a Key_Shared subscription promises it.

    log of key k: 1 2 3
    A: 1      3        2 was not delivered before 3, and then late: overtaken
    B:          2
    A: 1 ........ack   B is given 2 while A still works on 1: held elsewhere
    B:    2

Judged on the first delivery of each message. Keys that one consumer was given in order, which is
nearly all of them, cost one pass; only keys with several consumers are looked at one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from analysis.capture.bucket import Array, narrow
from analysis.kernels.acks import GroupAcks, Times
from analysis.kernels.hits import BITS, Hits, Note, hits
from analysis.kernels.labels import name_of, place_of
from analysis.kernels.matching import Given

_ROOM = 2.0**62


@dataclass(frozen=True, slots=True)
class _Firsts:
    """First deliveries of keyed messages by (stream and key, place in the log)."""

    key: Array
    row: Array
    delivery: Array
    t_ns: Array
    session: Array

    def __len__(self) -> int:
        return len(self.row)

    def first_among(self, chosen: Array) -> _Firsts:
        """Return the first deliveries of the chosen positions."""
        return _Firsts(
            *(a[chosen] for a in (self.key, self.row, self.delivery, self.t_ns, self.session))
        )


def judge(given: Given, twice: Array) -> list[Hits]:
    """per-key-reorder. ``twice``: streams in which some position came twice."""
    firsts = _firsts(given, twice)
    if not len(firsts):
        return []
    late = _overtaken(firsts, given.history.context.clock_bound_ns)
    held = _held(given, firsts, twice)
    found = []
    if len(late):
        words = _overtaken_words(given, firsts, late)
        found.append(_hits(given, "overtaken", firsts.first_among(late), words))
    if held:
        words = _held_words(given, firsts, held)
        found.append(
            _hits(given, "held elsewhere", firsts.first_among(np.array(sorted(held))), words)
        )
    return found


def _firsts(given: Given, twice: Array) -> _Firsts:
    history, table = given.history, given.history.bucket.deliveries
    row = np.flatnonzero(given.first >= 0)
    row = row[history.log_slot[row] >= 0]
    lane = history.groups.lane[history.group(history.log_slot[row])]
    is_keyed = (lane >= 0) & (lane < history.context.n_lanes)
    is_keyed[is_keyed] = history.context.lane_is_keyed[lane[is_keyed]]
    row, lane = row[is_keyed], lane[is_keyed]
    delivery = given.first[row].astype(np.int64)
    if len(twice):
        delivery = _earliest(given, twice, row, delivery)
    key = history.bucket.log["stream"][row].astype(np.int64) * (history.context.n_lanes + 1) + lane
    order = np.argsort(narrow(np.unique(key, return_inverse=True)[1]), kind="stable")
    row, delivery = row[order], delivery[order]
    session = table["session"][delivery].astype(np.int64)
    return _Firsts(key[order], row, delivery, table["t_ns"][delivery], session)


def _earliest(given: Given, twice: Array, row: Array, delivery: Array) -> Array:
    """Journals of several sessions lie one after the other: of repeats, take the first in time."""
    every = given.of_streams(twice).astype(np.int64)
    place = given.matching.row[every].astype(np.int64)
    order = np.lexsort((every, given.history.bucket.deliveries["t_ns"][every], place))
    rows, at = np.unique(place[order], return_index=True)
    where = np.minimum(np.searchsorted(rows, row), len(rows) - 1)
    return np.where(rows[where] == row, every[order][at][where], delivery)


def _overtaken(f: _Firsts, bound_ns: int) -> Array:
    """Messages first given after a later one of their key: by the clock of one session, or by more
    than clocks of several machines may differ."""
    number = np.append(0, np.cumsum(f.key[1:] != f.key[:-1]))
    late = _after_later(number, f.t_ns, bound_ns)
    if not bound_ns:
        return late
    order = np.lexsort((f.session, number))
    session, number = f.session[order], number[order]
    apart = np.append(0, np.cumsum((number[1:] != number[:-1]) | (session[1:] != session[:-1])))
    return np.union1d(late, order[_after_later(apart, f.t_ns[order], 0)])


def _after_later(number: Array, t_ns: Array, bound_ns: int) -> Array:
    """Elements later than one that follows them, by more than the bound, and has the same number;
    numbers ascend."""
    t_ns = t_ns - t_ns.min()
    unit = 1
    if float(t_ns.max() + bound_ns + 1) * float(number[-1] + 1) >= _ROOM:  # then to the microsecond
        unit = 1_000
    t_ns, bound = t_ns // unit, bound_ns // unit
    # Later numbers get larger values, so the least of all that follow is of the same one if any is
    # lower.
    value = t_ns + number * (int(t_ns.max()) + bound + 1)
    least = np.minimum.accumulate(value[::-1])[::-1]
    return np.flatnonzero(value[:-1] > least[1:] + bound)


def _held(given: Given, f: _Firsts, twice: Array) -> dict[int, int]:
    """Messages given while another consumer held an earlier one of their key, and one that it
    held."""
    begin = np.flatnonzero(np.append(True, f.key[1:] != f.key[:-1]))
    several = np.minimum.reduceat(f.session, begin) != np.maximum.reduceat(f.session, begin)
    if not several.any():
        return {}
    sizes = np.diff(np.append(begin, len(f)))
    chosen = np.flatnonzero(np.repeat(several, sizes))
    release = np.full(len(f), -1, np.int64)
    release[chosen] = _released(given, f.first_among(chosen), twice)
    found: dict[int, int] = {}
    for start, size in zip(begin[several].tolist(), sizes[several].tolist(), strict=True):
        found |= _held_of_key(
            f, release, slice(start, start + size), given.history.context.clock_bound_ns
        )
    return found


def _released(given: Given, f: _Firsts, twice: Array) -> Array:
    """When each message was settled: acknowledged, refused, given out again, or its consumer
    gone."""
    history = given.history
    acks = GroupAcks.from_given(given, np.unique(history.bucket.log["stream"][f.row]))
    settled = np.minimum(acks.called.first(f.row, f.t_ns), acks.nacked.first(f.row, f.t_ns))
    if len(twice):
        every = given.of_streams(twice)
        times = Times(
            given.matching.row[every].astype(np.int64), history.bucket.deliveries["t_ns"][every]
        )
        settled = np.minimum(settled, times.first(f.row, f.t_ns + 1))
    for number, session in history.context.sessions.items():
        if session.end_ns:
            settled = np.where(f.session == number, np.minimum(settled, session.end_ns), settled)
    return settled


def _held_of_key(f: _Firsts, release: Array, own: slice, bound_ns: int) -> dict[int, int]:
    """Return the held messages of one key; see `_held`. A message that another consumer received
    within the bound of the clocks came before or after: it is out of order in both cases.
    """
    session, t_ns, until = f.session[own], f.t_ns[own] + bound_ns, release[own]
    found: dict[int, int] = {}
    for holder in np.unique(session).tolist():
        reach = np.maximum.accumulate(np.where(session == holder, until, -1))
        at = np.flatnonzero((session[1:] != holder) & (t_ns[1:] < reach[:-1])) + 1
        for i in at.tolist():
            given_ns = f.t_ns[own][:i]
            held = (session[:i] == holder) & (given_ns <= t_ns[i]) & (until[:i] > t_ns[i])
            if held.any():
                found.setdefault(own.start + i, own.start + int(np.argmax(held)))
    return found


def _overtaken_words(given: Given, f: _Firsts, late: Array) -> Callable[[int], Note]:
    def note(i: int) -> Note:
        me = int(late[i])
        after = np.arange(me + 1, np.searchsorted(f.key, f.key[me], side="right"))
        ahead = after[f.t_ns[after] < f.t_ns[me]]
        first = int(ahead[np.argmin(f.t_ns[ahead])])
        return Note(detail=f"after {_given(given, f, first)}, and {len(ahead) - 1} more of its key")

    return note


def _held_words(given: Given, f: _Firsts, held: dict[int, int]) -> Callable[[int], Note]:
    chosen = sorted(held)

    def note(i: int) -> Note:
        session = int(f.session[chosen[i]])
        holder = _given(given, f, held[chosen[i]])
        return Note(detail=f"to session {session}, while unsettled: {holder}")

    return note


def _given(given: Given, f: _Firsts, i: int) -> str:
    history, row = given.history, int(f.row[i])
    name = name_of(history, int(history.log_slot[row]), row)
    when_s = history.context.seconds(int(f.t_ns[i]))
    place = place_of(history, row)
    return f"{name} at position {place}, given to session {int(f.session[i])} at {when_s:.3f} s"


def _hits(given: Given, split: str, f: _Firsts, note: Callable[[int], Note]) -> Hits:
    history = given.history
    whole = all(s.complete for s in history.context.group_sessions().get(given.group, []))
    return hits(
        "per-key-reorder",
        slot=history.log_slot[f.row],
        t_ns=f.t_ns,
        split=split,
        unmet=0 if whole else BITS["delivery-capture"],
        stream=history.bucket.log["stream"][f.row].astype(np.int64),
        row=f.row,
        delivery=f.delivery,
        session=f.session,
        note=note,
    )
