"""Detects producers that hang and consumers that stall, during a run.

Open calls are read from the capture, not asked of the process: a frozen or dead-locked worker
cannot report its own hang, but its memory-mapped rows are there to read. Time in which the process
itself did not run does not count.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from harness.contracts.worker import StatsLine
from harness.records import TableId
from harness.segments import SegmentRows

#: A process that was stopped reports its frozen time within moments of going on. Checks are further
#: apart than that, and only what two of them in a row have seen counts.
CHECK_EVERY_S = 1.0
#: A call that was open for longer has made later ones wait. Below the slack of every deadline.
_LONG_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class OpenCalls:
    """Calls without an outcome.

    Attributes:
        count: how many there are.
        oldest_start_ns: when the oldest of them was made (CLOCK_MONOTONIC); 0 = none is open.
        last_done_ns: when the client last answered any call; 0 = never.
        answered_start_ns: of the calls answered last, when the oldest was made; 0 = none was
            answered.
    """

    count: int
    oldest_start_ns: int
    last_done_ns: int = 0
    answered_start_ns: int = 0


@dataclass(frozen=True, slots=True)
class Hang:
    """A producer with a call open past its deadline.

    Attributes:
        open_s: how long the oldest was open, without the time in which the process was frozen.
        last_progress_ns: when the client last answered any call; 0 = never.
    """

    count: int
    since_ns: int
    open_s: float
    deadline_s: float
    last_progress_ns: int


class CallSource(Protocol):
    """The calls of a producer that are open now."""

    def open_calls(self) -> OpenCalls:
        """Return the calls that are open now."""


class SendSegments:
    """Follows one producer's send segments."""

    def __init__(self, folder: Path) -> None:
        self._rows = SegmentRows(folder, TableId.SENDS)
        self._last_done_ns = self._answered_start_ns = 0

    def open_calls(self) -> OpenCalls:
        answered: list[int] = []
        for rows in self._rows.new_rows():
            if len(rows):
                answered.append(int(rows["t_start_ns"].min()))
                self._last_done_ns = max(self._last_done_ns, int(rows["t_done_ns"].max()))
        if answered:
            self._answered_start_ns = min(answered)
        waiting = self._rows.unanswered()["t_start_ns"]
        oldest_ns = int(waiting.min()) if len(waiting) else 0
        return OpenCalls(len(waiting), oldest_ns, self._last_done_ns, self._answered_start_ns)


class HangDetector:
    """Detects that a producer hangs. `check` every `CHECK_EVERY_S`; `froze` for each freeze it
    reports.

    Args:
        deadline_s: a call that is open for longer hangs.
        limits_calls: the client promises an answer within that time. A call of another client may
            have to wait for earlier ones, so its time begins with the last answer to one of them.

    Attributes:
        moved: a check has just seen that a call which was open for long was answered: when it saw
            so, and when the oldest call that is still open was made. None = it has not.
    """

    def __init__(self, sends: CallSource, deadline_s: float, *, limits_calls: bool = True) -> None:
        self._sends = sends
        self.deadline_s = deadline_s
        self.limits_calls = limits_calls
        self.moved: tuple[int, int] | None = None
        self._frozen: list[tuple[int, int]] = []
        self._suspected_ns = self._last_done_ns = 0
        self._oldest_ns = self._moved_ns = 0

    def froze(self, end_ns: int, frozen_ns: int) -> None:
        """The process did not run for ``frozen_ns`` up to ``end_ns``."""
        self._frozen.append((end_ns - frozen_ns, end_ns))

    def check(self, now_ns: int, *, is_stopped: bool) -> Hang | None:
        """The hang that this check and the one before have seen; None while the process is stopped,
        and while the client answers calls that are overdue: it may be about to answer the rest.

        Args:
            now_ns: CLOCK_MONOTONIC.
            is_stopped: the process does not run at this moment (SIGSTOP), and no call is to blame.
        """
        self.moved = None
        if is_stopped:
            self._suspected_ns = 0
            return None
        calls = self._sends.open_calls()
        answered_since, self._last_done_ns = (
            calls.last_done_ns > self._last_done_ns,
            calls.last_done_ns,
        )
        self._follow(calls.oldest_start_ns, now_ns)
        since_ns = max(calls.oldest_start_ns, self._moved_ns)
        open_ns = self._open_ns(since_ns, now_ns)
        deadline_ns = self.deadline_s * 1e9
        if not calls.count or open_ns <= deadline_ns:
            self._suspected_ns = 0
            return None
        if (
            answered_since
            and self._open_ns(calls.answered_start_ns, calls.last_done_ns) > deadline_ns
        ):
            self._suspected_ns = 0
            return None
        seen_before, self._suspected_ns = self._suspected_ns, calls.oldest_start_ns
        if seen_before != calls.oldest_start_ns:
            return None
        return Hang(calls.count, since_ns, open_ns / 1e9, self.deadline_s, calls.last_done_ns)

    def _follow(self, oldest_ns: int, now_ns: int) -> None:
        """Note whether earlier calls were answered, where later ones may wait for them."""
        before_ns, self._oldest_ns = self._oldest_ns, oldest_ns
        if not self.limits_calls and 0 < before_ns < oldest_ns:
            self._moved_ns = now_ns
            if self._open_ns(before_ns, now_ns) > _LONG_S * 1e9:
                self.moved = (now_ns, oldest_ns)

    def _open_ns(self, start_ns: int, end_ns: int) -> int:
        """The time between, without that in which the process was frozen."""
        frozen = sum(overlap_ns(span, (start_ns, end_ns)) for span in disjoint(self._frozen))
        return end_ns - start_ns - frozen


@dataclass(frozen=True, slots=True)
class Stall:
    """A consumer with an assignment was handed nothing for longer than the limit.

    Attributes:
        since_ns: when a check last saw that it had been handed something (CLOCK_MONOTONIC).
        quiet_s: since then, without time in which it was stopped or a fault was applied.
        delivered: what it had been handed until then.
    """

    since_ns: int
    quiet_s: float
    limit_s: float
    delivered: int


class StallDetector:
    """Detects that a consumer was handed nothing for ``limit_s``. `check` every `CHECK_EVERY_S`."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._delivered = -1
        self._since_ns = self._last_ns = 0
        self._quiet_ns = 0

    def check(self, now_ns: int, stats: StatsLine, *, counts: bool) -> Stall | None:
        """
        Args:
            now_ns: CLOCK_MONOTONIC.
            stats: the consumer's latest numbers; ``epoch`` 0 = it has no assignment yet.
            counts: the time since the last check counts: it ran, and no fault was applied.
        """
        passed_ns, self._last_ns = now_ns - self._last_ns, now_ns
        delivered = stats.delivered
        if delivered != self._delivered or not stats.epoch:
            self._delivered, self._since_ns, self._quiet_ns = delivered, now_ns, 0
            return None
        if counts:
            # A late check was held up itself, and so perhaps was the consumer: it counts as one.
            self._quiet_ns += min(passed_ns, int(2 * CHECK_EVERY_S * 1e9))
        if self._quiet_ns <= self._limit_s * 1e9:
            return None
        return Stall(self._since_ns, self._quiet_ns / 1e9, self._limit_s, delivered)


def overlap_ns(a: tuple[int, int], b: tuple[int, int]) -> int:
    """Nanoseconds that two spans share."""
    return max(0, min(a[1], b[1]) - max(a[0], b[0]))


def disjoint(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ascending spans without overlaps that cover the same."""
    out: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], end))
        else:
            out.append((start, end))
    return out
