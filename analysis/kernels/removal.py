"""Tells what a fault took out of the logs, for every class that rests on something being absent.

A fault may cut a log off at its begin, or delete a topic and make it again: what lay there was
removed on purpose. A compacted topic keeps the last message of each key, so an earlier one may be
gone. Where every replica in sync lost its power, what none of them had synced is gone as well;
whether that breaks a promise depends on the settings.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from analysis.capture.bucket import Array, piecewise
from analysis.capture.context import SETTLE_NS, Context
from analysis.kernels.evidence import LogEvidence
from analysis.kernels.history import BucketHistory
from analysis.kernels.power import acknowledged, given_out, lost_with_power

_FAR = np.iinfo(np.int64).max


class Removal(IntEnum):
    """How something that is absent was taken away; the splits of classes bear the lower-case
    names."""

    NOT = 0
    REMOVED = 1
    POWER = 2
    COMPACTED = 3


Removals = npt.NDArray[np.int8]


def removed_sends(history: BucketHistory, slots: Array, stream: Array, position: Array) -> Removals:
    """Return what removed the messages that the log does not hold.

    Args:
        stream, position: where they should be; 0 and -1 unknown.
    """
    evidence = LogEvidence(history)
    removed = piecewise(evidence.removed, slots, stream, position)
    power = lost_with_power(history, stream, acknowledged(history, slots))
    return _named(removed, power, _compacted(history, slots, stream, position))


def removed_deliveries(history: BucketHistory, slots: Array, delivery: Array) -> Removals:
    """The same of messages that consumers were given, and that the log does not hold any more."""
    table, context = history.bucket.deliveries, history.context
    stream, position = (table[name][delivery].astype(np.int64) for name in ("stream", "position"))
    given_ns = table["t_ns"][delivery]
    topic = context.stream_topic[np.where(stream < len(context.stream_topic), stream, 0)]
    removed = LogEvidence(history).removed(slots, stream, position) | (
        given_ns < context.remade[topic]
    )
    given = given_out(history, slots, delivery)
    compacted = _compacted(history, slots, stream, position)
    return _named(removed, lost_with_power(history, stream, given), compacted)


def removed_outputs(
    history: BucketHistory, stream: int, row: Array, source: Array, absent: Array, handed_ns: Array
) -> Removals:
    """The same of outputs of a pipeline that the log does not hold. It makes them in the order of
    their inputs, each when it is handed its input.

    Args:
        stream: where they should be.
        row, source: log rows of the outputs that are there, and the positions of their inputs.
        absent, handed_ns: positions of the other inputs, and when the pipeline was last handed
            each.
    """
    context = history.context
    own = history.bucket.log["stream"][row] == stream
    position, source = history.bucket.log["position"][row[own]], source[own]
    removed = handed_ns < context.remade[context.stream_topic[stream]]
    name, cut = context.stream_name(stream), int(context.cut[stream])
    for fault in context.faults:
        if fault.effective and name in fault.details.cut:
            first_kept = source[position >= cut].min(initial=_FAR)
            removed |= (handed_ns < fault.over_ns) & (absent < first_kept)
    power = np.zeros(len(absent), np.bool_)
    for began_at, back_ns in power_cuts(context, stream):
        last_kept = source[position < began_at].max(initial=-1)
        power |= (handed_ns < back_ns) & (absent > last_kept)
    return _named(removed, power, np.zeros(len(absent), np.bool_))


def power_cuts(context: Context, stream: int) -> Iterator[tuple[int, int]]:
    """Where leaders began that followed a loss of power by all replicas in sync of the stream, and
    when the power was back: what lay there or above is gone. Nothing where positions do not tell
    it."""
    name = context.stream_name(stream)
    for fault in context.faults:
        if not (fault.effective and name in fault.details.unkept and context.has_offsets):
            continue
        back_ns = fault.over_ns if fault.heal_ns is None else fault.heal_ns
        for term in context.terms.get(stream, ()):
            follows = fault.start_ns <= term.t_ns < fault.over_ns + SETTLE_NS
            if follows and term.first is not None:
                yield term.first, back_ns


def may_hold_others(context: Context, stream: int) -> bool:
    """Whether places of the stream may hold other messages than they did once, by what faults
    removed."""
    is_remade = context.remade[context.stream_topic[stream]] > 0
    return bool(is_remade) or any(True for _ in power_cuts(context, stream))


def _compacted(history: BucketHistory, slots: Array, stream: Array, position: Array) -> Array:
    """Whether compaction may have removed each message: its topic keeps the last message of each
    key, and the log has a later one with its key. Compaction moves nothing, so a place that holds
    another message says that the one that was there is lost.

    Args:
        stream, position: where each was; 0 and -1 unknown, which is never compaction.
    """
    context, log = history.context, history.bucket.log
    found = np.zeros(len(slots), np.bool_)
    if not context.is_compacted.any():
        return found
    rows = np.flatnonzero((history.log_slot >= 0) & context.is_compacted[log["stream"]])
    lanes = history.identity(history.log_slot[rows])[:, 1]
    log_stream, log_position = log["stream"][rows].astype(np.int64), log["position"][rows]
    keys, which = np.unique(log_stream * context.n_lanes + lanes, return_inverse=True)
    newest = np.append(np.full(len(keys), -1), -1)  # the last entry: for keys that the log lacks
    np.maximum.at(newest, which, log_position)

    own = np.flatnonzero((position >= 0) & context.is_compacted[stream])
    key = stream[own] * context.n_lanes + history.identity(slots[own])[:, 1]
    at = np.searchsorted(keys, key)
    at[(at == len(keys)) | (np.append(keys, -1)[at] != key)] = len(keys)
    holds_another = np.isin(_places(stream[own], position[own]), _places(log_stream, log_position))
    found[own] = (newest[at] > position[own]) & ~holds_another
    return found


def _places(stream: Array, position: Array) -> Array:
    """One number for each place."""
    return np.asarray((stream << 44) + position)


def _named(removed: Array, power: Array, compacted: Array) -> Removals:
    found = np.where(compacted, Removal.COMPACTED, Removal.NOT)
    found = np.where(power, Removal.POWER, found)
    return np.where(removed, Removal.REMOVED, found).astype(np.int8)
