"""Numbers every message: dense where sequences are dense, sorted where they are not.

    slot      0 .. n_dense-1: instance 1, lane 0, seq 0, 1, 2 ... then the next (instance, lane)
              n_dense .. :    sorted by (instance, lane, seq, attempt)

Dense slots cost an addition a row. Application re-sends (attempt > 0), sequences that were never
sent and groups so full of holes that dense arrays would waste memory are sorted, just those.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from analysis.capture.bucket import Array, Columns, as_constant, chunks, is_constant
from analysis.kernels.lookup import Ints, Lookup, distinct
from harness.records import Check, Event, Kind

Slots = npt.NDArray[np.int32]
Flags = npt.NDArray[np.bool_]

#: A group is indexed densely when its highest sequence is at most this many times its number of
#: sends (plus `_DENSE_SLACK`): a lost segment leaves holes and stays dense, one wild sequence does
#: not allocate.
_DENSE_FACTOR = 4
_DENSE_SLACK = 4096
_IDENTITY = ("instance", "lane", "seq", "attempt")
# of instance and lane: what a look-up by pair may take of the processor's cache
_FEW_PAIRS = 1 << 16


@dataclass(frozen=True, slots=True)
class Groups:
    """(instance, lane) pairs. Group g owns slots ``start[g] .. start[g + 1] - 1``.

    ``max_seq``: highest sequence in its send rows, -1 = none. Groups known only from the log or
    from sparse rows follow the dense ones and own no dense slot.
    """

    instance: Ints
    lane: Ints
    start: Ints
    max_seq: Ints

    def __len__(self) -> int:
        return len(self.instance)

    @property
    def sizes(self) -> Ints:
        """The number of rows of each group."""
        return np.diff(self.start)


def index_messages(
    sends: Columns, log: Columns, deliveries: Columns, outputs: Columns
) -> tuple[Index, list[Slots]]:
    """The index of a bucket, and the slot of each row of its tables; -1 where there is none.

    Probes, payloads that are not ours, and events that are not deliveries have no slot. An output
    has the slot of its input.
    """
    dense, found, strays, identities = _Dense(sends), [], [], []
    for table in (sends, log, deliveries, outputs):
        slots, rows = _dense_slots(dense, table)
        found.append(slots)
        strays.append(rows)
        identities.append(_identities(table, rows))
        table.drop("seq")  # the largest column that is not needed any more
    sparse, indexes = _sorted_distinct(identities)
    for slots, rows, number in zip(found, strays, indexes, strict=True):
        slots[rows] = number + dense.size
    groups, sparse_group = _with_sparse_groups(dense.groups, sparse)
    return Index(dense, groups, sparse, sparse_group), found


@dataclass(frozen=True)
class Index:
    """Slots of a bucket. ``sparse``: (n, 4) identities of slots ``n_dense ..``, with their
    groups."""

    dense: _Dense
    groups: Groups
    sparse: Ints
    sparse_group: Ints

    @property
    def n_dense(self) -> int:
        """The number of messages that have a slot by calculation."""
        return self.dense.size

    @property
    def n_slots(self) -> int:
        """The number of all messages that have a slot."""
        return self.dense.size + len(self.sparse)

    def find(self, identities: Ints) -> Ints:
        """Slot of each (instance, lane, seq, attempt), -1 = none. For few: it sorts."""
        found = self.dense.slots(dict(zip(_IDENTITY, identities.T, strict=True)), slice(None))
        missing = np.flatnonzero(found < 0)
        if len(missing) and len(self.sparse):
            both, (own, asked) = _sorted_distinct([self.sparse, identities[missing]])
            back = np.full(len(both), -1, np.int64)
            back[own] = np.arange(self.n_dense, self.n_slots)
            found[missing] = back[asked]
        return found


class _Dense:
    """Groups whose sequences are dense, from the send rows of first attempts."""

    def __init__(self, sends: Columns) -> None:
        instances = distinct(sends["instance"])
        self._lanes = Lookup(distinct(sends["lane"]), unknown_last=True)
        self._width = len(self._lanes) + 1
        self._wide = (len(instances) + 1) * self._width >= 1 << 31
        self._instances = Lookup(
            instances, unknown_last=True, stride=1 if self._wide else self._width
        )
        seen = [np.empty(0, np.int64)]
        found = []
        for part in chunks(sends.rows):
            found.append(self._pair(sends, part))
            seen.append(distinct(found[-1]))
        pairs = np.unique(np.concatenate(seen))
        self._groups = Lookup(pairs, unknown_last=True)
        top = np.full(len(pairs), -1, np.int64)
        count = np.zeros(len(pairs), np.int64)
        for part, pair in zip(chunks(sends.rows), found, strict=True):
            seq, chosen = sends["seq"][part], _first_attempts(sends, part)
            if chosen is not None:
                seq = seq[chosen]
                pair = pair[: len(seq)] if is_constant(pair) else pair[chosen]
            if is_constant(pair):
                one = int(self._groups.index(pair[:1])[0])
                top[one], count[one] = max(top[one], seq.max()), count[one] + len(seq)
            else:
                group = self._groups.index(pair)
                np.maximum.at(top, group, seq)
                count += np.bincount(group, minlength=len(pairs))
        size = np.where(top < _DENSE_FACTOR * count + _DENSE_SLACK, top + 1, 0)
        start = np.append(0, np.cumsum(size)).astype(np.int64)
        self.size = int(start[-1])
        # One more entry, for rows of no group: nothing fits into it.
        self._start, self._room = start, np.append(size, -1)
        n_pairs = (len(instances) + 1) * self._width
        self._by_pair = n_pairs <= _FEW_PAIRS
        if self._by_pair:  # one look-up less a row
            group = self._groups.index(np.arange(n_pairs))
            self._start, self._room = self._start[group], self._room[group]
        instance, lane = np.divmod(pairs, self._width)
        self.groups = Groups(instances[instance], self._lanes.values[lane], start, top)

    def _pair(self, table: Mapping[str, Array], part: slice) -> Ints:
        """A number for the instance and lane of each row."""
        instance, lane = as_constant(table["instance"][part]), as_constant(table["lane"][part])
        count, is_one = len(instance), is_constant(instance) and is_constant(lane)
        if is_one:
            instance, lane = instance[:1], lane[:1]
        pair: Array = self._instances.index(instance)
        if self._wide:
            pair = pair.astype(np.int64) * self._width
        pair += self._lanes.index(lane)
        return np.broadcast_to(pair, count) if is_one else pair

    def slots(self, table: Mapping[str, Array], part: slice) -> Ints:
        """Dense slot of each row by its identity, -1 = none."""
        pair, seq, attempt = self._pair(table, part), table["seq"][part], table["attempt"]
        group: Array = pair[:1] if is_constant(pair) else pair
        group = group if self._by_pair else self._groups.index(group)
        fits = seq < np.take(self._room, group)
        if not is_constant(attempt) or attempt[0] != 0:
            fits &= attempt[part] == 0
        slots: Ints = np.take(self._start, group) + seq
        if not fits.all():
            slots[~fits] = -1
        return slots


#: What holds for a row that is a message of a producer, by column.
_CONDITIONS: Mapping[str, Callable[[Array], Flags]] = {
    "kind": lambda c: c != Kind.PROBE,
    "check": lambda c: c == Check.OK,
    "event": lambda c: (c == Event.DELIVER) | (c == Event.OUTPUT),
}


def has_identity(table: Mapping[str, Array], part: slice) -> Flags | None:
    """Rows that are messages of a producer, warm-up or load; None = all of them."""
    wanted: Flags | None = None
    for name, holds in _CONDITIONS.items():
        if name not in table:
            continue
        column = table[name]
        if is_constant(column) and holds(column[:1])[0]:
            continue
        wanted = holds(column[part]) if wanted is None else wanted & holds(column[part])
    return None if wanted is None or wanted.all() else wanted


def _first_attempts(sends: Columns, part: slice) -> Flags | None:
    """Rows with an identity that are not re-sends; None = all of them."""
    wanted, attempt = has_identity(sends, part), sends["attempt"]
    if is_constant(attempt) and attempt[0] == 0:
        return wanted
    first: Flags = attempt[part] == 0
    return first if wanted is None else first & wanted


def _dense_slots(dense: _Dense, table: Columns) -> tuple[Slots, npt.NDArray[np.intp]]:
    """Dense slot of every row, and the rows that have an identity but no dense slot."""
    out, filled = np.empty(table.rows, np.int32), 0
    strays = [np.empty(0, np.intp)]
    for chunk in table.in_turn(*(name for name in (*_IDENTITY, *_CONDITIONS) if name in table)):
        slots, wanted = dense.slots(chunk, slice(None)), has_identity(chunk, slice(None))
        stray = slots < 0
        if wanted is not None:
            slots[~wanted] = -1
            stray &= wanted
        out[filled : filled + len(slots)] = slots
        strays.append(np.flatnonzero(stray) + filled)
        filled += len(slots)
    return out, np.concatenate(strays)


def _identities(table: Columns, rows: npt.NDArray[np.intp]) -> Ints:
    if not len(rows):
        return np.empty((0, 4), np.int64)
    return np.column_stack([table.take(name, rows).astype(np.int64) for name in _IDENTITY])


def _sorted_distinct(parts: Sequence[Ints]) -> tuple[Ints, list[Slots]]:
    """Distinct rows of several (n, 4) arrays, sorted, and the number of each row among them."""
    rows = np.concatenate(parts)
    order = np.lexsort(rows.T[::-1])
    ordered = rows[order]
    new = np.ones(len(rows), np.bool_)
    new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    number = np.empty(len(rows), np.int32)
    number[order] = np.cumsum(new) - 1
    return ordered[new], list(np.split(number, np.cumsum([len(p) for p in parts])[:-1]))


def _with_sparse_groups(dense: Groups, keys: Ints) -> tuple[Groups, Ints]:
    """Add the groups that only sparse identities have; the group of each sparse identity."""
    if not len(keys):
        return dense, np.empty(0, np.int64)
    own = np.column_stack([dense.instance, dense.lane])
    pairs, index = np.unique(np.concatenate([own, keys[:, :2]]), axis=0, return_inverse=True)
    index = index.ravel()
    number = np.full(len(pairs), -1, np.int64)
    number[index[: len(own)]] = np.arange(len(own))
    added = np.flatnonzero(number < 0)
    number[added] = len(own) + np.arange(len(added))
    groups = Groups(
        np.concatenate([dense.instance, pairs[added, 0]]),
        np.concatenate([dense.lane, pairs[added, 1]]),
        np.concatenate([dense.start, np.full(len(added), dense.start[-1])]),
        np.concatenate([dense.max_seq, np.full(len(added), -1)]),
    )
    return groups, number[index[len(own) :]]
