"""The producer role but for the client: life, schedule, numbers, and the rare ends of a send.

A worker derives from `OpenLoop` and adds the client: how to connect, how to send a run of messages (its
hot loop), how to let delivery reports come in, how to flush. The client is never helped: nothing is sent
twice, nothing is reordered, every result is written down.
"""

from __future__ import annotations

import mmap
import time
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import replace
from typing import NamedTuple

from . import layouts as lay
from .failure import WorkerFailure
from .payload import filler
from .process import Session
from .schedule import SLACK_NS, Lateness, Schedule
from .segments import SegmentWriter
from .spec import lanes

#: Messages between two looks at commands and delivery reports.
BATCH = 500
ROW_BYTES = lay.ROW_BYTES[lay.SENDS]
#: With messages due, delivery reports get this long between two batches.
GLANCE_NS = 2_000_000
NEVER_NS = 2**63 - 1
#: A span shorter than this cannot hold a freeze worth a look at the clocks.
LONG_NS = 50_000_000
#: How long calls under way are waited for when the capture cannot go on.
SETTLE_NS = 10_000_000_000
#: An application that re-sends (``results: resent``): attempts of a message, and the pause before the next.
MAX_ATTEMPTS = 10
RESEND_NS = 500_000_000


class Resend(NamedTuple):
    """A send to be repeated: which lane (its index in `OpenLoop.lanes`), which message of it, and when."""

    t_ns: int
    lane_index: int
    seq: int
    due_ns: int
    kind: int
    attempt: int


