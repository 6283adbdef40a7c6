"""Durations in logarithmic bins over time steps: exact to a percent, mergeable, small.

Values in ns fall into bins of 2**6 steps an octave, taken from the bits of a float32: at most 1.6 %
wide, so a quantile read at the middle of its bin is within 0.8 %. Bin 0 is everything below 1.02
us, the last one everything above 18 minutes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from analysis.capture.bucket import is_constant

Ints = npt.NDArray[np.int64]

_MANTISSA_BITS = 6
_SHIFT = 23 - _MANTISSA_BITS
_LOWEST_EXPONENT, _HIGHEST_EXPONENT = 10, 40  # 2**10 ns .. 2**40 ns
BINS = (_HIGHEST_EXPONENT - _LOWEST_EXPONENT) << _MANTISSA_BITS
_OFFSET = (127 + _LOWEST_EXPONENT) << _MANTISSA_BITS


def bin_of(value_ns: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
    """Histogram bin of each duration; negative ones (a clock read before the due time) are 0."""
    bins = value_ns.astype(np.float32).view(np.int32)  # negative floats are negative integers
    bins >>= _SHIFT
    bins -= _OFFSET
    return np.clip(bins, 0, BINS - 1, out=bins)


def bin_middle_ns(bins: Ints) -> npt.NDArray[np.float64]:
    """The value that represents a bin."""
    edges = np.array([bins, bins + 1], np.int64) + _OFFSET
    low, high = (edges << _SHIFT).astype(np.int32).view(np.float32).astype(np.float64)
    return np.asarray((low + high) / 2)


@dataclass(frozen=True, slots=True)
class Histogram:
    """Sparse counts over (step, bin): ``cell = step * BINS + bin``, ascending, unique."""

    cells: npt.NDArray[Any]
    counts: npt.NDArray[Any]
    max_ns: int = 0

    @classmethod
    def from_values(cls, steps: npt.NDArray[Any], value_ns: Ints, n_steps: int) -> Histogram:
        dense = Dense(n_steps)
        dense.add(steps, value_ns)
        return dense.sparse()

    @classmethod
    def merged(cls, parts: Sequence[Histogram]) -> Histogram:
        dense = np.zeros(
            max((int(p.cells[-1]) + 1 for p in parts if len(p.cells)), default=0), np.int64
        )
        for part in parts:
            dense[part.cells] += part.counts  # cells of a part are unique
        cells = np.flatnonzero(dense)
        return cls(cells, dense[cells], max(p.max_ns for p in parts))

    @property
    def total(self) -> int:
        return int(self.counts.sum())

    def per_step(self, n_steps: int) -> Ints:
        return np.bincount(self.cells // BINS, self.counts, n_steps).astype(np.int64)

    def only(self, kept: npt.NDArray[np.bool_]) -> Histogram:
        """The values of the kept steps; its maximum is a bin's value if the largest value is not
        kept."""
        taken = kept[self.cells // BINS]
        cells, counts = self.cells[taken], self.counts[taken]
        if taken.all() or not len(cells):
            return Histogram(cells, counts, self.max_ns)
        highest = np.array([(cells % BINS).max()], np.int64)
        return Histogram(cells, counts, min(self.max_ns, round(float(bin_middle_ns(highest)[0]))))

    def quantiles(self, wanted: Sequence[float]) -> list[float]:
        """Values in ns at quantiles 0..1 over all steps; [] without values. 1.0 is the exact
        maximum."""
        if not len(self.cells):
            return []
        dense = np.bincount(self.cells % BINS, self.counts, BINS)
        return _read(dense, wanted, self.max_ns)

    def quantiles_per_step(self, wanted: Sequence[float], n_steps: int) -> list[list[float | None]]:
        """For each wanted quantile, a value in ns a step; None in a step without values."""
        out: list[list[float | None]] = [[None] * n_steps for _ in wanted]
        if not len(self.cells):
            return out
        steps, starts = np.unique(self.cells // BINS, return_index=True)
        ends = np.append(starts[1:], len(self.cells))
        for step, start, end in zip(steps, starts, ends, strict=True):
            dense = np.bincount(self.cells[start:end] % BINS, self.counts[start:end], BINS)
            for series, value in zip(out, _read(dense, wanted, self.max_ns), strict=True):
                series[int(step)] = value
        return out


def _read(dense: npt.NDArray[Any], wanted: Sequence[float], max_ns: int) -> list[float]:
    running = np.cumsum(dense)
    # rank = ceil(q * n), at least the first value: the smallest value with q of all at or below it
    ranks = np.maximum(np.ceil(np.asarray(wanted) * running[-1] - 1e-9), 1)
    middles = bin_middle_ns(np.searchsorted(running, ranks).astype(np.int64))
    values = np.minimum(middles, max_ns)
    return [float(max_ns if q >= 1 else v) for q, v in zip(wanted, values, strict=True)]


class Dense:
    """A histogram that is still being filled. Cells are counted in batches as long as the
    histogram."""

    def __init__(self, steps: int) -> None:
        self._counts = np.zeros(steps * BINS, np.int64)
        self._waiting: list[npt.NDArray[np.int32]] = []
        self._max_ns = 0

    def add(self, steps: npt.NDArray[Any], value_ns: Ints) -> None:
        if not len(steps):
            return
        cells = bin_of(value_ns)
        self._max_ns = max(self._max_ns, int(value_ns.max()))
        if is_constant(steps):
            start = int(steps[0]) * BINS
            self._counts[start : start + BINS] += np.bincount(cells, minlength=BINS)
            return
        cells += steps.astype(np.int32, copy=False) * np.int32(BINS)
        self._waiting.append(cells)
        if sum(map(len, self._waiting)) >= len(self._counts):
            self._count()

    def _count(self) -> None:
        if self._waiting:
            cells = np.concatenate(self._waiting)
            self._counts += np.bincount(cells, minlength=len(self._counts))
            self._waiting.clear()

    def sparse(self) -> Histogram:
        self._count()
        cells = np.flatnonzero(self._counts)
        counts = self._counts[cells]
        # half the way home
        return Histogram(cells.astype(np.int32), counts.astype(np.int32), self._max_ns)
