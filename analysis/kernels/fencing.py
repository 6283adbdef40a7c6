"""Finds what a log took of a producer after its successor, of the same transactional id, had
written there.

A producer is initialised before it writes, and that fences every earlier one of its transactional
id. So anything of an earlier producer that lies in a stream after something of a later one was let
through. Which producer is the later one follows from the lives of a client, by the header of each
message, and from the epochs of batches and markers, which only grow. Times decide nothing: in
batches they are the clients' own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from analysis.capture.bucket import Array, narrow
from analysis.capture.context import Context
from analysis.capture.transactions import TransactionColumns
from analysis.kernels.history import BucketHistory
from analysis.kernels.hits import Hits, Note, hits
from analysis.kernels.labels import place_of
from analysis.kernels.lookup import Ints
from analysis.kernels.transactions import Membership, unread_markers
from harness.contracts.rows import StaleWrite


def judge(history: BucketHistory, member: Membership) -> list[Hits]:
    """fence-breach, one hit a batch, marker, or stretch of messages of one transaction.

    Where positions are not offsets (Pulsar), lives share no transactional id, and none fences
    another.
    """
    if not history.context.has_offsets:
        return []
    late = _late_rows(history, member) if member else _Late.none()
    return [*_of_older_lives(history, member, late), *_of_older_epochs(history, late.row)]


@dataclass(frozen=True, slots=True)
class _Late:
    """Log rows that come after a row of a later life, in log order.

    ``behind``: the first row of a later life, for each; ``transaction``: the transaction of each.
    """

    row: Ints
    behind: Ints
    transaction: Ints

    @classmethod
    def none(cls) -> _Late:
        """Return a result without any late row."""
        return cls(*(np.empty(0, np.int64) for _ in range(3)))


def _lives(context: Context, table: TransactionColumns) -> tuple[Array, Array]:
    """By transaction: a number for its transactional id, -1 where that has one life; and which life
    it is."""
    instances = [context.instance(int(number)) for number in np.unique(table.instance)]
    lives: dict[str, list[tuple[int, int]]] = {}
    for one in instances:
        lives.setdefault(one.life_of or str(one.number), []).append((one.start_ns, one.number))
    who = np.full(len(table), -1, np.int64)
    life = np.zeros(len(table), np.int64)
    for number, own in enumerate(sorted(each) for each in lives.values() if len(each) > 1):
        for place, (_, instance) in enumerate(own):
            mine = table.instance == instance
            who[mine] = number * (int(table.id.max()) + 1) + table.id[mine]
            life[mine] = place
    return who, life


def _late_rows(history: BucketHistory, member: Membership) -> _Late:
    who, life = _lives(history.context, member.table)
    if (who < 0).all():
        return _Late.none()
    slot = history.log_slot.copy()
    for rows, hidden in (history.invisible, history.unsettled):
        slot[rows] = hidden
    row = np.flatnonzero(slot >= 0)
    transaction = member.of_slot[slot[row]].astype(np.int64)
    several = (transaction >= 0) & (who[transaction] >= 0)
    row, transaction = row[several], transaction[several]
    stream = history.bucket.log["stream"][row].astype(np.int64)
    key = np.unique(
        who[transaction] * (len(history.context.streams) + 1) + stream, return_inverse=True
    )[1]
    order = np.argsort(narrow(key), kind="stable")
    row, transaction, key = row[order], transaction[order], key[order]
    # Lives of later keys rank above all lives of earlier keys, so the highest does not reach
    # across.
    rank = life[transaction] + key * (int(life.max()) + 1)
    highest = np.maximum.accumulate(rank)
    late = np.flatnonzero(rank < highest)
    behind = row[np.searchsorted(highest, rank[late], side="right")]
    order = np.argsort(row[late])
    return _Late(row[late][order], behind[order], transaction[late][order])


def _of_older_lives(history: BucketHistory, member: Membership, late: _Late) -> list[Hits]:
    if not len(late.row):
        return []
    stream = history.bucket.log["stream"][late.row].astype(np.int64)
    new = (np.diff(late.transaction, prepend=-1) != 0) | (np.diff(stream, prepend=-1) != 0)
    at = np.flatnonzero(new)

    def note(i: int) -> Note:
        name, before = member.table.name(int(late.transaction[at[i]])), int(late.behind[at[i]])
        return Note(
            detail=f"{name}; a later life of the producer had written at {place_of(history, before)}"
        )

    row = late.row[at]
    return [_hits(history, "older life", row, stream[at], note)]


def _of_older_epochs(history: BucketHistory, known: Ints) -> list[Hits]:
    """Batches and markers whose epoch is below one before them; of batches those not found by their
    life."""
    found: list[tuple[int, StaleWrite, int]] = []
    for stream, bounds in sorted(history.context.bounds.items()):
        writes = bounds.stale if _home(history.context, stream) == history.bucket.number else ()
        for write in writes:
            row = _row_of(history, stream, write)
            if write.is_marker or row not in known:
                found.append((stream, write, row))
    if not found:
        return []

    def note(i: int) -> Note:
        _, write, _ = found[i]
        what = "marker" if write.is_marker else "batch"
        return Note(
            detail=f"{what} at {write.first} of producer id {write.producer_id} has epoch {write.epoch}, "
            f"after epoch {write.newest}"
        )

    rows = np.array([row for _, _, row in found])
    return [_hits(history, "older epoch", rows, np.array([stream for stream, _, _ in found]), note)]


def _home(context: Context, stream: int) -> int:
    """Bucket of a stream's own rows."""
    topic, _, partition = context.stream_name(stream).rpartition("-")
    group = next((g for g in context.lane_groups if g.topic == topic), None)
    return group.buckets[int(partition) % len(group.buckets)] if group else 0


def _row_of(history: BucketHistory, stream: int, write: StaleWrite) -> int:
    """First row of a batch. For a marker, or a batch without a message of ours, it is the last row
    before."""
    log = history.bucket.log
    rows = np.flatnonzero((log["stream"] == stream) & (log["position"] <= write.last))
    inside = rows[log["position"][rows] >= write.first]
    return int(inside[0]) if len(inside) else int(rows[-1]) if len(rows) else -1


def _hits(
    history: BucketHistory, split: str, row: Ints, stream: Ints, note: Callable[[int], Note]
) -> Hits:
    return hits(
        "fence-breach",
        slot=np.full(len(row), -1),
        t_ns=history.row_times(row),
        split=split,
        unmet=unread_markers(history, stream),
        stream=stream,
        row=row,
        note=note,
    )
