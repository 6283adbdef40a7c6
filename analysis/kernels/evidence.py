"""Marks which preconditions of a hit do not hold, as bits (`analysis.kernels.hits.BITS`)."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from analysis.capture.bucket import Array, short
from analysis.capture.context import Context
from analysis.kernels.history import BucketHistory
from analysis.kernels.hits import BITS

Bits = npt.NDArray[np.uint32]


class LogEvidence:
    """Answers for many messages at once. "Absent from the log" is only as good as the reading of
    it."""

    def __init__(self, history: BucketHistory) -> None:
        self._history = history
        self._context: Context = history.context

    @cached_property
    def _streams(self) -> tuple[Array, Array, Array]:
        """By stream id: read completely, first position, position read to."""
        bounds = [self._context.stream_bounds(s) for s in range(len(self._context.streams) + 1)]
        complete = self._context.read_whole
        return complete, np.array([b.begin for b in bounds]), np.array([b.read_to for b in bounds])

    @cached_property
    def _topics(self) -> tuple[Array, Array]:
        """By topic: every stream read completely; every stream kept from its start."""
        complete, begin, _ = self._streams
        topic = self._context.stream_topic
        names = range(len(self._context.topics))
        whole = [bool(complete[np.flatnonzero(topic == t)].all()) for t in names]
        kept = [bool((begin[np.flatnonzero(topic == t)] == 0).all()) for t in names]
        return np.array([*whole, False]), np.array([*kept, False])  # the last: no such topic

    def removed(self, slots: Array, stream: Array, position: Array) -> Array:
        """Whether messages lay where a fault removed everything on purpose, or were acknowledged by
        the topic before it was recreated. ``position``: -1 unknown."""
        cut, stream = self._context.cut, short(stream)
        is_one = (stream > 0) & (stream < len(cut))
        known = is_one & (position >= 0)
        is_cut = known & (position < cut[np.where(is_one, stream, 0)])
        done_ns = self._history.of_send("t_done_ns", slots)
        since_ns = self._context.remade[short(self._topic_of(slots))] - self._context.clock_bound_ns
        is_gone = (done_ns > 0) & (done_ns < since_ns)
        for one in np.flatnonzero(known & ~is_gone & self.before_remade(slots)).tolist():
            at = int(stream[min(one, len(stream) - 1)])
            is_gone[one] = self._is_above(at, int(position[one]), int(done_ns[one]))
        return np.asarray(is_cut | is_gone)

    def _is_above(self, stream: int, position: int, done_ns: int) -> bool:
        """Whether a log had not come as far as a position by then.

        What lies there or above was due later, and no later term cut anything off there.
        """
        terms, log = self._context.terms.get(stream, ()), self._history.bucket.log
        if (
            not self._context.has_offsets
            or not terms
            or any(term.first is None or 0 < term.first <= position for term in terms)
        ):
            return False
        own = slice(*np.searchsorted(log["stream"], [stream, stream + 1]))
        at = own.start + int(np.searchsorted(log["position"][own], position))
        return at == own.stop or int(log["t_intended_ns"][at]) > done_ns

    def before_remade(self, slots: Array) -> Array:
        """Whether messages were sent before their topic was recreated. Which of the two topics got
        them is unknown unless they were acknowledged before, or at a position that the second had
        not reached."""
        if not self._context.remade.any():
            return np.zeros(len(slots), np.bool_)
        sent = self._history.sent[slots] >= 0
        start_ns = self._history.of_send("t_start_ns", slots)
        since_ns = self._context.remade[short(self._topic_of(slots))]
        is_before = start_ns < since_ns + self._context.clock_bound_ns
        return np.asarray(sent & (since_ns > 0) & is_before)

    def absent(self, slots: Array, stream: Array, position: Array) -> Bits:
        """For messages not found in the log: was the place read where they would be?

        ``stream``: 0 where unknown, then all of the lane's topic counts. ``position``: -1 unknown.
        """
        complete, begin, read_to = self._streams
        whole, kept = self._topics
        topic, stream = short(self._topic_of(slots)), short(stream)
        known = (stream > 0) & (stream < len(complete))
        at = np.where(known, stream, 0)
        named = known & (position >= 0) & self._context.has_offsets
        read = np.where(known, complete[at] | (named & (position < read_to[at])), whole[topic])
        is_kept = np.where(known, (begin[at] == 0) | (named & (position >= begin[at])), kept[topic])
        restored = 0 if self._context.readiness_restored else BITS["readiness-restored"]
        unread = np.where(read, restored, restored | BITS["audit-complete"]).astype(np.uint32)
        return unread | np.where(is_kept, 0, BITS["log-kept"]).astype(np.uint32)

    @cached_property
    def _seen(self) -> Array:
        """By stream id: the highest position of a log row, -1 = none; nothing where positions do
        not tell."""
        log, seen = self._history.bucket.log, np.full(len(self._context.streams) + 1, -1, np.int64)
        if log.rows and self._context.has_offsets:
            ours = log["stream"] < len(seen)
            np.maximum.at(seen, log["stream"][ours], log["position"][ours])
        return seen

    def is_read(self, absent: Bits, stream: Array, position: Array) -> Array:
        """Whether the reading came to the place of messages: that is proved, or something lies
        there or after it. Elsewhere their absence says nothing at all. ``absent``: as `absent`
        answers for them."""
        proved = np.asarray((absent & BITS["audit-complete"]) == 0)
        if proved.all():
            return proved  # without a look at every row of the log
        known = (stream > 0) & (stream < len(self._seen)) & (position >= 0)
        return np.asarray(proved | (known & (position <= self._seen[np.where(known, stream, 0)])))

    def _topic_of(self, slots: Array) -> Array:
        return self._history.by_group(self._topic_of_group, slots)

    @cached_property
    def _topic_of_group(self) -> Array:
        lane = self._history.groups.lane
        known = (lane >= 0) & (lane < self._context.n_lanes)
        topic = np.full(len(lane), -1)
        topic[known] = self._context.lane_topic[lane[known]]
        return topic

    def producer_ended(self, slots: Array) -> Bits:
        """Bit where the message's producer is not known to have ended."""
        instance = self._history.groups.instance
        running = [n for n in np.unique(instance).tolist() if not self._context.instance(n).end_ns]
        unmet = np.where(np.isin(instance, running), BITS["producer-ended"], 0).astype(np.uint32)
        return self._history.by_group(unmet, slots)
