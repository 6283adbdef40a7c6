"""Compares two runs, or two campaigns variant by variant: verdict, classes, rate, latency, faults.

Numbers are shown next to each other with their difference; whether a difference means anything is
for the reader, for two runs are two samples. What makes them hard to compare (another scenario,
seed, version) comes first.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from analysis.findings import FaultRow, Result, Status
from analysis.report import words
from analysis.verdict.campaign import Campaign, RunSummary, VariantResult

Unit = Literal["count", "per_s", "ms", "s", "ratio", "text"]
Value = float | str | None
_LATENCIES = ("p50", "p90", "p99", "p999", "max", "send_delay_p99")
_SENDS = ("attempted", "ok", "fail", "info")


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRow:
    """One thing of both runs or campaigns; ``change`` is b - a, None unless both sides have a
    number.

    ``section``: of campaigns, the variant.
    """

    section: str
    name: str
    unit: Unit
    a: Value
    b: Value
    change: float | None

    @property
    def differs(self) -> bool:
        """Whether the two runs have different values."""
        return self.a != self.b


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """``a`` and ``b`` are ids; ``cautions`` say what besides chance could explain a difference."""

    a: str
    b: str
    cautions: tuple[str, ...]
    rows: tuple[ComparisonRow, ...]


def compare(a: Result, b: Result) -> Comparison:
    """Every row, also the equal ones."""
    rows = [
        row_of("verdict", "verdict", "text", a.verdict.value, b.verdict.value),
        *_class_rows(a, b),
        *_number_rows("sends", "count", _SENDS, a.sends, b.sends),
        *_number_rows("rate", "per_s", _shared(a.rate, b.rate, "_per_s"), a.rate, b.rate),
        *_number_rows(
            "rate", "ratio", _shared(a.rate, b.rate, "ratio_outside_outages"), a.rate, b.rate
        ),
        *_number_rows("latency", "ms", _LATENCIES, a.latency_ms, b.latency_ms),
        *_fault_rows(a, b),
    ]
    return Comparison(a=a.run_id, b=b.run_id, cautions=tuple(_cautions(a, b)), rows=tuple(rows))


def row_of(section: str, name: str, unit: Unit, a: Value, b: Value) -> ComparisonRow:
    """A row with its change, where both are numbers."""
    change = b - a if isinstance(a, int | float) and isinstance(b, int | float) else None
    return ComparisonRow(section=section, name=name, unit=unit, a=a, b=b, change=change)


def _shared(a: Mapping[str, float], b: Mapping[str, float], ending: str) -> list[str]:
    return [key for key in dict.fromkeys([*a, *b]) if key.endswith(ending)]


def _number_rows(
    section: str,
    unit: Unit,
    names: list[str] | tuple[str, ...],
    a: Mapping[str, float],
    b: Mapping[str, float],
) -> list[ComparisonRow]:
    return [
        row_of(section, name, unit, a.get(name), b.get(name))
        for name in names
        if name in a or name in b
    ]


def _class_rows(a: Result, b: Result) -> list[ComparisonRow]:
    """A row a class and status; a class that one of the runs does not have counts 0 there."""
    counts: list[dict[tuple[str, Status], int]] = []
    for result in (a, b):
        found: dict[tuple[str, Status], int] = {}
        for finding in result.findings:
            key = (finding.cls, finding.status)
            found[key] = found.get(key, 0) + finding.count
        counts.append(found)
    keys = dict.fromkeys([*counts[0], *counts[1]])
    return [
        row_of(
            "classes",
            f"{cls} ({status.value})",
            "count",
            counts[0].get(key, 0),
            counts[1].get(key, 0),
        )
        for key in keys
        for cls, status in [key]
        if counts[0].get(key) or counts[1].get(key)
    ]


def _fault_rows(a: Result, b: Result) -> list[ComparisonRow]:
    def longest(values: Iterable[float | None]) -> float | None:
        return max((value for value in values if value is not None), default=None)

    def row(name: str, unit: Unit, of: Callable[[list[FaultRow]], Value]) -> ComparisonRow:
        return row_of(
            "faults", name, unit, *(of([f for f in r.faults if not f.skipped]) for r in (a, b))
        )

    return [
        row("fired", "count", len),
        row("took effect", "count", lambda fired: sum(f.effective for f in fired)),
        row("longest outage", "s", lambda fired: longest(f.outage_s for f in fired)),
        row("slowest recovery", "s", lambda fired: longest(f.recovery_s for f in fired)),
    ]


def compare_campaigns(a: Campaign, b: Campaign) -> Comparison:
    """Every variant that either has: counts are sums over its rounds, rates and latencies their
    medians."""
    ours, theirs = ({v.name: v for v in campaign.variants} for campaign in (a, b))
    names = list(dict.fromkeys([*ours, *theirs]))
    rows = [row for name in names for row in _variant_rows(name, ours.get(name), theirs.get(name))]
    pairs: list[tuple[str, object, object]] = [
        ("scenario", a.scenario, b.scenario),
        ("seed", a.seed, b.seed),
    ]
    for name in names:
        x, y = ours.get(name), theirs.get(name)
        pairs.append((f"rounds of {name}", x.rounds if x else 0, y.rounds if y else 0))
        pairs.append((f"version of {name}", x.version if x else "", y.version if y else ""))
    cautions = tuple(_difference(*pair) for pair in pairs if pair[1] != pair[2])
    return Comparison(a=a.campaign_id, b=b.campaign_id, cautions=cautions, rows=tuple(rows))


def _variant_rows(
    name: str, a: VariantResult | None, b: VariantResult | None
) -> list[ComparisonRow]:
    def row(label: str, unit: Unit, of: Callable[[VariantResult], Value]) -> ComparisonRow:
        return row_of(name, label, unit, of(a) if a else None, of(b) if b else None)

    def median(
        part: Callable[[RunSummary], Mapping[str, float]], key: str
    ) -> Callable[[VariantResult], Value]:
        def of(variant: VariantResult) -> Value:
            known = [part(run)[key] for run in variant.runs if key in part(run)]
            return statistics.median(known) if known else None

        return of

    def total(
        part: Callable[[RunSummary], Mapping[str, int]], key: str
    ) -> Callable[[VariantResult], Value]:
        return lambda variant: sum(part(run).get(key, 0) for run in variant.runs)

    def classes(label: str, part: Callable[[RunSummary], Mapping[str, int]]) -> list[ComparisonRow]:
        runs = [run for variant in (a, b) if variant for run in variant.runs]
        names = dict.fromkeys(cls for run in runs for cls in part(run))
        return [row(label.format(cls), "count", total(part, cls)) for cls in names]

    return [
        row("result", "text", lambda v: v.outcome.value),
        row("rounds", "count", lambda v: v.rounds),
        row("hits", "count", lambda v: v.hits),
        row("first after", "s", lambda v: v.first_witness_s),
        *classes("{}", lambda run: run.violations),
        *classes("{} (excused)", lambda run: run.excused),
        *(row(key, "count", total(lambda run: run.sends, key)) for key in _SENDS),
        row("achieved_per_s", "per_s", median(lambda run: run.rate, "achieved_per_s")),
        *(row(key, "ms", median(lambda run: run.latency_ms, key)) for key in ("p50", "p99")),
        row("longest outage", "s", median(lambda run: run.rate, "longest_outage_s")),
        row("faults that took effect", "count", total(lambda run: run.faults, "effective")),
    ]


def _difference(name: str, x: object, y: object) -> str:
    return f"{words.plain(name)} differs: {words.plain(str(x)) or 'none'} and {words.plain(str(y)) or 'none'}"


def _cautions(a: Result, b: Result) -> list[str]:
    cautions = [
        _difference(name, x, y)
        for name, x, y in (
            ("scenario", a.scenario, b.scenario),
            ("variant", a.variant, b.variant),
            ("seed", a.seed, b.seed),
            ("target rate", *(words.per_second(r.rate.get("target_per_s", 0.0)) for r in (a, b))),
        )
        if x != y
    ]
    for key in dict.fromkeys([*a.environment, *b.environment]):
        x, y = a.environment.get(key, "none"), b.environment.get(key, "none")
        if x != y:
            cautions.append(_difference(key, x, y))
    return cautions


def value_text(value: Value, unit: Unit) -> str:
    """A cell of the table."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return words.plain(value)
    say: dict[Unit, Callable[[float], str]] = {
        "count": words.count,
        "per_s": words.per_second,
        "ms": words.millis,
        "s": words.seconds,
        "ratio": words.percent,
        "text": str,
    }
    return say[unit](value)


def change_text(row: ComparisonRow) -> str:
    """``+1,486``, ``-2.3 ms (-18 %)``; empty when equal."""
    if not row.differs:
        return ""
    if row.change is None:
        return "changed"
    size = value_text(abs(row.change), row.unit)
    share = ""
    if isinstance(row.a, int | float) and row.a and row.unit in ("ms", "per_s", "s"):
        share = f" ({row.change / row.a:+.0%})"
    return f"{'+' if row.change > 0 else '-'}{size}{share}"
