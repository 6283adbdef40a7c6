"""Which cells of a suite run tonight: a part of them, a share for this machine, what fits the
budget."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from experiments.nights.matrix import Cell
from harness.errors import UsageError


@dataclass(frozen=True, slots=True)
class Choice:
    """Cells to run, in their order, with the time that each is expected to take (s); and those left
    out."""

    cells: tuple[Cell, ...]
    left_out: tuple[Cell, ...]
    expected_s: Mapping[str, float]

    @property
    def total_s(self) -> float:
        """Return the expected duration of all cells, in seconds."""
        return sum(self.expected_s[cell.id] for cell in self.cells)


@dataclass(frozen=True, slots=True)
class Shard:
    """One of several machines that share a suite; ``number`` from 1."""

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """``2/4``.

        Raises:
            UsageError: not of that form.
        """
        match = re.fullmatch(r"(\d{1,4})/(\d{1,4})", text)
        if match is None:
            raise UsageError(f"--shard {text} is not N/M", hint="for example --shard 2/4")
        if not 1 <= int(match[1]) <= int(match[2]):
            raise UsageError(
                f"--shard {text}: the first number must be from 1 to {int(match[2])}"
                if int(match[2])
                else f"--shard {text}: there must be at least one shard",
                hint="for example --shard 2/4",
            )
        return cls(int(match[1]), int(match[2]))


def narrowed(cells: Sequence[Cell], patterns: Sequence[str], shard: Shard | None) -> list[Cell]:
    """The cells that fit one of the patterns (all without any) and are this machine's.

    Raises:
        UsageError: none is left.
    """
    found = [cell for cell in cells if not patterns or any(_fits(cell.id, one) for one in patterns)]
    if not found:
        raise UsageError(
            f"no cell fits --only {' --only '.join(patterns)}",
            hint=f"cells: {'; '.join(cell.id for cell in cells[:3])} ...; `brokerstorm suite plan` has all",
        )
    mine = [cell for cell in found if shard is None or cell.shard % shard.of == shard.number - 1]
    if not mine and shard:
        raise UsageError(
            f"--shard {shard.number}/{shard.of} is left without a cell: there are {len(found)}",
            hint="share it among fewer machines",
        )
    return mine


def _fits(identifier: str, pattern: str) -> bool:
    """A pattern as of a shell; without ``*``, ``?`` or ``[`` any part of the id."""
    has_wildcard = bool(re.search(r"[*?\[]", pattern))
    return fnmatchcase(identifier, pattern) if has_wildcard else pattern in identifier


def choose(
    cells: Sequence[Cell], budget_s: float | None, expected: Callable[[Cell], float]
) -> Choice:
    """Choose the cells that fit the budget, the most important first, and their order.

    Within a priority, cells that can share a cluster come one after the other.

    Raises:
        UsageError: nothing fits.
    """
    times = {cell.id: expected(cell) for cell in cells}
    chosen: set[str] = set()
    left = budget_s
    for cell in sorted(cells, key=lambda cell: -cell.priority):
        if left is None or times[cell.id] <= left:
            chosen.add(cell.id)
            left = None if left is None else left - times[cell.id]
    if budget_s is not None and not chosen:
        shortest = min(times.values())
        raise UsageError(
            f"a budget of {budget_s:g} s fits none of {len(cells)} cells: one takes {shortest:.0f} s or more",
            hint="raise --budget, or the suite's budget",
        )
    inside = [cell for cell in cells if cell.id in chosen]
    return Choice(
        tuple(_grouped(inside)), tuple(cell for cell in cells if cell.id not in chosen), times
    )


def _grouped(cells: Sequence[Cell]) -> list[Cell]:
    first: dict[tuple[int, str], int] = {}
    for number, cell in enumerate(cells):
        first.setdefault((cell.priority, cell.group), number)
    return sorted(cells, key=lambda cell: (-cell.priority, first[cell.priority, cell.group]))
