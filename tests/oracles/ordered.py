"""Oracle of order: compare every message with every other one."""

from __future__ import annotations

from collections import defaultdict

from harness.records import Outcome
from tests.oracles.facts import Facts, Hit, Identity, Place, Row, identity, place
from tests.oracles.logged import time_of

Sequence = dict[Identity, list[Place]]  # message -> its places in one stream, in order


def by_lane_and_stream(facts: Facts) -> list[Sequence]:
    found: dict[tuple[int, int, int], Sequence] = defaultdict(dict)
    for name, rows in facts.copies.items():
        if name in facts.sent and name[3] == 0:
            for row in rows:
                found[name[0], name[1], row["stream"]].setdefault(name, []).append(place(row))
    return list(found.values())


def is_premature_repeat(name: Identity, sequence: Sequence) -> bool:
    """Stored before a message sent earlier, and once more after all of those."""
    earlier = [places[0] for other, places in sequence.items() if other[2] < name[2]]
    first, last = sequence[name][0], sequence[name][-1]
    return (
        len(sequence[name]) > 1
        and any(first < e for e in earlier)
        and all(last > e for e in earlier)
    )


def order(facts: Facts) -> list[Hit]:
    hits: list[Hit] = []
    if facts.context.has_queues:  # what remains in a queue has no order to judge
        return hits
    for sequence in by_lane_and_stream(facts):
        repeats = {name for name in sequence if is_premature_repeat(name, sequence)}
        settled = {n: places[-1] if n in repeats else places[0] for n, places in sequence.items()}
        for name in sequence:
            late = any(settled[n] < settled[name] for n in sequence if n[2] > name[2])
            if name in repeats:
                hits.append(Hit("premature-then-repeat", name, t_ns=time_of(facts, name)))
            elif late:
                may_be_cut = (
                    facts.context.orders_by_connection and facts.sent[name]["outcome"] != Outcome.OK
                )
                unmet = frozenset({"connection-kept"} if may_be_cut else ())
                hits.append(Hit("producer-reorder", name, "", unmet, time_of(facts, name)))
    return hits


def numbering(facts: Facts) -> list[Hit]:
    """The client's own numbers must grow along first copies; those that `order` tells are taken
    out."""
    told = {hit.name for hit in order(facts)}
    firsts: dict[tuple[int, int, int], list[Row]] = defaultdict(list)
    for row in facts.log:
        name = identity(row)
        is_first = facts.visible(row) and facts.copies[name][0] is row and name in facts.sent
        if is_first and row["client_name"] > 0 and name not in told:
            firsts[row["stream"], row["client_name"], name[0]].append(row)
    return [
        Hit("client-sequence-regression", identity(row), t_ns=time_of(facts, identity(row)))
        for rows in firsts.values()
        for i, row in enumerate(rows)
        if any(r["client_seq"] > row["client_seq"] for r in rows[:i])
    ]


ORACLES = (order, numbering)
