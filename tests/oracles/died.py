"""Oracle of clients that gave themselves up: each worker's own words, one event after the other."""

from __future__ import annotations

from tests.oracles.excused import lies_about
from tests.oracles.facts import Facts, Hit

WHY = {"error": "gave up", "fenced": "fenced", "asked": "as configured", "crashed": "crashed"}


def client_died(facts: Facts) -> list[Hit]:
    context = facts.context
    hits = []
    for client in context.clients:
        if not client.died:
            continue
        made_up = any(
            since_ns <= client.died.t_ns for _, since_ns, _ in lies_about(facts, "client-died")
        )
        unmet = {
            "readiness-restored": not context.readiness_restored and client.died.why != "crashed",
            "answers-kept": made_up and client.died.why != "crashed",
            "own-name": client.died.why == "fenced",
        }
        missing = frozenset(name for name, lacks in unmet.items() if lacks)
        hits.append(
            Hit(
                "client-died",
                ("client", client.name),
                WHY[client.died.why],
                missing,
                client.died.t_ns,
            )
        )
    return hits


ORACLES = (client_died,)
