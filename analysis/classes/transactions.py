"""Classes of transactions and rollbacks."""

from __future__ import annotations

from typing import Final

from analysis.classes.entry import ALWAYS, AnomalyClass, SubKind
from analysis.findings import Status

TRANSACTIONS: Final = (
    AnomalyClass(
        name="lost-after-rollback",
        rank=65,
        breaks=(ALWAYS,),
        needs=("audit-complete", "delivery-capture", "readiness-restored"),
        asks=("consumers", "queues", "settlements"),
        sentence="given to a consumer, rolled back, and never seen again",
        example="delivered 4 5 6, rolled back, delivered 4 6; 5 does not remain in the queue",
        explanation=(
            "A rollback (or recover, or the end of a session that never committed) gives the messages back "
            "to the queue. This one was neither delivered again nor does it remain there."
        ),
        splits={
            "rolled back": SubKind("its last delivery was rolled back or recovered"),
            "never committed": SubKind("its last delivery was open when the session ended"),
        },
    ),
    AnomalyClass(
        name="committed-and-redelivered",
        rank=132,
        breaks=(ALWAYS,),
        needs=(),
        asks=("consumers", "queues", "settlements"),
        sentence="delivered again after the transaction that consumed it had been committed",
        example="delivered 1 2 3, commit confirmed, delivered [2]",
        explanation=(
            "The commit of the consuming transaction was confirmed: the queue has given these messages away "
            "for good. Any later delivery to any session is a second one."
        ),
    ),
    AnomalyClass(
        name="twice-in-transaction",
        rank=136,
        breaks=(ALWAYS,),
        needs=(),
        asks=("consumers", "queues"),
        sentence="delivered twice within one transaction",
        example="transaction 7: delivered 49 0 1 2 ... 48 [49], no rollback in between",
        explanation=(
            "Within one transaction of a session, between two commits or rollbacks, a message can be "
            "consumed once. Twice means that the client kept a message which it had given back."
        ),
    ),
    AnomalyClass(
        name="rollback-order",
        rank=155,
        breaks=("redelivery-order",),
        needs=(),
        asks=("consumers", "rollbacks"),
        sentence="the first message after a rollback was not the lowest unacknowledged one",
        example="delivered 0 1 2 3 4 5, rolled back, delivered [49] 0 1 2 3",
        explanation=(
            "An order regression: after a rollback or recover, a session should go on with the lowest "
            "message that it has not acknowledged, of each producer and lane. One that had been prefetched "
            "came first. JMS does not promise the order of redelivered messages, so it is permitted, "
            "unless the scenario requires order (`require.order`). A message that another session was given "
            "meanwhile is not waited for."
        ),
        unit="rollbacks",
        splits={
            "after a rollback": SubKind("the session rolled back its transaction"),
            "after a recover": SubKind("the session was recovered"),
        },
    ),
    AnomalyClass(
        name="aborted-read",
        rank=160,
        breaks=(ALWAYS,),
        needs=(),
        asks=("consumers", "transactions"),
        sentence="delivered although its transaction was aborted",
        example="sent 4 in a transaction, aborted; delivered 3 [4] 5",
        explanation=(
            "A consumer that asked for committed data only was given a message of an aborted "
            "transaction (Adya's G1a). Consumers that read uncommitted data may see it."
        ),
        splits={
            "read committed": SubKind("the consumer asked for committed data only"),
            "read uncommitted": SubKind("the consumer asked for everything", Status.PERMITTED),
        },
    ),
)
