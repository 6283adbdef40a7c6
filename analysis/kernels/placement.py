"""Finds messages stored in another partition than their lane's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from analysis.capture.bucket import Array
from analysis.kernels.history import BucketHistory
from analysis.kernels.hits import Hits, Note, hits


def judge(history: BucketHistory) -> list[Hits]:
    """wrong-partition: an explicit partition not kept; a key in two partitions."""
    context, groups = history.context, history.groups
    low, high = history.spread
    lane = groups.lane
    known = (lane >= 0) & (lane < context.n_lanes) & (high >= 0)
    expected = np.zeros(len(groups), np.int64)
    keyed = np.zeros(len(groups), np.bool_)
    expected[known] = context.lane_stream[lane[known]]
    keyed[known] = context.lane_is_keyed[lane[known]]
    elsewhere = np.flatnonzero((expected > 0) & ((low != expected) | (high != expected)) & known)
    scattered = np.flatnonzero(keyed & (low != high))
    found = []
    for split, affected in (("partition", elsewhere), ("key", scattered)):
        if len(affected):
            found += _outside(history, split, affected, expected)
    return found


def _outside(history: BucketHistory, split: str, affected: Array, expected: Array) -> list[Hits]:
    """Messages of the groups with a copy outside the group's home."""
    slots = history.slots_of_groups(affected)
    slots = slots[history.sent[slots] >= 0]
    index, rows = history.copies(slots)
    stream = history.bucket.log["stream"][rows].astype(np.int64)
    group = history.group(slots)[index]
    home = expected if split == "partition" else _homes(len(history.groups), group, stream)
    wrong = np.flatnonzero(stream != home[group])
    message, at = np.unique(index[wrong], return_index=True)
    if not len(message):
        return []
    first = wrong[at]
    own = slots[message]
    note = _note(history, home[group[first]])
    return [
        hits(
            "wrong-partition",
            slot=own,
            t_ns=history.times(own),
            split=split,
            stream=stream[first],
            row=rows[first],
            note=note,
        )
    ]


def _homes(n_groups: int, group: Array, stream: Array) -> Array:
    """Stream that holds most copies of each group; of equals, the lowest id."""
    pairs, counts = np.unique(np.column_stack([group, stream]), axis=0, return_counts=True)
    order = np.lexsort((pairs[:, 1], -counts, pairs[:, 0]))
    owners, at = np.unique(pairs[order, 0], return_index=True)
    home = np.zeros(n_groups, np.int64)
    home[owners] = pairs[order, 1][at]
    return home


def _note(history: BucketHistory, home: Array) -> Callable[[int], Note]:
    return lambda i: Note(detail=f"it belongs in {history.context.stream_name(int(home[i]))}")
