"""Open-loop schedule: the messages that are due, and the lateness that is the generator's own."""

from __future__ import annotations

import math
from dataclasses import dataclass

#: Shortest sleep between looks at the schedule: at 50,000/s some 100 messages a look. A sleep costs some
#: 50 microseconds of CPU, so less would buy little punctuality for much of it.
SLACK_NS = 2_000_000


@dataclass(frozen=True, slots=True)
class Schedule:
    """Message i is due at ``t0_ns + i * period_ns``; warm-up messages first, then load.

    ``rate_per_s`` 0 means unlimited: everything is due at once, until the time is over.
    """

    t0_ns: int
    rate_per_s: float
    warm_up_s: float
    load_s: float

    @property
    def period_ns(self) -> float:
        return 1e9 / self.rate_per_s if self.rate_per_s else 0.0

    @property
    def warm_up_count(self) -> int:
        """Messages due before the load begins."""
        return math.ceil(self.warm_up_s * self.rate_per_s)

    @property
    def total(self) -> int:
        """Messages due before the load ends."""
        return math.ceil((self.warm_up_s + self.load_s) * self.rate_per_s)

    @property
    def load_ns(self) -> int:
        return self.t0_ns + int(self.warm_up_s * 1e9)

    @property
    def end_ns(self) -> int:
        return self.t0_ns + int((self.warm_up_s + self.load_s) * 1e9)

    def due_ns(self, i: int) -> int:
        """When message i is due."""
        return self.t0_ns + int(i * self.period_ns)

    def due_count(self, now_ns: int) -> int:
        """Number of messages that are due by now: all i with ``due_ns(i) <= now_ns``, at most `total`."""
        if now_ns < self.t0_ns:
            return 0
        count = min(int((now_ns - self.t0_ns) / self.period_ns) + 1, self.total)
        while count < self.total and self.due_ns(count) <= now_ns:  # float rounding at the edge
            count += 1
        while count and self.due_ns(count - 1) > now_ns:
            count -= 1
        return count


class Lateness:
    """Lateness of the generator itself, as if the client had never blocked and nothing been frozen.

    A queue with one server (Lindley's recursion): own work adds to the lateness, every message sent is
    worth one period of it. After the client blocked for seconds the backlog is sent much faster than it
    became due, so the lateness of those messages is not charged to the generator; a generator that is
    too slow falls behind for ever.
    """

    def __init__(self, period_ns: float) -> None:
        self._period_ns = period_ns
        self._late_ns = 0.0
        self._max_ns = 0.0

    def worked(self, own_ns: int, messages: int) -> None:
        """``own_ns`` without blocked and frozen time went into sending ``messages``."""
        self._max_ns = max(self._max_ns, self._late_ns)
        self._late_ns = max(0.0, self._late_ns + own_ns - messages * self._period_ns)

    def caught_up(self, overslept_ns: int) -> None:
        """Nothing was due; the sleep until the next message ended this much too late."""
        self._late_ns = float(max(0, overslept_ns))

    def take_max_ns(self) -> int:
        """The largest lateness since the last call."""
        largest, self._max_ns = max(self._max_ns, self._late_ns), 0.0
        return int(largest)
