"""Folds hits into episodes with a bounded number of worded witnesses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from analysis.capture.bucket import Array, chunks, picked, piecewise
from analysis.kernels.cause import Causes
from analysis.kernels.history import BucketHistory
from analysis.kernels.hits import Hits, unmet_names
from analysis.kernels.lookup import Lookup, distinct, ragged
from analysis.kernels.matching import Matching
from analysis.kernels.partial import (
    GAP_NS,
    MAX_EPISODES,
    WITNESS_EPISODES,
    WITNESSES_AN_EPISODE,
    Episode,
    RawWitness,
)
from analysis.kernels.windows import counts_by_window
from analysis.kernels.witness import Witnesses


@dataclass(frozen=True, slots=True)
class ChosenHits:
    """Hits of one kernel result that count under its class.

    ``index``: those that count; ``symptoms``: other classes of a slot.
    """

    hits: Hits
    index: Array
    symptoms: Callable[[int], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class _Runs:
    """Episodes as stretches of ``order`` (positions in `ChosenHits.index`), the largest first."""

    order: Array
    begin: Array
    end: Array

    def __len__(self) -> int:
        return len(self.begin)

    def members(self, number: int) -> Array:
        """Return the hits of an episode."""
        return np.asarray(self.order[self.begin[number] : self.end[number]])


def episodes_of(history: BucketHistory, matching: Matching, chosen: ChosenHits) -> list[Episode]:
    """Episodes of one class, the largest first; those beyond `MAX_EPISODES` folded together."""
    runs = _runs(history, chosen)
    witnesses = Witnesses(history, matching, chosen.hits, chosen.symptoms)
    causes = Causes.from_hits(history, chosen.hits, chosen.index)
    out = []
    for number in range(min(len(runs), MAX_EPISODES)):
        own = chosen.index[runs.members(number)]
        shown = own[:WITNESSES_AN_EPISODE] if number < WITNESS_EPISODES else own[:0]
        worded = tuple(
            _caused(witnesses.witness_at(i), causes, chosen.hits, i) for i in shown.tolist()
        )
        out.append(_episode(history, chosen.hits, own, causes, worded))
    return out + list(_folded(history, chosen, runs, causes))


def _caused(witness: RawWitness, causes: Causes, hits: Hits, i: int) -> RawWitness:
    own = np.array([i])
    return replace(witness, cause=next(iter(causes.among(own, hits.t_ns[own])), None))


def _runs(history: BucketHistory, chosen: ChosenHits) -> _Runs:
    """Stretches of one (split, evidence, session, instance, lane) with gaps below `GAP_NS`."""
    hits, index = chosen.hits, chosen.index
    t_ns, key = picked(hits.t_ns, index), _keys(history, chosen)
    order = np.arange(len(key))
    if not ((key[1:] > key[:-1]) | ((key[1:] == key[:-1]) & (t_ns[1:] >= t_ns[:-1]))).all():
        order = np.lexsort((t_ns, key))
        key, t_ns = key[order], t_ns[order]
    new = (key[1:] != key[:-1]) | (t_ns[1:] - t_ns[:-1] >= GAP_NS)
    begin = np.flatnonzero(np.append(True, new))
    end = np.append(begin[1:], len(order))
    largest = np.lexsort((t_ns[begin], begin - end))
    return _Runs(order, begin[largest], end[largest])


def _keys(history: BucketHistory, chosen: ChosenHits) -> Array:
    """One number for everything that hits of an episode share."""
    hits, index = chosen.hits, chosen.index
    shared = piecewise(lambda own: _shared(hits, own), index)
    ranks = Lookup(distinct(shared))

    def key(part: slice) -> Array:
        slot = picked(hits.slot, index[part])
        group = np.full(len(slot), -1)
        known = slot >= 0
        group[known] = history.group(slot[known])
        return np.asarray(
            ranks.index(shared[part]).astype(np.int64) * (len(history.groups) + 1) + group + 1
        )

    return np.concatenate([key(part) for part in chunks(len(index))])


def _shared(hits: Hits, index: Array) -> Array:
    """Split, evidence and session as one number."""
    session, unmet = (
        picked(column, index).astype(np.int64) for column in (hits.session, hits.unmet)
    )
    return np.asarray((session << 32) + (unmet << 8) + picked(hits.split, index))


def _folded(
    history: BucketHistory, chosen: ChosenHits, runs: _Runs, causes: Causes
) -> Iterator[Episode]:
    """One row for all further episodes of the same split, evidence, producer instance and session:
    what their status follows from."""
    rest = np.arange(MAX_EPISODES, len(runs))
    if not len(rest):
        return
    hits = chosen.hits
    first = chosen.index[runs.order[runs.begin[rest]]]
    instance = np.zeros(len(rest), np.int64)
    known = hits.slot[first] >= 0
    instance[known] = history.groups.instance[history.group(hits.slot[first][known])]
    shared = np.column_stack([hits.split[first], hits.unmet[first], instance, hits.session[first]])
    keys, which = np.unique(shared, axis=0, return_inverse=True)
    for number in range(len(keys)):
        members = rest[which.ravel() == number]
        index, offset = ragged(runs.end[members] - runs.begin[members])
        own = chosen.index[runs.order[runs.begin[members][index] + offset]]
        whole = _episode(history, hits, own, causes, ())
        yield replace(whole, lane=-1, episodes=len(members))


def _lane_of(history: BucketHistory, hits: Hits, i: int) -> tuple[int, int]:
    """Producer instance and lane of a hit; (0, -1) without a message."""
    if hits.slot[i] < 0:
        return 0, -1
    instance, lane, _, _ = history.identity_of(int(hits.slot[i]))
    return instance, lane


def _episode(
    history: BucketHistory,
    hits: Hits,
    own: Array,
    causes: Causes,
    witnesses: tuple[RawWitness, ...],
) -> Episode:
    first = int(own[0])
    instance, lane = _lane_of(history, hits, first)
    times = hits.t_ns[own]
    return Episode(
        cls=hits.cls,
        split=hits.splits[int(hits.split[first])],
        unmet=unmet_names(int(hits.unmet[first])),
        instance=instance,
        lane=lane,
        stream=int(hits.stream[first]),
        session=int(hits.session[first]),
        first_ns=int(times.min()),
        last_ns=int(times.max()),
        count=len(own),
        windows=counts_by_window(history.context, hits.stream[own], times),
        causes=causes.among(own, times),
        witnesses=witnesses,
    )
