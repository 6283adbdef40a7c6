"""Finds calls that the client never answered, from the journal: the process itself may be
frozen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from analysis.capture.bucket import Array, chunks
from analysis.capture.context import Instance
from analysis.kernels.history import BucketHistory
from analysis.kernels.hits import BITS, Hits, Note, hits, split_index
from harness.records import Outcome


def judge(history: BucketHistory) -> list[Hits]:
    """hang: open past the deadline when the producer ended, or completed past it."""
    sending = np.unique(history.groups.instance[history.groups.max_seq >= 0]).tolist()
    bounded = [i for i in map(history.context.instance, sending) if i.deadline_ns > 0]
    if not bounded:
        return []
    slots = _suspects(history, bounded)
    owner = history.groups.instance[history.group(slots)]
    return [h for i in bounded for h in _of_instance(history, i, slots[owner == i.number])]


def _suspects(history: BucketHistory, instances: list[Instance]) -> Array:
    """Slots whose call was open for longer than the shortest deadline, frozen time included."""
    sends = history.bucket.sends
    deadline = min(i.deadline_ns for i in instances)
    end = max([history.context.end_ns, *(i.end_ns for i in instances)])
    if history.longest_ns <= deadline:
        return np.empty(0, np.int64)
    found = []
    for part in chunks(history.n_slots):
        row = history.sent[part]
        start, done = sends["t_start_ns"][row], sends["t_done_ns"][row]
        waiting = (done == 0) & (history.outcome[part] == Outcome.INFO)
        open_ns = np.where(waiting, end, done) - start
        found.append(np.flatnonzero((open_ns > deadline) & (row >= 0)) + part.start)
    return np.concatenate(found) if found else np.empty(0, np.int64)


def _of_instance(history: BucketHistory, instance: Instance, slots: Array) -> list[Hits]:
    if not len(slots):
        return []
    made = history.of_send("t_start_ns", slots)
    start = waits_from(made, instance.moved)
    done = history.of_send("t_done_ns", slots)
    until = np.where(done > 0, done, instance.end_ns or history.context.end_ns)
    open_ns = until - start - overlap_ns(start, until, instance.frozen)
    kept = np.flatnonzero(open_ns > instance.deadline_ns)
    if not len(kept):
        return []
    slots, made, start, open_ns, done = (each[kept] for each in (slots, made, start, open_ns, done))
    late = split_index("hang", "completed late")
    deadline_s = instance.deadline_ns / 1e9

    def note(i: int) -> Note:
        seen = f"; waits in {instance.waits_in}" if instance.waits_in and not done[i] else ""
        after = " after the last answer to an earlier call" if start[i] > made[i] else ""
        open_s = f"open for {open_ns[i] / 1e9:.1f} s{after}"
        return Note(detail=f"{open_s}, deadline {deadline_s:.1f} s{seen}")

    return [
        hits(
            "hang",
            slot=slots,
            t_ns=made,
            split=np.where(done > 0, late, split_index("hang", "never completed")),
            unmet=0 if instance.end_ns else BITS["producer-ended"],
            stream=history.of_send("stream", slots).astype(np.int64),
            row=history.first[slots].astype(np.int64),
            note=note,
        )
    ]


def waits_from(start: Array, moved: Sequence[tuple[int, int]]) -> Array:
    """Return when each call began to wait for nothing but its own answer: when it was made, or the
    last time at which an earlier call was answered late."""
    if not moved:
        return start
    at, oldest = np.array(moved, np.int64).T
    last = np.searchsorted(oldest, start, side="right") - 1
    return np.where(last >= 0, np.maximum(start, at[last]), start)


def overlap_ns(start: Array, end: Array, spans: Iterable[tuple[int, int]]) -> Array:
    """Nanoseconds of each [start, end) that lie in disjoint spans."""
    total = np.zeros(len(start), np.int64)
    for low, high in spans:
        total += np.maximum(np.minimum(end, high) - np.maximum(start, low), 0)
    return total
