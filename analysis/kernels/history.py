"""Indexes the three tables of a bucket by message, without a sort or a join; every kernel works on
it.

A slot (`kernels.slots`) is the number of a message; "was it stored", "what was its outcome" become
reads of an array:

    sent      send row of each slot, -1 = no record of a send
    first     log row of its first visible copy, -1 = not in the log
    extra     log rows of all further copies, by slot

Rows of transactions that were aborted, are open, or have an unknown end do not count as copies.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from analysis.capture.bucket import (
    CHUNK_ROWS,
    Bucket,
    Columns,
    chunks,
    is_constant,
    picked,
    piecewise,
)
from analysis.kernels.exposure import NEVER
from analysis.kernels.lookup import Ints, ragged
from analysis.kernels.places import Places
from analysis.kernels.slots import Slots, index_messages
from harness.records import Check, Outcome, Txn

#: Log rows that do not count as copies, and the slots that they would be copies of.
Hidden = tuple[npt.NDArray[np.intp], Slots]
#: How far to look for a row whose time is known.
_NEAR_ROWS = 64


class BucketHistory:
    """A bucket with its slots. Build once, hand to every kernel."""

    def __init__(self, bucket: Bucket, longest_ns: int = NEVER) -> None:
        """``longest_ns``: no call of the bucket was longer (`exposure.Calls`)."""
        self.bucket = bucket
        self.longest_ns = longest_ns
        self.context = bucket.context
        self._index, slots = index_messages(
            bucket.sends, bucket.log, bucket.deliveries, bucket.outputs
        )
        self.groups, self.n_dense, self.n_slots = (
            self._index.groups,
            self._index.n_dense,
            self._index.n_slots,
        )
        send_slot, self.log_slot, self.delivery_slot, self.output_slot = slots
        self.sent = self._scatter(send_slot)
        self.doubled_sends = int(
            np.count_nonzero(send_slot >= 0) - np.count_nonzero(self.sent >= 0)
        )
        self.invisible, self.unsettled = self._hide_invisible()
        self.first = self._scatter(self.log_slot)
        self.extra_rows, self.extra_slots = self._extras()
        self.odd_rows, self.odd_checks = _odd(bucket.log)
        bucket.sends.drop("instance", "lane", "seq", "attempt", "kind")
        bucket.log.drop("instance", "lane", "seq", "attempt", "kind", "check", "txn")
        bucket.deliveries.drop("instance", "lane", "seq", "attempt", "kind")

    # -- building

    def _scatter(self, slots: Slots) -> npt.NDArray[np.int32]:
        """Lowest row of each slot, -1 = none."""
        # rows without a slot write to the last place
        rows = np.full(self.n_slots + 1, -1, np.int32)
        for part in reversed(list(chunks(len(slots)))):
            own, numbers = slots[part], np.arange(part.start, part.stop, dtype=np.int32)
            if own[0] >= 0 and own[-1] - own[0] == len(own) - 1 and (np.diff(own) == 1).all():
                rows[own[0] : own[0] + len(own)] = numbers  # a lane in order
            else:
                # NumPy keeps the last of repeated assignments: go backwards to keep the lowest row
                rows[own[::-1]] = numbers[::-1]
        return rows[:-1]

    def _hide_invisible(self) -> tuple[Hidden, Hidden]:
        """Take rows out of `log_slot`: rows of aborted and open transactions, and of transactions
        whose end is unknown."""
        txn = self.bucket.log["txn"]
        if not len(txn) or (is_constant(txn) and txn[0] <= Txn.COMMITTED):
            nothing = np.empty(0, np.intp), np.empty(0, np.int32)
            return nothing, nothing
        found = [
            np.flatnonzero((txn > Txn.COMMITTED) & (txn != Txn.UNKNOWN)),
            np.flatnonzero(txn == Txn.UNKNOWN),
        ]
        ended, unknown = [(rows, self.log_slot[rows]) for rows in found]
        for rows in found:
            self.log_slot[rows] = -1
        return ended, unknown

    def _extras(self) -> tuple[npt.NDArray[np.int64], Slots]:
        """Log rows that repeat a message already stored, by (slot, row)."""
        found = []
        for part in chunks(len(self.log_slot) if self.n_slots else 0):
            slot = self.log_slot[part]
            row = np.arange(part.start, part.stop, dtype=np.int32)
            found.append(
                np.flatnonzero((picked(self.first, slot) != row) & (slot >= 0)) + part.start
            )
        rows = np.concatenate(found) if found else np.empty(0, np.int64)
        slots = self.log_slot[rows]
        order = np.argsort(slots, kind="stable")
        return rows[order], slots[order]

    # -- what a slot is

    def identity(self, slots: npt.NDArray[Any]) -> Ints:
        """(n, 4): instance, lane, seq, attempt of each slot."""
        out = np.empty((len(slots), 4), np.int64)
        dense = slots < self.n_dense
        group = self.group(slots[dense])
        out[dense, 0] = self.groups.instance[group]
        out[dense, 1] = self.groups.lane[group]
        out[dense, 2] = slots[dense] - self.groups.start[group]
        out[dense, 3] = 0
        out[~dense] = self._index.sparse[slots[~dense] - self.n_dense]
        return out

    def identity_of(self, slot: int) -> tuple[int, int, int, int]:
        """Instance, lane, seq and attempt of one slot."""
        if slot >= self.n_dense:
            instance, lane, seq, attempt = self._index.sparse[slot - self.n_dense].tolist()
            return instance, lane, seq, attempt
        group = int(np.searchsorted(self.groups.start, slot, side="right")) - 1
        seq = slot - int(self.groups.start[group])
        return int(self.groups.instance[group]), int(self.groups.lane[group]), seq, 0

    def find(self, identities: Ints) -> Ints:
        """Slot of each (instance, lane, seq, attempt), -1 = none. For few: it sorts."""
        return self._index.find(identities)

    def group(self, slots: npt.NDArray[Any]) -> Ints:
        """Group of each slot."""
        if len(slots) and slots.max() < self.n_dense:  # mostly they are of one
            low, high = (
                np.searchsorted(self.groups.start, [slots.min(), slots.max()], side="right") - 1
            )
            if low == high:
                return np.full(len(slots), low)
        out = np.searchsorted(self.groups.start, slots, side="right") - 1
        sparse = slots >= self.n_dense
        if sparse.any():
            out[sparse] = self._index.sparse_group[slots[sparse] - self.n_dense]
        return out

    def by_group(self, values: npt.NDArray[Any], slots: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the value of each slot's group; a view of one element if all groups have the same
        value."""
        if len(values) and (values == values[0]).all():
            return np.broadcast_to(values[:1], len(slots))
        return np.asarray(values[self.group(slots)])

    def slots_of_groups(self, groups: npt.NDArray[Any]) -> Ints:
        """All slots of some groups (ascending numbers), dense ones first."""
        index, offset = ragged(self.groups.start[groups + 1] - self.groups.start[groups])
        dense = self.groups.start[groups[index]] + offset
        sparse = np.flatnonzero(np.isin(self._index.sparse_group, groups)) + self.n_dense
        return np.concatenate([dense, sparse])

    def batches(self) -> Iterator[tuple[Ints, slice, Ints]]:
        """Groups in turn, about `CHUNK_ROWS` slots at a time: (groups, slots, start of each group
        in those slots). Groups without dense slots are left out."""
        nonempty = np.flatnonzero(self.groups.sizes > 0)
        ends = self.groups.start[nonempty + 1]
        low = 0
        while low < len(nonempty):
            begin = int(self.groups.start[nonempty[low]])
            high = max(int(np.searchsorted(ends, begin + CHUNK_ROWS, side="right")), low + 1)
            own = nonempty[low:high]
            yield own, slice(begin, int(ends[high - 1])), self.groups.start[own] - begin
            low = high

    @cached_property
    def spread(self) -> tuple[Ints, Ints]:
        """Lowest and highest stream of each group's stored messages; (a large number, -1) without
        any.

        The log is in order of its streams, so a group's lowest and highest row tell them.
        """
        low = np.full(len(self.groups), np.iinfo(np.int64).max)
        high = np.full(len(self.groups), -1)
        column = self.bucket.log["stream"]
        if not len(column):
            return low, high
        for own, slots, starts in self.batches():
            row, unsent = self.first[slots], self.sent[slots] < 0
            if unsent.any():
                row = np.where(unsent, np.int32(-1), row)
            # Seen as unsigned, the -1 of messages that are not stored is above every row.
            lowest = np.minimum.reduceat(row.view(np.uint32), starts).view(np.int32)
            stored = lowest >= 0
            low[own[stored]] = column[lowest[stored]]
            high[own[stored]] = column[np.maximum.reduceat(row, starts)[stored]]
        others = np.concatenate([self.extra_slots, np.arange(self.n_dense, self.n_slots)])
        rows = np.concatenate([self.extra_rows, self.first[self.n_dense :]])
        kept = (rows >= 0) & (self.sent[others] >= 0)
        group, stream = self.group(others[kept]), column[rows[kept]]
        np.minimum.at(low, group, stream)
        np.maximum.at(high, group, stream)
        return low, high

    def row_times(self, rows: npt.NDArray[Any]) -> Ints:
        """When rows were written, about: the time of the message itself or of a neighbour."""
        out = np.full(len(rows), self.context.epoch_ns)
        for i, row in enumerate(rows.tolist()):
            near = np.arange(max(row - _NEAR_ROWS, 0), min(row + _NEAR_ROWS, len(self.log_slot)))
            near = near[self.log_slot[near] >= 0]
            if len(near):
                closest = near[np.argmin(np.abs(near - row))]
                out[i] = self.times(self.log_slot[closest : closest + 1])[0]
        return out

    @cached_property
    def taken(self) -> npt.NDArray[np.bool_] | None:
        """Slots that a consumer was given from a queue, which keeps no log of them; None = no
        queues."""
        if not self.context.has_queues:
            return None
        out = np.zeros(self.n_slots, np.bool_)
        out[self.delivery_slot[self.queue_deliveries]] = True
        return out

    @cached_property
    def queue_deliveries(self) -> Ints:
        """Delivery rows of messages that came from a queue, in journal order."""
        is_queue = self.context.is_queue
        stream = self.bucket.deliveries["stream"]
        known = np.where((stream < 0) | (stream >= len(is_queue)), 0, stream)
        return np.flatnonzero((self.delivery_slot >= 0) & is_queue[known])

    @cached_property
    def present(self) -> npt.NDArray[np.bool_]:
        """Slots that were certainly stored: the log holds them, or a queue gave them out."""
        stored = self.first >= 0
        return stored if self.taken is None else stored | self.taken

    def sent_otherwise(
        self, slots: npt.NDArray[Any], flags: npt.NDArray[np.bool_] | None = None
    ) -> npt.NDArray[np.bool_]:
        """Slots of which another attempt of the application is stored (or has the flag, by
        slot)."""
        flags = self.present if flags is None else flags
        resent = np.flatnonzero(self.sparse[:, 3] > 0)
        if not len(resent) or not len(slots):
            return np.zeros(len(slots), np.bool_)
        seqs = self.identity(slots)[:, :3]
        originals = np.column_stack([self.sparse[resent, :3], np.zeros(len(resent), np.int64)])
        found = self.find(originals)
        attempts = np.concatenate([resent + self.n_dense, found[found >= 0]])
        stored = np.unique(self.identity(attempts[flags[attempts]])[:, :3], axis=0)
        both, number = np.unique(np.concatenate([stored, seqs]), axis=0, return_inverse=True)
        known = np.zeros(len(both), np.bool_)
        known[number.ravel()[: len(stored)]] = True
        return known[number.ravel()[len(stored) :]]

    @cached_property
    def undecided(self) -> Ints:
        """Slots that readers of committed data may see yet, ascending: the log holds no visible
        copy of them, but one whose transaction is open, or whose transaction's end was not read."""
        rows, slots = self.invisible
        is_open = self.bucket.log.take("txn", rows) == Txn.OPEN
        found = np.unique(np.concatenate([slots[is_open], self.unsettled[1]]))
        found = found[found >= 0]
        return np.asarray(found[~self.present[found]], np.int64)

    @cached_property
    def acked_absent(self) -> Ints:
        """Slots acknowledged and not in the log at all. What it holds as aborted, or as open still,
        is judged by its transaction."""
        absent = (self.outcome == Outcome.OK) & ~self.present
        for _, hidden in (self.invisible, self.unsettled):
            absent[hidden[hidden >= 0]] = False
        return np.flatnonzero(absent)

    @cached_property
    def ack_elsewhere(self) -> Ints:
        """Slots acknowledged at a place where no copy of them lies, though one lies elsewhere.

        None of a queue: it may have given away the copy that the acknowledgement named.
        """
        sends, log = self.bucket.sends, self.bucket.log
        if self.context.has_queues_only:
            return np.empty(0, np.int64)
        if (
            not log.rows
            or not sends.rows
            or (is_constant(sends["position"]) and sends["position"][0] < 0)
        ):
            return np.empty(0, np.int64)
        found = []
        for part in chunks(self.n_slots):
            send, row = self.sent[part], self.first[part]
            differs = np.zeros(len(row), np.bool_)
            for name in ("stream", "ledger", "position"):
                acked, found_at = sends[name], log[name]
                both = is_constant(acked) and is_constant(found_at)
                if not both or acked[0] != found_at[0]:
                    differs |= picked(acked, send) != picked(found_at, row)
            # -1 is 0, see `Places`
            if not is_constant(sends["batch"]) or not is_constant(log["batch"]):
                batches = picked(sends["batch"], send), picked(log["batch"], row)
                differs |= np.maximum(batches[0], 0) != np.maximum(batches[1], 0)
            differs &= (self.outcome[part] == Outcome.OK) & (row >= 0)
            found.append(np.flatnonzero(differs) + part.start)
        slots = np.concatenate(found)
        slots = slots[(self.of_send("position", slots) >= 0) & (self.of_send("stream", slots) > 0)]
        at = self.acked_rows(slots)
        elsewhere: Ints = slots[(at < 0) | (self.log_slot[at] != slots)]
        return elsewhere

    @cached_property
    def corrupt_claims(self) -> tuple[Ints, Ints]:
        """Acknowledged slots whose place holds a corrupt payload, one a row: (slots, those log
        rows)."""
        corrupt = self.odd_rows[self.odd_checks == Check.CORRUPT]
        if not len(corrupt):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        slots = np.concatenate([self.acked_absent, self.ack_elsewhere])
        rows, first = np.unique(self.acked_rows(slots), return_index=True)
        claimed = np.isin(rows, corrupt)
        return slots[first[claimed]], rows[claimed]

    @cached_property
    def places(self) -> Places:
        return Places(self.bucket.log)

    def acked_rows(self, slots: npt.NDArray[Any]) -> Ints:
        """Log row at the place that each slot's acknowledgement named, -1 = none named or nothing
        there."""
        names = ("stream", "position", "ledger", "batch")
        stream, position, ledger, batch = (self.of_send(name, slots) for name in names)
        named = (self.sent[slots] >= 0) & (position >= 0) & (stream > 0)
        return np.where(named, self.places.rows(stream, position, ledger, batch), -1)

    @property
    def sparse(self) -> Ints:
        """(n, 4) identities of slots ``n_dense ..``."""
        return self._index.sparse

    @property
    def sparse_group(self) -> Ints:
        """Group of each message that is not in the dense index; see `Index`."""
        return self._index.sparse_group

    # -- what became of it

    @cached_property
    def outcome(self) -> npt.NDArray[np.uint8]:
        """Outcome of each slot's send; NONE where no send is recorded."""
        column = self.bucket.sends["outcome"]
        out = np.empty(self.n_slots, np.uint8)
        for part in chunks(self.n_slots):
            row = self.sent[part]
            out[part] = picked(column, row) if len(column) else Outcome.NONE
            out[part][row < 0] = Outcome.NONE
        return out

    def of_send(self, name: str, slots: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """A column of the slots' send rows; where there is none, any value."""
        sends = self.bucket.sends
        if not sends.rows:
            return np.zeros(len(slots), sends[name].dtype)
        return sends.take(name, picked(self.sent, slots))

    def copies(self, slots: npt.NDArray[Any]) -> tuple[Ints, Ints]:
        """All log rows of some slots: (index into ``slots``, row), by index, then row."""
        low = np.searchsorted(self.extra_slots, slots, side="left")
        high = np.searchsorted(self.extra_slots, slots, side="right")
        index, offset = ragged(high - low)
        rows = self.extra_rows[low[index] + offset]
        own = np.flatnonzero(self.first[slots] >= 0)
        index = np.concatenate([own, index])
        rows = np.concatenate([self.first[slots[own]].astype(np.int64), rows])
        order = np.lexsort((rows, index))
        return index[order], rows[order]

    def times(self, slots: npt.NDArray[Any]) -> Ints:
        """When each message happened: its outcome, else the call, else its intended time in the
        log."""
        return piecewise(self._times, slots)

    def _times(self, slots: npt.NDArray[Any]) -> Ints:
        sent, done = picked(self.sent, slots) >= 0, self.of_send("t_done_ns", slots)
        if sent.all() and (done > 0).all():
            return done
        start = self.of_send("t_start_ns", slots)
        out: Ints = np.where(sent, np.where(done > 0, done, start), 0).astype(np.int64)
        unsent = np.flatnonzero(~sent & (self.first[slots] >= 0))
        if len(unsent):
            out[unsent] = self.bucket.log.take("t_intended_ns", self.first[slots[unsent]])
        return out


def _odd(log: Columns) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.uint8]]:
    """Rows whose payload is corrupt or not ours, and which of the two (`harness.records.Check`)."""
    check = log["check"]
    if not len(check) or (is_constant(check) and check[0] == Check.OK):
        return np.empty(0, np.intp), np.empty(0, np.uint8)
    rows = np.flatnonzero(check != Check.OK)
    return rows, check[rows]
