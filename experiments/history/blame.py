"""Whose a change is: the machine's, when the control cells show it in the same nights; and what
else differs between the nights before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import log
from typing import Final

import numpy as np

from experiments.history.detect import logs_of, shift_p, steps_of
from experiments.history.rounds import Round
from experiments.history.series import Figures, Metric, Tallies, figures, tallies, total

#: A control cell must move as clearly as this (not corrected: blaming the machine wakes no one) ...
_CLEARLY: Final = 0.05
#: ... and by this share of what the cell moved by.
_SHARE: Final = 0.5
#: Nights of a control cell on either side that a shift can be seen in.
_NIGHTS: Final = 2
#: A night of a control cell is odd when it lies this many median deviations from its level.
_ODD: Final = 6.0


@dataclass(frozen=True, slots=True)
class Controls:
    """The results of the control cells."""

    cells: frozenset[str]
    hits: Tallies
    levels: Figures
    _offsets: dict[tuple[str, tuple[str, ...]], np.ndarray] = field(default_factory=dict)

    @classmethod
    def from_rounds(cls, rounds: Sequence[Round]) -> Controls:
        of_controls = [row for row in rounds if row.is_control]
        return cls(
            frozenset(row.cell for row in of_controls), tallies(of_controls), figures(of_controls)
        )

    def offset(self, metric: Metric, nights: Sequence[str]) -> np.ndarray:
        """Return the offset of a metric; see `_offset`. Most cells share it."""
        key = metric.name, tuple(nights)
        if key not in self._offsets:
            self._offsets[key] = self._offset(metric, nights)
        return self._offsets[key]

    def _offset(self, metric: Metric, nights: Sequence[str]) -> np.ndarray:
        """By night, what the machine adds to the logarithm of a metric: the steps of the control
        cells and their odd nights, on average; zero without a control."""
        added = np.zeros((max(1, len(self.cells)), len(nights)))
        for row, control in zip(added, sorted(self.cells), strict=False):
            known = self.levels.get((control, metric.name), {})
            common = [index for index, night in enumerate(nights) if night in known]
            if common:
                logs = logs_of([known[nights[index]] for index in common], metric)
                steps = steps_of(logs)
                rest = logs - steps
                is_odd = np.abs(rest) > _ODD * max(float(np.median(np.abs(rest))), 0.01)
                curve = np.where(is_odd, logs, steps) - np.median(steps)
                row[:] = np.interp(range(len(nights)), common, curve)
        mean: np.ndarray = added.mean(axis=0)
        return mean

    def blame_class(self, cell: str, subject: str, at: str, until: str) -> str:
        """Why a rise of a class is the machine's: a control cell shows it from then on, and not
        before."""
        for control in sorted(self.cells - {cell}):
            nights = self.hits.get((control, subject), {})
            before = total([tally for night, tally in nights.items() if night < at])
            after = total([tally for night, tally in nights.items() if at <= night <= until])
            if after.hits and not before.hits:
                return f"the control cell {control} shows {subject} from the same nights on"
        return ""

    def blame_figure(
        self, cell: str, metric: Metric, nights: Sequence[str], at: str, factor: float
    ) -> str:
        """Why another level is the machine's: the cell is a control, or a control moved with it, by
        more than the `offset` that was taken off already."""
        if cell in self.cells:
            return "the cell is a control"
        for control in sorted(self.cells):
            known = self.levels.get((control, metric.name), {})
            common = [night for night in nights if night in known]
            split = sum(night < at for night in common)
            if min(split, len(common) - split) < _NIGHTS:
                continue
            rest = logs_of([known[night] for night in common], metric) - self.offset(metric, common)
            shift, p = shift_p(rest, split)
            if p <= _CLEARLY and shift * log(factor) >= _SHARE * log(factor) ** 2:
                return f"the control cell {control} moved with it"
        return ""


def differences(rounds: Sequence[Round], cell: str, at: str) -> list[str]:
    """Versions and machine that differ between a cell's last round before a night and its first
    since."""
    own = [row for row in rounds if row.cell == cell and not row.is_sticky]
    before = max((row for row in own if row.night < at), key=lambda row: row.night, default=None)
    after = min((row for row in own if row.night >= at), key=lambda row: row.night, default=None)
    if before is None or after is None:
        return []
    old, new = _facts(before), _facts(after)
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    return [f"{name} {old.get(name, 'unknown')} -> {new.get(name, 'unknown')}" for name in names]


def _facts(row: Round) -> Mapping[str, str]:
    is_told = all(name in row.versions for name in row.client.split(", "))
    known = {
        "" if is_told else row.client: row.client_version,
        row.system: row.broker_version,
        **row.versions,
        "machine": row.machine,
    }
    return {name: value for name, value in known.items() if name and value}
