"""Oracles of subscriptions that settle message by message: every repeat beside the delivery before
it."""

from __future__ import annotations

from dataclasses import dataclass

from harness.faultlog import FaultRecord
from harness.records import Event
from tests.oracles.dispatched import assignments, group_of, groups
from tests.oracles.facts import Facts, Hit, Place, Row, identity, place

NEVER = (1 << 63) - 1
#: Clients take up to so long to connect again after a fault (docs/explanation/verdicts.md).
RECONNECT_NS = 2_000_000_000


def given_in_time(facts: Facts, group: str) -> list[Row]:
    """Matched deliveries of the group as they happened."""
    rows = [r for r in facts.given() if facts.matches(r) and group_of(facts, r) == group]
    return sorted(rows, key=lambda r: r["t_ns"])


def first_event(facts: Facts, group: str, event: Event, where: Place, since: int = 0) -> int:
    """When the message at a place was first acknowledged (refused, ...) at or after a time."""
    cumulative = facts.context.reading(group).settle == "cumulative" and event != Event.NACK
    rows = [
        r
        for r in facts.deliveries
        if r["event"] == event
        and r["stream"] == where[0]
        and group_of(facts, r) == group
        and place(r) in facts.at
    ]
    reached = False
    for row in sorted(rows, key=lambda r: r["t_ns"]):
        covers = place(row) >= where if cumulative else place(row) == where
        reached = covers or (cumulative and reached)
        if reached and row["t_ns"] >= since:
            return int(row["t_ns"])
    return NEVER


@dataclass(frozen=True)
class Repeat:
    """A delivery, the one of the same message before it, and the messages of its batch."""

    facts: Facts
    group: str
    before: Row
    now: Row

    def entry(self) -> list[Place]:
        return [p for p in self.facts.at if p[:3] == place(self.now)[:3]]

    def first_given(self, where: Place) -> int:
        times = [r["t_ns"] for r in given_in_time(self.facts, self.group) if place(r) == where]
        return min(times, default=NEVER)

    def every(self, event: Event, *, since: int = 0) -> list[int]:
        return [first_event(self.facts, self.group, event, p, since) for p in self.entry()]

    def handed(self) -> int:
        if len(self.entry()) == 1:
            return int(self.before["t_ns"])
        return min(self.first_given(p) for p in self.entry())

    def acked(self) -> int:
        if len(self.entry()) == 1:
            return max(self.every(Event.ACK_CALLED, since=self.before["t_ns"]))
        is_first_round = self.before["t_ns"] == self.first_given(place(self.now))
        return max(self.every(Event.ACK_CALLED)) if is_first_round else NEVER

    def nacked(self) -> int:
        alone = len(self.entry()) == 1
        return min(self.every(Event.NACK, since=self.before["t_ns"] if alone else 0))

    def confirmed(self) -> int:
        if self.facts.context.reading(self.group).batch_index_acks:
            return first_event(self.facts, self.group, Event.ACK_CONFIRMED, place(self.now))
        return max(self.every(Event.ACK_CONFIRMED))

    def alive(self) -> int:
        """When the last message was sent that was given in the assignment of the first delivery."""
        if self.facts.context.reading(self.group).subscription == "failover":
            return 0
        rows, number = self.facts.deliveries, assignments(self.facts)
        own = next(i for i, r in enumerate(rows) if r is self.before)
        same = [
            rows[i]
            for i in number
            if number[i][0] == number[own][0]
            and (rows[i]["stream"], rows[i]["session"])
            == (self.before["stream"], self.before["session"])
        ]
        return max(
            self.facts.sent[identity(r)]["t_start_ns"] if identity(r) in self.facts.sent else 0
            for r in same
        )

    def unhurt(self, start: int, end: int, alive: int = 0) -> bool:
        context = self.facts.context
        session = context.sessions.get(self.before["session"])
        ended = session is not None and 0 < session.end_ns < end
        faults = [
            f
            for f in context.faults
            if f.effective
            and f.start_ns <= end
            and f.over_ns + RECONNECT_NS >= start
            and f.over_ns >= alive
        ]
        return not ended and not faults

    def same_connection(self) -> bool:
        a, b = self.before, self.now
        return bool(a["session"] != b["session"] or a["epoch"] == b["epoch"])

    def since_confirmed(self) -> list[FaultRecord]:
        return [
            f
            for f in self.facts.context.faults
            if f.start_ns <= self.now["t_ns"] and f.over_ns >= self.confirmed()
        ]

    def crashed(self) -> bool:
        return any(f.effective and f.confirmed_acks == "at-risk" for f in self.since_confirmed())

    def doubtful(self) -> bool:
        return (
            any(f.confirmed_acks != "kept" for f in self.since_confirmed()) and not self.crashed()
        )

    def was_sought(self) -> bool:
        """The group sought in the stream after it was first given a message of the entry."""
        first_ns = min(self.first_given(p) for p in self.entry())
        return any(
            r["event"] == Event.SEEK
            and r["stream"] == self.now["stream"]
            and group_of(self.facts, r) == self.group
            and first_ns <= r["t_ns"] <= self.now["t_ns"]
            for r in self.facts.deliveries
        )

    def verdict(self) -> tuple[str, str]:
        if self.was_sought():
            return "delivery-duplicate", "after seek"
        reading, t_ns, before = (
            self.facts.context.reading(self.group),
            self.now["t_ns"],
            self.before["t_ns"],
        )
        limit = reading.ack_timeout_ns
        since = self.handed()
        if self.facts.context.brokers_time_acks:  # it may have waited in the client
            sent = self.facts.sent.get(identity(self.now))
            since = min(since, sent["t_start_ns"] if sent else 0)
        in_time = bool(limit) and self.acked() < t_ns and self.acked() - since <= limit
        young = bool(limit) and self.acked() >= t_ns and t_ns - since < limit
        refused = self.nacked() < t_ns
        shared = reading.subscription in ("shared", "key_shared")
        calm = self.unhurt(before, t_ns) and self.same_connection()
        if shared and (in_time or young) and not refused and calm:
            return (
                "premature-redelivery",
                "acknowledged in time" if in_time else "before the timeout",
            )
        overdue = bool(limit) and not in_time and not young
        settled = self.confirmed() < t_ns
        if reading.batch_index_acks:
            acked, nacked = (
                first_event(self.facts, self.group, event, place(self.now), before)
                for event in (Event.ACK_CALLED, Event.NACK)
            )
            has_reason = nacked < t_ns or (0 < limit < min(acked, t_ns) - before)
            has_reason |= not self.unhurt(before, self.confirmed(), self.alive())
        else:
            has_reason = refused or overdue
            has_reason |= not self.unhurt(self.handed(), self.confirmed())
        if settled and not has_reason:
            if not reading.acks_confirmed:
                return "delivery-duplicate", "no receipt"
            return "redelivered-after-ack", "after a crash" if self.crashed() else "confirmed"
        if refused:
            return "delivery-duplicate", "after nack"
        if overdue:
            return "delivery-duplicate", "after ack timeout"
        is_known = settled and reading.acks_confirmed
        return "delivery-duplicate", "confirmed after a fault" if is_known else "not acknowledged"


