"""Lists every hit of a bucket, not only the witnesses; `analysis.verdict.hits_file` names and
writes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from analysis.capture.bucket import Array
from analysis.kernels.class_hits import ClassHits
from analysis.kernels.episodes import ChosenHits
from analysis.kernels.history import BucketHistory

_PLACE: Final = ("position", "ledger", "batch")


def every_hit(history: BucketHistory, chosen: Sequence[ChosenHits]) -> Iterator[ClassHits]:
    """All hits that count, one `ClassHits` a kernel result."""
    for one in chosen:
        hits, own = one.hits, one.index
        columns = {
            name: np.asarray(getattr(hits, name)[own], np.int64)
            for name in ("t_ns", "stream", "session")
        }
        columns |= {"split": hits.split[own], "unmet": hits.unmet[own]}
        columns |= _identity(history, hits.slot[own])
        columns |= _place(history, hits.slot[own], hits.row[own], hits.delivery[own])
        columns |= _source(history, hits.slot[own], hits.row[own])
        yield ClassHits.from_columns(hits.cls, hits.splits, columns)


def _identity(history: BucketHistory, slot: Array) -> dict[str, Array]:
    out = np.full((len(slot), 4), -1, np.int64)
    out[:, 0] = 0
    known = slot >= 0
    out[known] = history.identity(slot[known])
    return {
        name: out[:, number] for number, name in enumerate(("instance", "lane", "seq", "attempt"))
    }


def _source(history: BucketHistory, slot: Array, row: Array) -> dict[str, Array]:
    """Stream and position of the input that an output was made of."""
    log, first = history.bucket.log, history.context.first_source
    row = np.where((row < 0) & (slot >= 0), history.first[slot], row) if history.n_slots else row
    at = np.flatnonzero(row >= 0) if first.any() else np.empty(0, np.int64)
    at = at[log["source_position"][row[at]] >= 0] if len(at) else at
    stream, position = np.zeros(len(row), np.int64), np.full(len(row), -1, np.int64)
    if len(at):
        position[at] = log["source_position"][row[at]]
        stream[at] = first[log["stream"][row[at]]] + log["source_partition"][row[at]]
    return {"source_stream": stream, "source_position": position}


def _place(history: BucketHistory, slot: Array, row: Array, delivery: Array) -> dict[str, Array]:
    """Where the log holds it, or where it was delivered, or where its acknowledgement says it
    is."""
    out = {name: np.full(len(slot), -1 if name == "position" else 0, np.int64) for name in _PLACE}
    acked = (row < 0) & (delivery < 0) & (slot >= 0)
    acked[acked] = history.sent[slot[acked]] >= 0
    stored, given = row >= 0, (row < 0) & (delivery >= 0)
    for name in _PLACE:
        if stored.any():
            out[name][stored] = history.bucket.log[name][row[stored]]
        if given.any():
            out[name][given] = history.bucket.deliveries[name][delivery[given]]
        if acked.any():
            out[name][acked] = history.of_send(name, slot[acked])
    return out
