"""Oracles of queues: walk each session's journal and keep what it holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from analysis.capture.context import SETTLE_NS
from harness.records import Event
from tests.oracles.facts import Facts, Hit, Identity, Row, identity, place
from tests.oracles.removed import is_removed, remade_ns, topic_of_stream
from tests.oracles.stalled import STEP_NS, is_excused

NEVER = (1 << 63) - 1
MARKS = (
    Event.COMMIT_CALLED,
    Event.ACK_CALLED,
    Event.COMMIT,
    Event.ACK_CONFIRMED,
    Event.ROLLBACK_BEGIN,
    Event.ROLLBACK_END,
    Event.RECOVER,
)
OF_ONE = (Event.ACK_CALLED, Event.ACK_CONFIRMED, Event.NACK)
BACK = (Event.ROLLBACK_BEGIN, Event.ROLLBACK_END, Event.RECOVER)


@dataclass
class Given:
    """A delivery from a queue. ``fate``: open, settled, back, doubt or auto; ``stretch``: its
    transaction."""

    row: Row
    number: int  # place in the journals, sessions one after the other
    stretch: int
    fate: str = "open"
    fate_ns: int = NEVER
    one_by_one: bool = False

    @property
    def name(self) -> Identity:
        return identity(self.row)


class Walk:
    """All journals, session by session. ``backs``: (session, how many deliveries so far, event) of
    each."""

    def __init__(self, facts: Facts) -> None:
        self.given: list[Given] = []
        self.backs: list[tuple[int, int, Event]] = []
        self._stretch = 0
        for session in sorted({r["session"] for r in facts.deliveries}):
            self._session(facts, session, [r for r in facts.deliveries if r["session"] == session])

    def _session(self, facts: Facts, session: int, rows: list[Row]) -> None:
        known = facts.context.sessions.get(session)
        auto = known is not None and known.reading.settle == "auto"
        own: list[Given] = []
        held: list[Given] = []

        def end(fate: str, t_ns: int) -> None:
            for given in held:
                if given.fate in ("open", "auto"):
                    given.fate, given.fate_ns = fate, t_ns
            held.clear()
            self._stretch += 1

        self._stretch += 1
        one_by_one = any(r["event"] in OF_ONE and r["position"] >= 0 for r in rows)
        marks = [r for r in rows if r["event"] in MARKS]
        for row in rows:
            if row["event"] == Event.DELIVER and facts.is_message(row):
                if own and own[-1].row["epoch"] != row["epoch"] and not one_by_one:
                    end("doubt", row["t_ns"])
                given = Given(
                    row,
                    len(self.given),
                    self._stretch,
                    "auto" if auto and not one_by_one else "open",
                )
                given.one_by_one = one_by_one
                own.append(given)
                held.append(given)
                self.given.append(given)
            elif one_by_one:
                self._name_one(
                    row, own, has_receipts=known is not None and known.reading.acks_confirmed
                )
            elif row["event"] == Event.NACK and own:
                own[-1].fate, own[-1].fate_ns = "back", row["t_ns"]
            elif row in marks:
                self._mark(row, marks, end, session)

    def _name_one(self, row: Row, own: list[Given], *, has_receipts: bool) -> None:
        if row["event"] not in OF_ONE or row["position"] < 0:
            return
        fates = {Event.NACK: "back", Event.ACK_CONFIRMED: "settled" if has_receipts else "doubt"}
        for given in reversed(own):
            if (given.row["stream"], given.row["position"]) == (row["stream"], row["position"]):
                given.fate, given.fate_ns = fates.get(row["event"], "doubt"), row["t_ns"]
                return

    def _mark(
        self, row: Row, marks: list[Row], end: Callable[[str, int], None], session: int
    ) -> None:
        at = next(i for i, r in enumerate(marks) if r is row)
        after = marks[at + 1]["event"] if at + 1 < len(marks) else None
        event = Event(row["event"])
        answered = {
            Event.COMMIT_CALLED: (Event.COMMIT, Event.ROLLBACK_BEGIN, Event.ROLLBACK_END),
            Event.ACK_CALLED: (Event.ACK_CONFIRMED,),
            Event.ROLLBACK_BEGIN: (Event.ROLLBACK_END,),
        }
        if after in answered.get(event, ()):
            return
        fates = {Event.COMMIT: "settled", Event.ACK_CONFIRMED: "settled"}
        fates |= {Event.ROLLBACK_END: "back", Event.RECOVER: "back"}
        fate = fates.get(event, "doubt")
        end(fate, row["t_ns"])
        if fate == "back":
            self.backs.append((session, len(self.given), event))

    def in_time(self, name: Identity) -> list[Given]:
        return sorted(
            (g for g in self.given if g.name == name), key=lambda g: (g.row["t_ns"], g.number)
        )


def transacted(facts: Facts, session: int) -> bool:
    known = facts.context.sessions.get(session)
    return known is not None and known.reading.settle == "transacted"


def twice(facts: Facts) -> list[Hit]:
    hits, walk = [], Walk(facts)
    for given in walk.given:
        before = [
            g
            for g in walk.given[: given.number]
            if (g.name, g.stretch) == (given.name, given.stretch)
        ]
        if before and transacted(facts, given.row["session"]):
            hits.append(Hit("twice-in-transaction", given.name))
    return hits


def repeats(facts: Facts) -> list[Hit]:
    found: dict[tuple[str, str], list[Hit]] = {}
    walk = Walk(facts)
    for name in dict.fromkeys(g.name for g in walk.given):
        ordered = walk.in_time(name)
        settled = (
            min(g.fate_ns for g in ordered if g.fate == "settled")
            if any(g.fate == "settled" for g in ordered)
            else NEVER
        )
        for number, (before, now) in enumerate(pairwise(ordered)):
            t_ns = now.row["t_ns"]
            sent = facts.sent.get(name)
            from_ns = (
                ordered[number - 1].row["t_ns"] if number else sent["t_start_ns"] if sent else 0
            )
            is_late, reason = settled < t_ns, ""
            if before.one_by_one:
                reason = reason_of(facts, before, from_ns, t_ns)
            if before.one_by_one and (reason or not is_late):
                if not reason or (reason == "disturbed" and not is_late):
                    known = facts.context.sessions.get(before.row["session"])
                    has_receipts = known is not None and known.reading.acks_confirmed
                    is_in_doubt = before.fate == "doubt" and not has_receipts
                    reason = "no receipt" if is_in_doubt else "not acknowledged"
                split = "confirmed after a fault" if reason == "disturbed" else reason
                key = ("delivery-duplicate", split)
            elif is_late:
                key = ("redelivered-after-ack", "confirmed")
                if transacted(facts, now.row["session"]):
                    key = ("committed-and-redelivered", "")
            elif before.fate == "back" and before.fate_ns <= t_ns:
                key = ("delivery-duplicate", "after rollback")
            else:
                key = ("delivery-duplicate", "not acknowledged")
            found.setdefault(key, []).append(Hit(key[0], name, key[1]))
    order = [
        ("committed-and-redelivered", ""),
        ("redelivered-after-ack", "confirmed"),
        ("delivery-duplicate", "after rollback"),
        ("delivery-duplicate", "after nack"),
        ("delivery-duplicate", "after ack timeout"),
        ("delivery-duplicate", "confirmed after a fault"),
        ("delivery-duplicate", "no receipt"),
        ("delivery-duplicate", "not acknowledged"),
    ]
    return [hit for key in order for hit in found.get(key, [])]


def reason_of(facts: Facts, before: Given, from_ns: int, t_ns: int) -> str:
    """Why the broker may send a message again that is acknowledged one by one; empty = no
    reason."""
    known = facts.context.sessions.get(before.row["session"])
    until_ns = min(before.fate_ns, t_ns)
    if before.fate == "back" and before.fate_ns <= t_ns:
        return "after nack"
    limit_ns = known.reading.ack_timeout_ns if known else 0
    if 0 < limit_ns < until_ns - from_ns:
        return "after ack timeout"
    for fault in facts.context.faults:
        if fault.effective and fault.over_ns + SETTLE_NS >= from_ns and fault.start_ns <= until_ns:
            return "disturbed"
    return "disturbed" if known and known.end_ns and known.end_ns < until_ns else ""


def lost(facts: Facts) -> list[Hit]:
    hits, walk, context = [], Walk(facts), facts.context
    for name in dict.fromkeys(g.name for g in walk.given):
        ordered = walk.in_time(name)
        if any(g.fate in ("settled", "doubt", "auto") for g in ordered):
            continue
        if name in facts.copies or name not in facts.sent:
            continue
        unmet = (
            set() if all(s.complete for s in context.sessions.values()) else {"delivery-capture"}
        )
        if not context.readiness_restored:
            unmet.add("readiness-restored")
        last = ordered[-1].row
        if not facts.read_whole(last["stream"]):
            continue  # it was not read what remains
        where = place(last) if last["position"] >= 0 else None
        remade = remade_ns(facts, topic_of_stream(facts, last["stream"]))
        if is_removed(facts, name, where) or last["t_ns"] < remade:
            continue
        split = "rolled back" if ordered[-1].fate == "back" else "never committed"
        hits.append(Hit("lost-after-rollback", name, split, frozenset(unmet)))
    return hits


def rollback_order(facts: Facts) -> list[Hit]:
    """After each give-back: the first delivery of each lane against all that waited then."""
    hits, walk = [], Walk(facts)
    alone = len({g.row["session"] for g in walk.given}) == 1
    for number, (session, so_far, event) in enumerate(walk.backs):
        following = [b[1] for b in walk.backs[number + 1 :] if b[0] == session]
        until = min(following, default=len(walk.given))
        after = [g for g in walk.given[so_far:until] if g.row["session"] == session]
        for lane in dict.fromkeys(g.name[:2] for g in after):
            first = next(g for g in after if g.name[:2] == lane)
            due = [g.name[2] for g in walk.given if waits(walk, g, session, lane, first, alone)]
            if due and first.name[2] > min(due):
                split = "after a recover" if event == Event.RECOVER else "after a rollback"
                hits.append(Hit("rollback-order", ("event", *first.name), split))
    return hits


def waits(
    walk: Walk, given: Given, session: int, lane: tuple[int, int], first: Given, alone: bool
) -> bool:
    """Given back by this session before, and next given to it at that moment or later."""
    if given.row["session"] != session or given.name[:2] != lane or given.number >= first.number:
        return False
    if given.fate != "back":
        return False
    ordered = walk.in_time(given.name)
    later = ordered[ordered.index(given) + 1 :]
    if not later:
        return alone
    return bool(later[0].row["session"] == session and later[0].row["t_ns"] >= first.row["t_ns"])


def silent(facts: Facts) -> list[Hit]:
    """hang of sessions, else backlog-stuck of the queue."""
    context, hits = facts.context, []
    if not context.has_queues:
        return []
    for stream in sorted({r["stream"] for r in facts.log if facts.visible(r)}):
        topic = context.stream_name(stream).rpartition("-")[0]
        found = []
        readers = [each for each in context.sessions.values() if topic in each.topics]
        if any(each.reading.settle == "none" for each in readers):
            continue
        for session in readers:
            told = [
                r
                for r in facts.deliveries
                if r["session"] == session.number
                and (r["event"] in BACK or (r["event"] == Event.DELIVER and r["stream"] == stream))
            ]
            start = told[-1]["t_ns"] if told else session.start_ns or context.load_start_ns
            end = max(session.end_ns or context.end_ns, start)
            steps = [t for t in range(start, end, STEP_NS) if not is_excused(facts, t)]
            idle = STEP_NS * sum(1 for t in steps if not any(a <= t < b for a, b in session.frozen))
            found.append(
                (
                    bool(told) and told[-1]["event"] in BACK,
                    start,
                    idle > context.stall_ns,
                    session.number,
                )
            )
        hanging = [f for f in found if f[0] and f[2]]
        for _, start, _, _ in hanging:
            hits.append(Hit("hang", ("stall", stream, start), "no delivery after a rollback"))
        latest = max(found, key=lambda f: f[1], default=None)
        if not hanging and latest and latest[2]:
            unmet = frozenset() if context.readiness_restored else frozenset({"readiness-restored"})
            hits.append(Hit("backlog-stuck", ("stall", stream, latest[1]), "", unmet))
    return hits


def of_queues(facts: Facts) -> list[Hit]:
    if not facts.context.has_queues:
        return []
    return [*twice(facts), *repeats(facts), *lost(facts), *rollback_order(facts), *silent(facts)]


ORACLES = (of_queues,)
