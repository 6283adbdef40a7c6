"""Finds messages stored in another partition than their lane's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from analysis.capture.bucket import Array
from analysis.kernels.history import BucketHistory
from analysis.kernels.hits import Hits, Note, hits


def judge(history: BucketHistory) -> list[Hits]:
    """wrong-partition: an explicit partition not kept; a key in more than its topic's growth
    explains, of one producer or, where the scenario requires that producers share keys, of all."""
    context, groups = history.context, history.groups
    low, high = history.spread
    lane = groups.lane
    known = (lane >= 0) & (lane < context.n_lanes) & (high >= 0)
    expected = np.zeros(len(groups), np.int64)
    keyed = np.zeros(len(groups), np.bool_)
    expected[known] = context.lane_stream[lane[known]]
    keyed[known] = context.lane_is_keyed[lane[known]]
    found = []
    elsewhere = np.flatnonzero((expected > 0) & ((low != expected) | (high != expected)) & known)
    if len(elsewhere):
        found += _outside(history, "partition", elsewhere, expected)
    own = np.arange(len(groups))
    found += _scattered(history, "key", np.flatnonzero(keyed & (low != high)), own)
    if context.keys_are_shared:
        found += _scattered(
            history, "shared", *_spread_over_producers(history, np.flatnonzero(keyed))
        )
    return found


def _spread_over_producers(history: BucketHistory, keyed: Array) -> tuple[Array, Array]:
    """Groups of keys that lie in several streams, over all producers; and by group the first one of
    its key, which represents them all."""
    low, high = history.spread
    lane, first, of = np.unique(history.groups.lane[keyed], return_index=True, return_inverse=True)
    lowest = np.full(len(lane), np.iinfo(np.int64).max)
    highest = np.full(len(lane), -1)
    np.minimum.at(lowest, of, low[keyed])
    np.maximum.at(highest, of, high[keyed])
    unit = np.arange(len(history.groups))
    unit[keyed] = keyed[first[of]]
    return keyed[(lowest != highest)[of]], unit


def _is_grown(history: BucketHistory, groups: Array) -> Array:
    """Groups whose topic was given more partitions."""
    context = history.context
    topic_of = context.lane_topic[history.groups.lane[groups]]
    return np.isin(topic_of, [context.topics.index(topic) for topic in context.growths])


def _scattered(history: BucketHistory, split: str, groups: Array, unit: Array) -> list[Hits]:
    """Messages of keys outside the stream of their key. ``unit``: by group, which are judged as
    one."""
    if not len(groups):
        return []
    grown = _is_grown(history, groups)
    found = _too_many(history, split, groups[grown], unit) if grown.any() else []
    return found + (_outside(history, split, groups[~grown], None, unit) if not grown.all() else [])


def _outside(
    history: BucketHistory,
    split: str,
    affected: Array,
    expected: Array | None,
    unit: Array | None = None,
) -> list[Hits]:
    """Messages of the groups with a copy outside the group's home.

    ``expected``: by group, None = the stream that holds most of what is judged as one (``unit``).
    """
    slots = history.slots_of_groups(affected)
    slots = slots[history.sent[slots] >= 0]
    index, rows = history.copies(slots)
    stream = history.bucket.log["stream"][rows].astype(np.int64)
    group = history.group(slots)[index]
    if expected is None:
        group = group if unit is None else unit[group]
        expected = _homes(len(history.groups), group, stream)
    home = expected[group]
    wrong = np.flatnonzero((stream != home) & (stream != history.context.moved[home]))
    return _hits(history, split, slots[index[wrong]], rows[wrong], home[wrong])


def _too_many(history: BucketHistory, split: str, groups: Array, unit: Array) -> list[Hits]:
    """Return hits for keys whose topic grew: their messages lie in more partitions than the topic
    had different numbers of partitions until then. A partitioner gives a key one partition for each
    number. No client promises which number it uses, and since when.
    """
    context = history.context
    slots = history.slots_of_groups(groups)
    slots = slots[history.sent[slots] >= 0]
    index, rows = history.copies(slots)
    t_ns, group = history.times(slots)[index], unit[history.group(slots)[index]]
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
    return _hits(history, split, slots[index[wrong]], rows[wrong], home)


def _hits(history: BucketHistory, split: str, slots: Array, rows: Array, home: Array) -> list[Hits]:
    """Return, for each message, its first copy outside its home."""
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
