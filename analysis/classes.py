"""The anomaly classes, in one table: what each means, which promise it breaks, what must be known first.

Kernels, the report, `brokerstorm explain`, docs/explanation/anomalies.md and the JSON schema take names
and texts from here. A message is counted once, under the class of lowest ``rank`` that describes it (a
violation before anything permitted); what else the same cause did to it is listed as a symptom.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from analysis.context import Promise
from analysis.findings import Status
from harness.errors import UsageError

#: Breaks no promise; told because people ask.
INFORMATION: Final = "none"
#: Never right, whatever the settings say.
ALWAYS: Final = "always"
#: A gap in what we recorded, so nothing can be said of the broker.
CAPTURE: Final = "capture"

#: What must hold before a hit counts as proved. Unmet, the class is only *suspect*: unknown, never fail.
PRECONDITIONS: Final[Mapping[str, str]] = {
    "audit-complete": "the audit read the stream to its end bound, or past the acknowledged position",
    "log-kept": "the log still begins where it began: nothing fell to retention",
    "producer-ended": "the producer was closed or dead before the end bound was fixed",
    "readiness-restored": "after the faults every partition was led, in sync and took a probe",
    "send-capture": "the producer's record of sends is complete",
    "delivery-capture": "every member of the group left a complete journal",
    "drained": "the group was given time to read to the end of every partition, and got there",
    "start-known": "the group is known to have started before the message's position",
    "topic-ours": "nobody else writes to the topic",
}


@dataclass(frozen=True, slots=True)
class Split:
    """A sub-kind of a class. ``status`` overrides what the promise would say."""

    text: str
    status: Status | None = None


@dataclass(frozen=True, slots=True)
class AnomalyClass:
    """One row of the table.

    Attributes:
        breaks: any of delivery, order, dedup (one that holds makes it a violation), or a single
            `ALWAYS`, `CAPTURE` or `INFORMATION`.
        needs: names in `PRECONDITIONS`.
        unit: what ``count`` counts.
        sentence: one line for people; what happened, not what to think of it.
        example: a sequence that shows it.
    """

    name: str
    rank: int
    breaks: tuple[str, ...]
    needs: tuple[str, ...]
    sentence: str
    example: str
    explanation: str
    unit: str = "messages"
    splits: Mapping[str, Split] = field(default_factory=dict)

    def status(self, split: str, promise: Promise | None, *, proved: bool = True) -> Status:
        """What a hit means. ``promise``: of the producer; None where no producer's promise counts."""
        own = self.splits.get(split)
        if own is not None and own.status is not None:
            return own.status if proved or own.status is not Status.VIOLATION else Status.SUSPECT
        if self.breaks == (INFORMATION,):
            return Status.INFO
        if self.breaks == (CAPTURE,):
            return Status.SUSPECT
        if self.breaks == (ALWAYS,):
            return Status.VIOLATION if proved else Status.SUSPECT
        asked = promise or Promise()
        if not any(asked.holds(kind) for kind in self.breaks):
            return Status.PERMITTED
        return Status.VIOLATION if proved else Status.SUSPECT


_SHAPE = {
    "prefix": Split("before everything of its lane that is stored"),
    "middle": Split("between messages of its lane that are stored"),
    "tail": Split("after everything of its lane that is stored"),
    "all": Split("nothing of its lane is stored"),
}

