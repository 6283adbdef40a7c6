"""Checks the client's own sequence ids: first appearances grow within one producer name and
stream."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from analysis.capture.bucket import Array, is_constant, narrow
from analysis.kernels.history import BucketHistory
from analysis.kernels.hits import Hits, Note, hits
from analysis.kernels.labels import name_of, place_of
from analysis.kernels.lookup import Lookup, distinct

#: Classes that tell the same of the payload's own order.
_TOLD = ("producer-reorder", "premature-then-repeat")
_ROOM = 2.0**62


def judge(history: BucketHistory, found: Sequence[Hits]) -> list[Hits]:
    """client-sequence-regression, among the messages whose disorder ``found`` does not tell
    already."""
    name = history.bucket.log["client_name"]
    if not len(name) or (is_constant(name) and name[0] == 0):
        return []
    rows = _first_copies(history)
    told = np.zeros(history.n_slots, np.bool_)
    for one in found:
        if one.cls in _TOLD:
            told[one.slot] = True
    rows, ahead = _regressions(history, rows[~told[history.log_slot[rows]]])
    if not len(rows):
        return []
    log, slots = history.bucket.log, history.log_slot[rows]

    def note(i: int) -> Note:
        row, before = int(rows[i]), int(ahead[i])
        holder = name_of(history, int(history.log_slot[before]), before)
        ids = f"sequence id {int(log['client_seq'][row])} after {int(log['client_seq'][before])}"
        return Note(detail=f"{ids}, which is {holder} at position {place_of(history, before)}")

    return [
        hits(
            "client-sequence-regression",
            slot=slots,
            t_ns=history.times(slots),
            stream=log["stream"][rows].astype(np.int64),
            row=rows,
            note=note,
        )
    ]


def _first_copies(history: BucketHistory) -> Array:
    """Log rows that are the first copy of a recorded send and carry a client's number."""
    named = history.bucket.log["client_name"] > 0
    rows = np.flatnonzero((history.log_slot >= 0) & named)
    slots = history.log_slot[rows]
    return np.asarray(rows[(history.first[slots] == rows) & (history.sent[slots] >= 0)])


def _regressions(history: BucketHistory, rows: Array) -> tuple[Array, Array]:
    """Rows with a lower number than one before them, of the same stream, name and instance; and
    that one."""
    log = history.bucket.log
    if not len(rows):
        return rows, rows
    number = _owners(history, rows)
    if (number[1:] < number[:-1]).any():  # two names may take turns in a stream
        order = np.argsort(narrow(number), kind="stable")
        rows, number = rows[order], number[order]
    seq = log["client_seq"][rows].astype(np.int64)
    seq = seq - seq.min()
    if float(seq.max() + 1) * float(number[-1] + 1) >= _ROOM:
        seq = np.unique(seq, return_inverse=True)[1].ravel()
    value = seq + number * (int(seq.max()) + 1)
    highest = np.maximum.accumulate(value)
    back = np.flatnonzero(value < highest)
    holder = np.maximum.accumulate(np.where(value == highest, np.arange(len(value)), 0))
    order = np.argsort(rows[back], kind="stable")
    return rows[back][order], rows[holder[back]][order]


def _owners(history: BucketHistory, rows: Array) -> Array:
    """One number for the stream, the name and the producer instance of each row; ascending with
    streams."""
    log = history.bucket.log
    instance = history.groups.instance
    if (instance != instance[0]).any():
        instance = instance[history.group(history.log_slot[rows])]
    number = np.zeros(len(rows), np.int64)
    for column in (log["stream"][rows], log["client_name"][rows], instance):
        ranks = Lookup(distinct(column))
        if len(ranks) > 1:
            number = number * len(ranks) + ranks.index(column)
    return number
