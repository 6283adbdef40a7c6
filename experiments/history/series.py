"""Counts what each cell showed, night by night: hits of a class among rounds that could show it,
and figures.

Only fresh rounds count. A sticky seed is run once more because it was red: it is not a sample of
the rate.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from analysis.findings import Status
from experiments.history.rounds import Round


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure of a round: where it is in a `Round`, what is worse, and what is too little to tell.

    ``floor``: values below it are all alike (the resolution of the figure). ``least``: the factor
    by which two levels must differ to matter to anybody.
    """

    name: str
    unit: str
    is_worse_up: bool
    floor: float
    least: float


METRICS: Final = (
    Metric("rate", "/s", is_worse_up=False, floor=1.0, least=1.05),
    Metric("p99", "ms", is_worse_up=True, floor=0.1, least=1.25),
    Metric("outage", "s", is_worse_up=True, floor=0.1, least=1.25),
    Metric("recovery", "s", is_worse_up=True, floor=0.1, least=1.25),
)


@dataclass(frozen=True, slots=True)
class Tally:
    """Rounds of one night that could show a class, and those that did."""

    hits: int
    rounds: int


#: (cell, class) -> night -> tally; nights without a round that counts are left out.
Tallies = dict[tuple[str, str], dict[str, Tally]]
#: (cell, metric) -> night -> median of the night's rounds; nights without a figure are left out.
Figures = dict[tuple[str, str], dict[str, float]]


def shown(row: Round) -> set[str]:
    """Classes that the round shows: violations, and what its variant is expected to show."""
    violated = {found.cls for found in row.found if found.status == Status.VIOLATION}
    proved = {found.cls for found in row.found if found.status not in (Status.SUSPECT, Status.INFO)}
    return violated | (proved & {row.expect})


def could_show(row: Round, cls: str) -> bool:
    """Whether the absence of the class in the round says something."""
    is_suspect = any(found.cls == cls and found.status == Status.SUSPECT for found in row.found)
    return row.is_judged and cls not in row.untested and not is_suspect


def tallies(rounds: Iterable[Round]) -> Tallies:
    """Return the counts of every class that a cell has ever shown."""
    by_cell: dict[str, list[Round]] = defaultdict(list)
    for row in rounds:
        if not row.is_sticky:
            by_cell[row.cell].append(row)
    made: Tallies = {}
    for cell, rows in by_cell.items():
        for cls in sorted(set().union(*map(shown, rows))):
            nights: dict[str, Tally] = {}
            for row in rows:
                hit = cls in shown(row)
                if hit or could_show(row, cls):
                    known = nights.get(row.night, Tally(0, 0))
                    nights[row.night] = Tally(known.hits + hit, known.rounds + 1)
            made[cell, cls] = nights
    return made


def value_of(row: Round, metric: str) -> float | None:
    """The figure of a round; None where it was not measured."""
    if metric == "rate":
        return row.rate_held_per_s
    if metric == "p99":
        return row.latency_ms.get("p99")
    if metric == "outage":
        return row.longest_outage_s
    return max(row.recoveries_s, default=None)


def figures(rounds: Iterable[Round]) -> Figures:
    """Return the figures of every cell and metric that has any, at the rate of its last night:
    figures at two rates cannot be compared.
    """
    fresh = sorted((row for row in rounds if not row.is_sticky), key=lambda row: row.night)
    asked = {row.cell: row.rate_asked_per_s for row in fresh if row.verdict is not None}
    values: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in fresh:
        if row.rate_asked_per_s != asked.get(row.cell):
            continue
        for metric in METRICS:
            value = value_of(row, metric.name)
            if value is not None:
                values[row.cell, metric.name][row.night].append(value)
    return {
        key: {night: median(each) for night, each in nights.items()}
        for key, nights in values.items()
    }


def total(tallies_of: Sequence[Tally]) -> Tally:
    """Return the sum of hits and rounds."""
    return Tally(sum(each.hits for each in tallies_of), sum(each.rounds for each in tallies_of))
