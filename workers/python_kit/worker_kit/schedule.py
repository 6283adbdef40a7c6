"""Open-loop schedule: the messages that are due, and the lateness that is the generator's own."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

#: Shortest sleep between looks at the schedule: at 50,000/s some 100 messages a look. A sleep costs
#: some 50 microseconds of CPU, so less would buy little punctuality for much of it.
SLACK_NS = 2_000_000


class Span(NamedTuple):
    """Part of a schedule in which the rate stays the same; ``begin_ns`` counts from the first
    message on.

    ``before``: messages due until it begins, which is rarely a whole number. ``period_ns`` 0 = none
    is due.
    """

    begin_ns: int
    before: float
    period_ns: float


@dataclass(frozen=True, slots=True)
class Schedule:
    """When message i is due; warm-up messages first, then load.

    At one rate that is ``t0_ns + i * period_ns``; with a ``profile`` of (duration in ns, share of
    the rate) it is when the rate, added up over time, has come to i. ``rate_per_s`` 0 means
    unlimited: everything is due at once, until the time is over.
    """

    t0_ns: int
    rate_per_s: float
    warm_up_s: float
    load_s: float
    profile: Sequence[tuple[int, float]] = ()
    _spans: list[Span] = field(init=False, default_factory=list)
    _begins: list[int] = field(init=False, default_factory=list)
    _befores: list[float] = field(init=False, default_factory=list)
    _due: list[float] = field(init=False, default_factory=list)  # in the warm-up, in all

    def __post_init__(self) -> None:
        begin_ns, before = 0, 0.0
        for duration_ns, share in self.profile:
            rate = self.rate_per_s * share
            self._spans.append(Span(begin_ns, before, 1e9 / rate if rate else 0.0))
            self._begins.append(begin_ns)
            self._befores.append(before)
            begin_ns += duration_ns
            before += rate * (duration_ns / 1e9)
        warm_up, load = (
            self.warm_up_s * self.rate_per_s,
            (self.warm_up_s + self.load_s) * self.rate_per_s,
        )
        if self.profile:  # its first span is the warm-up
            warm_up, load = self._befores[1] if len(self._befores) > 1 else before, before
        self._due.extend((warm_up, load))

    @property
    def period_ns(self) -> float:
        """Return the period of a constant rate in nanoseconds; 0 without a rate."""
        return 1e9 / self.rate_per_s if self.rate_per_s else 0.0

    @property
    def warm_up_count(self) -> int:
        """Messages due before the load begins."""
        return math.ceil(self._due[0])

    @property
    def total(self) -> int:
        """Messages due before the load ends."""
        return math.ceil(self._due[1])

    @property
    def load_ns(self) -> int:
        return self.t0_ns + int(self.warm_up_s * 1e9)

    @property
    def end_ns(self) -> int:
        return self.t0_ns + int((self.warm_up_s + self.load_s) * 1e9)

    def due_ns(self, i: int) -> int:
        """When message i is due."""
        if not self._spans:
            return self.t0_ns + int(i * self.period_ns)
        begin_ns, before, period_ns = self._spans[bisect_right(self._befores, i) - 1]
        return self.t0_ns + begin_ns + int((i - before) * period_ns)

    def dues_ns(self, first: int, stop: int) -> array[int]:
        """`due_ns` of messages ``first .. stop-1``, which come quickly one after the other."""
        if not self._spans:
            t0_ns, period_ns = self.t0_ns, self.period_ns
            return array("Q", [t0_ns + int(i * period_ns) for i in range(first, stop)])
        at = bisect_right(self._befores, first) - 1
        if at + 1 < len(self._befores) and self._befores[at + 1] <= stop - 1:
            return array("Q", map(self.due_ns, range(first, stop)))
        begin_ns, before, period_ns = self._spans[at]
        begin_ns += self.t0_ns
        return array("Q", [begin_ns + int((i - before) * period_ns) for i in range(first, stop)])

    def due_count(self, now_ns: int) -> int:
        """Number of messages that are due by now: all i with ``due_ns(i) <= now_ns``, at most
        `total`."""
        if now_ns < self.t0_ns:
            return 0
        elapsed_ns, total = now_ns - self.t0_ns, self.total
        begin_ns, before, period_ns = 0, 0.0, self.period_ns
        if self._spans:
            begin_ns, before, period_ns = self._spans[bisect_right(self._begins, elapsed_ns) - 1]
        passed = (elapsed_ns - begin_ns) / period_ns if period_ns else 0.0
        count = min(int(before + passed) + 1, total)
        while count < total and self.due_ns(count) <= now_ns:  # float rounding at the edge
            count += 1
        while count and self.due_ns(count - 1) > now_ns:
            count -= 1
        return count


class Lateness:
    """Lateness of the generator itself, as if the client had never blocked and nothing been frozen.

    A queue with one server (Lindley's recursion): own work adds to the lateness, messages sent are
    worth the time in which they became due. After the client blocked for seconds the backlog is
    sent much faster than it became due, so the lateness of those messages is not charged to the
    generator; a generator that is too slow is later and later.
    """

    def __init__(self) -> None:
        self._late_ns = 0.0
        self._max_ns = 0.0

    def worked(self, own_ns: int, worth_ns: int) -> None:
        """``own_ns`` without blocked and frozen time went into messages that became due in
        ``worth_ns``."""
        self._max_ns = max(self._max_ns, self._late_ns)
        self._late_ns = max(0.0, self._late_ns + own_ns - worth_ns)

    def caught_up(self, overslept_ns: int) -> None:
        """Nothing was due; the sleep until the next message ended this much too late."""
        self._late_ns = float(max(0, overslept_ns))

    def take_max_ns(self) -> int:
        """The largest lateness since the last call."""
        largest, self._max_ns = max(self._max_ns, self._late_ns), 0.0
        return int(largest)
