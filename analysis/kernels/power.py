"""Tells which lost messages went with the power: every replica in sync lost what it had not synced.

The leader change that cut the message off is the one that followed: it began while the fault was
applied or the cluster recovered, and the message was acknowledged, or given to a consumer, before
the power was back. Of systems that do not tell where a leader began (NATS), the log itself tells
how much of it was kept. A loss with another cause, or without a named one, is not excused by a
fault near it.
"""

from __future__ import annotations

import numpy as np

from analysis.capture.bucket import Array
from analysis.capture.context import SETTLE_NS
from analysis.kernels.cause import logged_rows
from analysis.kernels.changes import Because, LostAcks, lost, reached
from analysis.kernels.history import BucketHistory
from harness.contracts.rows import Terms
from harness.faultlog import FaultRecord
from harness.records import Outcome


def lost_with_power(
    history: BucketHistory, stream: Array, seen: LostAcks, *, lied: bool | None = None
) -> Array:
    """Flags of messages that are not in the log, and that somebody knows to have been there.

    Args:
        stream: where they should be.
        seen: their producers when they were acknowledged, or consumers when they were given them.
        lied: only losses of power in which the disks of all replicas in sync had lied (True), or in
            which one of them had not (False).
    """
    context = history.context
    found = np.zeros(len(seen), np.bool_)
    faults = [fault for fault in context.faults if fault.effective and fault.details.unkept]
    for number in np.unique(stream).tolist() if faults else ():
        own = np.flatnonzero(stream == number)
        name = context.stream_name(number)
        hit = [
            fault
            for fault in faults
            if name in fault.details.unkept and lied in (None, name in fault.details.lied)
        ]
        terms = context.terms.get(number, ())
        if hit and any(term.first is not None for term in terms):
            found[own] = _cut_by(history, number, terms, hit, seen.lost_in(own))
        elif hit and context.has_offsets:
            found[own] = _behind_what_was_kept(history, number, hit, seen.lost_in(own))
    return found


def acknowledged(history: BucketHistory, slots: Array) -> LostAcks:
    """Return what producers know about messages: when each was acknowledged, and where if that was
    named."""
    named = history.of_send("stream", slots) > 0
    return LostAcks(
        history.of_send("t_start_ns", slots),
        history.times(slots),
        np.where(named, history.of_send("position", slots), -1).astype(np.int64),
        history.of_send("ledger", slots).astype(np.int64),
    )


def given_out(history: BucketHistory, slots: Array, delivery: Array) -> LostAcks:
    """Return what consumers know about messages: when each was given to one, and where it was."""
    table = history.bucket.deliveries
    position, ledger = (table[name][delivery].astype(np.int64) for name in ("position", "ledger"))
    start_ns = history.of_send("t_start_ns", slots)
    return LostAcks(start_ns, table["t_ns"][delivery], position, ledger)


def _cut_by(
    history: BucketHistory, stream: int, terms: Terms, faults: list[FaultRecord], seen: LostAcks
) -> Array:
    due_ns = reached(terms, logged_rows(history, stream))
    change = lost(terms, seen, due_ns, has_offsets=history.context.has_offsets)
    known = change.because == Because.CHANGE
    cut_ns = np.array([term.t_ns for term in terms], np.int64)[np.where(known, change.next, 0)]
    gone = np.zeros(len(seen), np.bool_)
    for fault in faults:
        back_ns = fault.over_ns if fault.heal_ns is None else fault.heal_ns
        gone |= (
            (seen.done_ns < back_ns)
            & (cut_ns >= fault.start_ns)
            & (cut_ns < fault.over_ns + SETTLE_NS)
        )
    return np.asarray(known & gone)


def _behind_what_was_kept(
    history: BucketHistory, stream: int, faults: list[FaultRecord], seen: LostAcks
) -> Array:
    """Return which messages had a place after the last message that was acknowledged before the
    power was lost and still exists: a log that is cut has no hole before its cut.
    """
    slots = np.flatnonzero((history.outcome == Outcome.OK) & history.present)
    slots = slots[
        (history.of_send("stream", slots) == stream) & ~np.isin(slots, history.ack_elsewhere)
    ]
    at, done_ns = history.of_send("position", slots), history.of_send("t_done_ns", slots)
    gone = np.zeros(len(seen), np.bool_)
    for fault in faults:
        back_ns = fault.over_ns if fault.heal_ns is None else fault.heal_ns
        kept = at[done_ns < fault.start_ns].max(initial=-1)
        gone |= (seen.done_ns < back_ns) & (seen.position > kept)
    return gone
