"""One sending thread or task of a producer: its lanes, its schedule, its rows, its numbers."""

from __future__ import annotations

import mmap
import struct
import threading
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from . import layouts as lay
from .payload import Sizes, encode
from .process import Session
from .schedule import SLACK_NS, Lateness, Schedule
from .segments import SegmentWriter
from .spec import Turns, lanes
from .template import Template

#: Messages between two looks at commands and delivery reports.
BATCH = 500
ROW_BYTES = lay.ROW_BYTES[lay.SENDS]
#: A call longer than this was blocked by the client, not just busy.
BLOCKED_NS = 5_000_000
#: A span shorter than this cannot hold a freeze worth a look at the clocks.
LONG_NS = 50_000_000
#: How long calls under way are waited for when the capture cannot continue.
SETTLE_NS = 10_000_000_000
#: An application that re-sends (``results: resent``): attempts of a message, and the pause before
#: the next.
MAX_ATTEMPTS = 10
RESEND_NS = 500_000_000
#: Lane and sequence number, and the attempt, in a payload (docs/capture-format.md).
_IDENTITY, _IDENTITY_AT = struct.Struct("<IQ"), 12
_ATTEMPT, _ATTEMPT_AT = struct.Struct("<H"), 36


class Share(NamedTuple):
    """Part of a producer that a sending thread or task has: of its lanes every ``threads``-th from
    ``thread`` on, and as much of its rate. ``segments``: the producer's; None = make them."""

    thread: int
    threads: int
    segments: SegmentWriter | None = None


class Resend(NamedTuple):
    """A send to be repeated: which lane (its index in `Sender.lanes`), which message of it, and
    when."""

    t_ns: int
    lane_index: int
    seq: int
    due_ns: int
    kind: int
    attempt: int


class Step(NamedTuple):
    """Next step: offer messages ``first .. stop-1``, or sleep until ``wake_ns`` when that is not
    0."""

    first: int
    stop: int
    kind: int
    wake_ns: int


class WorkSpan(NamedTuple):
    """Blocked and frozen time until a span of work, and its begin, all in nanoseconds."""

    blocked: int
    frozen: int
    begun: int


