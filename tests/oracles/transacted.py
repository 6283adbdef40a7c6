"""Oracles of transactions: visible though aborted, torn, lost, mixed, without an end, read too
early."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.records import Asked, Outcome, Txn
from tests.oracles.excused import unacknowledged
from tests.oracles.facts import Facts, Hit, Identity, identity, place
from tests.oracles.logged import expected_absence, resent, time_of
from tests.oracles.removed import is_removed

Key = tuple[int, int]  # instance, number


def transactions(facts: Facts) -> dict[Key, Mapping[str, Any]]:
    table = facts.context.transactions
    names = ("asked", "outcome", "t_asked_ns", "t_done_ns")
    return {
        (int(table.instance[i]), int(table.number[i])): {
            name: int(getattr(table, name)[i]) for name in names
        }
        for i in range(len(table))
    }


def may_be_committed(transaction: Mapping[str, Any]) -> bool:
    return bool(transaction["asked"] & Asked.COMMIT) and transaction["outcome"] != Outcome.ABORTED


def members(facts: Facts) -> dict[Identity, Key]:
    """Messages that came to be in a transaction: one that the client refused at once did not."""
    known = transactions(facts)
    found = {}
    for name, row in facts.sent.items():
        key = (name[0], row["transaction"])
        if row["transaction"] and key in known:
            if row["outcome"] == Outcome.FAIL and known[key]["outcome"] != Outcome.ABORTED:
                continue
            found[name] = key
    return found


def state(facts: Facts, name: Identity) -> Txn:
    """Of the last copy that nobody sees; those of which nobody knows the end count last."""
    hidden = [
        r for r in facts.log if facts.is_message(r) and not facts.visible(r) and identity(r) == name
    ]
    hidden.sort(key=lambda r: r["txn"] == Txn.UNKNOWN)
    return Txn(hidden[-1]["txn"]) if hidden else Txn.NONE


def aborted_read(facts: Facts) -> list[Hit]:
    known = transactions(facts)
    return [
        Hit("aborted-read", name, "in the log", t_ns=time_of(facts, name))
        for name, key in members(facts).items()
        if facts.present(name) and not may_be_committed(known[key])
    ]


def of_no_transaction(facts: Facts) -> list[Hit]:
    """Messages in no transaction of the journal: acknowledged and held as aborted or open, or
    aborted and visible."""
    hits = []
    known = members(facts)
    for name, row in facts.sent.items():
        if name in known:
            continue
        is_withheld = name in facts.withheld and not facts.present(name) and not resent(facts, name)
        if row["outcome"] == Outcome.OK and is_withheld and state(facts, name) != Txn.UNKNOWN:
            hits.append(Hit("acked-lost", name, "withheld", t_ns=time_of(facts, name)))
        if row["outcome"] == Outcome.ABORTED and facts.present(name):
            ended = facts.copies[name][0]["txn"] == Txn.COMMITTED
            unmet = frozenset() if ended else frozenset({"markers-read"})
            hits.append(Hit("aborted-read", name, "in the log", unmet, time_of(facts, name)))
    return hits


def unread_markers(facts: Facts, stream: int) -> frozenset[str]:
    bounds = facts.context.stream_bounds(stream)
    return frozenset() if bounds.marked >= bounds.end else frozenset({"markers-read"})


def hanging_transaction(facts: Facts) -> list[Hit]:
    hits = []
    known = transactions(facts)
    for name, key in members(facts).items():
        if facts.present(name) or state(facts, name) != Txn.OPEN:
            continue
        rows = [r for r in facts.log if identity(r) == name and r["txn"] in (Txn.ABORTED, Txn.OPEN)]
        stream = [r for r in rows if facts.is_message(r)][-1]["stream"]
        ended = known[key]["outcome"] in (Outcome.OK, Outcome.ABORTED)
        unmet = unread_markers(facts, stream)
        hits.append(Hit("hanging-transaction", name, "ended" if ended else "never ended", unmet))
    return hits


def mixed_transaction(facts: Facts) -> list[Hit]:
    """The first row of every further marker of a transaction in a stream, and of every further
    transaction of a marker."""
    own = members(facts)
    rows = [
        r for r in facts.log if facts.is_message(r) and r["txn_end"] >= 0 and identity(r) in own
    ]
    hits = []
    for split, by, what in (
        (
            "ended in parts",
            lambda r: (own[identity(r)], r["stream"]),
            lambda r: (r["stream"], r["txn_end"]),
        ),
        ("ended with another", lambda r: (r["stream"], r["txn_end"]), lambda r: own[identity(r)]),
    ):
        seen: dict[Any, list[Any]] = {}
        for row in rows:
            whats = seen.setdefault(by(row), [])
            if what(row) not in whats:
                if whats:
                    hits.append(Hit("mixed-transaction", ("row", *place(row)), split))
                whats.append(what(row))
    return hits


def intermediate_read(facts: Facts) -> list[Hit]:
    own, known = members(facts), transactions(facts)
    hits = []
    for row in facts.given():
        session = facts.context.sessions.get(row["session"])
        key = own.get(identity(row))
        if key is None or session is None or not session.committed_only:
            continue
        if known[key]["asked"] & Asked.COMMIT and row["t_ns"] < known[key]["t_asked_ns"]:
            hits.append(Hit("intermediate-read", identity(row), t_ns=row["t_ns"]))
    return hits


def is_unsure(facts: Facts, name: Identity) -> bool:
    """Nobody can say that it will never be seen."""
    how = state(facts, name)
    if how == Txn.NONE:
        ended = facts.context.instance(name[0]).end_ns > 0
        return bool(expected_absence(facts, name)) or not ended
    return how in (Txn.OPEN, Txn.UNKNOWN)


def atomicity(facts: Facts) -> list[Hit]:
    """torn-transaction, lost-commit: named by the first message that is not visible."""
    hits = []
    for key, transaction in transactions(facts).items():
        own = sorted(
            (n for n, k in members(facts).items() if k == key), key=lambda n: (n[3] > 0, n)
        )
        seen = [name for name in own if facts.present(name)]
        unsure = [name for name in own if name not in seen and is_unsure(facts, name)]
        gone = [name for name in own if name not in seen and name not in unsure]
        if not gone or not may_be_committed(transaction):
            continue
        committed = transaction["outcome"] == Outcome.OK
        named = ("event", *gone[0][:3], 0)
        taken = [
            n
            for n in gone
            if state(facts, n) == Txn.NONE and is_removed(facts, n, facts.acked_place(n))
        ]
        if seen:
            split = "committed" if committed else "commit not answered"
            unmet = unacknowledged(facts, transaction, "torn-transaction")
            hits.append(
                Hit("torn-transaction", named, "removed" if taken == gone else split, unmet)
            )
        elif committed:
            unmet = frozenset({"audit-complete"} if unsure else ())
            unmet |= unacknowledged(facts, transaction, "lost-commit")
            hits.append(Hit("lost-commit", named, "removed" if taken == gone else "", unmet))
    return hits


ORACLES = (
    aborted_read,
    of_no_transaction,
    hanging_transaction,
    mixed_transaction,
    intermediate_read,
    atomicity,
)
