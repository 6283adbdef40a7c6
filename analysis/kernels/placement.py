"""Finds messages stored in another partition than their lane's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from analysis.capture.bucket import Array
from analysis.kernels.history import BucketHistory
from analysis.kernels.hits import Hits, Note, hits


def judge(history: BucketHistory) -> list[Hits]:
    """wrong-partition: an explicit partition not kept; a key in more than its topic's growth explains."""
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
    topic_of = context.lane_topic[lane[scattered]]
    grown = np.isin(topic_of, [context.topics.index(topic) for topic in context.growths])
    found = _too_many(history, scattered[grown]) if grown.any() else []
    scattered = scattered[~grown]
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
    return _hits(history, split, slots[index[wrong]], rows[wrong], home[group[wrong]])


def _too_many(history: BucketHistory, groups: Array) -> list[Hits]:
    """Of keys whose topic grew: messages in one partition more than there were numbers of partitions until
    then. A partitioner gives a key one partition for each number; which client goes by which number, and
    since when, nobody promises."""
    context = history.context
    slots = history.slots_of_groups(groups)
    slots = slots[history.sent[slots] >= 0]
    index, rows = history.copies(slots)
    t_ns, group = history.times(slots)[index], history.group(slots)[index]
    order = np.lexsort((rows, t_ns, group))
    index, rows, t_ns, group = index[order], rows[order], t_ns[order], group[order]
    stream = history.bucket.log["stream"][rows].astype(np.int64)
    pairs, begin, pair = np.unique(
        np.column_stack([group, stream]), axis=0, return_index=True, return_inverse=True
    )
    by_age = np.lexsort((begin, pairs[:, 0]))
    first_of_group = np.searchsorted(pairs[:, 0], pairs[:, 0])
    age = np.empty(len(pairs), np.int64)
    age[by_age] = np.arange(len(pairs)) - first_of_group
    topic_of = context.lane_topic[history.groups.lane[group]]
    allowed = np.zeros(len(rows), np.int64)
    for topic, times in context.growths.items():
        own = topic_of == context.topics.index(topic)
        allowed[own] = np.searchsorted(times, t_ns[own] + context.clock_bound_ns, side="right")
    wrong = np.flatnonzero(age[pair.ravel()] > allowed)
    home = pairs[by_age, 1][first_of_group][pair.ravel()[wrong]]
    return _hits(history, "key", slots[index[wrong]], rows[wrong], home)


def _hits(history: BucketHistory, split: str, slots: Array, rows: Array, home: Array) -> list[Hits]:
    """Of each message, its first copy outside of its home."""
    if not len(slots):
        return []
    own, first = np.unique(slots, return_index=True)
    note = _note(history, home[first])
    return [
        hits(
            "wrong-partition",
            slot=own,
            t_ns=history.times(own),
            split=split,
            stream=history.bucket.log["stream"][rows[first]].astype(np.int64),
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