def repeats(facts: Facts) -> list[Hit]:
    """Grouped as the report is: what is worst first, then by message and time."""
    found: dict[tuple[str, str], list[Hit]] = {}
    for group in groups(facts):
        reading = facts.context.reading(group)
        if not reading.is_individual or reading.subscription == "queue":
            continue
        last: dict[Place, Row] = {}
        for row in given_in_time(facts, group):
            if place(row) in last:
                repeat = Repeat(facts, group, last[place(row)], row)
                cls, split = repeat.verdict()
                missing = unmet(facts, cls, group)
                if cls == "redelivered-after-ack" and repeat.doubtful():
                    missing |= {"acks-kept"}
                found.setdefault((cls, split), []).append(Hit(cls, identity(row), split, missing))
            last[place(row)] = row
    order = [
        ("premature-redelivery", "acknowledged in time"),
        ("premature-redelivery", "before the timeout"),
        ("delivery-duplicate", "after seek"),
        ("delivery-duplicate", "no receipt"),
        ("redelivered-after-ack", "confirmed"),
        ("redelivered-after-ack", "after a crash"),
        ("delivery-duplicate", "after nack"),
        ("delivery-duplicate", "after ack timeout"),
        ("delivery-duplicate", "confirmed after a fault"),
        ("delivery-duplicate", "not acknowledged"),
    ]
    return [hit for key in order for hit in found.get(key, [])]


def unmet(facts: Facts, cls: str, group: str) -> frozenset[str]:
    members = [s for s in facts.context.sessions.values() if s.group == group]
    judged = cls in ("premature-redelivery", "per-key-reorder")
    return (
        frozenset({"delivery-capture"})
        if judged and not all(s.complete for s in members)
        else frozenset()
    )


def per_key(facts: Facts) -> list[Hit]:
    """Every message of a key against every earlier one."""
    hits: list[Hit] = []
    context = facts.context
    for group in groups(facts):
        if context.reading(group).order != "key":
            continue
        firsts: dict[Place, Row] = {}
        for row in given_in_time(facts, group):
            if row["lane"] < context.n_lanes and context.lane_is_keyed[row["lane"]]:
                firsts.setdefault(place(row), row)
        keys = {(r["stream"], r["lane"]) for r in firsts.values()}
        missing = unmet(facts, "per-key-reorder", group)
        for key in sorted(keys):
            own = [
                firsts[p] for p in sorted(firsts) if (firsts[p]["stream"], firsts[p]["lane"]) == key
            ]
            for i, row in enumerate(own):
                name = identity(row)
                if any(later["t_ns"] < row["t_ns"] for later in own[i + 1 :]):
                    hits.append(Hit("per-key-reorder", name, "overtaken", missing, row["t_ns"]))
                elif any(is_held(facts, group, earlier, row) for earlier in own[:i]):
                    hits.append(
                        Hit("per-key-reorder", name, "held elsewhere", missing, row["t_ns"])
                    )
    return hits


def is_held(facts: Facts, group: str, earlier: Row, row: Row) -> bool:
    """Another session was given the earlier message and has not settled it when this one is
    given."""
    where, since = place(earlier), earlier["t_ns"]
    session = facts.context.sessions.get(earlier["session"])
    released = [
        first_event(facts, group, Event.ACK_CALLED, where, since),
        first_event(facts, group, Event.NACK, where, since),
        *(
            r["t_ns"]
            for r in given_in_time(facts, group)
            if place(r) == where and r["t_ns"] > since
        ),
        (session.end_ns if session else 0) or NEVER,
    ]
    return bool(earlier["session"] != row["session"] and since <= row["t_ns"] < min(released))


ORACLES = (repeats, per_key)
