"""Finds failed sends: those the application never looked at, and those it gave up.

sent 3 [4] 5     the future of 4 failed, and was never read
stored 3 5       the consumer goes from 3 to 5
"""

from __future__ import annotations

import numpy as np

from analysis.capture.bucket import Array
from analysis.kernels.history import BucketHistory
from analysis.kernels.hits import Hits, Note, hits
from analysis.kernels.presence import expected_stream, stream_of_rows
from harness.records import Outcome

_UNNAMED = "error without a name"


def judge(history: BucketHistory) -> list[Hits]:
    """unchecked-failure, of producers that ignore results; given-up, of those that send again."""
    return [*_unchecked(history), *_given_up(history)]


def _unchecked(history: BucketHistory) -> list[Hits]:
    """Split by error and by what the log says."""
    slots = _failures(history, "ignored")
    slots = slots[history.of_send("t_done_ns", slots) > 0]
    if not len(slots):
        return []
    names, split = _splits(history, slots)
    row = history.first[slots].astype(np.int64)

    def note(i: int) -> Note:
        return Note(detail=_gap(history, int(slots[i])))

    return [
        hits(
            "unchecked-failure",
            slot=slots,
            t_ns=history.times(slots),
            split=split,
            stream=stream_of_rows(history, slots, row),
            row=row,
            note=note,
            names=names,
        )
    ]


def _given_up(history: BucketHistory) -> list[Hits]:
    """First attempts of messages of which no attempt was acknowledged or is stored."""
    slots = _failures(history, "resent")
    slots = slots[(slots < history.n_dense) & ~history.present[slots]]
    slots = slots[~history.sent_otherwise(slots, history.present | (history.outcome == Outcome.OK))]
    if not len(slots):
        return []

    def note(i: int) -> Note:
        return Note(detail=_gap(history, int(slots[i])))

    stream = expected_stream(history, slots)
    return [hits("given-up", slot=slots, t_ns=history.times(slots), stream=stream, note=note)]


def _failures(history: BucketHistory, results: str) -> Array:
    """Slots for which the client reported anything but success, of producers that treat results
    so."""
    deaf = [n for n, instance in history.context.instances.items() if instance.results == results]
    if not deaf:
        return np.empty(0, np.int64)
    slots = np.flatnonzero((history.outcome == Outcome.FAIL) | (history.outcome == Outcome.INFO))
    return np.asarray(slots[np.isin(history.groups.instance[history.group(slots)], deaf)])


def _splits(history: BucketHistory, slots: Array) -> tuple[tuple[str, ...], Array]:
    """Names of the splits, and the index of each slot's."""
    error, outcome = history.of_send("error", slots), history.outcome[slots]
    stored, kind = history.present[slots], np.where(outcome == Outcome.INFO, 1, 0)
    kind = kind * (1 + stored)
    pairs, split = np.unique(np.column_stack([error, kind]), axis=0, return_inverse=True)
    suffix = ("", ", not stored", ", stored after all")
    texts = [
        history.context.names.get(error, _UNNAMED) + suffix[kind] for error, kind in pairs.tolist()
    ]
    names = tuple(dict.fromkeys(texts))
    return names, np.array([names.index(text) for text in texts])[split.ravel()]


def _gap(history: BucketHistory, slot: int) -> str:
    """The hole in the lane's sequence that a consumer sees."""
    if slot >= history.n_dense or history.present[slot]:
        return ""
    group = int(history.group(np.array([slot]))[0])
    begin, end = int(history.groups.start[group]), int(history.groups.start[group + 1])
    before = np.flatnonzero(history.present[begin:slot])
    after = np.flatnonzero(history.present[slot:end])
    low = int(before[-1]) if len(before) else -1
    high = slot - begin + int(after[0]) if len(after) else end - begin
    if not len(after):
        return f"a consumer's last one is {low}: {high - low - 1} missing" if len(before) else ""
    return (
        f"a consumer goes from {low} to {high}: a gap of {high - low - 1}"
        if len(before)
        else (f"a consumer begins with {high}: {high} missing")
    )
