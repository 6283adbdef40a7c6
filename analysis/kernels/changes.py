"""Finds the leader change that lost or repeated a message, from who led its stream and from which
position.

A leader that was deposed keeps what its followers have and throws the rest away when it follows in
turn. So a message that was acknowledged at a position of the *next* term, and is not there, was
acknowledged by the leader of a term before. Positions decide which terms come into question; times
exclude those that had not begun, those whose leader certainly had become a follower, and those that
had not come as far: a term that kept a message which became due after the acknowledgement gave out
all higher positions later still. When several are left, no cause is named. Nor is it if the leader
of now may have answered: it takes a send that it must not store twice for the message that it has
at this position already. Without positions (a queue) there is nothing but time.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from harness.contracts.rows import Terms

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
NONE = -1


class Because(IntEnum):
    """The relation between a message and the terms of its stream. Only `CHANGE` names a cause."""

    CHANGE = 0
    SAME_LEADER = 1  # both copies: no leader change lies between
    NO_PLACE = 2  # the acknowledgement, or the copy, has no stream or no position
    NO_TERMS = 3  # who led was not recorded
    NOT_CUT = 4  # no later term begins at or before the position
    EITHER = 5  # several terms may have acknowledged it


@dataclass(frozen=True, slots=True)
class Changes:
    """One element per message; terms are indexes into its stream's terms, `NONE` = none.

    Attributes:
        term: acknowledged it, or wrote its first copy.
        next: cut it off, or wrote the second copy.
        other: an earlier term that may have acknowledged it as well, with `Because.EITHER`.
        late: it was acknowledged after ``term`` had been followed by another.
    """

    because: Ints
    term: Ints
    next: Ints
    other: Ints
    late: Ints

    @classmethod
    def all(cls, because: Because, count: int) -> Changes:
        none = np.full(count, NONE, np.int64)
        return cls(
            np.full(count, because, np.int64),
            none,
            none.copy(),
            none.copy(),
            np.zeros(count, np.int64),
        )


@dataclass(frozen=True, slots=True)
class LostAcks:
    """Acknowledged messages of one stream that are not in it. ``ledger``: 0 where positions are
    offsets."""

    start_ns: Ints
    done_ns: Ints
    position: Ints
    ledger: Ints

    def __len__(self) -> int:
        return len(self.position)

    def lost_in(self, rows: Ints) -> LostAcks:
        """Return the lost acknowledgements of the chosen rows."""
        return LostAcks(*(getattr(self, field.name)[rows] for field in fields(self)))


@dataclass(frozen=True, slots=True)
class LoggedRows:
    """A stream's rows in the log, ascending by offset: when each message was due, and its producer
    instance."""

    position: Ints
    due_ns: Ints
    instance: Ints

    def has_own_at(self, acks: LostAcks, instance: Ints) -> Bools:
        """Return for each acknowledgement whether its position holds another message of the same
        producer instance, which was due before it."""
        at = np.searchsorted(self.position, acks.position)
        found = at < len(self.position)
        there = at[found]
        found[found] = (
            (self.position[there] == acks.position[found])
            & (self.instance[there] == instance[found])
            & (self.due_ns[there] < acks.done_ns[found])
        )
        return found


def reached(terms: Terms, rows: LoggedRows) -> Ints:
    """When the last of the messages became due that the log has of each term; 0 where it has
    none."""
    found = np.zeros(len(terms), np.int64)
    end = len(rows.position)
    for index in reversed(range(len(terms))):
        first = terms[index].first
        if first is not None:
            begin = int(np.searchsorted(rows.position[:end], first))
            found[index] = rows.due_ns[begin:end].max(initial=0)
            end = begin
    return found


def lost(
    terms: Terms,
    acks: LostAcks,
    due_ns: Ints,
    *,
    has_offsets: bool,
    has_positions: bool = True,
    repeats: Bools | None = None,
) -> Changes:
    """Which leader acknowledged each, and which change threw it away.

    Args:
        due_ns: see `reached`; of positions that are offsets.
        repeats: which of them a leader may have taken for a repeat of the message that it has at
            their offset; None = none.
        has_offsets: positions are dense numbers through all terms; else a term is a ledger with its
            own.
        has_positions: False: a queue.
    """
    if not any(term.leader for term in terms):
        return Changes.all(Because.NO_TERMS, len(acks))
    if not has_positions:
        return _lost_by_time(terms, acks)
    found = _lost_by_offset(terms, acks, due_ns) if has_offsets else _lost_by_ledger(terms, acks)
    if has_offsets and repeats is not None:
        either = np.flatnonzero((found.because == Because.CHANGE) & (found.late > 0) & repeats)
        found.because[either], found.other[either] = Because.EITHER, found.term[either]
        place = (acks.position[either], acks.ledger[either])
        found.term[either] = _wrote(terms, *place, has_offsets=True)
    found.because[acks.position < 0] = Because.NO_PLACE
    return found


def _lost_by_offset(terms: Terms, acks: LostAcks, due_ns: Ints) -> Changes:
    if all(term.first is None for term in terms):
        return Changes.all(Because.NO_TERMS, len(acks))
    found = Changes.all(Because.NOT_CUT, len(acks))
    cut, cut_at = NONE, 0
    for index in reversed(range(len(terms))):
        term = terms[index]
        if cut != NONE and term.leader:
            may = (acks.position >= cut_at) & (acks.done_ns >= max(term.t_ns, int(due_ns[index])))
            if term.first is not None:
                may &= acks.position >= term.first
            if term.over_ns:
                may &= acks.start_ns < term.over_ns
            again = may & (found.term != NONE) & (found.other == NONE)
            found.because[again], found.other[again] = Because.EITHER, index
            new = may & (found.term == NONE)
            found.because[new], found.term[new], found.next[new] = Because.CHANGE, index, cut
            found.late[new] = acks.done_ns[new] > (terms[index + 1].t_ns or np.iinfo(np.int64).max)
        if term.first is not None:
            cut, cut_at = index, term.first
    return found


def _lost_by_ledger(terms: Terms, acks: LostAcks) -> Changes:
    found = Changes.all(Because.NOT_CUT, len(acks))
    numbers = np.array([term.term for term in terms], np.int64)
    index = np.minimum(np.searchsorted(numbers, acks.ledger), len(terms) - 1)
    for at, term in enumerate(terms[:-1]):
        if not term.leader or term.entries is None:
            continue
        cut = (index == at) & (acks.ledger == term.term) & (acks.position >= term.entries)
        found.because[cut], found.term[cut], found.next[cut] = Because.CHANGE, at, at + 1
        found.late[cut] = acks.done_ns[cut] > (terms[at + 1].t_ns or np.iinfo(np.int64).max)
    return found


def _lost_by_time(terms: Terms, acks: LostAcks) -> Changes:
    """The next change after the acknowledgement, whatever lies between."""
    found = Changes.all(Because.NOT_CUT, len(acks))
    begin = np.array([term.t_ns for term in terms], np.int64)
    index = np.searchsorted(begin, acks.done_ns, side="right") - 1
    for at in range(len(terms) - 1):
        after = next((i for i in range(at + 1, len(terms)) if terms[i].leader), NONE)
        own = index == at
        if terms[at].leader and after != NONE:
            found.because[own], found.term[own], found.next[own] = Because.CHANGE, at, after
    return found


def repeated(
    terms: Terms, first: tuple[Ints, Ints], second: tuple[Ints, Ints], *, has_offsets: bool
) -> Changes:
    """Which leaders wrote two copies of a message into one stream.

    Args:
        first, second: positions and ledgers of the copies.
    """
    count = len(first[0])
    term, then = (_wrote(terms, *place, has_offsets=has_offsets) for place in (first, second))
    if not len(terms):
        return Changes.all(Because.NO_TERMS, count)
    found = Changes.all(Because.CHANGE, count)
    found.term[:], found.next[:] = term, then
    leads = np.array([bool(one.leader) for one in terms])
    known = (term != NONE) & (then != NONE)
    known[known] = leads[term[known]] & leads[then[known]]
    found.because[term == then] = Because.SAME_LEADER
    found.because[~known] = Because.NO_TERMS
    found.because[(first[0] < 0) | (second[0] < 0)] = Because.NO_PLACE
    return found


def _wrote(terms: Terms, position: Ints, ledger: Ints, *, has_offsets: bool) -> Ints:
    """Index of the term that wrote what the log has at each position."""
    places = [i for i, term in enumerate(terms) if not has_offsets or term.first is not None]
    if not places:
        return np.full(len(position), NONE, np.int64)
    begins = np.array([terms[i].first if has_offsets else terms[i].term for i in places], np.int64)
    at = np.searchsorted(begins, position if has_offsets else ledger, side="right") - 1
    found = np.where(at >= 0, np.array(places, np.int64)[at], NONE)
    if not has_offsets:
        found[begins[at] != ledger] = NONE
    return np.asarray(found)
