"""Reads journals of queue consumers (JMS, AMQP, NATS): the fate of each delivery, from the
journal's order.

A session settles everything it was given so far, so the fate of a delivery is the next boundary of
its session: a commit or acknowledgement *settles*, a rollback or recover *gives back*; a commit
that was called and never confirmed, or a reconnect, leaves it *in doubt*; without one it is *open*,
and goes back to the queue when the session ends. A refusal (nack) gives back the delivery just
before it.

Acknowledgements and refusals of NATS name a position. Each one is about the delivery of that
message alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from analysis.capture.bucket import Array
from analysis.kernels.history import BucketHistory
from analysis.kernels.lookup import Ints
from harness.records import Event

#: Later than every time.
NEVER = int(np.iinfo(np.int64).max)


class Fate(IntEnum):
    """The fate of a delivery in its session."""

    OPEN = 0
    SETTLED = 1
    GIVEN_BACK = 2
    IN_DOUBT = 3
    AUTO = 4  # settled by the client itself, at a time that is not recorded


_FATE = {
    Event.COMMIT: Fate.SETTLED,
    Event.ACK_CONFIRMED: Fate.SETTLED,
    Event.ROLLBACK_END: Fate.GIVEN_BACK,
    Event.RECOVER: Fate.GIVEN_BACK,
    Event.COMMIT_CALLED: Fate.IN_DOUBT,
    Event.ACK_CALLED: Fate.IN_DOUBT,  # AMQP 0-9-1: the broker does not answer an acknowledgement
    Event.ROLLBACK_BEGIN: Fate.IN_DOUBT,
}
#: Events that are about one message if they name its position.
_OF_ONE = (Event.ACK_CALLED, Event.ACK_CONFIRMED, Event.NACK)
#: What the first of these is once the second follows: no boundary of its own.
_ANSWERED = {
    (Event.COMMIT_CALLED, Event.COMMIT),
    (Event.ACK_CALLED, Event.ACK_CONFIRMED),
    (Event.COMMIT_CALLED, Event.ROLLBACK_BEGIN),
    (Event.COMMIT_CALLED, Event.ROLLBACK_END),
    (Event.ROLLBACK_BEGIN, Event.ROLLBACK_END),
}
_RECONNECT = 0  # no Event has this number


@dataclass(frozen=True)
class DeliveryJournal:
    """Queue deliveries of all sessions, by (session, ordinal). Arrays have one length.

    Attributes:
        row: delivery rows.
        stretch: number of the stretch between two boundaries, over all sessions; in a transacted
            session, its transaction.
        backs: how many times something was given back before it, over all sessions: grows with the
            journal.
        fate, fate_ns: what became of it, and when; `NEVER` for open ones.
        transacted: its session is.
        one_by_one: acknowledgements of its session name the message.
    """

    row: Array
    slot: Array
    session: Array
    t_ns: Array
    stretch: Array
    backs: Array
    fate: Array
    fate_ns: Array
    transacted: Array
    one_by_one: Array
    # delivery-table row of each give-back boundary
    back_rows: list[int] = field(default_factory=list)

    @classmethod
    def from_history(cls, history: BucketHistory) -> DeliveryJournal:
        """Read the journals of all sessions of queues in a bucket."""
        table = history.bucket.deliveries
        row = history.queue_deliveries
        session = table["session"][row].astype(np.int64)
        count = len(row)
        stretch, backs = np.zeros(count, np.int64), np.zeros(count, np.int64)
        fate, fate_ns = np.zeros(count, np.int64), np.full(count, NEVER)
        transacted, one_by_one = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
        back_rows: list[int] = []
        first_stretch = 0
        for number in np.unique(session).tolist():
            own = np.flatnonzero(session == number)
            bounds = _Boundaries.from_session(history, number, row[own])
            at = np.searchsorted(bounds.key, 2 * row[own], side="left")
            stretch[own] = first_stretch + at
            given_back = bounds.fate == Fate.GIVEN_BACK
            backs[own] = len(back_rows) + np.append(0, np.cumsum(given_back))[at]
            known = at < len(bounds.key)
            is_auto = bounds.settle == "auto"
            fate[own] = Fate.AUTO if is_auto else Fate.OPEN
            fate[own[known]] = bounds.fate[at[known]]
            fate_ns[own[known]] = bounds.t_ns[at[known]]
            named = _named(history, number)
            one_by_one[own] = len(named) > 0
            if len(named):
                fate[own], fate_ns[own] = _settled_one_by_one(history, number, row[own], named)
            else:
                _refuse(history, number, row[own], own, fate, fate_ns)
            transacted[own] = bounds.transacted
            back_rows += (bounds.key[given_back] // 2).tolist()
            first_stretch += len(bounds.key) + 1
        slot, t_ns = history.delivery_slot[row].astype(np.int64), table["t_ns"][row]
        return cls(
            row,
            slot,
            session,
            t_ns,
            stretch,
            backs,
            fate,
            fate_ns,
            transacted,
            one_by_one,
            back_rows,
        )


@dataclass(frozen=True, slots=True)
class _Boundaries:
    """Where stretches of one session end: twice the row (one less: just before it), fate, time."""

    key: Ints
    fate: Array
    t_ns: Ints
    settle: str
    transacted: bool

    @classmethod
    def from_session(cls, history: BucketHistory, session: int, given: Array) -> _Boundaries:
        """Return where the session's acknowledgements can cover more than one delivery."""
        table = history.bucket.deliveries
        known = history.context.sessions.get(session)
        settle = known.reading.settle if known else "ack"
        transacted = settle == "transacted" or bool((table["txn_id"][given] > 0).any())
        low, high = (
            int(np.searchsorted(table["session"], session, side=s)) for s in ("left", "right")
        )
        own = np.arange(low, high)
        own = own[np.isin(table["event"][low:high], list(_FATE))]
        event = table["event"][own].tolist()
        follows = [*event[1:], _RECONNECT][: len(event)]
        kept = [
            i for i, pair in enumerate(zip(event, follows, strict=True)) if pair not in _ANSWERED
        ]
        fates = [_FATE[Event(event[i])] for i in kept]
        keys, times = 2 * own[kept], table["t_ns"][own[kept]]
        epoch = table["epoch"][given].astype(np.int64)
        moved = given[np.flatnonzero(np.diff(epoch)) + 1]
        keys = np.concatenate([keys, 2 * moved - 1]).astype(np.int64)
        fate = np.concatenate([np.array(fates, np.int64), np.full(len(moved), Fate.IN_DOUBT)])
        times = np.concatenate([times, table["t_ns"][moved]])
        order = np.argsort(keys, kind="stable")
        return cls(keys[order], fate[order], times[order], settle, transacted)


