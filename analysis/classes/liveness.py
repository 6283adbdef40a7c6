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
        needs=("readiness-restored", "answers-kept"),
        excused_by=("give-up", "renumber", "reposition", "damage"),
        asks=("self-reports",),
        sentence="the client declared itself dead although the brokers came back, or its process crashed",
        example="at 23.4 s: _FATAL, broker: out of order sequence number; every send after that is refused",
        explanation=(
            "Clients are designed to outlive brokers: they reconnect and repeat sends. Some errors "
            "are fatal for a client: it refuses every call from then on, and only a new client "
            "helps. The worker records the error and continues as an application would that does "
            "not check: messages are due and refused (*fail*), and open messages have the outcome "
            "that the client gives them. It is not a violation if the cluster did not work again, "
            "or if the settings of the client ask for it. A client is fenced when another client "
            "takes its name. Whether the run did that is not known, so this is only suspect. So is "
            "a client that gave up in a run whose faults made up errors of brokers. A "
            "client has crashed when its process ended by a signal, a panic, an assertion or an "
            "exception that no application can catch, and the run did not cause it. Errors in the "
            "code of the worker itself, and a process that could not get memory, are not counted. "
            "An instance of an application under test has died when it ended by itself and the "
            "scenario does not restart it."
        ),
        unit="clients",
        splits={
            "gave up": SubKind("an error that the client calls fatal"),
            "fenced": SubKind("another client with its name took its place, it says"),
            "as configured": SubKind("its settings ask it to give up", Status.PERMITTED),
            "crashed": SubKind("it ended the process of its application"),
            "ended": SubKind(
                "an instance of the application under test ended, and nothing restarts it"
            ),
        },
    ),
    AnomalyClass(
        name="hang",
        rank=120,
        breaks=(ALWAYS,),
        needs=("producer-ended", "answers-kept"),
        excused_by=("wait",),
        asks=("sends", "deadlines"),
        sentence="the client never gave an outcome, long after its own deadline",
        example="sent 4 at 12.0 s, deadline 130 s, producer closed at 170 s: no outcome",
        explanation=(
            "A client promises an answer within its own timeout. The journal shows that the call "
            "was made and never completed, past that deadline (with 10 s of slack) before the "
            "producer ended. Time in which the process of the producer did not run is subtracted. "
            "Some clients limit each attempt, or nothing, and a call may wait for earlier ones. "
            "Its time then begins with the last answer to an earlier call. "
            "A consumer hangs if it receives nothing after a rollback or recover, until the end "
            "and for longer than limits.stall, although messages remain in its queue. A hang is "
            "only suspect if a fault dropped an answer of AMQP meanwhile and left the connection "
            "open: this protocol has no time limit for an answer."
        ),
        splits={
            "never completed": SubKind("open when the producer ended"),
            "completed late": SubKind("an outcome came, but after the deadline", Status.INFO),
            "no delivery after a rollback": SubKind(
                "a consumer received nothing more, although messages remain"
            ),
        },
    ),
    AnomalyClass(
        name="stall",
        rank=180,
        breaks=(ALWAYS,),
        needs=("readiness-restored", "answers-kept"),
        excused_by=("rejoin",),
        asks=("readers", "silence-limit"),
        sentence="messages were waiting, and the group received none",
        example="acknowledged 4 at 12.0 s; nothing delivered from 11.9 s to 31.0 s",
        explanation=(
            "A member of the group held the partition, acknowledged messages in it were not "
            "delivered, and none was delivered for longer than the limit (limits.stall). Time in "
            "which a fault was active, or in which the process of the consumer did not run, is "
            "subtracted. For readers of committed data, a message waits from the time when every "
            "transaction that began before it in the partition had ended. If that end was not "
            "recorded, it waits from the time when a later message was delivered. A partition that "
            "one member gave back and that no other member received, although one ran, is judged "
            "in the same way, until the last producer was closed. An application under test stalls "
            "if its group commits nothing for longer than the limit after the load, although it "
            "has input left and an instance runs. A stall is only suspect in a run whose faults "
            "told a member that its group does not know it: brokers may wait for that member until "
            "its session ends."
        ),
        unit="windows",
        splits={
            "resumed": SubKind("deliveries resumed later"),
            "to the end": SubKind("nothing was delivered until the end"),
            "held by nobody": SubKind("it was given back, and no member received it again"),
            "application": SubKind("an application under test ran and committed nothing more"),
        },
    ),
    AnomalyClass(
        name="backlog-stuck",
        rank=185,
        breaks=(ALWAYS,),
        needs=("readiness-restored",),
        asks=("consumers", "silence-limit", "emptied-queues"),
        sentence="messages stayed in the backlog to the end, and the connected consumers received none",
        example="last delivery at 21.4 s, 312 messages waiting, consumers connected until 52.0 s",
        explanation=(
            "The subscription or queue still held messages when the consumers stopped. For longer "
            "than the limit (limits.stall) before that, it delivered nothing although consumers "
            "were connected. Time in which a fault was active or the process of the consumer did "
            "not run is subtracted. In a log, only messages that were never delivered count; "
            "refused messages are refused-not-redelivered. A queue is not judged if one of its "
            "consumers settles nothing (settle: none), because its messages remain."
        ),
        unit="windows",
    ),
)
