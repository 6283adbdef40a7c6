"""Finds the log row at a place (stream, position), for many places at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from analysis.capture.bucket import Array, Columns, is_constant
from analysis.kernels.lookup import Ints, Lookup, distinct, ragged
from harness.errors import BrokerstormError

_KEYS = ("stream", "ledger", "position", "batch")


class Places:
    """Index over a log in log order.

    A Kafka partition without transactions has every offset in turn, so a row is a base plus the
    offset. Other streams (holes left by transaction markers, Pulsar's ledger, entry and batch
    index) are found by bisection on one packed number a row.

    Batch index -1 (no batch) and 0 are one place: an entry is either, and a client that made a
    batch of one calls it 0 where the reader finds no batch.
    """

    def __init__(self, log: Columns) -> None:
        self._log = log
        self._streams = Lookup(distinct(log["stream"]), unknown_last=True)
        stream, position = log["stream"], log["position"]
        first, last = _segments(stream, self._streams.values)
        low, high = position[first].astype(np.int64), position[last].astype(np.int64)
        plain = all(
            not len(log[k]) or (is_constant(log[k]) and log[k][0] == 0) for k in ("ledger", "batch")
        )
        self._dense = (high - low == last - first) & plain
        # With an entry for "no such stream"; where there are holes nothing lies between low and
        # high.
        self._holed = np.append(~self._dense, False)
        self._low = np.append(np.where(self._dense, low, 0), 0)
        self._high = np.append(np.where(self._dense, high, -1), -1)
        self._base = np.append(first - low, 0)
        self._bounds = first, last
        self._packed: _Packed | None = None

    @property
    def is_dense(self) -> bool:
        """Every place is found by an addition."""
        return bool(self._dense.all())

    def rows(self, stream: Array, position: Array, ledger: Array, batch: Array) -> Ints:
        """Log row of each place, -1 where the log has none."""
        if not self._log.rows or not len(stream):
            return np.full(len(stream), -1, np.int64)
        index = self._streams.index(np.maximum(stream, 0))
        inside = (position >= self._low[index]) & (position <= self._high[index])
        found: Ints = np.where(inside, self._base[index] + position, -1)
        if self._holed.any():
            rest = np.flatnonzero(self._holed[index])
            self._packed = self._packed or _Packed(self._log, self._rows_with_holes())
            found[rest] = self._packed.rows(stream[rest], ledger[rest], position[rest], batch[rest])
        return found

    def _rows_with_holes(self) -> Ints:
        """Log rows of the streams that have holes."""
        first, last = (bound[~self._dense] for bound in self._bounds)
        index, offset = ragged(last - first + 1)
        rows: Ints = first[index] + offset
        return rows


def _segments(stream: Array, values: Ints) -> tuple[Ints, Ints]:
    """First and last row of each of the values in an ascending column."""
    if len(values) <= 1:  # also the zero-stride column, which must not be copied
        return np.zeros(len(values), np.int64), np.full(len(values), len(stream) - 1)
    wanted = values.astype(stream.dtype)  # else the whole column is converted
    first = np.searchsorted(stream, wanted, side="left")
    return first, np.searchsorted(stream, wanted, side="right") - 1


class _Packed:
    """The four parts of a place as one ascending int64 in mixed radix, for some rows of the log."""

    def __init__(self, log: Columns, rows: Ints) -> None:
        self._rows = rows
        columns = {key: log[key][rows] for key in _KEYS}
        self._parts = [Lookup(distinct(columns[key])) for key in ("stream", "ledger")]
        sizes = [len(part) for part in self._parts]
        sizes += [max(int(columns[key].max()), 0) + 1 for key in ("position", "batch")]
        self._positions: Lookup | None = None
        # far apart: an import may number as it likes
        if np.prod([float(size) for size in sizes]) >= 2.0**63:
            self._positions = Lookup(distinct(columns["position"]))
            sizes[2] = len(self._positions)
        if np.prod([float(size) for size in sizes]) >= 2.0**63:
            raise BrokerstormError(
                f"places of {log.rows} log rows do not fit 63 bits: radices {sizes}"
            )
        self._limits = sizes[2:]
        self._weights = [sizes[1] * sizes[2] * sizes[3], sizes[2] * sizes[3], sizes[3], 1]
        self._keys = self._pack(*(columns[key] for key in _KEYS))[0]

    def _pack(
        self, stream: Array, ledger: Array, position: Array, batch: Array
    ) -> tuple[Ints, npt.NDArray[np.bool_]]:
        ranks = [
            p.index(c).astype(np.int64) for p, c in zip(self._parts, (stream, ledger), strict=True)
        ]
        known = (ranks[0] >= 0) & (ranks[1] >= 0)
        batch = np.maximum(batch, 0)
        if self._positions is not None:
            position = self._positions.index(position)
        known &= (position >= 0) & (position < self._limits[0]) & (batch < self._limits[1])
        parts = (*ranks, position.astype(np.int64), batch.astype(np.int64))
        packed = sum(part * weight for part, weight in zip(parts, self._weights, strict=True))
        return np.asarray(packed), known

    def rows(self, stream: Array, ledger: Array, position: Array, batch: Array) -> Ints:
        packed, known = self._pack(stream, ledger, position, batch)
        at = np.minimum(np.searchsorted(self._keys, packed), len(self._keys) - 1)
        return np.where(known & (self._keys[at] == packed), self._rows[at], -1)
