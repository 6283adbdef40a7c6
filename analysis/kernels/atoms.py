"""Counts of the messages of transactions, by bucket and put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.capture.bucket import Array


@dataclass(frozen=True, slots=True)
class Atoms:
    """The transactions that have messages in a bucket, one element for each.

    Attributes:
        transaction: index into `Context.transactions`.
        sent: messages.
        seen: visible ones.
        unsure: messages whose visibility is unknown, or not final.
        removed, power: those that are not visible because a fault removed them, or the power went.
        seen_at, gone_at: (n, 3): lane, seq and stream of the first visible one, and of the first
            that certainly is not; lane -1 = none.
    """

    transaction: Array
    sent: Array
    seen: Array
    unsure: Array
    removed: Array
    power: Array
    seen_at: Array
    gone_at: Array


def merged(parts: Sequence[Atoms], size: int) -> Atoms | None:
    """Merge the parts of all buckets, by transaction; ``size`` is the length of the table."""
    if not parts:
        return None
    sums = {
        name: np.zeros(size, np.int64) for name in ("sent", "seen", "unsure", "removed", "power")
    }
    at = {name: np.full((size, 3), -1, np.int64) for name in ("seen_at", "gone_at")}
    for part in parts:
        for name, total in sums.items():
            total[part.transaction] += getattr(part, name)
        for name, place in at.items():
            given = getattr(part, name)
            fills = (place[part.transaction, 0] < 0) & (given[:, 0] >= 0)
            place[part.transaction[fills]] = given[fills]
    return Atoms(np.arange(size), **sums, **at)
