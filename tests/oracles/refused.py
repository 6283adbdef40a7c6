"""Oracle of refused messages: walk the deliveries of each message, one after the other."""

from __future__ import annotations

from harness.records import Event
from tests.oracles.dispatched import group_of, groups, may_be_dropped
from tests.oracles.facts import Facts, Hit, Place, Row, identity, place
from tests.oracles.removed import cut_of, remade_ns, topic_of_stream
from tests.oracles.settled import NEVER, RECONNECT_NS, first_event, given_in_time
from tests.oracles.stalled import idle_ns

CLASS = "refused-not-redelivered"
PERMITTED = ("dropped", "delivery limit")


def refused(facts: Facts) -> list[Hit]:
    hits = []
    for group in groups(facts):
        reading = facts.context.reading(group)
        if not reading.is_individual or reading.subscription == "queue":
            continue
        given: dict[Place, list[Row]] = {}
        for row in given_in_time(facts, group):
            given.setdefault(place(row), []).append(row)
        for where in sorted(given):
            hit = of_message(facts, group, where, given[where])
            hits += [hit] if hit else []
    return sorted(
        hits, key=lambda hit: PERMITTED.index(hit.split) + 1 if hit.split in PERMITTED else 0
    )


def of_message(facts: Facts, group: str, where: Place, given: list[Row]) -> Hit | None:
    context, reading, last = facts.context, facts.context.reading(group), given[-1]
    settled = [
        first_event(facts, group, event, where) for event in (Event.ACK_CALLED, Event.ACK_CONFIRMED)
    ]
    since = refusals(facts, where, last)
    sought = any(
        r["event"] == Event.SEEK and group_of(facts, r) == group and r["stream"] in (0, where[0])
        for r in facts.deliveries
    )
    is_removed = last["position"] < cut_of(facts, where[0]) or remade_ns(
        facts, topic_of_stream(facts, where[0])
    )
    if (
        identity(last) not in facts.sent
        or min(settled) < NEVER
        or not since
        or sought
        or is_removed
    ):
        return None
    times = max(len(given), *(r["redelivery"] + 1 for r in given))
    if reading.max_deliveries and times >= reading.max_deliveries:
        return Hit(CLASS, identity(last), "delivery limit", t_ns=min(since))
    missing = unmet(facts, group, given)
    may_drop = may_be_dropped(facts, group, last, was_refused=True)
    if may_drop is None:
        missing |= {"settings-known"}
    if context.drained:
        return hit_of(last, "gone from the backlog", missing, min(since), may_drop)
    members = [s for s in context.sessions.values() if s.group == group]
    end = max((s.end_ns for s in members), default=0) or context.end_ns
    due = min(since) + 2 * (reading.nack_delay_ns or 0)
    if not 0 < context.stall_ns < idle_ns(facts, group, where[0], due, end):
        return None
    return hit_of(last, "not given again", missing, min(since), may_drop)


def hit_of(last: Row, split: str, missing: frozenset[str], t_ns: int, may_drop: bool | None) -> Hit:
    if may_drop:
        return Hit(CLASS, identity(last), "dropped", frozenset(), t_ns)
    return Hit(CLASS, identity(last), split, missing, t_ns)


def refusals(facts: Facts, where: Place, last: Row) -> list[int]:
    """When the session of the last delivery refused it, after that."""
    return [
        r["t_ns"]
        for r in facts.deliveries
        if r["event"] == Event.NACK
        and place(r) == where
        and r["session"] == last["session"]
        and r["ordinal"] > last["ordinal"]
    ]


def unmet(facts: Facts, group: str, given: list[Row]) -> frozenset[str]:
    context, reading = facts.context, facts.context.reading(group)
    missing = set()
    if not all(s.complete for s in context.sessions.values() if s.group == group):
        missing.add("delivery-capture")
    if not context.readiness_restored:
        missing.add("readiness-restored")
    delay_counts = not context.drained and reading.nack_delay_ns is None
    if reading.max_deliveries is None or delay_counts:
        missing.add("settings-known")
    later = any(
        f.effective and f.over_ns + RECONNECT_NS >= given[-1]["t_ns"] for f in context.faults
    )
    if reading.max_deliveries and (later or all(r["redelivery"] < 0 for r in given)):
        missing.add("attempts-known")
    return frozenset(missing)


ORACLES = (refused,)
