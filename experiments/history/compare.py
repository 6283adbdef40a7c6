"""Compares two nights cell by cell: its word, hits of each class, figures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from analysis.report import words
from analysis.report.compare import Comparison, ComparisonRow, Unit, Value, row_of
from experiments.history.report import word_of_night
from experiments.history.rounds import Round
from experiments.history.series import METRICS, figures, tallies

_UNITS: Final[Mapping[str, Unit]] = {"/s": "per_s", "ms": "ms", "s": "s"}


def compare_nights(a: tuple[str, Sequence[Round]], b: tuple[str, Sequence[Round]]) -> Comparison:
    """Every cell that either night has; of figures the medians of its rounds.

    Args:
        a, b: a night and its rounds.
    """
    hits = tallies([*a[1], *b[1]])
    sides = [
        _by_cell(
            rounds, {key: nights[night].hits for key, nights in hits.items() if night in nights}
        )
        for night, rounds in (a, b)
    ]
    rows: list[ComparisonRow] = []
    for cell in sorted({*sides[0], *sides[1]}):
        ours, theirs = (side.get(cell, {}) for side in sides)
        rows += [
            row_of(cell, name, unit, ours.get((name, unit)), theirs.get((name, unit)))
            for name, unit in dict.fromkeys([*ours, *theirs])
        ]
    versions = [_versions(rounds) for _, rounds in (a, b)]
    cautions = [
        f"{words.plain(name)} differs: {words.plain(versions[0][name])} and {words.plain(versions[1][name])}"
        for name in sorted(versions[0].keys() & versions[1].keys())
        if versions[0][name] != versions[1][name]
    ]
    return Comparison(a=a[0], b=b[0], cautions=tuple(cautions), rows=tuple(rows))


def _by_cell(
    rounds: Sequence[Round], hits: Mapping[tuple[str, str], int]
) -> dict[str, dict[tuple[str, Unit], Value]]:
    """By cell, its values, in order: (name, unit) -> value."""
    cells: dict[str, list[Round]] = defaultdict(list)
    for each in rounds:
        cells[each.cell].append(each)
    made: dict[str, dict[tuple[str, Unit], Value]] = {}
    for cell, own in cells.items():
        made[cell] = {("result", "text"): word_of_night(own), ("rounds", "count"): len(own)}
        made[cell] |= {(cls, "count"): hits[of, cls] for of, cls in sorted(hits) if of == cell}
        levels = figures(own)
        for metric in METRICS:
            for value in levels.get((cell, metric.name), {}).values():
                made[cell][metric.name, _UNITS[metric.unit]] = value
    return made


def _versions(rounds: Sequence[Round]) -> dict[str, str]:
    """Return what could explain a difference besides chance: the machine, and versions by cell."""
    made = {f"machine of {each.cell}": each.machine for each in rounds if each.machine}
    for each in rounds:
        made |= {f"{name} of {each.cell}": version for name, version in each.versions.items()}
    return made
