"""Oracles of deliveries: walk the journals row by row."""

from __future__ import annotations

from harness.records import Check, Event, Outcome, Txn
from tests.oracles.facts import Facts, Hit, Place, Row, identity, place
from tests.oracles.logged import absence, is_read, nobody_sent, time_of
from tests.oracles.removed import (
    cut_of,
    is_before_first_given,
    is_removed,
    remade_ns,
    topic_of_stream,
)
from tests.oracles.transacted import may_be_committed, members, transactions

BREAKS = (Event.ASSIGN, Event.REVOKE, Event.SEEK)


def group_of(facts: Facts, row: Row) -> str:
    session = facts.context.sessions.get(row["session"])
    return session.group if session else facts.context.names.get(row["subscription"], "")


def groups(facts: Facts) -> list[str]:
    known = [s.group for s in facts.context.sessions.values()]
    return list(dict.fromkeys([*known, *(group_of(facts, row) for row in facts.deliveries)]))


def assignments(facts: Facts) -> dict[int, tuple[int, int, bool]]:
    """By position in `Facts.deliveries`, of matched deliveries: (assignment, when it began, by a
    seek)."""
    out: dict[int, tuple[int, int, bool]] = {}
    for stream, session in sorted({(r["stream"], r["session"]) for r in facts.deliveries}):
        mine = [(i, r) for i, r in enumerate(facts.deliveries) if r["session"] == session]
        told = any(r["event"] == Event.ASSIGN and r["stream"] in (stream, 0) for _, r in mine)
        number, start, seek, epoch = 0, None, False, None
        for i, row in mine:
            concerned = row["stream"] in (stream, 0)
            if concerned and row["event"] in BREAKS:
                number, start, seek = number + 1, row["t_ns"], row["event"] == Event.SEEK
            if row["stream"] == stream and row["event"] == Event.DELIVER and facts.matches(row):
                if not told and epoch is not None and row["epoch"] != epoch:
                    number, start, seek = number + 1, row["t_ns"], False
                epoch = row["epoch"]
                start = row["t_ns"] if start is None else start
                out[i] = (number, start, seek)
    return out


def duplicates(facts: Facts) -> list[Hit]:
    """delivery-duplicate and rewind-past-commit."""
    hits = []
    assignment = assignments(facts)
    for group in groups(facts):
        if facts.context.reading(group).is_individual:
            continue  # tests/oracles/settled.py
        by_place: dict[Place, list[int]] = {}
        for i, row in enumerate(facts.deliveries):
            if i in assignment and group_of(facts, row) == group:
                by_place.setdefault(place(row), []).append(i)
        for where in sorted(by_place):
            ordered = sorted(by_place[where], key=lambda i: (facts.deliveries[i]["t_ns"], i))
            for i in ordered[1:]:
                hits.append(repeat(facts, group, i, by_place[where], assignment))
    return hits


def repeat(
    facts: Facts, group: str, i: int, same: list[int], assignment: dict[int, tuple[int, int, bool]]
) -> Hit:
    row = facts.deliveries[i]
    number, start, seek = assignment[i]
    before = [j for j in same if j < i and facts.deliveries[j]["session"] == row["session"]]
    name = identity(row)
    if any(assignment[j][0] == number for j in before):
        return Hit("delivery-duplicate", name, "same assignment", t_ns=row["t_ns"])
    if seek:
        return Hit("delivery-duplicate", name, "after seek", t_ns=row["t_ns"])
    commits = [
        (r["t_ns"], i, r["position"])
        for i, r in enumerate(facts.deliveries)
        if r["event"] == Event.COMMIT
        and r["stream"] == row["stream"]
        and group_of(facts, r) == group
        and r["t_ns"] <= start
        and r["t_ns"] >= first_of_remade_ns(facts, group, row["stream"])
    ]
    if commits and max(commits)[2] > row["position"]:
        return Hit("rewind-past-commit", name, t_ns=row["t_ns"])
    return Hit("delivery-duplicate", name, "after rebalance", t_ns=row["t_ns"])


def first_of_remade_ns(facts: Facts, group: str, stream: int) -> int:
    """When a group was first given something of a topic that was made again: commits from before
    may be of positions in the one before. 0 = it is the first of its name."""
    if not remade_ns(facts, topic_of_stream(facts, stream)):
        return 0
    times = [
        r["t_ns"]
        for r in facts.given()
        if r["stream"] == stream and group_of(facts, r) == group and facts.matches(r)
    ]
    return min(times)


