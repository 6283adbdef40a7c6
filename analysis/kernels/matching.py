"""Matches deliveries with the log: the log row of each delivery, and the assignment it came under.

A delivery matches the log row at its place when both hold the same message. Whatever does not match
was delivered from a log that no longer is (or never was) what the reader found.

A *assignment* is an unbroken stretch of deliveries of one stream to one session: it ends with an
assign, revoke or seek of that stream or, where the client tells no assignments, with a new epoch.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from analysis.capture.bucket import Array, chunks, is_constant, narrow
from analysis.histogram import Dense, Histogram
from analysis.kernels.history import BucketHistory
from analysis.kernels.lookup import Ints, Lookup
from harness.records import Event, Kind

_BREAKS = (Event.ASSIGN, Event.REVOKE, Event.SEEK)
_PLACE = ("stream", "position", "ledger", "batch")


@dataclass(frozen=True, slots=True)
class SessionChange:
    """An assign, revoke, seek or commit: its delivery row, and what it says."""

    row: int
    event: int
    session: int
    stream: int
    position: int
    t_ns: int


@dataclass(frozen=True, slots=True)
class Assignments:
    """Deliveries of some streams, by (stream, session, ordinal), with the assignment of each.

    ``delivery``: delivery rows; ``assignment``: number of each one's assignment, ascending. By
    assignment: ``start_ns``, whether it began with a ``seek``.
    """

    delivery: Array
    assignment: Array
    start_ns: Array
    seek: Array


class Matching:
    """All deliveries of a bucket. ``row[i]`` is the log row of delivery row i, -1 = none."""

    def __init__(self, history: BucketHistory) -> None:
        self.history = history
        table = history.bucket.deliveries
        self.row = np.full(table.rows, -1, np.int32)
        unmatched = []
        for part in chunks(table.rows):
            slot = history.delivery_slot[part]
            row = self._rows(part, slot)
            self.row[part] = row
            unmatched.append(np.flatnonzero((row < 0) & (slot >= 0)) + part.start)
        #: Delivery rows of messages that the log does not hold at that place; queues have no log.
        self.unmatched = np.concatenate(unmatched) if unmatched else np.empty(0, np.int64)
        if history.context.has_queues:
            self.unmatched = np.setdiff1d(self.unmatched, history.queue_deliveries)
            self.row[history.queue_deliveries] = -1
        #: Those, and deliveries from queues.
        self.not_in_log = np.union1d(self.unmatched, history.queue_deliveries)
        table.drop("position")

    def _rows(self, part: slice, slot: Array) -> Array:
        """Log row at the place of each delivery if it holds the same message, else -1."""
        history, log = self.history, self.history.bucket.log
        if not log.rows or not history.n_slots:
            return np.full(len(slot), -1, np.int64)
        place = {name: history.bucket.deliveries[name][part] for name in _PLACE}
        if history.places.is_dense:
            row = history.places.rows(*place.values())
            return np.where((slot >= 0) & (row >= 0) & (history.log_slot[row] == slot), row, -1)
        # Mostly it is the message's first copy, which is known without a search.
        row = np.where(slot >= 0, history.first[slot], -1).astype(np.int64)
        same = row >= 0
        for name, column in place.items():
            found = log[name][row]
            same &= (
                (np.maximum(found, 0) == np.maximum(column, 0))
                if name == "batch"
                else found == column
            )
        rest = np.flatnonzero(~same & (slot >= 0))
        other = history.places.rows(*(column[rest] for column in place.values()))
        row[rest] = np.where((other >= 0) & (history.log_slot[other] == slot[rest]), other, -1)
        return np.where(slot >= 0, row, -1)

    @cached_property
    def changes(self) -> list[SessionChange]:
        """Every event that is not a delivery and concerns assignment or commits, in journal
        order."""
        table = self.history.bucket.deliveries
        event = table["event"]
        if not table.rows or (is_constant(event) and event[0] == Event.DELIVER):
            return []
        rows = np.flatnonzero(np.isin(event, [*_BREAKS, Event.COMMIT]))
        names = ("event", "session", "stream", "position", "t_ns")
        columns = [table[name][rows].tolist() for name in names]
        return [
            SessionChange(row, *values)
            for row, *values in zip(rows.tolist(), *columns, strict=True)
        ]

    @cached_property
    def group_of_session(self) -> dict[int, str]:
        """Consumer group of every session with rows, from the plan or, unknown there, its
        subscription."""
        table, context = self.history.bucket.deliveries, self.history.context
        groups = {number: session.group for number, session in context.sessions.items()}
        if not table.rows:
            return groups
        session = table["session"]
        starts = (
            []
            if is_constant(session)
            else (np.flatnonzero(session[1:] != session[:-1]) + 1).tolist()
        )
        for row in [0, *starts]:
            name = context.names.get(int(table["subscription"][row]), "")
            groups.setdefault(int(session[row]), name)
        return groups

    def of_group(self, group: str) -> slice | Array:
        """Delivery rows of the group's sessions: a slice, or ascending row numbers."""
        sessions = [number for number, name in self.group_of_session.items() if name == group]
        column = self.history.bucket.deliveries["session"]
        if len(self.group_of_session) == len(sessions) or not len(column):
            return slice(0, len(column))
        return np.flatnonzero(np.isin(column, sessions))

    def assignments(self, delivery: Array) -> Assignments:
        """Assignments of matched deliveries, given as ascending delivery rows (whole streams)."""
        table = self.history.bucket.deliveries
        stream, session = table["stream"][delivery], table["session"][delivery]
        order = np.argsort(narrow(stream), kind="stable")
        delivery, stream, session = delivery[order], stream[order], session[order]
        new = np.append(True, (stream[1:] != stream[:-1]) | (session[1:] != session[:-1]))[
            : len(delivery)
        ]
        begins = np.flatnonzero(new)
        ends = np.append(begins[1:], len(delivery))
        starts: list[int] = []
        seeks: list[bool] = []
        numbers = np.empty(len(delivery), np.int64)
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
            own = delivery[begin:end]
            breaks = self._breaks(int(session[begin]), int(stream[begin]), own)
            numbers[begin:end] = len(starts) + _passed(own, [b.row for b in breaks])
            starts += [int(table["t_ns"][own[0]]), *(b.t_ns for b in breaks)]
            seeks += [False, *(b.event == Event.SEEK for b in breaks)]
        return Assignments(delivery, numbers, np.array(starts, np.int64), np.array(seeks, np.bool_))

    @cached_property
    def _changes_of(self) -> dict[tuple[int, int], list[SessionChange]]:
        found: dict[tuple[int, int], list[SessionChange]] = defaultdict(list)
        for change in self.changes:
            if change.event in _BREAKS:
                found[change.session, change.stream].append(change)
        return found

    def _breaks(self, session: int, stream: int, own: Array) -> list[SessionChange]:
        """Where assignments of (session, stream) begin, in journal order; events of no stream
        concern all."""
        told = self._changes_of.get((session, stream), []) + self._changes_of.get((session, 0), [])
        if any(c.event == Event.ASSIGN for c in told):
            return sorted(told, key=lambda c: c.row)
        table = self.history.bucket.deliveries
        epoch = table["epoch"][own].astype(np.int64)
        fresh = own[np.flatnonzero(np.diff(epoch)) + 1].tolist()
        # The row before, so that the first delivery of the new epoch lies after the break.
        times = table["t_ns"][fresh].tolist()
        begun = zip(fresh, times, strict=True)
        epochs = [
            SessionChange(row - 1, Event.ASSIGN, session, stream, -1, t_ns) for row, t_ns in begun
        ]
        return sorted([*told, *epochs], key=lambda c: c.row)

    def committed(self, group: str) -> dict[int, tuple[Ints, Ints]]:
        """By stream, the group's confirmed commits by time: (times, next positions)."""
        found: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for c in self.changes:
            if c.event == Event.COMMIT and self.group_of_session.get(c.session) == group:
                found[c.stream].append((c.t_ns, c.position))
        out = {}
        for stream, rows in found.items():
            rows.sort(key=lambda pair: pair[0])
            times, positions = zip(*rows, strict=True)
            out[stream] = (np.array(times, np.int64), np.array(positions, np.int64))
        return out


