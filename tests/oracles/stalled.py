"""Oracle of stalls: count the milliseconds of every gap, one by one."""

from __future__ import annotations

from analysis.capture.context import SessionFacts
from harness.records import Event, Outcome, Txn
from tests.oracles.dispatched import group_of, groups
from tests.oracles.excused import lies_about
from tests.oracles.facts import Facts, Hit, Place, Row, identity, place
from tests.oracles.transacted import members, transactions

#: Small histories put every time on this grid, so a gap can be walked.
STEP_NS = 500_000_000
NEVER_NS = 1 << 62


def stall(facts: Facts) -> list[Hit]:
    return [
        hit
        for group in groups(facts)
        for stream in sorted({row["stream"] for row in facts.log})
        for hit in of_stream(facts, group, stream)
    ]


def of_stream(facts: Facts, group: str, stream: int) -> list[Hit]:
    context = facts.context
    reading = context.reading(group)
    mine = [r for r in facts.deliveries if group_of(facts, r) == group]
    held = [r["t_ns"] for r in mine if r["event"] == Event.ASSIGN and r["stream"] in (stream, 0)]
    if reading.is_individual and not held:
        held = [s.start_ns or context.load_start_ns for s in readers(facts, group, stream)]
    if not held or context.stall_ns <= 0 or reading.subscription == "queue":
        return []
    given = sorted(
        (r["t_ns"], i, place(r))
        for i, r in enumerate(mine)
        if r["event"] == Event.DELIVER
        and r["stream"] == stream
        and facts.is_message(r)
        and facts.matches(r)
    )
    members = [s for s in context.sessions.values() if s.group == group]
    end = max((s.end_ns for s in members), default=0) or context.end_ns
    edges: list[tuple[int, Place]] = [(min(held), (-1, -1, -1, -1)), *((t, p) for t, _, p in given)]
    stops = [*(t for t, _, _ in given), max(end, edges[-1][0])]
    hits = []
    for number, ((begin, _), stop) in enumerate(zip(edges, stops, strict=True)):
        above = max(p for _, p in edges[: number + 1])
        waiting = [acked for acked, where in available(facts, group, stream) if where > above]
        if number == len(given) and reading.is_individual:
            seen = {p for _, _, p in given}
            waiting = [
                acked for acked, where in available(facts, group, stream) if where not in seen
            ]
        start = max(begin, min(waiting, default=stop))
        if (
            stop - start > context.stall_ns
            and idle_ns(facts, group, stream, start, stop) > context.stall_ns
        ):
            unmet = frozenset() if context.readiness_restored else frozenset({"readiness-restored"})
            told = min((since for _, since, _ in lies_about(facts, "stall")), default=stop)
            if told < stop and idle_ns(facts, group, stream, start, told) <= context.stall_ns:
                unmet |= {"answers-kept"}
            cls, split = "stall", "resumed" if number < len(given) else "to the end"
            if split == "to the end" and is_vacant(facts, group, stream, context.end_ns - 1):
                split = "held by nobody"
            if number == len(given) and reading.is_individual:
                cls, split, unmet = "backlog-stuck", "", unmet - {"answers-kept"}
            hits.append(Hit(cls, ("stall", stream, start), split, unmet, start))
    return hits


def readers(facts: Facts, group: str, stream: int) -> list[SessionFacts]:
    """Sessions of the group that subscribed to the stream's topic."""
    topic = facts.context.stream_name(stream).rpartition("-")[0]
    return [s for s in facts.context.sessions.values() if s.group == group and topic in s.topics]


def acknowledged(facts: Facts, stream: int) -> list[tuple[int, Place]]:
    """When each message of the stream was acknowledged, and its position."""
    found = []
    for row in facts.log:
        sent = facts.sent.get(identity(row)) if facts.visible(row) else None
        if row["stream"] == stream and sent and sent["outcome"] == Outcome.OK:
            found.append((sent["t_done_ns"], place(row)))
    return found


def available(facts: Facts, group: str, stream: int) -> list[tuple[int, Place]]:
    """As `acknowledged`; readers of committed data wait for the end of all transactions before
    it."""
    found = acknowledged(facts, stream)
    if not any(s.committed_only for s in facts.context.sessions.values() if s.group == group):
        return found
    rows = [
        r
        for r in facts.log
        if r["stream"] == stream and facts.is_message(r) and r["txn"] != Txn.NONE
    ]
    ends = [(place(row), end_ns(facts, group, row, rows)) for row in rows]
    return [
        (max([t_ns, *(end for at, end in ends if at <= where)]), where) for t_ns, where in found
    ]