_TABLE: Final = (
    AnomalyClass(
        name="corrupt",
        rank=10,
        breaks=(ALWAYS,),
        needs=(),
        sentence="the payload is not what was sent: length or checksum is wrong",
        example="sent 7 (crc 9f2c), stored 7 (crc 1b00)",
        explanation=(
            "Every payload ends in a checksum over all its bytes, written by the producer and checked by "
            "the reader. A row that opens like one of ours and fails the check was changed on its way. "
            "The message it was is then not counted as lost as well."
        ),
        splits={
            "in the log": Split("the reader of the log found it"),
            "in delivery": Split("the log holds it whole, the consumer was given something else"),
        },
    ),
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
            "send-record-missing instead: a hole in our capture is never blamed on the broker."
        ),
        splits={
            "never sent": Split("the identity belongs to no send"),
            "foreign": Split("no header of ours: somebody else writes to the topic"),
            "other run": Split("left over from another run"),
            "in delivery": Split("the consumer was given it, the log does not hold it"),
        },
    ),
    AnomalyClass(
        name="send-record-missing",
        rank=30,
        breaks=(CAPTURE,),
        needs=(),
        sentence="the record of this send is missing, so its outcome is unknown",
        example="recorded 0 1 _ 3, stored 0 1 2 3",
        explanation=(
            "Sequences are dense, so a hole in the journal of a producer, or a stored message of a "
            "producer whose journal is not whole, is a gap in our capture. It says nothing about the "
            "broker and makes the verdict unknown."
        ),
        splits={
            "stored": Split("the log holds it"),
            "not stored": Split("neither the journal nor the log knows it"),
        },
    ),
    AnomalyClass(
        name="wrong-partition",
        rank=40,
        breaks=(ALWAYS,),
        needs=(),
        sentence="stored in another partition than it was sent to",
        example="sent to orders-3, stored in orders-5",
        explanation=(
            "An explicit partition is kept or the send fails. For keys, all messages of a key and "
            "producer must be in one partition; those outside the one that holds most of them are counted."
        ),
        splits={
            "partition": Split("the producer named another partition"),
            "key": Split("the key's other messages are in another partition"),
        },
    ),
    AnomalyClass(
        name="false-nack",
        rank=50,
        breaks=(ALWAYS,),
        needs=(),
        sentence="reported as certainly not stored, yet stored",
        example="sent 4: fail (MSG_SIZE_TOO_LARGE), stored 3 [4] 5",
        explanation=(
            "The client reported a definite failure, after which an application may send the message "
            "again under another name; the log holds it all the same. Time-outs and lost connections are "
            "not definite and never end up here (see info-stored)."
        ),
    ),
    AnomalyClass(
        name="acked-lost",
        rank=60,
        breaks=("delivery",),
        needs=("audit-complete", "log-kept", "producer-ended", "readiness-restored"),
        sentence="acknowledged, and not in the log",
        example="sent 3 4 5, all ok; stored 3 _ 5",
        explanation=(
            "The client reported success and an independent reader that went to the end of the log (or "
            "past the acknowledged position) did not find the message. The split says where in its lane "
            "the hole is: a tail points at the last leader before the end, a prefix at the start, a "
            "middle at a leader change. With acks=1 a leader that dies before its followers fetched "
            "takes acknowledged messages with it: permitted by that setting, unless the scenario "
            "requires durable delivery."
        ),
        splits=_SHAPE,
    ),
    AnomalyClass(
        name="delivered-then-lost",
        rank=70,
        breaks=("delivery",),
        needs=("audit-complete", "log-kept", "readiness-restored"),
        sentence="a consumer was given it, the log no longer holds it",
        example="delivered 3 4 5, stored 3 _ 5",
        explanation=(
            "What a consumer can read is committed and may not vanish. The message was not acknowledged "
            "to its producer (else it is acked-lost), but others have seen it."
        ),
    ),
    AnomalyClass(
        name="premature-then-repeat",
        rank=80,
        breaks=("order", "dedup"),
        needs=(),
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
        needs=(),
        sentence="stored after a message that was sent later",
        example="sent 1 2 3 4, stored 1 3 [2] 4",
        explanation=(
            "Judged on the first appearances of messages that the application sent once, within one "
            "producer instance, lane and partition. The late ones are counted. A block sent again after "
            "a reconnect (1 2 3 2 3 4) is no reorder: its first appearances are in order."
        ),
    ),
    AnomalyClass(
        name="write-duplicate",
        rank=100,
        breaks=("dedup",),
        needs=(),
        sentence="stored more than once",
        example="sent 1 2 3, stored 1 2 [2] 3",
        explanation=(
            "One send, several positions in the log: the client sent it again after a lost answer and "
            "the broker did not recognise it. Idempotent producers exclude it. Counted once a message, "
            "however many copies there are."
        ),
        splits={
            "same send": Split("one attempt, several positions"),
            "application re-send": Split(
                "several attempts of the application were stored; no client can know", Status.PERMITTED
            ),
        },
    ),
    AnomalyClass(
        name="wrong-ack-position",
        rank=110,
        breaks=("delivery",),
        needs=("audit-complete",),
        sentence="acknowledged at a position where it is not; it is stored elsewhere",
        example="sent 4: ok at 812; stored 4 at 790",
        explanation=(
            "The acknowledgement named a position. The log holds the message, but at none of its "
            "positions is the one named."
        ),
    ),
    AnomalyClass(
        name="hang",
        rank=120,
        breaks=(ALWAYS,),
        needs=("producer-ended",),
        sentence="the client never gave an outcome, long after its own deadline",
        example="sent 4 at 12.0 s, deadline 130 s, producer closed at 170 s: no outcome",
        explanation=(
            "A client promises an answer within its own time-out. The journal shows the call made and "
            "never completed, past that deadline (with 10 s of slack) before the producer ended. Time in "
            "which the producer's process did not run is subtracted."
        ),
        splits={
            "never completed": Split("open when the producer ended"),
            "completed late": Split("an outcome came, but after the deadline", Status.INFO),
        },
    ),
    AnomalyClass(
        name="rewind-past-commit",
        rank=130,
        breaks=(ALWAYS,),
        needs=(),
        sentence="delivered again although the group had committed past it before the assignment",
        example="delivered 1 2 3, committed 4, assigned again, delivered [2] [3] 4",
        explanation=(
            "After a rebalance a consumer starts at the group's last confirmed commit. Here it started "
            "below it, so messages came again that the group had acknowledged. An episode is one "
            "assignment; its messages are counted."
        ),
    ),
    AnomalyClass(
        name="not-dispatched",
        rank=140,
        breaks=(ALWAYS,),
        needs=("drained", "delivery-capture", "start-known"),
        sentence="in the log, but never given to the group",
        example="stored 3 4 5, delivered 3 _ 5",
        explanation=(
            "The group subscribed to the topic and was drained, and no member was given the message. "
            "The log has it, so this is lost between broker and application, not by the broker's log."
        ),
    ),
    AnomalyClass(
        name="delivery-reorder",
        rank=150,
        breaks=(ALWAYS,),
        needs=(),
        sentence="delivered after a later position of the same partition",
        example="log 1 2 3, delivered 1 3 [2]",
        explanation=(
            "Within one assignment of a partition to a session, and without a seek, positions only grow. "
            "This one came after a higher one, for the first time in this assignment."
        ),
    ),
    AnomalyClass(
        name="aborted-read",
        rank=160,
        breaks=(ALWAYS,),
        needs=(),
        sentence="delivered although its transaction was aborted",
        example="sent 4 in a transaction, aborted; delivered 3 [4] 5",
        explanation=(
            "A consumer that asked for committed data only was given a message of an aborted "
            "transaction (Adya's G1a). Consumers that read uncommitted data may see it."
        ),
        splits={
            "read committed": Split("the consumer asked for committed data only"),
            "read uncommitted": Split("the consumer asked for everything", Status.PERMITTED),
        },
    ),
    AnomalyClass(
        name="delivery-duplicate",
        rank=170,
        breaks=(ALWAYS,),
        needs=(),
        sentence="one position delivered to the group more than once",
        example="delivered 1 2 3, rebalance before the commit, delivered [2] [3] 4",
        explanation=(
            "At-least-once delivery repeats what was not committed when partitions change hands: that "
            "split is permitted. Within one assignment nothing may come twice without a seek. Repeats of "
            "what had been committed are rewind-past-commit."
        ),
        splits={
            "same assignment": Split("twice within one assignment, without a seek"),
            "after rebalance": Split("not committed when the partition changed hands", Status.PERMITTED),
            "after seek": Split("the application asked for it", Status.PERMITTED),
        },
    ),
    AnomalyClass(
        name="stall",
        rank=180,
        breaks=(ALWAYS,),
        needs=("readiness-restored",),
        sentence="messages were waiting and the assigned consumer was given none",
        example="acknowledged 4 at 12.0 s; nothing delivered from 11.9 s to 31.0 s",
        explanation=(
            "A member of the group held the partition, acknowledged messages lay in it undelivered, and "
            "none came for longer than the limit (limits.stall). Time in which a fault was applied, or "
            "in which the consumer's process did not run, is subtracted."
        ),
        unit="windows",
        splits={
            "resumed": Split("deliveries went on later"),
            "to the end": Split("nothing was delivered until the end"),
        },
    ),
    AnomalyClass(
        name="info-stored",
        rank=200,
        breaks=(INFORMATION,),
        needs=(),
        sentence="outcome unknown to the client; the log has it",
        example="sent 4: timed out; stored 3 4 5",
        explanation=(
            "A time-out or a lost connection does not say whether a message was stored. This one was: an "
            "application that sends it again makes a duplicate."
        ),
    ),
    AnomalyClass(
        name="info-not-stored",
        rank=210,
        breaks=(INFORMATION,),
        needs=("audit-complete",),
        sentence="outcome unknown to the client; the log does not have it",
        example="sent 4: timed out; stored 3 5",
        explanation="A time-out or a lost connection, and the message was not stored: it must be sent again.",
    ),
)

