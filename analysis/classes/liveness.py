"""Classes of liveness: calls without an answer, consumers without messages."""

from __future__ import annotations

from typing import Final

from analysis.classes.entry import ALWAYS, AnomalyClass, Split
from analysis.findings import Status

LIVENESS: Final = (
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
            "never completed": Split("open when the producer ended"),
            "completed late": Split("an outcome came, but after the deadline", Status.INFO),
            "no delivery after a rollback": Split(
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
            "in which a fault was applied or the consumer's process did not run is subtracted."
        ),
        unit="windows",
    ),
)
