"""Each message once: what is a violation before what is not, then by rank, then as found."""

from __future__ import annotations

from analysis.classes import CLASSES, status_of
from analysis.findings import Status
from tests.oracles.facts import Facts, Hit

_URGENCY = [
    Status.VIOLATION,
    Status.SUSPECT,
    Status.APPLICATION_ERROR,
    Status.PERMITTED,
    Status.INFO,
]


def ranked(facts: Facts, hits: list[Hit]) -> list[Hit]:
    best: dict[object, Hit] = {}
    nameless = []
    for hit in hits:
        if hit.name[0] in ("row", "stall", "event", "client", "replica", "commit"):
            nameless.append(hit)
        elif hit.name not in best or urgency(facts, hit) < urgency(facts, best[hit.name]):
            best[hit.name] = hit
    return [*best.values(), *nameless]


def urgency(facts: Facts, hit: Hit) -> tuple[int, int]:
    promise = facts.context.instance(hit.name[0]).promise
    return _URGENCY.index(status_of(hit.cls, hit.split, promise)), CLASSES[hit.cls].rank
