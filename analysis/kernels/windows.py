"""Counts hits by stream and window of time: when and where an anomaly was, for charts."""

from __future__ import annotations

import numpy as np

from analysis.capture.bucket import Array
from analysis.capture.context import Context

#: Windows that are distinguished on either side of the start of load; a time beyond (of a corrupt
#: row) is counted in the outermost.
MOST_WINDOWS = 1_000_000

#: Stream id (0 unknown), window (0 starts with the load, the warm-up is below it), hits.
WindowCounts = tuple[tuple[int, int, int], ...]


def counts_by_window(context: Context, stream: Array, t_ns: Array) -> WindowCounts:
    """Hits by (stream, window of `Context.window_s`), ascending; those without a time are left
    out."""
    known = t_ns > 0
    since_ns = t_ns[known].astype(np.int64) - context.epoch_ns
    window = np.clip(since_ns // (context.window_s * 1_000_000_000), -MOST_WINDOWS, MOST_WINDOWS)
    cell = stream[known].astype(np.int64) * (3 * MOST_WINDOWS) + window + MOST_WINDOWS
    cells, counts = np.unique(cell, return_counts=True)
    streams, windows = np.divmod(cells, 3 * MOST_WINDOWS)
    columns = (streams, windows - MOST_WINDOWS, counts)
    return tuple(zip(*(column.tolist() for column in columns), strict=True))
