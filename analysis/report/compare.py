"""Compares two runs: verdict, classes, rate, latency and faults, side by side.

Numbers stand beside each other with their difference; whether a difference means anything is for the
reader, for two runs are two samples. What makes them hard to compare (another scenario, seed, version)
is said first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from analysis.findings import Result, Status
from analysis.report import words

Unit = Literal["count", "per_s", "ms", "s", "ratio", "text"]
Value = float | str | None
_LATENCIES = ("p50", "p90", "p99", "p999", "max", "send_delay_p99")
_SENDS = ("attempted", "ok", "fail", "info")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One thing of both runs; ``change`` is b - a, None where there is no number on both sides."""

    section: str
    name: str
    unit: Unit
    a: Value
    b: Value
    change: float | None

    @property
    def differs(self) -> bool:
        return self.a != self.b


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """``a`` and ``b`` are run ids; ``cautions`` say what besides chance could explain a difference."""

    a: str
    b: str
    cautions: tuple[str, ...]
    rows: tuple[Row, ...]


def compare(a: Result, b: Result) -> Comparison:
    """Every row, also the equal ones."""
    rows = [
        _row("verdict", "verdict", "text", a.verdict.value, b.verdict.value),
        *_class_rows(a, b),
        *_number_rows("sends", "count", _SENDS, a.sends, b.sends),
        *_number_rows("rate", "per_s", _shared(a.rate, b.rate, "_per_s"), a.rate, b.rate),
        *_number_rows("rate", "ratio", _shared(a.rate, b.rate, "ratio_outside_outages"), a.rate, b.rate),
        *_number_rows("latency", "ms", _LATENCIES, a.latency_ms, b.latency_ms),
        *_fault_rows(a, b),
    ]
    return Comparison(a=a.run_id, b=b.run_id, cautions=tuple(_cautions(a, b)), rows=tuple(rows))


def _row(section: str, name: str, unit: Unit, a: Value, b: Value) -> Row:
    change = b - a if isinstance(a, int | float) and isinstance(b, int | float) else None
    return Row(section=section, name=name, unit=unit, a=a, b=b, change=change)


def _shared(a: Mapping[str, float], b: Mapping[str, float], ending: str) -> list[str]:
    return [key for key in dict.fromkeys([*a, *b]) if key.endswith(ending)]


def _number_rows(
    section: str,
    unit: Unit,
    names: list[str] | tuple[str, ...],
    a: Mapping[str, float],
    b: Mapping[str, float],
) -> list[Row]:
    return [_row(section, name, unit, a.get(name), b.get(name)) for name in names if name in a or name in b]


def _class_rows(a: Result, b: Result) -> list[Row]:
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
        _row("classes", f"{cls} ({status.value})", "count", counts[0].get(key, 0), counts[1].get(key, 0))
        for key in keys
        for cls, status in [key]
        if counts[0].get(key) or counts[1].get(key)
    ]


def _fault_rows(a: Result, b: Result) -> list[Row]:
    def fired(result: Result) -> list[tuple[float | None, float | None, bool]]:
        return [(f.outage_s, f.recovery_s, f.effective) for f in result.faults if not f.skipped]

    def longest(values: list[float | None]) -> float | None:
        return max((value for value in values if value is not None), default=None)

    ours, theirs = fired(a), fired(b)
    return [
        _row("faults", "fired", "count", len(ours), len(theirs)),
        _row("faults", "took effect", "count", sum(e for *_, e in ours), sum(e for *_, e in theirs)),
        _row(
            "faults",
            "longest outage",
            "s",
            longest([o for o, _, _ in ours]),
            longest([o for o, _, _ in theirs]),
        ),
        _row(
            "faults",
            "slowest recovery",
            "s",
            longest([r for _, r, _ in ours]),
            longest([r for _, r, _ in theirs]),
        ),
    ]


def _cautions(a: Result, b: Result) -> list[str]:
    cautions = [
        f"{name} differs: {words.plain(str(x)) or 'none'} and {words.plain(str(y)) or 'none'}"
        for name, x, y in (
            ("scenario", a.scenario, b.scenario),
            ("variant", a.variant, b.variant),
            ("seed", a.seed, b.seed),
            ("target rate", *(words.per_second(r.rate["target_per_s"]) for r in (a, b))),
        )
        if x != y
    ]
    for key in dict.fromkeys([*a.environment, *b.environment]):
        x, y = a.environment.get(key, "none"), b.environment.get(key, "none")
        if x != y:
            cautions.append(f"{words.plain(key)} differs: {words.plain(x)} and {words.plain(y)}")
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


def change_text(row: Row) -> str:
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
