"""Judges queues (JMS, AMQP, work queues of NATS): transactions, rollbacks, and deliveries that
stop.

A queue keeps no log. What is known of a message is its send, its deliveries, and whether it
remained after the drain; the journal tells what became of each delivery (`kernels.sessions`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from analysis.capture.bucket import Array
from analysis.capture.context import Context
from analysis.kernels.history import BucketHistory
from analysis.kernels.hits import BITS, Hits, Note, hits, split_index
from analysis.kernels.lookup import ragged
from analysis.kernels.removal import Removal, removed_deliveries
from analysis.kernels.sessions import NEVER, DeliveryJournal, Fate
from analysis.kernels.settling import undisturbed
from harness.records import Event

_SHOWN = 5


def judge(history: BucketHistory) -> list[Hits]:
    """Every class about deliveries from queues except those about time (`kernels.silence`)."""
    if not history.context.has_queues or not len(history.queue_deliveries):
        return []
    journal = DeliveryJournal.from_history(history)
    return [
        *_twice_in_transaction(history, journal),
        *_repeats(history, journal),
        *_lost(history, journal),
        *_rollback_order(history, journal),
    ]


# -- twice


def _twice_in_transaction(history: BucketHistory, journal: DeliveryJournal) -> list[Hits]:
    own = np.flatnonzero(journal.transacted & _several(journal))
    order = own[np.lexsort((journal.row[own], journal.slot[own], journal.stretch[own]))]
    same = (journal.slot[order][1:] == journal.slot[order][:-1]) & (
        journal.stretch[order][1:] == journal.stretch[order][:-1]
    )
    later, before = order[1:][same], order[:-1][same]
    if not len(later):
        return []

    def note(i: int) -> Note:
        first_s = history.context.seconds(int(journal.t_ns[before[i]]))
        return Note(detail=f"session {int(journal.session[later[i]])}, first at {first_s:.3f} s")

    return [_hits(history, journal, "twice-in-transaction", "", later, note)]


def _several(journal: DeliveryJournal) -> Array:
    """Deliveries of messages that were delivered more than once."""
    return np.bincount(journal.slot)[journal.slot] > 1


def _repeats(history: BucketHistory, journal: DeliveryJournal) -> list[Hits]:
    """committed-and-redelivered, redelivered-after-ack, delivery-duplicate."""
    own = np.flatnonzero(_several(journal))
    order = own[np.lexsort((journal.row[own], journal.t_ns[own], journal.slot[own]))]
    slot = journal.slot[order]
    later = np.flatnonzero(slot[1:] == slot[:-1]) + 1
    if not len(later):
        return []
    now, before = order[later], order[later - 1]
    settled_ns = np.full(history.n_slots, NEVER)
    done = np.flatnonzero(journal.fate == Fate.SETTLED)
    np.minimum.at(settled_ns, journal.slot[done], journal.fate_ns[done])
    late = settled_ns[journal.slot[now]] < journal.t_ns[now] - history.context.clock_bound_ns
    by_commit = journal.transacted[now]
    back = (journal.fate[before] == Fate.GIVEN_BACK) & (
        journal.fate_ns[before] <= journal.t_ns[now]
    )
    reasons = _Reasons(history, journal, order, later)
    asked = journal.one_by_one[before] & (back | reasons.overdue | reasons.disturbed)
    told = late & ~asked
    rest = ~told
    one = rest & journal.one_by_one[before]
    in_doubt = (journal.fate[before] == Fate.IN_DOUBT) & ~reasons.has_receipts
    found = []
    for cls, split, chosen in (
        ("committed-and-redelivered", "", told & by_commit),
        ("redelivered-after-ack", "confirmed", told & ~by_commit),
        ("delivery-duplicate", "after rollback", rest & ~one & back),
        ("delivery-duplicate", "after nack", one & back),
        ("delivery-duplicate", "after ack timeout", one & ~back & reasons.overdue),
        ("delivery-duplicate", "confirmed after a fault", one & ~back & ~reasons.overdue & late),
        ("delivery-duplicate", "no receipt", one & ~back & ~reasons.overdue & ~late & in_doubt),
        (
            "delivery-duplicate",
            "not acknowledged",
            rest & ~back & ~(one & (reasons.overdue | late | in_doubt)),
        ),
    ):
        at = np.flatnonzero(chosen)
        if len(at):
            words = _repeat_words(history, journal, now[at], before[at])
            found.append(_hits(history, journal, cls, split, now[at], words))
    return found


class _Reasons:
    """Reasons for which a broker may send a message again whose acknowledgement it confirms later.

    Attributes, by repeat:
        overdue: the acknowledgement did not come within the timeout. The broker counts the time
            from when it sent the message, which is not before the send, or the delivery before: a
            client may keep what it was sent.
        disturbed: a fault or the end of the consumer came before it was confirmed.
        has_receipts: the client waits for the broker's answer to an acknowledgement.
    """

    def __init__(
        self, history: BucketHistory, journal: DeliveryJournal, order: Array, later: Array
    ) -> None:
        context = history.context
        now, before = order[later], order[later - 1]
        first = np.maximum(later - 2, 0)
        is_third = (later >= 2) & (journal.slot[order[first]] == journal.slot[now])
        slot = journal.slot[now]
        sent_ns = np.where(history.sent[slot] >= 0, history.of_send("t_start_ns", slot), 0)
        from_ns = np.where(is_third, journal.t_ns[order[first]], sent_ns)
        until_ns = np.minimum(journal.fate_ns[before], journal.t_ns[now])
        limit, self.has_receipts = np.zeros(len(now), np.int64), np.zeros(len(now), np.bool_)
        for number, facts in context.sessions.items():
            own = journal.session[before] == number
            limit[own], self.has_receipts[own] = (
                facts.reading.ack_timeout_ns,
                facts.reading.acks_confirmed,
            )
        self.overdue = (limit > 0) & (until_ns - from_ns + context.clock_bound_ns > limit)
        self.disturbed = ~undisturbed(context, journal.session[before], from_ns, until_ns)


def _repeat_words(
    history: BucketHistory, journal: DeliveryJournal, now: Array, before: Array
) -> Callable[[int], Note]:
    context, flag = history.context, history.bucket.deliveries["redelivery"]

    def note(i: int) -> Note:
        a, b = int(before[i]), int(now[i])
        fate = Fate(int(journal.fate[a])).name.lower().replace("_", " ")
        when = (
            f" at {context.seconds(int(journal.fate_ns[a])):.3f} s"
            if journal.fate_ns[a] < NEVER
            else ""
        )
        first = f"given to session {int(journal.session[a])} at {context.seconds(int(journal.t_ns[a])):.3f} s"
        shown = int(flag[journal.row[b]])
        said = f", redelivered flag {shown}" if shown >= 0 else ""
        return Note(detail=f"{first}, {fate}{when}{said}")

    return note


# -- lost


def _lost(history: BucketHistory, journal: DeliveryJournal) -> list[Hits]:
    """Messages whose last delivery was given back, or left open, and that do not remain."""
    order = np.lexsort((journal.row, journal.t_ns, journal.slot))
    last = order[np.append(journal.slot[order][1:] != journal.slot[order][:-1], True)]
    over = np.zeros(history.n_slots, np.bool_)
    over[journal.slot[np.isin(journal.fate, (Fate.SETTLED, Fate.IN_DOUBT, Fate.AUTO))]] = True
    slot = journal.slot[last]
    gone = last[(history.first[slot] < 0) & ~over[slot] & (history.sent[slot] >= 0)]
    gone = gone[_is_read(history, journal, gone)]
    gone = gone[
        removed_deliveries(history, journal.slot[gone], journal.row[gone]) != Removal.REMOVED
    ]
    if not len(gone):
        return []
    back, never = (
        split_index("lost-after-rollback", n) for n in ("rolled back", "never committed")
    )

    def note(i: int) -> Note:
        seconds = history.context.seconds(int(journal.t_ns[gone[i]]))
        return Note(
            detail=f"last given to session {int(journal.session[gone[i]])} at {seconds:.3f} s"
        )

    split = np.where(journal.fate[gone] == Fate.GIVEN_BACK, back, never)
    unmet = _gone_evidence(history.context)
    return [_hits(history, journal, "lost-after-rollback", split, gone, note, unmet)]


def _is_read(history: BucketHistory, journal: DeliveryJournal, gone: Array) -> Array:
    """Whether it was read what remains in the queues of deliveries."""
    read = history.context.read_whole
    stream = history.bucket.deliveries["stream"][journal.row[gone]]
    return read[np.minimum(stream, len(read) - 1)]


def _gone_evidence(context: Context) -> int:
    whole = all(s.complete for s in context.sessions.values())
    unmet = 0 if whole else BITS["delivery-capture"]
    return unmet | (0 if context.readiness_restored else BITS["readiness-restored"])


# -- order after a rollback


def _rollback_order(history: BucketHistory, journal: DeliveryJournal) -> list[Hits]:
    """The first delivery of each lane after something was given back, against the lowest that
    waited."""
    if not journal.back_rows:
        return []
    group = history.group(journal.slot)
    seq = history.identity(journal.slot)[:, 2]
    firsts = _first_after(journal, group)
    waiting = _waiting(journal, group, seq, firsts)
    wrong = np.flatnonzero(seq[firsts] > waiting)
    if not len(wrong):
        return []
    table = history.bucket.deliveries
    at, due = firsts[wrong], waiting[wrong]
    event = table["event"][np.array(journal.back_rows)[journal.backs[at] - 1]]
    recovered = split_index("rollback-order", "after a recover")
    rolled_back = split_index("rollback-order", "after a rollback")

    def note(i: int) -> Note:
        me = int(at[i])
        after = np.flatnonzero(
            (journal.session == journal.session[me]) & (journal.row >= journal.row[me])
        )
        shown = " ".join(str(number) for number in seq[after[:_SHOWN]].tolist())
        what = f"session {int(journal.session[me])} was given {int(seq[me])} where {int(due[i])} was due"
        return Note(detail=f"{what}, {int(seq[me] - due[i])} places early; the first ones: {shown}")

    found = _hits(
        history,
        journal,
        "rollback-order",
        np.where(event == Event.RECOVER, recovered, rolled_back),
        at,
        note,
        message=False,
    )
    return [found]


def _first_after(journal: DeliveryJournal, group: Array) -> Array:
    """The first delivery of each group after each give-back of the same session."""
    session_start = np.append(True, journal.session[1:] != journal.session[:-1])
    start = np.maximum.accumulate(np.where(session_start, np.arange(len(session_start)), 0))
    # something was given back in this session
    fresh = np.flatnonzero(journal.backs > journal.backs[start])
    if not len(fresh):
        return fresh
    key = journal.backs[fresh] * (int(group.max()) + 1) + group[fresh]
    return np.sort(fresh[np.unique(key, return_index=True)[1]])


def _waiting(journal: DeliveryJournal, group: Array, seq: Array, firsts: Array) -> Array:
    """For each of ``firsts``, the lowest sequence of its lane that its session had given back and
    was still to be given."""
    out = np.full(len(firsts), NEVER)
    back = np.flatnonzero(journal.fate == Fate.GIVEN_BACK)
    again = _given_again(journal, back)
    keys = np.column_stack([journal.session, group])
    number = np.unique(keys, axis=0, return_inverse=True)[1].ravel()
    # By owner (session and lane) and journal: the firsts that a given-back message may wait before.
    order = np.lexsort((journal.row[firsts], number[firsts]))
    place = number[firsts][order] * (len(journal.row) + 1) + firsts[order]
    low = np.searchsorted(place, number[back] * (len(journal.row) + 1) + back, side="right")
    own_end = np.searchsorted(number[firsts][order], number[back], side="right")
    times = journal.t_ns[firsts][order]
    # Within an owner times grow along the journal, so those at or before ``again`` come first.
    until = _first_later(times, low, own_end, again)
    index, offset = ragged(np.maximum(until - low, 0))
    np.minimum.at(out, order[low[index] + offset], seq[back[index]])
    return out


def _given_again(journal: DeliveryJournal, back: Array) -> Array:
    """When each of these deliveries' message was next given to its session; 0 = it went to another
    one, or, with several sessions, may still be on its way to one."""
    order = np.lexsort((journal.row, journal.t_ns, journal.slot))
    at = np.empty(len(order), np.int64)
    at[order] = np.arange(len(order))
    alone = bool((journal.session == journal.session[0]).all())
    out = np.full(len(back), NEVER if alone else 0)
    following = at[back] + 1
    inside = following < len(order)
    other = order[np.minimum(following, len(order) - 1)]
    same = inside & (journal.slot[other] == journal.slot[back])
    out[same] = np.where(journal.session[other] == journal.session[back], journal.t_ns[other], 0)[
        same
    ]
    return out


def _first_later(times: Array, low: Array, high: Array, limit: Array) -> Array:
    """In each stretch low..high of ascending times, the first place with a time beyond the
    limit."""
    low, high = low.copy(), high.copy()
    while True:
        open_ = low < high
        if not open_.any():
            return low
        middle = (low + high) // 2
        beyond = np.zeros(len(low), np.bool_)
        beyond[open_] = times[middle[open_]] > limit[open_]
        high = np.where(open_ & beyond, middle, high)
        low = np.where(open_ & ~beyond, middle + 1, low)


# -- all


def _hits(
    history: BucketHistory,
    journal: DeliveryJournal,
    cls: str,
    split: str | Array,
    at: Array,
    note: Callable[[int], Note],
    unmet: Array | int = 0,
    *,
    message: bool = True,
) -> Hits:
    """Hits of some deliveries. ``message``: counted by message; else each is one event of its
    session."""
    delivery = journal.row[at]
    slot = journal.slot[at]
    return hits(
        cls,
        slot=slot if message else np.full(len(at), -1),
        t_ns=journal.t_ns[at],
        split=split,
        unmet=unmet,
        stream=history.bucket.deliveries["stream"][delivery].astype(np.int64),
        delivery=delivery,
        session=journal.session[at],
        note=note,
    )
