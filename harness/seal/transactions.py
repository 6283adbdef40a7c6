"""Transactions on their way into the sealed form, the producers' and the log's.

What producers journalled becomes the rows of transactions.jsonl. What the log holds, spans of
offsets with the marker after them, becomes two columns of the log's rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from harness.contracts.rows import StreamTransactions, TransactionRow
from harness.records import Outcome, Txn
from harness.seal.columns import Array, RowSource
from harness.segments import Rows

#: A stream and an offset as one number.
_OFFSET_BITS: Final = 44


class LogTransactions:
    """How the transactions of the log ended, by stream and offset.

    Args:
        told: what was read of each stream; of a stream without, and after what was read, the state
            of a row is *unknown*.
    """

    def __init__(self, told: Iterable[StreamTransactions], stream_id: Callable[[str], int]) -> None:
        spans = [
            (stream_id(one.stream) << _OFFSET_BITS | first, last - first, end, state)
            for one in told
            for first, last, end, state in _known(one)
        ]
        # an empty one, so that every row has one before it
        before_all = (-1, -1, -1, int(Txn.UNKNOWN))
        table = np.array(sorted([before_all, *spans]), np.int64)
        self._first, self._length, self._end, self._state = np.ascontiguousarray(table.T)

    def fill(self, out: dict[str, Array]) -> None:
        """Set ``txn`` and ``txn_end`` of rows of the log whose stream ids are the plan's."""
        key = out["stream"].astype(np.int64) << _OFFSET_BITS | np.maximum(out["position"], 0)
        at = np.searchsorted(self._first, key, side="right") - 1
        within = key - self._first[at] <= self._length[at]
        out["txn"][:] = np.where(within, self._state[at], Txn.UNKNOWN)
        out["txn_end"][:] = np.where(within, self._end[at], -1)


def _known(one: StreamTransactions) -> Iterator[tuple[int, int, int, int]]:
    """Spans (first, last, end, state) that cover all that was read; what no transaction has is in
    none."""
    at = 0
    for span in sorted(one.spans, key=lambda span: span.first):
        if span.first > at:
            yield at, span.first - 1, -1, Txn.NONE
        yield span.first, span.last, span.end, Txn[span.state.upper()]
        at = span.last + 1
    if one.read_to > at:
        yield at, one.read_to - 1, -1, Txn.NONE


def sealed_transactions(rows: Rows, source: RowSource) -> Iterator[TransactionRow]:
    """Rows of the sealed transactions.jsonl; a transaction that was never answered is *info*."""
    errors: npt.NDArray[np.int32] = source.names.to_global(rows["error"])
    for row, error in zip(rows, errors.tolist(), strict=True):
        is_done, is_asked = bool(row["outcome"]), bool(row["asked"])
        yield TransactionRow(
            instance=source.owner,
            number=int(row["number"]),
            id=int(row["id"]),
            t_begin_ns=_time(row["t_begin_ns"], source),
            t_asked_ns=_time(row["t_asked_ns"], source) if is_asked else 0,
            asked=int(row["asked"]),
            t_done_ns=_time(row["t_done_ns"], source) if is_done else 0,
            outcome=int(row["outcome"]) if is_done else int(Outcome.INFO),
            error=error if is_done else 0,
        )


def _time(t_ns: np.int64, source: RowSource) -> int:
    """On the line of the run; 0 means no time."""
    return source.clock.here(int(t_ns)) if source.clock and t_ns else int(t_ns)