def reorder(facts: Facts) -> list[Hit]:
    hits = []
    assignment = assignments(facts)
    seen: dict[tuple[int, int, int], list[Place]] = {}
    for i, row in enumerate(facts.deliveries):
        if i not in assignment or facts.context.reading(group_of(facts, row)).order != "stream":
            continue
        before = seen.setdefault((row["stream"], row["session"], assignment[i][0]), [])
        if before and place(row) < max(before) and place(row) not in before:
            hits.append(Hit("delivery-reorder", identity(row), t_ns=row["t_ns"]))
        before.append(place(row))
    return hits


def not_dispatched(facts: Facts) -> list[Hit]:
    hits = []
    context = facts.context
    for group in groups(facts):
        members = [s for s in context.sessions.values() if s.group == group]
        topics = {t for s in members for t in s.topics}
        mine = [r for r in facts.given() if group_of(facts, r) == group]
        places = {place(r) for r in mine if facts.matches(r)}
        elsewhere = {identity(r) for r in facts.given() if not facts.matches(r)}
        for name, rows in facts.copies.items():
            wanted = [
                r for r in rows if context.stream_name(r["stream"]).rpartition("-")[0] in topics
            ]
            unseen = [r for r in wanted if place(r) not in places]
            unseen = [r for r in unseen if r["position"] >= cut_of(facts, r["stream"])]
            if name not in facts.sent or not unseen or name in elsewhere:
                continue
            if any(place(r) in places for r in rows) or name in facts.taken:
                continue
            unmet = set()
            if not context.drained:
                unmet.add("drained")
            if not all(s.complete for s in members):
                unmet.add("delivery-capture")
            first = unseen[0]
            is_early = first["position"] < start(facts, group, first["stream"])
            if is_early or is_before_first_given(facts, mine, first):
                unmet.add("start-known")
            said = may_be_dropped(facts, group, first)
            if said is None:
                unmet.add("settings-known")
            skipped = skipped_by_latest(facts, group, first)
            if skipped is None:
                unmet.add("start-known")
            split = "before the start" if skipped else "dropped" if said else "not given"
            hits.append(Hit("not-dispatched", name, split, frozenset(unmet), time_of(facts, name)))
    return hits


def skipped_by_latest(facts: Facts, group: str, row: Row) -> bool | None:
    """Whether a group that begins at the latest message began behind a row; None = that is not
    known."""
    if not facts.context.reading(group).starts_latest:
        return False
    own = [
        r for r in facts.deliveries if r["stream"] == row["stream"] and group_of(facts, r) == group
    ]
    assigns = sorted(
        (r["t_ns"], i, r["position"]) for i, r in enumerate(own) if r["event"] == Event.ASSIGN
    )
    if assigns and assigns[0][2] >= 0:
        return False
    first_ns: dict[int, int] = {}
    for r in own:
        if r["event"] == Event.DELIVER and facts.matches(r):
            first_ns[r["position"]] = min(first_ns.get(r["position"], r["t_ns"]), r["t_ns"])
    if not first_ns:
        return None
    if row["position"] < min(first_ns):
        return True
    for begun_ns in [t_ns for t_ns, _, position in assigns if position < 0][1:]:
        last = max((at for at, t_ns in first_ns.items() if t_ns < begun_ns), default=-1)
        following = min(
            (at for at, t_ns in first_ns.items() if t_ns >= begun_ns), default=row["position"] + 1
        )
        if last < row["position"] < following:
            return None
    return False


