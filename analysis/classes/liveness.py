"""Classes of liveness: calls without an answer, consumers without messages."""

from __future__ import annotations

from typing import Final

from analysis.classes.entry import ALWAYS, AnomalyClass, SubKind
from analysis.findings import Status

LIVENESS: Final = (
    AnomalyClass(
        name="client-died",
        rank=115,
        breaks=(ALWAYS,),
        needs=("readiness-restored",),
        asks=("self-reports",),
        sentence="the client declared itself dead though the brokers came back, or took its process down",
        example="at 23.4 s: _FATAL, broker: out of order sequence number; every send after that is refused",
        explanation=(
            "Clients are made to outlive brokers: connections are made again, sends repeated. Some errors a "
            "client calls fatal: it refuses everything from then on, and only a new one helps. Its worker "
            "writes down what it said, and goes on as an application that does not look would: messages are "
            "due and refused (*fail*), and open ones have the outcome that the client gives them. It is no "
            "violation when the cluster never worked again, nor where the client's settings ask for it. A "
            "client is fenced when another one takes its name; whether the run did that is not known, so "
            "this is only suspect. A client has crashed when its process ended by a signal, a panic, an "
            "assertion or an exception that no application can catch, and the run did not cause it; code of "
            "the worker itself, and a process that got no memory, are left out."
        ),
        unit="clients",
        splits={
            "gave up": SubKind("an error that the client calls fatal"),
            "fenced": SubKind("another client with its name took its place, it says"),
            "as configured": SubKind("its settings ask it to give up", Status.PERMITTED),
            "crashed": SubKind("it ended the process of its application"),
        },
    ),
    AnomalyClass(
        name="hang",
        rank=120,
        breaks=(ALWAYS,),
        needs=("producer-ended",),
        asks=("sends", "deadlines"),
        sentence="the client never gave an outcome, long after its own deadline",
        example="sent 4 at 12.0 s, deadline 130 s, producer closed at 170 s: no outcome",
        explanation=(
            "A client promises an answer within its own timeout. The journal shows the call made and "
            "never completed, past that deadline (with 10 s of slack) before the producer ended. Time in "
            "which the producer's process did not run is subtracted. A consumer hangs when it is given "
            "nothing after a rollback or recover, to the end and for longer than limits.stall, though "
            "messages remain in its queue."
        ),
        splits={
            "never completed": SubKind("open when the producer ended"),
            "completed late": SubKind("an outcome came, but after the deadline", Status.INFO),
            "no delivery after a rollback": SubKind(
                "a consumer was given nothing more, though messages remain"
            ),
        },
    ),
    AnomalyClass(
        name="stall",
        rank=180,
        breaks=(ALWAYS,),
        needs=("readiness-restored",),
        asks=("consumers", "silence-limit"),
        sentence="messages were waiting and the group was given none",
        example="acknowledged 4 at 12.0 s; nothing delivered from 11.9 s to 31.0 s",
        explanation=(
            "A member of the group held the partition, acknowledged messages lay in it undelivered, and "
            "none came for longer than the limit (limits.stall). Time in which a fault was applied, or "
            "in which the consumer's process did not run, is subtracted. For readers of committed data a "
            "message waits from when every transaction that began before it in the partition had ended; "
            "where the end was not recorded, from when a later message was given. A partition that a member "
            "gave back and that none was given again, though one ran, is judged alike, until the last "
            "producer was closed."
        ),
        unit="windows",
        splits={
            "resumed": SubKind("deliveries went on later"),
            "to the end": SubKind("nothing was delivered until the end"),
            "held by nobody": SubKind("it was given back, and no member was given it again"),
        },
    ),
    AnomalyClass(
        name="backlog-stuck",
        rank=185,
        breaks=(ALWAYS,),
        needs=("readiness-restored",),
        asks=("consumers", "silence-limit"),
        sentence="messages lay in the backlog to the end, and the connected consumers were given none",
        example="last delivery at 21.4 s, 312 messages waiting, consumers connected until 52.0 s",
        explanation=(
            "The subscription or queue still held messages when the consumers stopped, and for longer than "
            "the limit (limits.stall) before that it gave out nothing, though consumers were connected. Time "
            "in which a fault was applied or the consumer's process did not run is subtracted. In a "
            "log, only messages that were never given count; refused ones are refused-not-redelivered."
        ),
        unit="windows",
    ),
)
