"""Rows of the table of classes: a name, the promise it breaks, the evidence it needs, its texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from analysis.capture.context import Promise
from analysis.findings import Status

#: Breaks no promise: informational.
INFORMATION: Final = "none"
#: Never right, whatever the settings say.
ALWAYS: Final = "always"
#: A gap in what we recorded, so nothing can be said of the broker.
CAPTURE: Final = "capture"
#: Nobody broke a promise: the application did not look.
APPLICATION: Final = "application"

#: What must hold before a hit counts as proved. Unmet, the class is only *suspect*: unknown, never
#: fail.
PRECONDITIONS: Final[Mapping[str, str]] = {
    "audit-complete": "the audit read the stream to its end bound, or past the acknowledged position",
    "log-kept": "the log still begins where it began: nothing fell to retention",
    "topic-kept": "its topic was not recreated between its send and its acknowledgement",
    "producer-ended": "the producer was closed or dead before the end bound was fixed",
    "readiness-restored": "after the faults every partition was led, in sync and took a probe",
    "send-capture": "the producer's record of sends is complete",
    "delivery-capture": "every member of the group left a complete journal",
    "drained": "the group was given time to read to the end of every partition, and got there",
    "start-known": "the group is known to have started before the message's position",
    "acks-kept": "every fault after the acknowledgement is known to have left it in place",
    "topic-ours": "no other program writes to the topic",
    "own-name": "no other client was given its name (group.instance.id, transactional.id, producer name)",
    "markers-read": "the markers that end transactions were read to the end of the stream",
    "offsets-read": "the position that the group had committed in the end is known",
    "clocks-kept": "no fault set a clock that says when an output was stored",
    "outputs-named": "every output of the application names an input",
    "attempts-known": "it is known how often its broker had sent it, and that this was within the limit",
    "settings-known": (
        "what the client's settings promise is stated (worker.toml, import.yaml), "
        "and no setting lets its broker drop messages"
    ),
    "connection-kept": (
        "it was acknowledged, so its connection was kept: brokers order messages of one connection"
    ),
    "answers-kept": "no lie that a fault made up, of a broker or a disk, excuses it",
}

#: What a run must have for a class to be about it; and why it is not, without.
ASKS: Final[Mapping[str, str]] = {
    "sends": "nothing was sent",
    "consumers": "no consumer read",
    "readers": "no consumer or application read",
    "log": "queues keep no log",
    "queues": "there was no queue",
    "fixed-lanes": "the client chose every partition",
    "deadlines": "no deadline of a send is known",
    "silence-limit": "no limit is set for the time without a delivery",
    "emptied-queues": "a consumer of each queue settles nothing, so all messages remain",
    "payload-checks": "no payload was checked",
    "ack-positions": "no acknowledgement names a position",
    "settlements": "nothing was acknowledged or committed",
    "client-sequence": "the log holds no sequence ids of the client",
    "ignored-results": "every producer checked the results of its sends",
    "resent": "no application sent a message again",
    "transactions": "nothing was sent in a transaction",
    "transaction-journal": "no producer kept a journal of its transactions",
    "shared-markers": "a marker names the one transaction that it ends",
    "transactional-ids": "transactions have no id that a later restart takes over",
    "applications": "no application was under test",
    "counted-outputs": (
        "no pipeline, and no application that makes a known number of outputs of each input"
    ),
    "required-outputs": "no pipeline, and no application that makes an output of each input",
    "ordered-outputs": "no pipeline, and no application that promises an order of its outputs",
    "rollbacks": "no consumer rolled back",
    "refusals": "no consumer refused a message",
    "replicas": "only leaders were read: `audit: every-replica` reads every copy",
    "self-reports": "no worker says when its client gives itself up",
    "watched-commits": "no worker sees whether its client sends the commits that it confirms",
}


@dataclass(frozen=True, slots=True)
class SubKind:
    """A sub-kind of a class. ``status`` overrides what the promise would say; ``breaks`` is the
    promise that it breaks, instead of its class's."""

    text: str
    status: Status | None = None
    breaks: tuple[str, ...] = ()


#: Splits of what is absent because a fault took it away (`analysis.kernels.removal`).
TAKEN: Final[Mapping[str, SubKind]] = {
    "removed": SubKind("a fault removed this data on purpose: not a loss", status=Status.PERMITTED),
    "power": SubKind(
        "every replica in sync lost power before it was synced: only settings that sync each batch "
        "promise otherwise",
        breaks=("synced",),
    ),
}


@dataclass(frozen=True, slots=True)
class AnomalyClass:
    """One row of the table.

    Attributes:
        breaks: any of delivery, order, dedup, redelivery-order, input-once, input-order (one that
            holds makes it a violation), or a single `ALWAYS`, `CAPTURE`, `APPLICATION` or
            `INFORMATION`.
        needs: names in `PRECONDITIONS`.
        asks: names in `ASKS`.
        unit: what ``count`` counts.
        sentence: one line for people; what happened, not what to think of it.
        example: a sequence that shows it.
        excused_by: what a client may do that believes a false error
            (`harness.contracts.rows.FaultDetails.permits`), where that explains such a hit.
        rests_on: settings of the consumer that it rests on, by their name in its promise (order,
            ack ...).
        split_by: what the sub-kinds are where the capture and not the table names them.
    """

    name: str
    rank: int
    breaks: tuple[str, ...]
    needs: tuple[str, ...]
    sentence: str
    example: str
    explanation: str
    unit: str = "messages"
    asks: tuple[str, ...] = ()
    splits: Mapping[str, SubKind] = field(default_factory=dict)
    excused_by: tuple[str, ...] = ()
    rests_on: tuple[str, ...] = ()
    split_by: str = ""

    def status(self, split: str, promise: Promise | None, *, proved: bool = True) -> Status:
        """Return the status of a hit. ``promise`` is the producer's; None where no producer's
        promise counts.
        """
        own = self.splits.get(split)
        if own is not None and own.status is not None:
            return own.status if proved or own.status is not Status.VIOLATION else Status.SUSPECT
        breaks = self.broken_by(split)
        if breaks == (INFORMATION,):
            return Status.INFO
        if breaks == (APPLICATION,):
            return Status.APPLICATION_ERROR
        if breaks == (CAPTURE,):
            return Status.SUSPECT
        if breaks == (ALWAYS,):
            return Status.VIOLATION if proved else Status.SUSPECT
        held = self.held(promise, split)
        if held is False:
            return Status.PERMITTED
        return Status.VIOLATION if proved and held else Status.SUSPECT

    def asks_promise(self, split: str) -> bool:
        """Whether the status of such a hit follows from a promise."""
        own = self.splits.get(split)
        fixed = {INFORMATION, APPLICATION, CAPTURE, ALWAYS}
        return (own is None or own.status is None) and not fixed.intersection(self.broken_by(split))

    def broken_by(self, split: str) -> tuple[str, ...]:
        """The promises that such a hit breaks."""
        own = self.splits.get(split)
        return (own.breaks if own else ()) or self.breaks

    def held(self, promise: Promise | None, split: str = "") -> bool | None:
        """Whether one of the promises that it breaks was made; None = not known."""
        answers = [(promise or Promise()).holds(kind) for kind in self.broken_by(split)]
        return True if True in answers else None if None in answers else False
