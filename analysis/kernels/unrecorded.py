"""Finds rows that belong to no recorded send: phantoms, gaps in the capture, corrupt and foreign
payloads."""

from __future__ import annotations

import numpy as np

from analysis.capture.bucket import Array
from analysis.kernels.history import BucketHistory
from analysis.kernels.hits import BITS, Hits, Note, hits
from analysis.kernels.presence import stream_of_rows
from harness.records import Check

_FOREIGN = ((Check.FOREIGN, "foreign"), (Check.OTHER_RUN, "other run"))


def judge(history: BucketHistory) -> list[Hits]:
    """phantom, send-record-missing, corrupt (as far as the log shows them)."""
    return [*_unrecorded(history), *_holes(history), *_foreign(history), *_corrupt(history)]


def is_phantom(history: BucketHistory, slots: Array) -> Array:
    """Return which of the slots without a send record were never sent.

    A producer's sequences are dense, so below its highest one a missing record is a hole in the
    capture; beyond it, and for attempts, only a journal known to be whole proves that nothing was
    sent. Instances that neither the plan nor any send row knows sent nothing.
    """
    identity = history.identity(slots)
    group = history.group(slots)
    sending = np.unique(history.groups.instance[history.groups.max_seq >= 0])
    known = np.isin(identity[:, 0], [*history.context.instances, *sending.tolist()])
    whole = [n for n, instance in history.context.instances.items() if instance.complete]
    beyond = (identity[:, 2] > history.groups.max_seq[group]) | (identity[:, 3] > 0)
    return np.asarray(~known | (np.isin(identity[:, 0], whole) & beyond))


def _unrecorded(history: BucketHistory) -> list[Hits]:
    slots = np.flatnonzero((history.sent < 0) & history.present)
    if not len(slots):
        return []
    phantom = is_phantom(history, slots)
    found = []
    for cls, split, own in (
        ("phantom", "never sent", slots[phantom]),
        ("send-record-missing", "stored", slots[~phantom]),
    ):
        if len(own):
            row = history.first[own].astype(np.int64)
            stream = stream_of_rows(history, own, row)
            unmet = unknown_writers(history) if cls == "phantom" else 0
            times = history.times(own)
            found.append(
                hits(cls, slot=own, t_ns=times, split=split, unmet=unmet, stream=stream, row=row)
            )
    return found


def unknown_writers(history: BucketHistory) -> int:
    """Preconditions of a phantom that an import leaves open: who else may have sent it."""
    return sum(
        BITS[name] for name in ("send-capture", "topic-ours") if name in history.context.unstated
    )


def _holes(history: BucketHistory) -> list[Hits]:
    """Sequences below their group's highest that neither the journal nor the log has."""
    found = _emptied(history)
    slots = np.flatnonzero(
        (history.sent[: history.n_dense] < 0) & ~history.present[: history.n_dense]
    )
    if len(slots):
        before = np.maximum.accumulate(np.where(history.sent >= 0, np.arange(history.n_slots), 0))[
            slots
        ]
        times = history.times(before)  # the hole is as old as the recorded send before it
        found.append(hits("send-record-missing", slot=slots, t_ns=times, split="not stored"))
    return found


def _emptied(history: BucketHistory) -> list[Hits]:
    """Groups with so few records left that the missing ones are reported together: one hit per
    group."""
    groups = np.flatnonzero((history.groups.sizes == 0) & (history.groups.max_seq >= 0))
    if not len(groups):
        return []
    sent = np.flatnonzero((history.sent[history.n_dense :] >= 0) & (history.sparse[:, 3] == 0))
    owner = history.sparse_group[sent]
    recorded = np.bincount(owner, minlength=len(history.groups))
    last = np.zeros(len(history.groups), np.int64)
    last[owner] = sent + history.n_dense

    def note(i: int) -> Note:
        group = groups[i]
        whole, left = int(history.groups.max_seq[group]) + 1, int(recorded[group])
        lane = history.context.lane_text(int(history.groups.lane[group]))
        return Note(
            detail=f"{whole - left:,} of {whole:,} records of producer "
            f"{int(history.groups.instance[group])} on {lane} are missing"
        )

    times = history.times(last[groups])
    slots = np.full(len(groups), -1)
    return [hits("send-record-missing", slot=slots, t_ns=times, split="not stored", note=note)]


def _foreign(history: BucketHistory) -> list[Hits]:
    found = []
    for check, split in _FOREIGN:
        rows = history.odd_rows[history.odd_checks == check]
        if len(rows):
            unmet = BITS["topic-ours"]
            found.append(_rows(history, "phantom", split, rows, np.full(len(rows), -1), unmet))
    return found


def _corrupt(history: BucketHistory) -> list[Hits]:
    """Corrupt rows, each under the message whose acknowledgement named its place, if there is
    one."""
    rows = history.odd_rows[history.odd_checks == Check.CORRUPT]
    if not len(rows):
        return []
    slots, claimed = history.corrupt_claims
    order = np.argsort(claimed, kind="stable")
    owner = np.full(len(rows), -1)
    if len(order):
        at = np.minimum(np.searchsorted(claimed[order], rows), len(order) - 1)
        owner = np.where(claimed[order][at] == rows, slots[order][at], -1)
    return [_rows(history, "corrupt", "in the log", rows, owner)]


def _rows(
    history: BucketHistory, cls: str, split: str, rows: Array, slots: Array, unmet: int = 0
) -> Hits:
    return hits(
        cls,
        slot=slots,
        t_ns=history.row_times(rows),
        split=split,
        unmet=unmet,
        stream=history.bucket.log["stream"][rows].astype(np.int64),
        row=rows.astype(np.int64),
    )
