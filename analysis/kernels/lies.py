"""Marks the hits that a lie of a fault may explain: a client was right to act on an error, or a
broker on a disk that said that it had synced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from analysis.capture.bucket import Array, piecewise
from analysis.capture.context import Context, Lie
from analysis.classes import CLASSES
from analysis.kernels.history import BucketHistory
from analysis.kernels.hits import BITS, Hits
from analysis.kernels.power import acknowledged, given_out, lost_with_power

#: The client goes to another position: every message that was in the log until then may be skipped
#: or come again.
REPOSITION = "reposition"
#: A member joins its group again, and the coordinator waits for a member that no longer is: how
#: long is not known, and no message is given out meanwhile. `analysis.kernels.stall` knows which
#: stretches of time that may explain.
REJOIN = "rejoin"
#: A consumer that checks nothing passes on what was changed on the way to it.
DAMAGE = "damage"
#: The split of what a loss of power took.
_POWER: Final = "power"
_SKIPPED: Final = "input-skipped"
#: An application that checks nothing may read another name of its input than the log holds.
_NAMED_WRONG: Final = "phantom-output"


def believed(history: BucketHistory, found: Sequence[Hits]) -> list[Hits]:
    """Return the hits, those without the evidence ``answers-kept`` that a false error may explain:
    the message was sent while it was believed, or could be read then."""
    marked = []
    for one in found:
        lies = lies_about(history.context, one.cls)
        if lies and len(one):
            unmet = one.unmet.copy()
            unmet[_may_explain(history, one, lies)] |= BITS["answers-kept"]
            one = replace(one, unmet=unmet)
        marked.append(one)
    return marked


def unsynced(history: BucketHistory, found: Sequence[Hits]) -> list[Hits]:
    """Return the hits, those without the evidence ``answers-kept`` that a loss of power took from
    streams of which every replica in sync had a disk that lied.

    When power was lost several times, a message is left out that only another one of them can have
    taken. Skipped inputs are not told apart in this way, and not by stream either: the lost output
    or offset was in another stream, which a hit does not name. Nor is it known which bytes of a
    file a message was: a disk that lied about some of a stream's messages may have lied about any.
    """
    lied = lied_streams(history.context)
    if not lied:
        return list(found)
    names = history.context.streams
    streams = [number for number, name in enumerate(names, start=1) if name in lied]
    marked = []
    for one in found:
        if _POWER in one.splits and len(one):
            # An input that was skipped names its own stream; the lost output was in another one.
            here = np.isin(one.stream, streams) | (one.cls == _SKIPPED)
            own = np.flatnonzero(here & (one.split == one.splits.index(_POWER)))
            unmet = one.unmet.copy()
            unmet[own[~_kept_its_word(history, one, own)]] |= BITS["answers-kept"]
            one = replace(one, unmet=unmet)
        marked.append(one)
    return marked


def _kept_its_word(history: BucketHistory, hits: Hits, own: Array) -> Array:
    """By hit, whether the power loss that took it is one in which a replica in sync had a disk that
    did not lie, and none in which all lied can have taken it."""
    found = np.zeros(len(own), np.bool_)
    if hits.cls == _SKIPPED:
        return found
    for is_given in (False, True):
        rows = np.flatnonzero((hits.slot[own] >= 0) & ((hits.delivery[own] >= 0) == is_given))
        if not len(rows):
            continue
        slots, stream = hits.slot[own[rows]], hits.stream[own[rows]].astype(np.int64)
        seen = (
            given_out(history, slots, hits.delivery[own[rows]])
            if is_given
            else acknowledged(history, slots)
        )
        found[rows] = lost_with_power(history, stream, seen, lied=False)
        found[rows] &= ~lost_with_power(history, stream, seen, lied=True)
    return found


def lied_streams(context: Context) -> set[str]:
    """Return the streams of which every replica in sync lost messages that its disk had said to be
    synced; streams of the brokers' own topics are among them."""
    return {stream for fault in context.faults if fault.effective for stream in fault.details.lied}


def lies_about(context: Context, cls: str) -> list[Lie]:
    """Return the false errors of a run that permit what a class is about."""
    return [lie for lie in context.lies if lie.permits in CLASSES[cls].excused_by]


def _may_explain(history: BucketHistory, hits: Hits, lies: Sequence[Lie]) -> Array:
    """By hit, whether one of the lies may explain it."""
    begun, ended = hits.t_ns.copy(), hits.t_ns.copy()
    own = np.flatnonzero(hits.slot >= 0)
    begun[own], ended[own] = _spans(history, hits.slot[own])
    explained = np.zeros(len(hits), bool)
    for lie in lies:
        if lie.permits == REJOIN:
            continue
        own_time = begun <= lie.until_ns
        if lie.permits == DAMAGE:  # on the way to a consumer only, and not in the log
            own_time &= (hits.delivery >= 0) | (hits.cls == _NAMED_WRONG)
        elif lie.permits != REPOSITION:
            own_time &= ended >= lie.since_ns
        explained |= own_time
    return explained


def _spans(history: BucketHistory, slots: Array) -> tuple[Array, Array]:
    """When the send of each message began and ended. A message without a record of its send may
    have been sent at any time, and a send without an outcome never ended."""
    never = np.iinfo(np.int64).max

    def begun(slots: Array) -> Array:
        start = history.of_send("t_start_ns", slots).astype(np.int64)
        return np.where(history.sent[slots] >= 0, start, 0)

    def ended(slots: Array) -> Array:
        done = history.of_send("t_done_ns", slots).astype(np.int64)
        return np.where((history.sent[slots] >= 0) & (done > 0), done, never)

    return piecewise(begun, slots), piecewise(ended, slots)
