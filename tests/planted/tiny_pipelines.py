"""Pipelines of a tiny history: what was made of the messages of ``orders``, in the topic
``invoices``.

h = piped()                  # orders-0 and invoices-0; producer 1 sends, instance 2 is the pipeline
h.sent(3).log(0, 1, 2)
made(h, 0, 1, 2)             # outputs of the inputs at these positions, stored in this order
committed(h, 3)
"""

from __future__ import annotations

from harness.records import Txn
from tests.planted.plans import with_pipeline
from tests.planted.tiny import TOPIC, History
from tests.planted.tiny_transactions import stored, transaction


def piped(
    partitions: int = 1,
    to: int = 1,
    *,
    members: int = 1,
    transactional: bool = True,
    committed_only: bool = True,
    **where: object,
) -> History:
    """Partition ``partitions + j`` of the verbs is ``invoices-j``; members are the last
    producers."""
    h = History(partitions=partitions, **where)  # type: ignore[arg-type]
    plan = with_pipeline(
        h.plan, to, members=members, transactional=transactional, committed_only=committed_only
    )
    return h.planned(plan)


def made(
    h: History,
    *sources: int,
    source: int = 0,
    instance: int = 2,
    first: int = 0,
    how: str = "",
    number: int = 1,
    outcome: str = "ok",
    asked: str = "commit",
) -> History:
    """Outputs ``first ..`` of a member, of the inputs at these positions of partition ``source``.

    ``how``: they stand so in the log, in a transaction of this ``number`` with its marker; left
    out: none.
    """
    at = h.partitions + source % h.plan.topics[1].partitions
    seqs = range(first, first + len(sources))
    rows = len(h.rows["log"])
    if how:
        transaction(
            h, number, *seqs, outcome=outcome, asked=asked, partitions=(at,), instance=instance
        )
        stored(
            h,
            *seqs,
            how=how,
            partition=at,
            instance=instance,
            marker=how not in ("open", "unknown"),
        )
    else:
        for seq in seqs:
            h.send(seq, outcome, partition=at, instance=instance)
        h.log(*seqs, partition=at, instance=instance)
    for row, position in zip(h.rows["log"][rows:], sources, strict=True):
        row |= {"source_partition": source, "source_position": position}
    return h


def committed(h: History, position: int, partition: int = 0, group: str = "billing") -> History:
    """The group had committed this position in the end."""
    stream = {"stream": f"{TOPIC}-{partition}", "stream_id": partition + 1}
    h.committed.append({"group": group, **stream, "position": position})
    return h


def hidden(h: History, row: int, how: Txn) -> History:
    """Row ``row`` of the log was written in a transaction that ended so."""
    h.rows["log"][row] |= {"txn": how}
    return h
