"""``faults.jsonl`` folded: one `FaultFact` a fault, from its inject, effect, heal and healed rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.capture.context import SETTLE_NS
from analysis.findings import FaultRow
from analysis.series import Outage

_TARGETS_SHOWN = 3


@dataclass(frozen=True, slots=True)
class FaultFact:
    """What is known of one fault. Times in ns, None = it did not come to that."""

    id: int
    kind: str
    target: str  # what it hit; with the selector that chose it, if there was one
    planned_s: float
    inject_ns: int | None
    healed_ns: int | None
    healed: bool
    effective: bool
    evidence: str
    skipped: str


def fold(rows: Iterable[Mapping[str, Any]]) -> list[FaultFact]:
    """One fact an id, in order of id."""
    by_id: dict[int, dict[str, Mapping[str, Any]]] = {}
    for row in rows:
        by_id.setdefault(int(row["id"]), {})[str(row["event"])] = row
    return [_fact(number, events) for number, events in sorted(by_id.items())]


def _fact(number: int, events: Mapping[str, Mapping[str, Any]]) -> FaultFact:
    nothing: Mapping[str, Any] = {}
    inject, skipped = events.get("inject", nothing), events.get("skipped", nothing)
    effect, healed = events.get("effect", nothing), events.get("healed", nothing)
    first = inject or skipped or next(iter(events.values()))
    return FaultFact(
        id=number,
        kind=str(first.get("kind", "")),
        target=_target(str(first.get("target", "")), [str(t) for t in first.get("targets", ())]),
        planned_s=float(first.get("planned_s", 0.0)),
        inject_ns=inject.get("t_ns"),
        healed_ns=healed.get("t_ns"),
        healed=bool(healed.get("ok", False)),
        effective=bool(effect.get("effective", False)),
        evidence=str(effect.get("evidence", "")),
        skipped=str(skipped.get("reason", "")),
    )


def what_was_hit(selector: str, hit: Sequence[str]) -> str:
    """``kafka-1``; of many, how many: ``orders (12 targets)``; nothing resolved: the selector."""
    if len(hit) > _TARGETS_SHOWN:
        return f"{selector} ({len(hit)} targets)"
    return ", ".join(hit) or selector


def _target(selector: str, hit: Sequence[str]) -> str:
    """``kafka-1 (leader-of:orders)``; of many, how many: ``orders (12 targets)``."""
    targets = what_was_hit(selector, hit)
    return targets if len(hit) > _TARGETS_SHOWN or selector in ("", targets) else f"{targets} ({selector})"


def fault_rows(facts: Sequence[FaultFact], outages: Sequence[Outage], zero_ns: int) -> list[FaultRow]:
    """Faults as the result shows them, each with the outage it met and the recovery after its heal."""
    return [_row(fact, outages, zero_ns) for fact in facts]


def _row(fact: FaultFact, outages: Sequence[Outage], zero_ns: int) -> FaultRow:
    start, healed = fact.inject_ns, fact.healed_ns
    outage_s = recovery_s = None
    if start is not None and fact.effective:
        until = (healed if healed is not None else start) + SETTLE_NS
        met = [o for o in outages if o.start_ns < until and o.end_ns > start]
        outage_s = max((round((o.end_ns - o.start_ns) / 1e9, 3) for o in met), default=0.0)
        if healed is not None:
            recovery_s = _recovery_s(healed, [o for o in met if o.start_ns <= healed < o.end_ns])
    return FaultRow(
        id=fact.id,
        kind=fact.kind,
        target=fact.target,
        t_s=fact.planned_s if start is None else round((start - zero_ns) / 1e9, 3),
        until_s=None if healed is None else round((healed - zero_ns) / 1e9, 3),
        effective=fact.effective,
        healed=fact.healed,
        evidence=fact.evidence,
        outage_s=outage_s,
        recovery_s=recovery_s,
        skipped=fact.skipped,
    )


def _recovery_s(healed_ns: int, out_then: Sequence[Outage]) -> float | None:
    """From the heal until the last stream that was out has an ok again; None if one never had."""
    if any(o.open for o in out_then):
        return None
    return max((round((o.end_ns - healed_ns) / 1e9, 3) for o in out_then), default=0.0)