def _passed(rows: Array, breaks: list[int]) -> Ints:
    """For each of the ascending rows, how many of the breaks lie before it."""
    at = np.searchsorted(rows, breaks, side="right")
    return np.cumsum(np.bincount(at, minlength=len(rows) + 1))[: len(rows)]


class Given:
    """The deliveries of one consumer group. ``first[row]``: the first delivery of each log row; -1
    if there is none.
    """

    def __init__(self, history: BucketHistory, matching: Matching, group: str) -> None:
        self.history = history
        self.matching = matching
        self.group = group
        self.rows = matching.of_group(group)
        # unmatched ones write to the last place
        first = np.full(history.bucket.log.rows + 1, -1, np.int32)
        self.matched = matching.row[self.rows]
        for part in reversed(list(chunks(len(self.matched)))):
            first[self.matched[part][::-1]] = self.numbers(part)[::-1]
        self.first = first[:-1]

    def numbers(self, part: slice) -> Array:
        """Delivery row numbers of a part of `rows`."""
        if isinstance(self.rows, slice):
            return np.arange(part.start, part.stop, dtype=np.int32)
        return self.rows[part].astype(np.int32)

    def messages(self) -> tuple[int, int]:
        """Number of deliveries to the group, and how many of them repeat a message of the log.

        Deliveries of every topic are counted, except probes.
        """
        table = self.history.bucket.deliveries
        given, again = 0, 0
        for part in chunks(len(self.matched)):
            rows = part if isinstance(self.rows, slice) else self.rows[part]
            is_given = (table["event"][rows] == Event.DELIVER) & (table["kind"][rows] != Kind.PROBE)
            stored = np.flatnonzero(is_given & (self.matched[part] >= 0))
            is_first = self.first[self.matched[part][stored]] == self.numbers(part)[stored]
            given += int(np.count_nonzero(is_given))
            again += int(np.count_nonzero(~is_first))
        return given, again

    def delays(self) -> Histogram:
        """How long after they were due messages of the log were handed to the group for the first
        time.

        A delay has the time that the message took to be stored in it. Messages that the group was
        never given, probes, and messages without a due time (of imports) are left out.
        """
        log, t_ns = self.history.bucket.log, self.history.bucket.deliveries["t_ns"]
        found = Dense(1)
        for part in chunks(len(self.first)):
            first, due_ns = self.first[part], log["t_intended_ns"][part]
            counts = (first >= 0) & (log["kind"][part] != Kind.PROBE) & (due_ns > 0)
            waited_ns = t_ns[first[counts]] - due_ns[counts]
            found.add(np.broadcast_to(np.int32(0), len(waited_ns)), waited_ns)
        return found.sparse()

    def of_streams(self, streams: Array) -> Array:
        """Matched deliveries of some streams, in journal order."""
        stream, wanted = self.history.bucket.deliveries["stream"], Lookup(streams)
        found = []
        for part in chunks(len(self.matched)):
            numbers = self.numbers(part)
            own = stream[part] if isinstance(self.rows, slice) else stream[numbers]
            # A matched delivery's stream is one of the log's; an unmatched one may name any stream.
            matched = self.matched[part] >= 0
            found.append(numbers[matched & (wanted.index(np.where(matched, own, 0)) >= 0)])
        return np.concatenate(found) if found else np.empty(0, np.int32)


def judged_groups(history: BucketHistory, matching: Matching) -> list[Given]:
    """Every consumer group that the plan or the capture knows."""
    names = dict.fromkeys([*history.context.group_sessions(), *matching.group_of_session.values()])
    return [Given(history, matching, name) for name in names]