class Sender:
    """State of one sending thread or task, and what every send has in common. Times are in
    nanoseconds."""

    def __init__(self, session: Session, share: Share | None = None) -> None:
        """``share`` None = the first thread's or task."""
        part = session.spec.part
        self.session = session
        self.control = session.control
        all_lanes = lanes(part["lane_groups"])
        self.threads = min(part.get("threads", 1), len(all_lanes))
        share = share or Share(0, self.threads)
        self.turns = Turns(all_lanes, part.get("turns", ()), share.thread, share.threads)
        #: By turn of a round; each once, unless some lanes have more messages than others.
        self.lanes = self.turns.lanes
        self.instance: int = part["instance"]
        least: int = part["payload_bytes"]
        most: int = part.get("payload_max_bytes", least)
        compressible = part.get("payload_compressible", -1)
        self.sizes = Sizes(least, most, self.instance, part.get("payload_sizes", ()), compressible)
        text = part.get("payload_template")
        #: Makes bodies in the user's shape; None = payloads are filled.
        charset = part.get("payload_charset", "utf-8")
        self.template = Template(text, self.instance, charset) if text else None
        #: Name and value of each header of a message, as the spec has them.
        self.headers: list[tuple[str, str]] = [
            (each[0], each[1]) for each in part.get("headers", ())
        ]
        #: Name of each header whose value differs by message, and what makes the value.
        self._header_templates = [
            (each[0], Template(each[1], self.instance)) for each in part.get("header_templates", ())
        ]
        self._lane_of = {lane.lane: lane for lane in self.lanes}
        self._run_tag = session.spec.run_tag
        self._length = 0 if self.sizes.vary else least
        self.wait_when_full = part["when_full"] == "wait"
        self.capture: bool = part.get("capture", True)
        self.segments = share.segments or SegmentWriter(
            session.spec.folder, lay.SENDS, self.instance, session.spec.run_tag
        )
        #: Where the next row goes. at == end asks for the next segment, so nothing goes into this
        #: map.
        self.rows = mmap.mmap(-1, 1)
        self.at = self.end = 0
        #: For the rows from now on: written, and the transaction that they are of.
        self.row_state = 1
        rate = part["rate_per_s"] * self.turns.share
        profile = [(each[0], each[1]) for each in part.get("rate_profile", ())]
        self.schedule = Schedule(0, rate, part["warm_up_s"], part["load_s"], profile)
        self.lateness = Lateness()
        self.attempted = self.ok = self.fail = self.info = self.aborted = 0
        self.sends_again: bool = part.get("results", "checked") == "resent"
        #: Sends to repeat, soonest first: every one waits equally long. Client threads append.
        self.resends: deque[Resend] = deque()
        self.resent = 0
        self.blocked_ns = self.blocked_since_ns = 0
        #: Of numbers and completions, for clients that report on threads of their own.
        self.lock = threading.Lock()

    # -- the schedule

    def step(self, sent: int) -> Step:
        """The step after ``sent`` messages, at a rate."""
        schedule, now = self.schedule, time.monotonic_ns()
        due, warm_up = schedule.due_count(now), schedule.warm_up_count
        if due == sent:
            return Step(sent, sent, lay.LOAD, max(schedule.due_ns(sent), now + SLACK_NS))
        edge, kind = (warm_up, lay.WARM_UP) if sent < warm_up else (schedule.total, lay.LOAD)
        return Step(sent, min(due, sent + BATCH, edge), kind, 0)

    def unlimited_step(self, sent: int) -> Step | None:
        """The step after ``sent`` messages without a rate; None when the time is over."""
        now = time.monotonic_ns()
        if now >= self.schedule.end_ns:
            return None
        return Step(sent, sent + BATCH, lay.WARM_UP if now < self.schedule.load_ns else lay.LOAD, 0)

    def dues_ns(self, first: int, stop: int) -> array[int] | None:
        """When messages ``first .. stop-1`` are due; None without a rate: when they are sent."""
        return self.schedule.dues_ns(first, stop) if self.schedule.rate_per_s else None

    def span(self) -> WorkSpan:
        """The begin of a span of the generator's own work."""
        # The clock is read last here and first in `_own_ns`: a freeze in between is not own work.
        return WorkSpan(self.blocked_ns, self.session.report.freeze.frozen_ns, time.monotonic_ns())

    def caught_up(self, span: WorkSpan, wake_ns: int) -> None:
        """Nothing was due in this span, and it should have ended at ``wake_ns``."""
        self.lateness.caught_up(self._own_ns(span, since=wake_ns))

    def worked(self, span: WorkSpan, first: int, stop: int) -> None:
        """This span went into sending messages ``first .. stop-1``."""
        worth_ns = self.schedule.due_ns(stop) - self.schedule.due_ns(first)
        self.lateness.worked(self._own_ns(span, since=span.begun), worth_ns)

    def _own_ns(self, span: WorkSpan, since: int) -> int:
        freeze = self.session.report.freeze
        ended = time.monotonic_ns()
        if ended - span.begun > LONG_NS:
            freeze.check()  # not left to the ticking thread: it may not have run yet
        taken = (self.blocked_ns - span.blocked) + (freeze.frozen_ns - span.frozen)
        return ended - since - taken

    # -- a send

    def payload(self, lane_index: int, seq: int, due_ns: int, kind: int, attempt: int = 0) -> bytes:
        """The payload of one message."""
        lane = self.lanes[lane_index]
        if self.template:
            filling = self.template.body(lane, seq, attempt)
            length = len(filling) + lay.MIN_PAYLOAD_BYTES
        else:
            length = self._length or self.sizes.of(lane.lane, seq)
            filling = self.sizes.filling(lane.lane, seq, length)
        return encode(
            self._run_tag,
            self.instance,
            lane.lane,
            seq,
            due_ns,
            kind,
            lane.key_number,
            attempt,
            length,
            filling,
        )

    def made_headers(self, payload: bytes) -> list[tuple[str, bytes]]:
        """Name and value of each header of a message that differs by message, by its payload."""
        if not self._header_templates:
            return []
        number, seq = _IDENTITY.unpack_from(payload, _IDENTITY_AT)
        (attempt,) = _ATTEMPT.unpack_from(payload, _ATTEMPT_AT)
        lane = self._lane_of[number]
        return [(name, made.body(lane, seq, attempt)) for name, made in self._header_templates]

    def text_headers(self, payload: bytes) -> dict[str, str]:
        """All headers of a message from a template but its identity, where headers are texts."""
        return {
            **dict(self.headers),
            **{name: value.decode() for name, value in self.made_headers(payload)},
        }

    def open_row(
        self, lane: int, seq: int, due_ns: int, kind: int, attempt: int, now_ns: int
    ) -> tuple[mmap.mmap, int]:
        """Write the open part of a row: the map, and where in it the completion part begins.

        Raises:
            WorkerFailure: the next segment cannot be made.
        """
        if not self.capture:
            return self.rows, 0
        if self.at == self.end:
            self.rows, self.at, self.end = self.segments.rotate()
        at, self.at = self.at, self.at + ROW_BYTES
        lay.SENDS_OPEN.pack_into(
            self.rows, at, lane, attempt, kind, seq, due_ns, now_ns, self.row_state
        )
        return self.rows, at + lay.SENDS_DONE_OFFSET

    def finish(
        self,
        rows: mmap.mmap,
        at: int,
        outcome: int,
        error: str,
        again: Callable[[], None] | None = None,
    ) -> None:
        """A send failed: `complete` its row and count it. Any thread.

        Args:
            again: has it repeated: after its time of completion, from which the pause counts, and
                before it is counted, as who sees nothing open must see what is owed.
        """
        with self.lock:
            if self.capture and not self.complete(rows, at, outcome, error):
                return
            if again:
                again()
            self.tally(outcome)

    def complete(self, rows: mmap.mmap, at: int, outcome: int, error: str) -> bool:
        """Complete the row whose completion part is at ``at`` with an error; False: that was done
        before."""
        if rows[at + lay.OUTCOME_IN_DONE]:
            rows[at + lay.LATE_OUTCOME_IN_DONE] = outcome
            return False
        number = self.session.names.id("error", error)
        lay.SENDS_DONE.pack_into(rows, at, time.monotonic_ns(), -1, 0, 0, 0, 0, 0, number, outcome)
        self.session.report.error(error.partition(":")[0], error)
        return True

    def tally(self, outcome: int, count: int = 1) -> None:
        if outcome == lay.OK:
            self.ok += count
        elif outcome == lay.FAIL:
            self.fail += count
        elif outcome == lay.ABORTED:
            self.aborted += count
        else:
            self.info += count

    def schedule_resend(
        self, lane_index: int, seq: int, due_ns: int, kind: int, attempt: int
    ) -> None:
        """The attempt failed: have it repeated, unless it was the last. Any thread."""
        if self.sends_again and attempt + 1 < MAX_ATTEMPTS:
            at_ns = time.monotonic_ns() + RESEND_NS
            self.resends.append(Resend(at_ns, lane_index, seq, due_ns, kind, attempt + 1))

    def due_resends(self) -> Iterable[Resend]:
        """Sends that failed long enough ago; at most those that waited when this began."""
        for _ in range(len(self.resends)):
            if self.resends[0].t_ns > time.monotonic_ns():
                return
            what = self.resends.popleft()
            self.resent += 1
            yield what

    # -- numbers

    def open_calls(self) -> int:
        """Calls that the client has not answered."""
        answered = self.ok + self.fail + self.info + self.aborted
        return max(0, self.attempted + self.resent - answered)

    def counts(self) -> dict[str, int]:
        """Numbers of the stats line; runs on the ticking thread."""
        since = self.blocked_since_ns
        return {
            "attempted": self.attempted + self.resent,
            "ok": self.ok,
            "fail": self.fail,
            "info": self.info,
            "aborted": self.aborted,
            "open": self.open_calls(),
            "late_max_ns": self.lateness.take_max_ns(),
            "blocked_ns": self.blocked_ns + (time.monotonic_ns() - since if since else 0),
        }


def together(senders: Sequence[Sender]) -> dict[str, int]:
    """Numbers of the stats line of a producer with several sending threads or tasks."""
    each = [sender.counts() for sender in senders]
    return {
        name: (max if name == "late_max_ns" else sum)(counts[name] for counts in each)
        for name in each[0]
    }
