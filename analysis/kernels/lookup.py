"""Vectorised look-ups that the indexes are made of."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from analysis.capture.bucket import Array, is_constant

Ints = npt.NDArray[np.int64]

#: Up to this value a look-up is an array read; beyond, a bisection.
_LUT_LIMIT = 1 << 21


class Lookup:
    """Position of a value among distinct, ascending ones; for others -1 or, if so wanted, their
    number.

    ``stride``: what positions are multiplied by.
    """

    def __init__(self, values: Ints, *, unknown_last: bool = False, stride: int = 1) -> None:
        self.values = values
        self._stride = stride
        self._unknown = len(values) * stride if unknown_last else -1
        self._lut: npt.NDArray[np.int32] | None = None
        if len(values) and values[-1] < _LUT_LIMIT:
            self._lut = np.full(int(values[-1]) + 2, self._unknown, np.int32)
            self._lut[values] = np.arange(len(values), dtype=np.int32) * np.int32(stride)

    def __len__(self) -> int:
        return len(self.values)

    def index(self, values: Array) -> npt.NDArray[np.int32]:
        """Values must not be negative."""
        if is_constant(values):
            return np.repeat(self.index(values[:1].copy()), len(values))
        if self._lut is not None:
            return np.take(self._lut, values, mode="clip")
        if not len(self.values):
            return np.full(len(values), self._unknown, np.int32)
        at = np.minimum(np.searchsorted(self.values, values), len(self.values) - 1)
        return np.where(self.values[at] == values, at * self._stride, self._unknown).astype(
            np.int32
        )


def distinct(values: Array) -> Ints:
    """Distinct values, ascending; by marking where they are small and not negative."""
    if not len(values):
        return np.empty(0, np.int64)
    if is_constant(values):
        return values[:1].astype(np.int64)
    if int(values.max()) >= _LUT_LIMIT or int(values.min()) < 0:
        return np.unique(values).astype(np.int64)
    seen = np.zeros(int(values.max()) + 1, np.bool_)
    seen[values] = True
    return np.flatnonzero(seen).astype(np.int64)


def ragged(lengths: Array) -> tuple[Ints, Ints]:
    """For lists of these lengths end to end: the list of each element, and its place in that
    list."""
    index = np.repeat(np.arange(len(lengths)), lengths)
    starts = np.cumsum(lengths) - lengths
    return index, np.arange(len(index)) - starts[index]
