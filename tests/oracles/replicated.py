"""Oracle of replicas that differ: every position of every replica, compared with the same of the
others."""

from __future__ import annotations

from harness.contracts.rows import ReplicaRow, ReplicaSpan
from tests.oracles.facts import Facts, Hit


def replica_divergence(facts: Facts) -> list[Hit]:
    context = facts.context
    unmet = frozenset() if context.readiness_restored else frozenset({"readiness-restored"})
    hits = []
    for row in context.replicas:
        others = [each for each in context.replicas if each.in_sync and each is not row]
        others = [
            each for each in others if each.stream == row.stream and each.ledger == row.ledger
        ]
        before = ""
        for position in range(row.end) if row.in_sync else ():
            wrong = wrong_at(row, position, others)
            if (
                wrong == "missing"
                and row.ledger
                and any(row.node in fault.details.wiped for fault in context.faults)
            ):
                wrong = "not copied again"
            if wrong and wrong != before:
                hits.append(
                    Hit(
                        "replica-divergence",
                        ("replica", f"{row.stream}@{position}"),
                        wrong,
                        unmet,
                        context.end_ns,
                    )
                )
            before = wrong
    return hits


def wrong_at(row: ReplicaRow, position: int, others: list[ReplicaRow]) -> str:
    mine = span_at(row, position)
    if mine is not None and not mine.intact:
        return "damaged"
    if position >= row.read_to:
        return "unreadable" if row.refused else ""
    if position < row.begin:
        return ""
    held = {each.node: span_at(each, position) for each in (row, *others)}
    intact = sorted(node for node, span in held.items() if span is not None and span.intact)
    if not intact:
        return ""
    leader = next((each.node for each in (row, *others) if each.leads), "")
    log = held[leader if leader in intact else intact[0]]
    if mine is None:
        return "missing"
    assert log is not None
    return "other" if mine.digest != log.digest else ""


def span_at(row: ReplicaRow, position: int) -> ReplicaSpan | None:
    return next((span for span in row.odd if span.first <= position <= span.last), None)


ORACLES = (replica_divergence,)
