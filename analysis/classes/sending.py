"""Classes of sends and the log: what was acknowledged against what is stored."""

from __future__ import annotations

from typing import Final

from analysis.capture.context import SHARED_KEYS
from analysis.classes.entry import ALWAYS, APPLICATION, INFORMATION, TAKEN, AnomalyClass, SubKind
from analysis.findings import Status

_SHAPE = {
    "prefix": SubKind("before everything of its lane that is stored"),
    "middle": SubKind("between messages of its lane that are stored"),
    "tail": SubKind("after everything of its lane that is stored"),
    "all": SubKind("nothing of its lane is stored"),
}

SENDING: Final = (
    AnomalyClass(
        name="phantom",
        rank=20,
        breaks=(ALWAYS,),
        needs=("send-capture", "topic-ours"),
        sentence="stored or delivered, but never sent",
        example="sent 0 1 2, stored 0 1 [97] 2",
        explanation=(
            "The log holds a message that is in no journal of a producer, although a send is "
            "recorded before the client is called. If the journal of a producer instance is not "
            "known to be complete, its rows are send-record-missing instead: a gap in the captured "
            "data is never blamed on the broker."
        ),
        splits={
            "never sent": SubKind("the identity belongs to no send"),
            "foreign": SubKind("it has no brokerstorm header: another program writes to the topic"),
            "other run": SubKind("left over from another run"),
            "in delivery": SubKind("the consumer received it, and the log does not hold it"),
        },
    ),
    AnomalyClass(
        name="wrong-partition",
        rank=40,
        breaks=(ALWAYS,),
        needs=(),
        asks=("sends", "fixed-lanes"),
        sentence="stored in another partition than it was sent to",
        example="sent to orders-3, stored in orders-5",
        explanation=(
            "A message sent to an explicit partition is stored there, or the send fails. All "
            "messages of one key and producer must be in one partition; the messages outside the "
            "partition that holds most of them are counted. Each time a fault adds partitions to "
            "the topic, a key may use one more partition from then on. A partitioner promises no "
            "order across partitions; the order within each is judged. If the scenario sets "
            "`require.keys: shared`, the same applies to all producers of a key together, because "
            "client libraries have different partitioners."
        ),
        splits={
            "partition": SubKind("the producer named another partition"),
            "key": SubKind("the key's other messages are in another partition"),
            "shared": SubKind(
                "another producer's messages of the key are in another partition",
                breaks=(SHARED_KEYS,),
            ),
        },
    ),
    AnomalyClass(
        name="false-nack",
        rank=50,
        breaks=(ALWAYS,),
        needs=("topic-kept", "answers-kept"),
        asks=("sends",),
        sentence="reported as certainly not stored, yet stored",
        example="sent 4: fail (MSG_SIZE_TOO_LARGE), stored 3 [4] 5",
        explanation=(
            "The client reported a definite failure, after which an application may send the "
            "message again under another name. The log holds it anyway. Timeouts and lost "
            "connections are not definite and are never counted here (see info-stored)."
        ),
    ),
    AnomalyClass(
        name="dedup-silent-loss",
        rank=55,
        breaks=("delivery",),
        needs=(
            "audit-complete",
            "log-kept",
            "producer-ended",
            "readiness-restored",
            "answers-kept",
        ),
        excused_by=("overtake",),
        asks=("sends", "log"),
        sentence="acknowledged as a duplicate, and no copy of it is in the log",
        example="sent 2 3 4; stored 4, then 2 and 3 acknowledged at -1:-1 and dropped",
        explanation=(
            "Broker deduplication drops a send whose sequence id is not above the highest known "
            "one, and acknowledges it without a position (-1:-1). For a repeat that is right. Here "
            "no copy of the message, from any attempt, is in the log. The broker took the message "
            "for a repeat because another message overtook it or had the same sequence id. The "
            "client reported success to the application."
        ),
    ),
    AnomalyClass(
        name="acked-lost",
        rank=60,
        breaks=("delivery",),
        needs=(
            "topic-kept",
            "audit-complete",
            "log-kept",
            "producer-ended",
            "readiness-restored",
            "answers-kept",
        ),
        excused_by=("acknowledge",),
        asks=("sends",),
        sentence="acknowledged, and not in the log",
        example="sent 3 4 5, all ok; stored 3 _ 5",
        explanation=(
            "The client reported success, and an independent reader that read to the end of the "
            "log (or past the acknowledged position) did not find the message. The split says "
            "where in its lane the hole is: a tail points to the last leader before the end, a "
            "prefix to the start, a middle to a leader change. With acks=1, a leader that dies "
            "before its followers have fetched loses acknowledged messages. That setting permits "
            "it, unless the scenario requires durable delivery. A queue has no log to read: a "
            "message is lost when it was not delivered to any consumer and is not in the queue "
            "after the drain. A message that the application sent again counts as stored if any of "
            "its attempts is stored."
        ),
        splits={
            **_SHAPE,
            "withheld": SubKind(
                "the log holds it in a transaction that was aborted or did not end; no journal "
                "says whether its application asked for that",
                status=Status.SUSPECT,
            ),
            "compacted": SubKind(
                "the topic is compacted, and the log has a later message with the same key: not a loss",
                status=Status.PERMITTED,
            ),
            **TAKEN,
        },
    ),
    AnomalyClass(
        name="delivered-then-lost",
        rank=70,
        breaks=("delivery",),
        needs=("topic-kept", "audit-complete", "log-kept", "readiness-restored", "answers-kept"),
        excused_by=("damage",),
        asks=("consumers", "log"),
        sentence="a consumer received it, and the log no longer has it",
        example="delivered 3 4 5, stored 3 _ 5",
        explanation=(
            "Messages that a consumer can read are committed and must not disappear. The message "
            "was not acknowledged to its producer (otherwise it is acked-lost), but consumers have "
            "seen it."
        ),
        splits={
            "seen": SubKind("a consumer had it, and it is gone"),
            "power": SubKind(
                "every replica in sync lost power before it was synced, as of acked-lost",
                breaks=("synced",),
            ),
        },
    ),
    AnomalyClass(
        name="premature-then-repeat",
        rank=80,
        breaks=("order", "dedup"),
        needs=("topic-kept", "answers-kept"),
        excused_by=("renumber", "overtake"),
        asks=("sends", "log"),
        sentence="stored too early and then again in its place",
        example="sent 1 2 3 4, stored 1 [4] 2 3 4",
        explanation=(
            "The first copy of a message precedes messages that were sent before it, and a later "
            "copy is in the right place. The root cause is one: a re-send overtook messages that "
            "should have been re-sent before it. The messages that came late after the first copy, "
            "and the repeat, are symptoms. They are not counted again as reorder and duplicate."
        ),
    ),
    AnomalyClass(
        name="producer-reorder",
        rank=90,
        breaks=("order",),
        needs=("topic-kept", "connection-kept", "answers-kept"),
        excused_by=("renumber", "overtake"),
        asks=("sends", "log"),
        sentence="stored after a message that was sent later",
        example="sent 1 2 3 4, stored 1 3 [2] 4",
        explanation=(
            "The first appearances of messages that the application sent once are judged, within "
            "one producer instance, lane and partition. The late messages are counted. A block "
            "that is sent again after a reconnect (1 2 3 2 3 4) is not a reorder: its first "
            "appearances are in order."
        ),
    ),
    AnomalyClass(
        name="client-sequence-regression",
        rank=95,
        breaks=("order",),
        needs=(),
        asks=("log", "client-sequence"),
        sentence="stored after a message of the same producer with a higher sequence id",
        example="sequence ids in the log: 1 3 [2] 4",
        explanation=(
            "The client numbers its messages itself. Within one producer name and partition, the "
            "first appearances of these numbers must grow along the log. Messages whose payload "
            "shows a wrong order (producer-reorder, premature-then-repeat) are left out, because "
            "the regression is then a symptom of that. What remains are, for example, two threads "
            "of an application whose messages were numbered in another order than they were sent. "
            "With deduplication at the broker, such an inversion loses the lower number."
        ),
    ),
    AnomalyClass(
        name="write-duplicate",
        rank=100,
        breaks=("dedup",),
        needs=("topic-kept", "answers-kept"),
        excused_by=("renumber",),
        asks=("sends",),
        sentence="stored more than once",
        example="sent 1 2 3, stored 1 2 [2] 3",
        explanation=(
            "One send has several positions in the log: the client sent it again after a lost "
            "answer, and the broker did not recognise it. Idempotent producers exclude this. Each "
            "message is counted once, however many copies there are."
        ),
        splits={
            "same send": SubKind("one attempt, several positions"),
            "application re-send": SubKind(
                "several attempts of the application were stored; no client can know",
                Status.PERMITTED,
            ),
        },
    ),
    AnomalyClass(
        name="wrong-ack-position",
        rank=110,
        breaks=("delivery",),
        needs=(
            "topic-kept",
            "audit-complete",
        ),
        asks=("sends", "log", "ack-positions"),
        sentence="acknowledged at a position where it is not; it is stored elsewhere",
        example="sent 4: ok at 812; stored 4 at 790",
        explanation=(
            "The acknowledgement named a position. The log holds the message, but not at that "
            "position."
        ),
    ),
    AnomalyClass(
        name="unchecked-failure",
        rank=190,
        breaks=(APPLICATION,),
        needs=(),
        asks=("sends", "ignored-results"),
        sentence="the send failed or timed out, and the application did not check",
        example="sent 3 4 5, the future of 4 failed (queue full); stored 3 5: a gap that was not noticed",
        explanation=(
            "The client reported an error. An application that ignores the future of an "
            "asynchronous send does not see the error, and later takes the gap at the consumer for "
            "a loss by the broker. The splits are the error of the client and what the log shows: "
            "a send that timed out may be stored after all. This is judged only for producers with "
            "`results: ignored`."
        ),
        split_by="the client's error, and for unknown outcomes whether the message was stored",
    ),
    AnomalyClass(
        name="given-up",
        rank=195,
        breaks=(INFORMATION,),
        needs=(),
        asks=("sends", "resent"),
        sentence="every attempt of the application failed, and none is stored",
        example="sent 4: queue full; sent 4 again, ten times: queue full; stored 3 5",
        explanation=(
            "The application checked the result, sent the message again and finally gave up "
            "(`results: resent`). It knows about the gap, so nothing was lost without its "
            "knowledge, but the message is not delivered. Each message is counted once, under its "
            "first attempt."
        ),
    ),
    AnomalyClass(
        name="info-stored",
        rank=200,
        breaks=(INFORMATION,),
        needs=(),
        asks=("sends",),
        sentence="outcome unknown to the client; the log has it",
        example="sent 4: timed out; stored 3 4 5",
        explanation=(
            "A timeout or a lost connection does not say whether a message was stored. This one "
            "was stored: an application that sends it again creates a duplicate."
        ),
    ),
    AnomalyClass(
        name="info-not-stored",
        rank=210,
        breaks=(INFORMATION,),
        needs=("audit-complete",),
        asks=("sends",),
        sentence="outcome unknown to the client; the log does not have it",
        example="sent 4: timed out; stored 3 5",
        explanation=(
            "After a timeout or a lost connection, the message was not stored, or only in a "
            "transaction that was aborted: it must be sent again. A message whose transaction is "
            "open in the log, or whose end was not read, is left out."
        ),
    ),
)
