"""Seeds of earlier red rounds that are run again until they are closed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

#: Judged rounds in a row, with the seed of a red one, that must be green before it is no longer run.
CLOSES_AFTER: Final = 3
#: Open seeds of a cell that are run in a night, the newest first: a cell that is always red is one finding.
MOST_OPEN: Final = 2


class Row(Protocol):
    """As much of a round of the history as this needs."""

    @property
    def night(self) -> str: ...
    @property
    def seed(self) -> int | None: ...
    @property
    def expect(self) -> str: ...
    @property
    def verdict(self) -> str | None: ...


def is_red(row: Row) -> bool:
    """A promise was broken where none was expected to be."""
    return row.verdict == "fail" and row.expect in ("", "clean")


def open_seeds(rows: Iterable[Row]) -> list[int]:
    """Seeds of red rounds that are not closed yet, the newest first.

    A round that is *unknown* or broke neither opens nor closes one. Of a variant that is expected to show a
    class, no seed is kept: that it does not always show it is no regression.
    """
    green: dict[int, int] = {}
    for row in sorted(rows, key=lambda row: row.night):
        if row.seed is None or row.verdict not in ("pass", "fail"):
            continue
        if is_red(row):
            green.pop(row.seed, None)
            green[row.seed] = 0  # at the end: red last
        elif row.seed in green and row.expect in ("", "clean"):
            green[row.seed] += 1
    still = [seed for seed, count in green.items() if count < CLOSES_AFTER]
    return still[::-1][:MOST_OPEN]
