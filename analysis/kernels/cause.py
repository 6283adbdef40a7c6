"""Finds the leader change that caused each acked-lost and write-duplicate, and counts by change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from analysis.capture.bucket import Array
from analysis.kernels.changes import (
    Because,
    Changes,
    LoggedRows,
    LostAcks,
    lost,
    reached,
    repeated,
)
from analysis.kernels.history import BucketHistory
from analysis.kernels.hits import Hits
from analysis.kernels.partial import RawCause
from harness.contracts.rows import Terms

_KEY_COLUMNS = 6  # because, stream, term, next, other, late
LOST, REPEATED, _SAME_SEND = "acked-lost", "write-duplicate", "same send"


@dataclass(frozen=True, slots=True)
class _Asked:
    """Hits of one class with their places: where it was acknowledged, or its first copy; ``again``:
    position and ledger of the second copy. ``changes``: of some of them, in one stream."""

    stream: Array
    position: Array
    ledger: Array
    again: tuple[Array, Array]
    changes: Callable[[Array, Terms], Changes]


@dataclass(frozen=True, slots=True)
class Causes:
    """The causes of the hits of one kernel result; empty for a class whose cause is not asked
    for."""

    asked: _Asked | None = None
    key: Array = field(default_factory=lambda: np.empty((0, _KEY_COLUMNS), np.int64))
    # hit of each row, ascending
    index: Array = field(default_factory=lambda: np.empty(0, np.int64))

    @classmethod
    def from_hits(cls, history: BucketHistory, hits: Hits, index: Array) -> Causes:
        """``index``: the hits that count under the class, ascending."""
        asked_of = {LOST: _acked, REPEATED: _copies}.get(hits.cls)
        if asked_of is None or not history.context.terms:
            return cls()
        splits = [i for i, name in enumerate(hits.splits) if _is_asked(hits.cls, name)]
        index = index[np.isin(hits.split[index], splits) & (hits.slot[index] >= 0)]
        asked = asked_of(history, hits, index)
        key = np.full((len(index), _KEY_COLUMNS), -1, np.int64)
        for stream in np.unique(asked.stream).tolist():
            own = np.flatnonzero(asked.stream == stream)
            no_place = Changes.all(Because.NO_PLACE, len(own))
            terms = history.context.terms.get(stream, ())
            found = asked.changes(own, terms) if stream > 0 else no_place
            where = np.full(len(own), stream)
            key[own] = np.column_stack(
                [found.because, where, found.term, found.next, found.other, found.late]
            )
        return cls(asked, key, index)

    def among(self, index: Array, t_ns: Array) -> tuple[RawCause, ...]:
        """Counts by cause of some of the hits, most first; ``t_ns``: their times."""
        rows = np.searchsorted(self.index, index)
        if not (rows < len(self.index)).all() or (self.index[rows] != index).any():
            return ()  # the hits of an episode share a split: all were asked of, or none
        keys, which = np.unique(self.key[rows], axis=0, return_inverse=True)
        groups = [np.flatnonzero(which.ravel() == number) for number in range(len(keys))]
        found = [
            self._cause(key, rows[own], t_ns[own]) for key, own in zip(keys, groups, strict=True)
        ]
        return tuple(sorted(found, key=lambda cause: (-cause.count, cause.first_ns)))

    def _cause(self, key: Array, rows: Array, t_ns: Array) -> RawCause:
        assert self.asked is not None
        position, ledger = self.asked.position, self.asked.ledger
        order = rows[np.lexsort((position[rows], ledger[rows]))]
        low, high = int(order[0]), int(order[-1])
        because, stream, term, then, other, late = (int(value) for value in key)
        return RawCause(
            because=Because(because),
            stream=stream,
            term=term,
            next=then,
            other=other,
            late=bool(late),
            count=len(rows),
            first_ns=int(t_ns.min()),
            last_ns=int(t_ns.max()),
            low=(int(position[low]), int(ledger[low])),
            high=(int(position[high]), int(ledger[high])),
            again=(int(self.asked.again[0][low]), int(self.asked.again[1][low])),
        )


def _is_asked(cls: str, split: str) -> bool:
    """No leader change explains what a fault removed on purpose, of which there may be millions, or
    what the log holds."""
    return split not in ("removed", "withheld") if cls == LOST else split == _SAME_SEND


def _acked(history: BucketHistory, hits: Hits, index: Array) -> _Asked:
    context, slots = history.context, hits.slot[index]
    stream = hits.stream[index].astype(np.int64)
    named = history.of_send("stream", slots) > 0
    position = np.where(named, history.of_send("position", slots), -1).astype(np.int64)
    ledger = history.of_send("ledger", slots).astype(np.int64)
    start, done = history.of_send("t_start_ns", slots), history.times(slots)
    instance = history.by_group(history.groups.instance, slots)
    instances = np.unique(instance).tolist()
    numbered = [n for n in instances if context.instance(n).promise.dedup is not False]

    def changes(own: Array, terms: Terms) -> Changes:
        acks = LostAcks(start[own], done[own], position[own], ledger[own])
        number = int(stream[own[0]])
        in_queue = number < len(context.is_queue) and bool(context.is_queue[number])
        rows = logged_rows(history, number)
        return lost(
            terms,
            acks,
            reached(terms, rows),
            has_offsets=context.has_offsets,
            has_positions=not in_queue,
            repeats=rows.has_own_at(acks, instance[own]) & np.isin(instance[own], numbered),
        )

    none = np.full(len(index), -1, np.int64)
    return _Asked(stream, position, ledger, (none, none), changes)


def logged_rows(history: BucketHistory, stream: int) -> LoggedRows:
    """The rows of a stream in the log."""
    log = history.bucket.log
    rows = slice(*np.searchsorted(log["stream"], [stream, stream + 1]))
    return LoggedRows(*(log[name][rows] for name in ("position", "t_intended_ns", "instance")))


def _copies(history: BucketHistory, hits: Hits, index: Array) -> _Asked:
    """Return the question for copies. For copies in different streams, or in a queue, no cause can
    be known: stream 0.
    """
    context, log = history.context, history.bucket.log
    rows = history.first[hits.slot[index]].astype(np.int64), hits.row[index].astype(np.int64)
    (stream, other), (position, then), (ledger, second) = (
        tuple(log[name][row].astype(np.int64) for row in rows)
        for name in ("stream", "position", "ledger")
    )
    stream = np.where(
        (stream == other) & ~context.is_queue[np.minimum(stream, len(context.streams))], stream, 0
    )

    def changes(own: Array, terms: Terms) -> Changes:
        places = (position[own], ledger[own]), (then[own], second[own])
        return repeated(terms, *places, has_offsets=context.has_offsets)

    return _Asked(stream, position, ledger, (then, second), changes)
