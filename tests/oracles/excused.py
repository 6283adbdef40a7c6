"""Oracle of false errors: which hits they explain, because a client was right to believe them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from analysis.classes import CLASSES
from tests.oracles.facts import Facts, Hit

BELIEVED_NS = 5_000_000_000
#: What a consumer was given, damaged on the way to it.
GIVEN = (
    ("corrupt", "in delivery"),
    ("aborted-read", "read committed"),
    ("aborted-read", "read uncommitted"),
)
GIVEN_ALWAYS = ("delivered-then-lost", "phantom-output")


def excused(facts: Facts, hits: list[Hit]) -> list[Hit]:
    return [
        replace(hit, unmet=hit.unmet | {"answers-kept"}) if is_excused(facts, hit) else hit
        for hit in hits
    ]


def is_excused(facts: Facts, hit: Hit) -> bool:
    begun_ns, ended_ns = span(facts, hit)
    for permits, since_ns, until_ns in lies_about(facts, hit.cls):
        if permits == "rejoin":  # the oracle of stalls knows which of them
            continue
        if permits == "damage":
            is_own = (hit.cls, hit.split) in GIVEN or hit.cls in GIVEN_ALWAYS
        else:
            is_own = permits == "reposition" or ended_ns >= since_ns
        if is_own and begun_ns <= until_ns:
            # Transactions see below; what excuses a client has its own oracle.
            return hit.name[0] not in ("event", "client")
    return False


def unacknowledged(facts: Facts, transaction: Mapping[str, Any], cls: str) -> frozenset[str]:
    """Messages of a transaction may have been acknowledged by a false answer before its end."""
    ended_ns = transaction["t_done_ns"] or transaction["t_asked_ns"]
    told = any(since_ns <= ended_ns for _, since_ns, _ in lies_about(facts, cls))
    return frozenset({"answers-kept"} if told else ())


def lies_about(facts: Facts, cls: str) -> list[tuple[str, int, int]]:
    found = []
    for fault in facts.context.faults:
        permitted = [fault.details.permits] if fault.effective else []
        if permitted == ["damage"]:  # the next position is in the damaged bytes
            permitted.append("reposition")
        until_ns = (fault.heal_ns or fault.over_ns) + BELIEVED_NS
        for permits in permitted:
            if permits in CLASSES[cls].excused_by:
                found.append((permits, fault.start_ns, until_ns))
    return found


def span(facts: Facts, hit: Hit) -> tuple[float, float]:
    """From when to when a message was being sent; the time of a hit without one."""
    if len(hit.name) != 4:
        return hit.t_ns, hit.t_ns
    row = facts.sent.get(hit.name)
    if row is None:
        return 0, float("inf")
    return row["t_start_ns"], row["t_done_ns"] or float("inf")