CLASSES: Final[Mapping[str, AnomalyClass]] = {c.name: c for c in sorted(_TABLE, key=lambda c: c.rank)}


def anomaly_class(name: str) -> AnomalyClass:
    """The class of that name.

    Raises:
        UsageError: there is none; the hint names the nearest.
    """
    if name in CLASSES:
        return CLASSES[name]
    near = difflib.get_close_matches(name, CLASSES, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise UsageError(f"no anomaly class {name!r}", hint=f"{hint}known: {', '.join(CLASSES)}")


def status_of(cls: str, split: str, promise: Promise | None, unmet: Iterable[str] = ()) -> Status:
    """What a hit of the class means under a producer's promise.

    Args:
        unmet: preconditions that do not hold; any makes a violation merely suspect.
    """
    return CLASSES[cls].status(split, promise, proved=not tuple(unmet))


def why_promise(cls: str, split: str, promise: Promise | None) -> str:
    """The promise the class breaks, or does not, and where that comes from: for people."""
    entry = CLASSES[cls]
    own = entry.splits.get(split)
    if own is not None and own.status is not None:
        return own.text
    if entry.breaks == (INFORMATION,):
        return "breaks no promise"
    if entry.breaks == (CAPTURE,):
        return "a gap in the capture: nothing is said of the broker"
    if entry.breaks == (ALWAYS,):
        return "never right, whatever the settings"
    asked = promise or Promise()
    held = [kind for kind in entry.breaks if asked.holds(kind)]
    words = [f"{kind}: {asked.reason(kind) or 'promised'}" for kind in held or entry.breaks]
    return ("breaks " if held else "not promised; ") + ", ".join(words)


def why_evidence(cls: str, unmet: Iterable[str] = ()) -> str:
    """What was checked, or what is missing, for people."""
    missing = tuple(unmet)
    if missing:
        return "not shown: " + "; ".join(PRECONDITIONS[name] for name in missing)
    needs = CLASSES[cls].needs
    return "; ".join(PRECONDITIONS[name] for name in needs) if needs else "seen directly in the capture"