class OpenLoop(ABC):
    """One producer instance. `run` returns when every row it will ever complete is complete."""

    def __init__(self, session: Session) -> None:
        part = session.spec.part
        self.session = session
        self.control = session.control
        self.lanes = lanes(part["lane_groups"])
        self.instance: int = part["instance"]
        self.length: int = part["payload_bytes"]
        self.filler = filler(self.length - lay.MIN_PAYLOAD_BYTES)
        self.wait_when_full = part["when_full"] == "wait"
        self.capture: bool = part.get("capture", True)
        self.segments = SegmentWriter(session.spec.folder, lay.SENDS, self.instance, session.spec.run_tag)
        #: Where the next row goes. at == end asks for the next segment, so nothing goes into this map.
        self.rows = mmap.mmap(-1, 1)
        self.at = self.end = 0
        self.schedule = Schedule(0, part["rate_per_s"], part["warm_up_s"], part["load_s"])
        self.lateness = Lateness(self.schedule.period_ns)
        self.attempted = self.ok = self.fail = self.info = 0
        self.sends_again: bool = part.get("results", "checked") == "resent"
        #: Sends to repeat, soonest first: every one waits equally long. Client threads append.
        self.resends: deque[Resend] = deque()
        self.resent = 0
        self.blocked_ns = self.blocked_since_ns = 0
        #: Delivery reports that `serve` has not come to by then are left for the next. Of no use to clients
        #: that report on threads of their own.
        self.serve_by_ns = NEVER_NS

    # -- what the client adds

    @abstractmethod
    def connect(self) -> None:
        """Return when the client knows the topics of every lane."""

    @abstractmethod
    def offer(self, first: int, stop: int, kind: int) -> int:
        """Send messages ``first .. stop-1`` of the schedule, a row before each; returns the next index.

        Returns early when the load is to stop. Sets `attempted` before it returns, waits or asks for a
        segment, and `blocked_ns` when a call blocked.
        """

    @abstractmethod
    def serve(self, seconds: float) -> None:
        """Let delivery reports come in for up to this long; 0 = those that are there. See `serve_by_ns`."""

    @abstractmethod
    def flush(self, seconds: float) -> None:
        """Push what is queued, for up to this long."""

    @abstractmethod
    def close(self) -> None:
        """Close the client if that needs no waiting for brokers."""

    def resend(self, what: Resend) -> None:
        """Send one message again, as the application would. Only for ``results: resent``."""
        raise WorkerFailure("this worker cannot re-send: results must be checked or ignored")

    # -- life

    def run(self) -> None:
        self.connect()
        self.session.report.counts = self.counts
        self.session.ready()
        while not self.control.started.wait(0.02):
            self.serve(0)
        self.schedule = replace(self.schedule, t0_ns=self.control.t0_ns)
        try:
            if self.schedule.rate_per_s:
                self._load_at_rate()
            else:
                self._load_unlimited()
        except WorkerFailure:  # no room for the next row: what is under way still gets its outcome
            self._settle(time.monotonic_ns() + SETTLE_NS)
            raise
        while not self.control.draining:
            self.serve(0.02)
            self.resend_due()
        self._settle(self.control.deadline_ns)
        self.close()

    def _load_at_rate(self) -> None:
        schedule, clock, freeze = self.schedule, time.monotonic_ns, self.session.report.freeze
        warm_up, total, sent = schedule.warm_up_count, schedule.total, 0
        while sent < total and not self.control.stop_load:
            begun, blocked, frozen = clock(), self.blocked_ns, freeze.frozen_ns
            due = schedule.due_count(begun)
            if due == sent:
                wake = max(schedule.due_ns(sent), begun + SLACK_NS)
                self._serve_until(wake)
                self._look_for_freeze(begun)
                self.lateness.caught_up(clock() - wake - (freeze.frozen_ns - frozen))
                continue
            first, edge = sent, warm_up if sent < warm_up else total
            kind = lay.WARM_UP if first < warm_up else lay.LOAD
            sent = self.offer(first, min(due, first + BATCH, edge), kind)
            self._serve_by(max(schedule.due_ns(sent), clock() + GLANCE_NS), 0)
            self.resend_due()
            self._look_for_freeze(begun)
            own = clock() - begun - (self.blocked_ns - blocked) - (freeze.frozen_ns - frozen)
            self.lateness.worked(own, sent - first)

    def _load_unlimited(self) -> None:
        load_ns, end_ns, sent = self.schedule.load_ns, self.schedule.end_ns, 0
        self._serve_until(self.schedule.t0_ns)
        while not self.control.stop_load and (now := time.monotonic_ns()) < end_ns:
            sent = self.offer(sent, sent + BATCH, lay.WARM_UP if now < load_ns else lay.LOAD)
            self.serve(0)
            self.resend_due()

    def _serve_until(self, wake_ns: int) -> None:
        while (left := wake_ns - time.monotonic_ns()) > 0 and not self.control.stop_load:
            self._serve_by(wake_ns, min(left / 1e9, 0.1))
            self.resend_due()

    def _serve_by(self, by_ns: int, seconds: float) -> None:
        """`serve`, but what is due then does not wait: a broker that comes back answers everything that was
        sent meanwhile at once, which is seconds of delivery reports."""
        self.serve_by_ns = by_ns
        self.serve(seconds)
        self.serve_by_ns = NEVER_NS

    def _look_for_freeze(self, since_ns: int) -> None:
        """Do not leave it to the ticking thread when something took long: it may not have run yet."""
        if time.monotonic_ns() - since_ns > LONG_NS:
            self.session.report.freeze.look()

    def _settle(self, deadline_ns: int) -> None:
        """Wait for every open call, until the deadline or `stop`."""
        while (self._open() or self.resends) and not self.control.stopped:
            if time.monotonic_ns() > min(deadline_ns, self.control.deadline_ns):
                break
            self.flush(0.1)
            self.resend_due()
        self.serve(0)

    def resend_due(self) -> None:
        """Send again what failed long enough ago; at most what was waiting when this began."""
        for _ in range(len(self.resends)):
            if self.resends[0].t_ns > time.monotonic_ns():
                return
            what = self.resends.popleft()
            self.resent += 1
            self.resend(what)

    def again(self, lane_index: int, seq: int, due_ns: int, kind: int, attempt: int) -> None:
        """The attempt failed: have it repeated, unless it was the last. Any thread."""
        if self.sends_again and attempt + 1 < MAX_ATTEMPTS:
            at_ns = time.monotonic_ns() + RESEND_NS
            self.resends.append(Resend(at_ns, lane_index, seq, due_ns, kind, attempt + 1))

    # -- numbers

    def _open(self) -> int:
        return max(0, self.attempted + self.resent - self.ok - self.fail - self.info)

    def counts(self) -> dict[str, int]:
        """Numbers of the stats line; runs on the ticking thread."""
        since = self.blocked_since_ns
        return {
            "attempted": self.attempted + self.resent,
            "ok": self.ok,
            "fail": self.fail,
            "info": self.info,
            "open": self._open(),
            "late_max_ns": self.lateness.take_max_ns(),
            "blocked_ns": self.blocked_ns + (time.monotonic_ns() - since if since else 0),
        }

    # -- the rare ends of a send

    def complete(self, rows: mmap.mmap, at: int, outcome: int, error: str) -> None:
        """Complete the row whose completion part is at ``at``: an error, or a second report."""
        if rows[at + lay.OUTCOME_IN_DONE]:
            rows[at + lay.LATE_OUTCOME_IN_DONE] = outcome
            return
        number = self.session.names.id("error", error)
        lay.SENDS_DONE.pack_into(rows, at, time.monotonic_ns(), -1, 0, 0, 0, 0, 0, number, outcome)
        self.session.report.error(error.partition(":")[0], error)
        self.tally(outcome)

    def tally(self, outcome: int) -> None:
        if outcome == lay.OK:
            self.ok += 1
        elif outcome == lay.FAIL:
            self.fail += 1
        else:
            self.info += 1
