"""Seeds of earlier red rounds that are run again until they are closed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from experiments.history.rounds import Round

#: Judged rounds in a row, with the seed of a red one, that must be green before it stops being run.
CLOSES_AFTER: Final = 3
#: Open seeds of a cell that are run in a night, the newest first: a cell that is always red is one
#: finding.
MOST_OPEN: Final = 2


def is_red(row: Round) -> bool:
    """A promise was broken where none was expected to be."""
    return row.verdict == "fail" and row.expect in ("", "clean")


def evidence(rows: Iterable[Round]) -> list[str]:
    """Folders of the red rounds whose seeds are not closed, of the rounds of one cell."""
    every = list(rows)
    still = set(_still_open(every))
    return [row.folder for row in every if row.folder and row.seed in still and is_red(row)]


def open_seeds(rows: Iterable[Round]) -> list[int]:
    """Seeds of red rounds that are not closed yet, the newest first.

    A round that is *unknown* or broke neither opens nor closes one. Of a variant that is expected
    to show a class, no seed is kept: it is not a regression that it does not always show it.
    """
    return _still_open(rows)[:MOST_OPEN]


def _still_open(rows: Iterable[Round]) -> list[int]:
    green: dict[int, int] = {}
    for row in sorted(rows, key=lambda row: row.night):
        if row.seed is None or row.verdict not in ("pass", "fail"):
            continue
        if is_red(row):
            green.pop(row.seed, None)
            green[row.seed] = 0  # at the end: red last
        elif row.seed in green and row.expect in ("", "clean"):
            green[row.seed] += 1
    return [seed for seed, count in green.items() if count < CLOSES_AFTER][::-1]
