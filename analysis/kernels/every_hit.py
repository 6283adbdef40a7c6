"""Lists every hit of a bucket, not only the witnesses; `analysis.verdict.hits_file` names and writes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from analysis.capture.bucket import Array
from analysis.kernels.class_hits import ClassHits
from analysis.kernels.episodes import ChosenHits
from analysis.kernels.history import History

_PLACE: Final = ("position", "ledger", "batch")


def every_hit(history: History, chosen: Sequence[ChosenHits]) -> Iterator[ClassHits]:
    """All hits that count, one `ClassHits` a kernel result."""
    for one in chosen:
        hits, own = one.hits, one.index
        columns = {
            name: np.asarray(getattr(hits, name)[own], np.int64) for name in ("t_ns", "stream", "session")
        }
        columns |= {"split": hits.split[own], "unmet": hits.unmet[own]}
        columns |= _identity(history, hits.slot[own])
        columns |= _place(history, hits.slot[own], hits.row[own], hits.delivery[own])
        yield ClassHits.of(hits.cls, hits.splits, columns)


def _identity(history: History, slot: Array) -> dict[str, Array]:
    out = np.full((len(slot), 4), -1, np.int64)
    out[:, 0] = 0
    known = slot >= 0
    out[known] = history.identity(slot[known])
    return {name: out[:, number] for number, name in enumerate(("instance", "lane", "seq", "attempt"))}


def _place(history: History, slot: Array, row: Array, delivery: Array) -> dict[str, Array]:
    """Where the log holds it, or where it was delivered, or where its acknowledgement says it is."""
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