def may_be_dropped(facts: Facts, group: str, row: Row, *, was_refused: bool = False) -> bool | None:
    """Whether some limit lets the broker drop what lies there; None = that is not known."""
    context, reading = facts.context, facts.context.reading(group)
    if not reading.may_drop:
        return False
    rows = [r for copies in facts.copies.values() for r in copies if r["stream"] == row["stream"]]
    called = {
        id(r): facts.sent[identity(r)]["t_start_ns"] for r in rows if identity(r) in facts.sent
    }
    ends = [s.end_ns for s in context.sessions.values() if s.group == group]
    until = max(ends) if ends and all(ends) else None
    if reading.order == "stream" and not was_refused:
        later = {place(r) for r in rows if place(r) > place(row)}
        mine = [
            r["t_ns"] for r in facts.given() if group_of(facts, r) == group and place(r) in later
        ]
        until = min([*mine, *([until] if until is not None else [])], default=None)
    since = next((called[id(r)] for r in rows if place(r) == place(row) and id(r) in called), None)
    if until is None or not since:
        return None
    held = {place(r): r for r in reversed(facts.log) if r["stream"] == row["stream"]}
    count = sum(1 for r in held.values() if called.get(id(r), 0) <= until)
    stored = count * (context.message_bytes + 1024)
    answers = [
        until - since >= limit.after_s * 1e9
        if limit.after_s is not None
        else stored > limit.beyond_bytes
        for limit in reading.drops
    ]
    return any(answers) or (None if not reading.drops else False)


def start(facts: Facts, group: str, stream: int) -> int:
    """Where the group began to read the stream: at 0, unless its first assignment told
    otherwise."""
    told = [
        (r["t_ns"], i, r["position"])
        for i, r in enumerate(facts.deliveries)
        if r["event"] == Event.ASSIGN and r["stream"] == stream and group_of(facts, r) == group
    ]
    if not told or min(told)[2] < 0:
        return 0
    return min(position for _, _, position in told if position >= 0)


def is_given_though_aborted(facts: Facts, row: Row) -> bool:
    """A delivery of the copy of which nobody read the end, though its producer says: not
    committed."""
    name, there = identity(row), facts.at.get(place(row))
    if (
        there is None
        or identity(there) != name
        or not facts.is_message(there)
        or facts.visible(there)
    ):
        return False
    key = members(facts).get(name)
    if key is not None:
        return not may_be_committed(transactions(facts)[key])
    return name in facts.sent and facts.sent[name]["outcome"] == Outcome.ABORTED


def from_elsewhere(facts: Facts) -> list[Hit]:
    """aborted-read, delivered-then-lost, phantom in delivery."""
    aborted, phantoms, holes, lost = [], [], [], []
    unknown = {
        identity(row) for row in facts.log if facts.is_message(row) and row["txn"] == Txn.UNKNOWN
    }
    for row in facts.from_log():
        name = identity(row)
        if facts.matches(row) or (name in unknown and not is_given_though_aborted(facts, row)):
            continue
        there = facts.at.get(place(row))
        if (
            there
            and facts.is_message(there)
            and not facts.visible(there)
            and identity(there) == name
        ):
            session = facts.context.sessions.get(row["session"])
            split = "read committed" if session and session.committed_only else "read uncommitted"
            aborted.append(Hit("aborted-read", name, split, t_ns=row["t_ns"]))
        elif name in facts.copies:
            continue
        elif name not in facts.sent and nobody_sent(facts, name):
            phantoms.append(Hit("phantom", name, "in delivery", t_ns=row["t_ns"]))
        elif name not in facts.sent:
            holes.append(Hit("send-record-missing", name, "not stored", t_ns=row["t_ns"]))
        elif facts.sent[name]["outcome"] != Outcome.OK:
            is_old = row["t_ns"] < remade_ns(facts, topic_of_stream(facts, row["stream"]))
            if is_old or is_removed(facts, name, place(row)):
                continue
            unmet = absence(facts, name, place(row))
            if is_read(facts, unmet, place(row)):
                lost.append(Hit("delivered-then-lost", name, "seen", unmet, row["t_ns"]))
    return [*aborted, *phantoms, *holes, *lost]


def corrupt_in_delivery(facts: Facts) -> list[Hit]:
    hits = []
    for row in facts.deliveries:
        there = facts.at.get(place(row))
        if row["event"] != Event.DELIVER or (there and there["check"] == Check.CORRUPT):
            continue
        is_whole = there is not None and there["check"] == Check.OK  # our message lies there
        if row["check"] != Check.CORRUPT and (row["check"] == Check.OK or not is_whole):
            continue
        known = there is not None and facts.visible(there)
        name = identity(there) if known and there else ("row", *place(row))
        hits.append(Hit("corrupt", name, "in delivery", t_ns=row["t_ns"]))
    return hits


ORACLES = (from_elsewhere, corrupt_in_delivery, duplicates, reorder, not_dispatched)
