"""Tells since when readers of committed data can be given what lies in a log.

They are given nothing at or after the first message of a transaction that is open: the last stable
offset stays there until the transaction has ended.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.capture.bucket import Array, is_constant
from analysis.kernels.acks import NEVER
from analysis.kernels.history import BucketHistory
from analysis.kernels.transactions import Membership
from harness.records import Outcome, Txn

#: The transaction has ended, but the time was not recorded: its producer died, or kept no journal.
UNKNOWN_NS = 0


@dataclass(frozen=True, slots=True)
class HeldRows:
    """Log rows from which a transaction held readers of committed data back, in log order.

    ``end_ns``: until when, by the producer's clock; `UNKNOWN_NS` not known, `NEVER` it is open in
    the log.
    """

    row: Array
    end_ns: Array

    def available_ns(self, rows: Array, given_row: Array, given_ns: Array) -> Array:
        """Since when each of the ascending rows of one stream could be given; 0 = always.

        An end that is not known is taken to be when a reader was first given something at or after
        its row.

        Args:
            given_row, given_ns: what readers of committed data were given of the stream, and when.
        """
        own = (
            slice(*np.searchsorted(self.row, [rows[0], rows[-1] + 1])) if len(rows) else slice(0, 0)
        )
        row, end_ns = self.row[own], self.end_ns[own].copy()
        unknown = np.flatnonzero(end_ns == UNKNOWN_NS)
        order = np.argsort(given_row, kind="stable")
        earliest = np.append(np.minimum.accumulate(given_ns[order][::-1])[::-1], NEVER)
        end_ns[unknown] = earliest[np.searchsorted(given_row[order], row[unknown])]
        held_until = np.append(0, np.maximum.accumulate(end_ns))
        return np.asarray(held_until[np.searchsorted(row, rows, side="right")])


def held_rows(history: BucketHistory, member: Membership) -> HeldRows:
    """The first row of every transaction in every stream; of messages without a journal each
    row."""
    state = history.bucket.log["txn"]
    nothing = np.empty(0, np.int64)
    if not len(state) or (is_constant(state) and state[0] == Txn.NONE):
        return HeldRows(nothing, nothing)
    slot = history.log_slot.astype(np.int64)
    for rows, hidden in (history.invisible, history.unsettled):
        slot[rows] = hidden
    row = np.flatnonzero((state != Txn.NONE) & (slot >= 0))
    transaction = member.of_slot[slot[row]].astype(np.int64) if member else np.full(len(row), -1)
    stream = history.bucket.log["stream"][row].astype(np.int64)
    is_open = state[row] == Txn.OPEN
    # without a journal each row is its own
    owner = np.where(transaction >= 0, transaction, -1 - row)
    new = (np.diff(owner, prepend=len(member.table)) != 0) | (np.diff(stream, prepend=-1) != 0)
    new |= np.diff(is_open.astype(np.int8), prepend=0) != 0
    keys = np.column_stack([owner[new], stream[new], is_open[new]])
    first = np.flatnonzero(new)[np.sort(np.unique(keys, axis=0, return_index=True)[1])]
    row, transaction, is_open = row[first], transaction[first], is_open[first]
    end_ns = np.full(len(row), UNKNOWN_NS, np.int64)
    if member:
        is_answered = np.isin(member.table.outcome, (Outcome.OK, Outcome.ABORTED))
        answered_ns = np.where(is_answered, member.table.t_done_ns, UNKNOWN_NS)
        end_ns = np.where(transaction >= 0, answered_ns[transaction], UNKNOWN_NS)
    end_ns[is_open] = NEVER
    return HeldRows(row, end_ns)
