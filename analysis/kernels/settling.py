"""Judges repeated deliveries where messages are settled one by one (Pulsar): permitted, or whose
fault?

Each delivery of a message but the first is held against the one before it:

    given, [given]              nothing acknowledged: permitted, at least once
    given, acked, [given]       premature-redelivery if an ack timeout was running, the ack came in
                                time and there was no other reason; else redelivered-after-ack, if
                                the broker confirmed the ack before there was any reason to send the
                                message again

Reasons to send a message again are a negative acknowledgement, an ack timeout that passed, a fault
that was applied or had ended a moment before, a consumer that reconnected or ended. A batch is
acknowledged, and times out, as a whole: the client tracks entries, not messages. Where both ends
acknowledge single messages of a batch, a confirmed one must not come again whatever becomes of the
others.

A seek undoes the acknowledgements of what was given before it, and the application asked for what
comes then.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.capture.bucket import Array
from analysis.capture.context import SETTLE_NS, Context
from analysis.kernels.acks import NEVER, Entries, GroupAcks
from analysis.kernels.hits import BITS, Hits, Note, hits, split_index
from analysis.kernels.labels import place_of
from analysis.kernels.matching import Given
from harness.faultlog import ConfirmedAcks
from harness.records import Event


@dataclass(frozen=True, slots=True)
class Repeats:
    """Second and later deliveries: delivery rows, and for each the one before it in time."""

    row: Array
    now: Array
    before: Array


def judge(given: Given, streams: Array) -> list[Hits]:
    """premature-redelivery, redelivered-after-ack, delivery-duplicate.

    ``streams``: those in which some position came twice.
    """
    repeats = _repeats(given, streams)
    if not len(repeats.row):
        return []
    verdicts = _Verdicts(given, repeats, streams)
    found = []
    for cls, split, at in verdicts.sorted_out():
        if len(at):
            found.append(_hits(given, repeats, cls, split, at, verdicts))
    return found


def _repeats(given: Given, streams: Array) -> Repeats:
    matching, table = given.matching, given.history.bucket.deliveries
    delivery = given.of_streams(streams).astype(np.int64)
    row = matching.row[delivery].astype(np.int64)
    counted = np.bincount(row, minlength=1)
    several = np.flatnonzero(counted[row] > 1)
    delivery, row = delivery[several], row[several]
    order = np.lexsort((delivery, table["t_ns"][delivery], row))
    delivery, row = delivery[order], row[order]
    later = np.flatnonzero(row[1:] == row[:-1]) + 1
    return Repeats(row[later], delivery[later], delivery[later - 1])


class _Verdicts:
    """Classes of the repeats of one group.

    Times in ns by repeat, `NEVER` = it did not happen: when the entry was handed over before this
    repeat, when all of it was acknowledged since then, when all of it was confirmed, when it was
    refused.
    """

    def __init__(self, given: Given, repeats: Repeats, streams: Array) -> None:
        table = given.history.bucket.deliveries
        self._given, self._repeats = given, repeats
        #: Sessions may be of several machines. A reason that may have come before a delivery counts
        #: as one.
        self._bound_ns = given.history.context.clock_bound_ns
        self._reading = given.history.context.reading(given.group)
        self._now, self._before = table["t_ns"][repeats.now], table["t_ns"][repeats.before]
        self._session = table["session"][repeats.before].astype(np.int64)
        entries, acks = (
            Entries.around(given.history, repeats.row),
            GroupAcks.from_given(given, streams),
        )
        self._confirmed = acks.confirmed.first(repeats.row)
        if not self._reading.batch_index_acks:
            self._confirmed = entries.latest(acks.confirmed.first(entries.rows))
        self._handed, self._acked = self._before, acks.called.first(repeats.row, self._before)
        self._nacked = acks.nacked.first(repeats.row, self._before)
        #: The same of each message alone: what the broker knows of single messages of a batch.
        self._own_acked, self._own_nacked = self._acked, self._nacked
        #: A member of a failover subscription may be told its turn before it was given what it
        #: prefetched.
        is_turn = self._reading.subscription == "failover"
        self._alive = 0 if is_turn else self._alive_ns(streams)
        self._is_sought = self._after_seek(entries)
        if not entries.alone.all():
            self._in_batches(entries, acks)

    def _in_batches(self, entries: Entries, acks: GroupAcks) -> None:
        """A batch counts from its first message given to its last one acknowledged, the first time
        round; later rounds of a batch cannot be told apart and count as never acknowledged."""
        first = self._first_times(entries.rows)
        handed, acked = entries.earliest(first), entries.latest(acks.called.first(entries.rows))
        nacked = entries.earliest(acks.nacked.first(entries.rows))
        again = self._before != self._first_times(self._repeats.row)
        several = ~entries.alone
        self._handed = np.where(several, handed, self._handed)
        self._acked = np.where(several, np.where(again, NEVER, acked), self._acked)
        self._nacked = np.where(several, nacked, self._nacked)

    def _after_seek(self, entries: Entries) -> Array:
        """Whether the group sought in the stream after it was first given a message of the
        entry."""
        given, found = self._given, np.zeros(len(self._now), np.bool_)
        seeks = [
            (change.stream, change.t_ns)
            for change in given.matching.changes
            if change.event == Event.SEEK
            and given.matching.group_of_session.get(change.session) == given.group
        ]
        if not seeks:
            return found
        first_ns = entries.earliest(self._first_times(entries.rows)) - self._bound_ns
        stream = given.history.bucket.log["stream"][self._repeats.row]
        for number in {sought for sought, _ in seeks}:
            times = np.sort(
                np.array([t_ns for sought, t_ns in seeks if sought == number], np.int64)
            )
            own = np.flatnonzero(stream == number)
            last = np.searchsorted(times, self._now[own] + self._bound_ns, side="right") - 1
            found[own] = (last >= 0) & (times[np.maximum(last, 0)] >= first_ns[own])
        return found

    def _alive_ns(self, streams: Array) -> Array:
        """Until when the connection of each first delivery is known to have lived: a message that
        was sent at that time came over it. 0 = not known."""
        given, history = self._given, self._given.history
        assignments = given.matching.assignments(given.of_streams(streams))
        slots = history.log_slot[given.matching.row[assignments.delivery]]
        sent_ns = np.zeros(len(slots), np.int64)
        known = np.flatnonzero(slots >= 0)
        known = known[history.sent[slots[known]] >= 0]
        sent_ns[known] = history.of_send("t_start_ns", slots[known])
        alive_ns = np.zeros(len(assignments.start_ns), np.int64)
        np.maximum.at(alive_ns, assignments.assignment, sent_ns)
        order = np.argsort(assignments.delivery)
        at = order[np.searchsorted(assignments.delivery[order], self._repeats.before)]
        return np.asarray(alive_ns[assignments.assignment[at]])

    def _sent_ns(self) -> Array:
        """When the message of each repeat was sent; 0 = not known."""
        history = self._given.history
        slots = history.log_slot[self._repeats.row]
        sent_ns = np.zeros(len(slots), np.int64)
        known = np.flatnonzero(slots >= 0)
        known = known[history.sent[slots[known]] >= 0]
        sent_ns[known] = history.of_send("t_start_ns", slots[known])
        return sent_ns

    def _first_times(self, rows: Array) -> Array:
        """When each log row was first given out in the group; `NEVER`: it was not."""
        table, repeats = self._given.history.bucket.deliveries, self._repeats
        first = self._given.first[rows]
        out = np.where(first >= 0, table["t_ns"][first], NEVER)
        repeated, at = np.unique(repeats.row, return_inverse=True)
        earliest = np.full(len(repeated), NEVER)
        np.minimum.at(earliest, at, self._before)
        where = np.minimum(np.searchsorted(repeated, rows), len(repeated) - 1)
        return np.where(repeated[where] == rows, np.minimum(out, earliest[where]), out)

    def sorted_out(self) -> list[tuple[str, str, Array]]:
        """(class, split, indexes of the repeats)."""
        reading, limit = self._reading, self._reading.ack_timeout_ns
        timed = np.full(len(self._now), limit > 0)
        bound_ns = self._bound_ns
        nacked = self._nacked < self._now + bound_ns
        since = self._handed
        if self._given.history.context.brokers_time_acks:  # it may have waited in the client
            since = np.minimum(since, self._sent_ns())
        in_time = timed & (self._acked - since <= limit) & (self._acked < self._now - bound_ns)
        young = timed & (self._now + bound_ns - since < limit) & (self._acked >= self._now)
        by_client = reading.subscription in ("shared", "key_shared")
        sought = self._is_sought
        premature = (in_time | young) & ~nacked & self._quiet() & by_client & ~sought
        confirmed = self._confirmed < self._now - bound_ns
        overdue = timed & ~in_time & ~young
        told = confirmed & ~premature & ~sought & self._had_no_reason(nacked, overdue)
        rest = ~premature & ~told & ~sought
        unasked = rest & ~nacked & ~overdue
        in_doubt = confirmed & reading.acks_confirmed
        return [
            ("premature-redelivery", "acknowledged in time", np.flatnonzero(premature & in_time)),
            ("premature-redelivery", "before the timeout", np.flatnonzero(premature & ~in_time)),
            ("delivery-duplicate", "after seek", np.flatnonzero(sought)),
            *self._after_ack(told),
            ("delivery-duplicate", "after nack", np.flatnonzero(rest & nacked)),
            ("delivery-duplicate", "after ack timeout", np.flatnonzero(rest & ~nacked & overdue)),
            ("delivery-duplicate", "confirmed after a fault", np.flatnonzero(unasked & in_doubt)),
            ("delivery-duplicate", "not acknowledged", np.flatnonzero(unasked & ~in_doubt)),
        ]

    def _had_no_reason(self, nacked: Array, overdue: Array) -> Array:
        """Whether nothing made the broker send the message again before it confirmed the
        acknowledgement."""
        if not self._reading.batch_index_acks:
            return ~nacked & ~overdue & self._undisturbed(self._handed, self._confirmed)
        limit = self._reading.ack_timeout_ns
        late = (limit > 0) & (np.minimum(self._own_acked, self._now) - self._before > limit)
        refused = self._own_nacked < self._now + self._bound_ns
        return ~refused & ~late & self._undisturbed(self._before, self._confirmed, self._alive)

    def _after_ack(self, told: Array) -> list[tuple[str, str, Array]]:
        if not self._reading.acks_confirmed:
            return [("delivery-duplicate", "no receipt", np.flatnonzero(told))]
        crashed = self._fault_between("at-risk")
        return [
            ("redelivered-after-ack", "confirmed", np.flatnonzero(told & ~crashed)),
            ("redelivered-after-ack", "after a crash", np.flatnonzero(told & crashed)),
        ]

    def _quiet(self) -> Array:
        """Nothing happened to the consumer or its broker since the delivery before."""
        table = self._given.history.bucket.deliveries
        now, before = self._repeats.now, self._repeats.before
        moved = (table["session"][now] == table["session"][before]) & (
            table["epoch"][now] != table["epoch"][before]
        )
        return np.asarray(self._undisturbed(self._before, self._now) & ~moved)

    def _undisturbed(self, start: Array, end: Array, alive: Array | int = 0) -> Array:
        return undisturbed(self._given.history.context, self._session, start, end, alive)

    def _fault_between(self, *acks: ConfirmedAcks, effective: bool = True) -> Array:
        """Repeats with such a fault between the confirmed acknowledgement and the second
        delivery."""
        found = np.zeros(len(self._now), np.bool_)
        for fault in self._given.history.context.faults:
            if fault.confirmed_acks in acks and fault.effective >= effective:
                is_after = fault.over_ns >= self._confirmed - self._bound_ns
                found |= is_after & (fault.start_ns <= self._now + self._bound_ns)
        return found

    def unmet(self, cls: str, at: Array) -> Array:
        """Bits of the preconditions that do not hold for the repeats ``at``. Acknowledgements are
        in doubt after a fault if it is unknown whether it cost any, or whether it took effect at
        all."""
        context, group = self._given.history.context, self._given.group
        found = np.zeros(len(self._now), np.uint16)
        if cls == "redelivered-after-ack":
            doubt = self._fault_between(
                "at-risk", "unknown", effective=False
            ) & ~self._fault_between("at-risk")
            found[doubt] = BITS["acks-kept"]
        elif cls == "premature-redelivery":
            whole = all(s.complete for s in context.group_sessions().get(group, []))
            found[:] = 0 if whole else BITS["delivery-capture"]
        return found[at]

    def words(self, i: int) -> Note:
        """Return what came before repeat ``i``, as a note."""
        given, context = self._given, self._given.history.context
        table, now = given.history.bucket.deliveries, int(self._repeats.now[i])
        place = place_of(given.history, int(self._repeats.row[i]))
        before_s = context.seconds(int(self._before[i]))
        said = [f"position {place}, given to session {self._session[i]} at {before_s:.3f} s"]
        if self._acked[i] < self._now[i]:
            said.append(
                f"acknowledged {(self._acked[i] - self._handed[i]) / 1e9:.3f} s after the hand-over"
            )
        if self._confirmed[i] < self._now[i]:
            said.append(f"confirmed at {context.seconds(int(self._confirmed[i])):.3f} s")
        if self._reading.ack_timeout_ns:
            said.append(f"ack timeout {self._reading.ack_timeout_ns / 1e9:g} s")
        if (count := int(table["redelivery"][now])) >= 0:
            said.append(f"redelivery count {count}")
        return Note(detail=", ".join(said))


def undisturbed(
    context: Context, session: Array, start: Array, end: Array, alive: Array | int = 0
) -> Array:
    """No fault was applied, and the first consumer did not end, between two times.

    Clients that reconnect after a fault may still hold messages that the broker has sent again,
    unless the connection of the first delivery outlived the fault. Arrays have one element for each
    repeat.

    Args:
        session: of the first delivery.
        alive: until when its connection is known to have lived; 0 = not known.
    """
    bound_ns = context.clock_bound_ns
    quiet = np.ones(len(start), np.bool_)
    for fault in context.faults:
        if fault.effective:
            is_before = fault.over_ns + SETTLE_NS + bound_ns < start
            is_before |= fault.over_ns + bound_ns < alive
            quiet &= is_before | (fault.start_ns > end + bound_ns)
    ends = {n: s.end_ns for n, s in context.sessions.items() if s.end_ns}
    for number, end_ns in ends.items():
        quiet &= (session != number) | (end_ns >= end + bound_ns)
    return quiet


def _hits(
    given: Given, repeats: Repeats, cls: str, split: str, at: Array, verdicts: _Verdicts
) -> Hits:
    history, now = given.history, repeats.now[at]
    table = history.bucket.deliveries
    return hits(
        cls,
        slot=history.log_slot[repeats.row[at]],
        t_ns=table["t_ns"][now],
        split=np.full(len(at), split_index(cls, split)),
        unmet=verdicts.unmet(cls, at),
        stream=table["stream"][now].astype(np.int64),
        row=repeats.row[at],
        delivery=now,
        session=table["session"][now].astype(np.int64),
        note=lambda i: verdicts.words(int(at[i])),
    )
