"""Finds messages stored more than once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from analysis.capture.bucket import Array
from analysis.kernels.history import BucketHistory
from analysis.kernels.hits import Hits, Note, hits
from analysis.kernels.labels import count_of, place_of, some_of

_SHOWN = 4


def judge(history: BucketHistory) -> list[Hits]:
    """write-duplicate: copies of one send, and an application's re-sends that were stored too."""
    return [*_same_send(history), *_resent(history)]


def _same_send(history: BucketHistory) -> list[Hits]:
    slots, at = np.unique(history.extra_slots, return_index=True)
    kept = history.sent[slots] >= 0
    slots, row = slots[kept], history.extra_rows[at[kept]]
    return (
        [_hits(history, "same send", slots, row, _positions(history, slots))] if len(slots) else []
    )


def _positions(history: BucketHistory, slots: Array) -> Callable[[int], Note]:
    def note(i: int) -> Note:
        _, rows = history.copies(slots[i : i + 1])
        shown = [place_of(history, row) for row in rows[:_SHOWN].tolist()]
        return Note(
            detail=f"{count_of(len(rows), 'time')}, at positions {some_of(shown, len(rows))}"
        )

    return note


def _resent(history: BucketHistory) -> list[Hits]:
    """The highest stored attempt of each sequence of which several attempts are stored."""
    resent = np.flatnonzero(history.sparse[:, 3] > 0) + history.n_dense
    resent = resent[(history.first[resent] >= 0) & (history.sent[resent] >= 0)]
    if not len(resent):
        return []
    identity = history.identity(resent)
    # Sparse slots are sorted by attempt within a sequence: the last of a run is the highest.
    same = (identity[1:, :3] == identity[:-1, :3]).all(axis=1)
    last = np.append(~same, True)
    several = np.append(False, same)[last] | _original_stored(history, identity[last])
    slots = resent[last][several]
    if not len(slots):
        return []
    row = history.first[slots].astype(np.int64)
    return [_hits(history, "application re-send", slots, row, None)]


def _original_stored(history: BucketHistory, identity: Array) -> Array:
    """For (instance, lane, seq, _): is attempt 0 stored?"""
    originals = history.find(np.column_stack([identity[:, :3], np.zeros(len(identity), np.int64)]))
    known = originals >= 0
    stored = np.zeros(len(identity), np.bool_)
    stored[known] = (history.first[originals[known]] >= 0) & (history.sent[originals[known]] >= 0)
    return stored


def _hits(
    history: BucketHistory, split: str, slots: Array, row: Array, note: Callable[[int], Note] | None
) -> Hits:
    stream = history.bucket.log["stream"][row].astype(np.int64)
    times = history.times(slots)
    return hits(
        "write-duplicate", slot=slots, t_ns=times, split=split, stream=stream, row=row, note=note
    )
