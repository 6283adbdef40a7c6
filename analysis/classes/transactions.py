"""Classes of transactions and rollbacks."""

from __future__ import annotations

from typing import Final

from analysis.classes.entry import ALWAYS, TAKEN, AnomalyClass, SubKind
from analysis.findings import Status

TRANSACTIONS: Final = (
    AnomalyClass(
        name="fence-breach",
        rank=41,
        breaks=(ALWAYS,),
        needs=("markers-read",),
        asks=("transactions", "transaction-journal", "transactional-ids"),
        sentence="written by a producer that a later one of its transactional id had replaced",
        example="life 1 of shop wrote 4; life 2 was initialised and wrote 0; stored 4 0 [5], 5 of life 1",
        explanation=(
            "A producer is initialised before it writes, which fences every earlier producer of "
            "its transactional id: brokers refuse the batches and the commit of the earlier one. "
            "Here a write of an earlier producer is in the log after a write of a later one. Which "
            "producer is earlier follows from the restarts of a client (each has its own producer "
            "instance, which is in each message) and from the epochs of batches and markers, which "
            "only grow, since Kafka 4.0 with every transaction (KIP-890). Only the order within "
            "one stream decides, because the clients set the times of batches. So a write that "
            "came after the later producer was initialised, and before it wrote to that stream, is "
            "not detected. A member that lost its partitions to a member with another id is fenced "
            "by its group: if it committed anyway, that shows as input-twice."
        ),
        unit="writes",
        splits={
            "older life": SubKind("messages of an earlier life, in one stretch and transaction"),
            "older epoch": SubKind("a batch or marker whose epoch is below one before it"),
        },
    ),
    AnomalyClass(
        name="torn-transaction",
        rank=42,
        breaks=(ALWAYS,),
        needs=("audit-complete", "answers-kept"),
        excused_by=("acknowledge",),
        asks=("transactions", "transaction-journal"),
        sentence="a part of it is visible and a part is not",
        example="sent 4 5 in a transaction, committed; orders-0 has 4, orders-1 holds 5 as aborted",
        explanation=(
            "Either all messages of a transaction become visible, or none. Readers of committed "
            "data see some messages of this one; the others are stored as aborted or are not in "
            "the log. That is wrong whether the commit was acknowledged or never answered. The "
            "second pass over all streams counts each transaction once."
        ),
        unit="transactions",
        splits={
            "committed": SubKind("its commit was acknowledged"),
            "commit not answered": SubKind(
                "its commit was never answered; either all of it is visible or none"
            ),
            **TAKEN,
        },
    ),
    AnomalyClass(
        name="lost-commit",
        rank=43,
        breaks=(ALWAYS,),
        needs=("audit-complete", "answers-kept"),
        excused_by=("acknowledge",),
        asks=("transactions", "transaction-journal"),
        sentence="its commit was acknowledged, and nothing of it is visible",
        example="sent 4 5 in a transaction, committed; the log holds 4 5 as aborted",
        explanation=(
            "The client reported to the application that the transaction was committed. Readers of "
            "committed data see none of its messages: the log holds them as aborted, or not at "
            "all. Messages that are not in the log are also acked-lost."
        ),
        unit="transactions",
        splits={"": SubKind("no fault explains it"), **TAKEN},
    ),
    AnomalyClass(
        name="mixed-transaction",
        rank=44,
        breaks=(ALWAYS,),
        needs=(),
        asks=("transactions", "transaction-journal", "shared-markers"),
        sentence="it shares an end with another transaction, or has several in one stream",
        example="sent 4 5 in a transaction; stored 4 [commit] 5 [abort]",
        explanation=(
            "A marker in the log ends everything that a producer wrote to the stream since the "
            "marker before it. Here one marker ended messages of two transactions, or several "
            "markers ended messages of one. So the end of one transaction took a part of another "
            "(KAFKA-17754)."
        ),
        unit="transactions",
        splits={
            "ended in parts": SubKind("several markers of a stream ended its messages"),
            "ended with another": SubKind("a marker ended messages of two transactions"),
        },
    ),
    AnomalyClass(
        name="hanging-transaction",
        rank=152,
        breaks=(ALWAYS,),
        needs=("markers-read",),
        asks=("transactions", "transaction-journal"),
        sentence="no marker ends its transaction in the log",
        example="sent 4 5 in a transaction, committed; stored 4 5 and no marker: reading stops at 4",
        explanation=(
            "The end of the transaction was acknowledged and all faults are undone, and still no "
            "marker follows its messages. The last stable offset stays before them, and readers of "
            "committed data wait there. A transaction whose producer died, or never received an "
            "answer, stays open until its own timeout. That is not an anomaly and is reported as "
            "information."
        ),
        splits={
            "ended": SubKind("its commit or abort was acknowledged"),
            "never ended": SubKind("its producer never had an answer to its end", Status.INFO),
        },
    ),
    AnomalyClass(
        name="intermediate-read",
        rank=161,
        breaks=(ALWAYS,),
        needs=(),
        asks=("consumers", "transactions", "transaction-journal"),
        sentence="delivered before the commit of its transaction was requested",
        example="sent 4, delivered [4], sent 5, commit asked for",
        explanation=(
            "A consumer that asked for committed data only received a message while its "
            "transaction was still being written (Adya's G1b). Both times are from one clock, or "
            "differ by more than the clocks of several machines may."
        ),
    ),
    AnomalyClass(
        name="lost-after-rollback",
        rank=65,
        breaks=(ALWAYS,),
        needs=("audit-complete", "delivery-capture", "readiness-restored"),
        asks=("consumers", "queues", "settlements"),
        sentence="given to a consumer, rolled back, and never seen again",
        example="delivered 4 5 6, rolled back, delivered 4 6; 5 does not remain in the queue",
        explanation=(
            "A rollback (or recover, or the end of a session that never committed) returns the "
            "messages to the queue. This message was not delivered again and is not in the queue "
            "either."
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
            "The commit of the consuming transaction was confirmed, so the queue must not deliver "
            "these messages again. Any later delivery, to any session, is a second one."
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
            "Within one transaction of a session, between two commits or rollbacks, a message can "
            "be consumed once. A second delivery means that the client kept a message that it had "
            "returned."
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
            "After a rollback or recover, a session should continue with the lowest message that "
            "it has not acknowledged, for each producer and lane. Here a message that had been "
            "prefetched came first. JMS does not promise the order of redelivered messages, so "
            "this is permitted, unless the scenario requires order (`require.order`). A message "
            "that another session received meanwhile is not waited for."
        ),
        unit="rollbacks",
        splits={
            "after a rollback": SubKind("the session rolled back its transaction"),
            "after a recover": SubKind("the session was recovered"),
        },
    ),
    AnomalyClass(
        name="aborted-read",
        rank=45,
        breaks=(ALWAYS,),
        needs=("markers-read", "answers-kept"),
        excused_by=("damage",),
        asks=("transactions",),
        sentence="visible although its transaction was aborted",
        example="sent 4 in a transaction, aborted; stored 3 [4] 5, committed",
        explanation=(
            "A message of a transaction that was aborted, or whose commit was never requested, is "
            "visible to readers that ask for committed data only (Adya's G1a): the log holds it as "
            "committed, or a consumer received it. Consumers that read uncommitted data may see it."
        ),
        splits={
            "in the log": SubKind("the log holds it as committed"),
            "read committed": SubKind("the consumer asked for committed data only"),
            "read uncommitted": SubKind("the consumer asked for everything", Status.PERMITTED),
        },
    ),
)
