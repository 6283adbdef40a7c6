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
        sentence="stored or delivered, but never sent by anybody",
        example="sent 0 1 2, stored 0 1 [97] 2",
        explanation=(
            "The log holds a message that no producer's journal knows, though a send is recorded before "
            "the client is called. Rows of an instance whose journal is not known to be complete are "
            "send-record-missing instead: a gap in the capture is never blamed on the broker."
        ),
        splits={
            "never sent": SubKind("the identity belongs to no send"),
            "foreign": SubKind("it has no brokerstorm header: somebody else writes to the topic"),
            "other run": SubKind("left over from another run"),
            "in delivery": SubKind("the consumer was given it, the log does not hold it"),
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
            "An explicit partition is kept or the send fails. For keys, all messages of a key and "
            "producer must be in one partition; those outside the one that holds most of them are counted. "
            "Each time that a fault gave the topic more partitions a key may have one more from then on: "
            "a partitioner promises no order across them, within each it is judged. Where the scenario says "
            "`require.keys: shared`, the same holds for all producers of a key together: client libraries "
            "have partitioners of their own."
        ),
        splits={
            "partition": SubKind("the producer named another partition"),
            "key": SubKind("the key's other messages are in another partition"),
            "shared": SubKind(
                "another producer's messages of the key are in another partition", breaks=(SHARED_KEYS,)
            ),
        },
    ),
    AnomalyClass(
        name="false-nack",
        rank=50,
        breaks=(ALWAYS,),
        needs=("topic-kept",),
        asks=("sends",),
        sentence="reported as certainly not stored, yet stored",
        example="sent 4: fail (MSG_SIZE_TOO_LARGE), stored 3 [4] 5",
        explanation=(
            "The client reported a definite failure, after which an application may send the message "
            "again under another name; the log holds it all the same. Timeouts and lost connections are "
            "not definite and never end up here (see info-stored)."
        ),
    ),
    AnomalyClass(
        name="dedup-silent-loss",
        rank=55,
        breaks=("delivery",),
        needs=("audit-complete", "log-kept", "producer-ended", "readiness-restored"),
        asks=("sends", "log"),
        sentence="acknowledged as a duplicate, and no copy of it is in the log",
        example="sent 2 3 4; stored 4, then 2 and 3 acknowledged at -1:-1 and dropped",
        explanation=(
            "Broker deduplication drops a send whose sequence id is not above the highest it has, and "
            "acknowledges it without a position (-1:-1). That is right for a repeat. Here no copy of the "
            "message, of any attempt, is in the log: a message that overtook it, or one that was given the "
            "same sequence id, made the broker take it for one. The application was told success."
        ),
    ),
    AnomalyClass(
        name="acked-lost",
        rank=60,
        breaks=("delivery",),
        needs=("topic-kept", "audit-complete", "log-kept", "producer-ended", "readiness-restored"),
        asks=("sends",),
        sentence="acknowledged, and not in the log",
        example="sent 3 4 5, all ok; stored 3 _ 5",
        explanation=(
            "The client reported success and an independent reader that went to the end of the log (or "
            "past the acknowledged position) did not find the message. The split says where in its lane "
            "the hole is: a tail points at the last leader before the end, a prefix at the start, a "
            "middle at a leader change. With acks=1 a leader that dies before its followers fetched "
            "takes acknowledged messages with it: permitted by that setting, unless the scenario "
            "requires durable delivery. A queue has no log to read: a message is lost when it was "
            "neither delivered to anybody nor remains in the queue after the drain. A message sent again by "
            "the application counts as stored when any of its attempts is."
        ),
        splits={
            **_SHAPE,
            "withheld": SubKind(
                "the log holds it in a transaction that was aborted or did not end; no journal says whether "
                "its application asked for that",
                status=Status.SUSPECT,
            ),
            **TAKEN,
        },
    ),
    AnomalyClass(
        name="delivered-then-lost",
        rank=70,
        breaks=("delivery",),
        needs=("topic-kept", "audit-complete", "log-kept", "readiness-restored"),
        asks=("consumers", "log"),
        sentence="a consumer was given it, the log no longer holds it",
        example="delivered 3 4 5, stored 3 _ 5",
        explanation=(
            "What a consumer can read is committed and may not vanish. The message was not acknowledged "
            "to its producer (else it is acked-lost), but others have seen it."
        ),
        splits={
            "seen": SubKind("a consumer had it, and it is gone"),
            "power": SubKind(
                "every replica in sync lost power before it was synced, as of acked-lost", breaks=("synced",)
            ),
        },
    ),
    AnomalyClass(
        name="premature-then-repeat",
        rank=80,
        breaks=("order", "dedup"),
        needs=("topic-kept",),
        asks=("sends", "log"),
        sentence="stored too early and then again in its place",
        example="sent 1 2 3 4, stored 1 [4] 2 3 4",
        explanation=(
            "The first copy of a message precedes messages sent before it, and a later copy stands where "
            "it belongs: one root cause, a re-send that overtook what was to be re-sent before it. The "
            "messages that came late behind the first copy, and the repeat, are its symptoms and are not "
            "counted as reorder and duplicate again."
        ),
    ),
    AnomalyClass(
        name="producer-reorder",
        rank=90,
        breaks=("order",),
        needs=("topic-kept",),
        asks=("sends", "log"),
        sentence="stored after a message that was sent later",
        example="sent 1 2 3 4, stored 1 3 [2] 4",
        explanation=(
            "Judged on the first appearances of messages that the application sent once, within one "
            "producer instance, lane and partition. The late ones are counted. A block sent again after "
            "a reconnect (1 2 3 2 3 4) is no reorder: its first appearances are in order."
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
            "The client numbers its messages itself, and within one producer name and partition the first "
            "appearances of these numbers must grow along the log. Messages whose order the payload shows to "
            "be wrong (producer-reorder, premature-then-repeat) are left out, for then it is a symptom of "
            "that. What remains: two threads of an application that were given numbers in another order than "
            "they were sent. With deduplication at the broker such an inversion loses the lower number."
        ),
    ),
    AnomalyClass(
        name="write-duplicate",
        rank=100,
        breaks=("dedup",),
        needs=("topic-kept",),
        asks=("sends",),
        sentence="stored more than once",
        example="sent 1 2 3, stored 1 2 [2] 3",
        explanation=(
            "One send, several positions in the log: the client sent it again after a lost answer and "
            "the broker did not recognise it. Idempotent producers exclude it. Counted once a message, "
            "however many copies there are."
        ),
        splits={
            "same send": SubKind("one attempt, several positions"),
            "application re-send": SubKind(
                "several attempts of the application were stored; no client can know", Status.PERMITTED
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
            "The acknowledgement named a position. The log holds the message, but at none of its "
            "positions is the one named."
        ),
    ),
    AnomalyClass(
        name="unchecked-failure",
        rank=190,
        breaks=(APPLICATION,),
        needs=(),
        asks=("sends", "ignored-results"),
        sentence="the send failed or timed out, and the application never looked",
        example="sent 3 4 5, the future of 4 failed (queue full); stored 3 5: a gap that nobody was told of",
        explanation=(
            "The client gave an error; an application that ignores the future of an asynchronous send "
            "does not see it, and later takes the gap at the consumer for a loss by the broker. Split by "
            "the client's error, and by what the log says: a send that timed out may be stored after all. "
            "Judged only for producers with `results: ignored`."
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
            "The application looked, sent the message again and gave up in the end (`results: resent`). It "
            "knows of the gap, so nothing was lost behind its back; but what it set out to deliver is not "
            "delivered. Counted once per message, under its first attempt."
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
            "A timeout or a lost connection does not say whether a message was stored. This one was: an "
            "application that sends it again makes a duplicate."
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
            "A timeout or a lost connection, and the message was not stored, or only in a transaction that "
            "was aborted: it must be sent again. A message whose transaction is open in the log, or of "
            "which nobody read the end, is left out."
        ),
    ),
)