def _named(history: BucketHistory, session: int) -> Ints:
    """Rows of a session's acknowledgements and refusals that name a position."""
    table = history.bucket.deliveries
    low, high = (int(np.searchsorted(table["session"], session, side=s)) for s in ("left", "right"))
    is_named = np.isin(table["event"][low:high], _OF_ONE) & (table["position"][low:high] >= 0)
    return np.flatnonzero(is_named) + low


def _settled_one_by_one(
    history: BucketHistory, session: int, given: Array, named: Ints
) -> tuple[Array, Array]:
    """Fate and its time of each delivery of a session: what was last said of its position before it
    was given again. Without a receipt of the broker an acknowledgement leaves its message in doubt.

    Args:
        given: delivery rows of the session, ascending.
        named: rows of its acknowledgements and refusals, ascending.
    """
    table, known = history.bucket.deliveries, history.context.sessions.get(session)
    fate, fate_ns = np.full(len(given), int(Fate.OPEN)), np.full(len(given), NEVER)
    rows = np.concatenate([given, named])
    stream, position = table["stream"][rows], table["position"][rows]
    order = np.lexsort((rows, position, stream))
    is_given = order < len(given)
    last = np.maximum.accumulate(np.where(is_given, np.arange(len(order)), -1))
    said = np.flatnonzero(~is_given & (last >= 0))
    of, own = order[last[said]], order[said]
    same = (stream[of] == stream[own]) & (position[of] == position[own])
    of, own = of[same], rows[own[same]]
    in_turn = np.argsort(own)  # the last statement about a delivery counts
    of, own = of[in_turn], own[in_turn]
    event = table["event"][own]
    has_receipts = known is not None and known.reading.acks_confirmed
    settled = Fate.SETTLED if has_receipts else Fate.IN_DOUBT
    fate[of] = np.select(
        [event == Event.NACK, event == Event.ACK_CONFIRMED],
        [Fate.GIVEN_BACK, settled],
        Fate.IN_DOUBT,
    )
    fate_ns[of] = table["t_ns"][own]
    return fate, fate_ns


def _refuse(
    history: BucketHistory, session: int, given: Array, own: Array, fate: Array, fate_ns: Array
) -> None:
    """A nack gives back the delivery before it, whatever is acknowledged later.

    Every bucket has the nack, and one of them the delivery: the others lack a row between.
    """
    table = history.bucket.deliveries
    low, high = (int(np.searchsorted(table["session"], session, side=s)) for s in ("left", "right"))
    nacks = np.flatnonzero(table["event"][low:high] == Event.NACK) + low
    at = np.searchsorted(given, nacks) - 1
    nacks, at = nacks[at >= 0], at[at >= 0]
    ordinal = table["ordinal"]
    is_next = ordinal[nacks] - ordinal[given[at]] == nacks - given[at]
    nacks, at = nacks[is_next], at[is_next]
    fate[own[at]] = Fate.GIVEN_BACK
    fate_ns[own[at]] = table["t_ns"][nacks]
