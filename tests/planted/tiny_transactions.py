"""Transactions of a tiny history: what was sent in one, how it ended, and the markers in the
log."""

from __future__ import annotations

from harness.records import Asked, Outcome, Txn
from tests.planted.tiny import History

_ASKED = {
    "commit": Asked.COMMIT,
    "abort": Asked.ABORT,
    "both": Asked.COMMIT | Asked.ABORT,
    "": Asked.NOTHING,
}
_OUTCOMES = {"ok": Outcome.OK, "aborted": Outcome.ABORTED, "info": Outcome.INFO}


def transaction(
    h: History,
    number: int,
    *seqs: int,
    outcome: str = "ok",
    asked: str = "commit",
    partitions: tuple[int, ...] = (0,),
    instance: int = 1,
) -> History:
    """Messages ``seqs`` of each of the partitions are sent in a transaction, which then ends so."""
    begun = h.now_ns
    for partition in partitions:
        for seq in seqs:
            h.send(seq, outcome, instance=instance, partition=partition, transaction=number)
    h.transactions.append(
        {
            "instance": instance,
            "number": number,
            "t_begin_ns": begun,
            "t_asked_ns": h.now_ns + 1 if asked else 0,
            "asked": _ASKED[asked],
            "t_done_ns": 0 if outcome == "info" else h.now_ns + 2,
            "outcome": _OUTCOMES[outcome],
        }
    )
    return h


def stored(
    h: History,
    *seqs: int,
    how: str = "committed",
    partition: int = 0,
    instance: int = 1,
    marker: bool = True,
) -> History:
    """The log holds these messages next, and behind them the marker that ends their transaction
    so."""
    first = len(h.rows["log"])
    h.log(*seqs, partition=partition, instance=instance)
    end = h._next.get(partition + 1, 0) if marker else -1
    for row in h.rows["log"][first:]:
        row |= {"txn": Txn[how.upper()], "txn_end": end}
    if marker:
        h._next[partition + 1] = end + 1
    return h