def end_ns(facts: Facts, group: str, row: Row, rows: list[Row]) -> int:
    """When the transaction of a row of the log was over, as its producer was answered; else when
    something at or behind its first row in the stream was given out."""
    if row["txn"] == Txn.OPEN:
        return NEVER_NS
    key, own = members(facts).get(identity(row)), members(facts)
    ended = transactions(facts)[key] if key else {"outcome": Outcome.INFO, "t_done_ns": 0}
    if ended["outcome"] in (Outcome.OK, Outcome.ABORTED) and ended["t_done_ns"]:
        return int(ended["t_done_ns"])
    first = min(place(r) for r in rows if r is row or (key and own.get(identity(r)) == key))
    times = [
        r["t_ns"]
        for r in facts.given()
        if r["stream"] == row["stream"] and group_of(facts, r) == group and facts.matches(r)
        if place(r) >= first
    ]
    return min(times, default=NEVER_NS)


def idle_ns(facts: Facts, group: str, stream: int, start: int, stop: int) -> int:
    """Time in which a running member held the stream and no fault was applied."""
    steps = [t for t in range(start, stop, STEP_NS) if not is_excused(facts, t)]
    return STEP_NS * sum(
        is_held(facts, group, stream, t) or is_vacant(facts, group, stream, t) for t in steps
    )


def is_held(facts: Facts, group: str, stream: int, t_ns: int) -> bool:
    told = [
        r for r in facts.deliveries if r["event"] == Event.ASSIGN and group_of(facts, r) == group
    ]
    if facts.context.reading(group).is_individual and not told:
        return any(
            (s.start_ns or facts.context.load_start_ns) <= t_ns
            and (not s.end_ns or t_ns < s.end_ns)
            and not any(a <= t_ns < b for a, b in s.frozen)
            for s in readers(facts, group, stream)
        )
    for number in {r["session"] for r in facts.deliveries if group_of(facts, r) == group}:
        session = facts.context.sessions.get(number)
        events = [
            r
            for r in facts.deliveries
            if r["session"] == number
            and r["stream"] in (stream, 0)
            and r["event"] in (Event.ASSIGN, Event.REVOKE)
            and r["t_ns"] <= t_ns
        ]
        running = not session or not any(a <= t_ns < b for a, b in session.frozen)
        alive = not session or not session.end_ns or t_ns < session.end_ns
        if events and events[-1]["event"] == Event.ASSIGN and running and alive:
            return True
    return False


def is_vacant(facts: Facts, group: str, stream: int, t_ns: int) -> bool:
    """Given back before, held by nobody from then on, while a member runs and producers do."""
    return (
        not facts.context.reading(group).is_individual
        and left_ns(facts, group, stream) <= t_ns < facts.context.end_ns
        and any(
            s.start_ns <= t_ns
            and (not s.end_ns or t_ns < s.end_ns)
            and not any(a <= t_ns < b for a, b in s.frozen)
            for s in readers(facts, group, stream)
        )
    )


def left_ns(facts: Facts, group: str, stream: int) -> int:
    """When the last one that held the stream gave it back; where it ended with it, or still has it:
    never."""
    never = 1 << 62
    ends = []
    for number in {r["session"] for r in facts.deliveries if group_of(facts, r) == group}:
        session, held = facts.context.sessions.get(number), False
        dead_ns = (session.end_ns if session else 0) or never
        for r in facts.deliveries:
            if r["session"] == number and r["stream"] in (stream, 0):
                if r["event"] == Event.REVOKE and held:
                    ends.append((min(r["t_ns"], dead_ns), r["t_ns"] > dead_ns))
                held = r["event"] == Event.ASSIGN or (held and r["event"] != Event.REVOKE)
        if held:
            ends.append((dead_ns, True))
    last_ns = max(ends, default=(never, True))[0]
    return last_ns if (last_ns, False) in ends else never


def is_excused(facts: Facts, t_ns: int) -> bool:
    return any(f.effective and f.start_ns <= t_ns < f.end_ns for f in facts.context.faults)


ORACLES = (stall,)
