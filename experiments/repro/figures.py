"""Reads what counted rounds of the known bugs have shown: `scenarios/bugs/results.json`, a row a
pair."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, TypeAdapter

from analysis.verdict.statistics import fisher_exact
from harness.scenario.bundled import BUNDLED

RESULTS_FILE: Final = BUNDLED / "bugs" / "results.json"


class Figures(BaseModel):
    """The figures of one version pair.

    Attributes:
        affected, fixed: rounds that showed the bug, and counted rounds.
        first_s: the first hit after the start of load, seconds: median, least and most over the
            rounds.
        day: when they were counted.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    affected: tuple[int, int]
    fixed: tuple[int, int]
    first_s: tuple[float, float, float]
    day: date

    @property
    def p(self) -> float:
        """Return the two-sided p of Fisher's exact test."""
        return fisher_exact(*self.affected, *self.fixed)

    @property
    def counted(self) -> tuple[str, str]:
        """Return the counts of the affected and the fixed version as text: ``10 of 10``, ``0 of
        10``."""
        (bad, of_bad), (good, of_good) = self.affected, self.fixed
        return f"{bad} of {of_bad}", f"{good} of {of_good}"


def figures(path: Path = RESULTS_FILE) -> dict[str, dict[str, Figures]]:
    """Bug -> pair -> what was seen, in the file's order.

    Raises:
        pydantic.ValidationError: the file is not of that form.
    """
    return TypeAdapter(dict[str, dict[str, Figures]]).validate_json(path.read_bytes())
