"""Classes of damaged payloads and of gaps in the capture itself."""

from __future__ import annotations

from typing import Final

from analysis.classes.entry import ALWAYS, CAPTURE, AnomalyClass, SubKind
from analysis.findings import Status

INTEGRITY: Final = (
    AnomalyClass(
        name="corrupt",
        rank=10,
        breaks=(ALWAYS,),
        needs=(),
        asks=("payload-checks",),
        sentence="the payload is not what was sent: length or checksum is wrong",
        example="sent 7 (crc 9f2c), stored 7 (crc 1b00)",
        explanation=(
            "Every payload ends in a checksum over all its bytes, written by the producer and checked by "
            "the reader. A row with a header of this run that fails the check was changed on its way. The "
            "message is then not counted as lost as well."
        ),
        splits={
            "in the log": SubKind("the reader of the log found it"),
            "in delivery": SubKind("the log holds it intact, the consumer was given something else"),
        },
    ),
    AnomalyClass(
        name="replica-divergence",
        rank=15,
        breaks=(ALWAYS,),
        needs=("readiness-restored",),
        asks=("replicas",),
        sentence="a replica that is called in sync does not have what the others have",
        example="kafka-1: 0 1 2 3, kafka-2: 0 1 x 3",
        explanation=(
            "A replica in sync may lead the moment its leader is gone, and is read from then on. So each is "
            "read from the node that has it, batch by batch, when the scenario says `audit: every-replica` "
            "(Pulsar: each entry from each bookie that acknowledged it; NATS: each message, from a consumer "
            "on that server). Of two that hold different intact batches the leader's are the log. A replica "
            "that the brokers do not call in sync, before or after it was read, may be catching up and is "
            "not compared."
        ),
        unit="stretches of positions",
        splits={
            "damaged": SubKind("its bytes do not match their own checksum"),
            "missing": SubKind("it has nothing at positions that others have"),
            "not copied again": SubKind(
                "a bookie that a fault has wiped: entries come back to it by BookKeeper's autorecovery, "
                "which clusters of ours do without",
                Status.PERMITTED,
            ),
            "other": SubKind("intact batches of other messages than the leader has"),
            "unreadable": SubKind("its broker answers that it cannot be read"),
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
            "producer whose journal is incomplete, is a gap in the capture. It says nothing about the "
            "broker and makes the verdict unknown."
        ),
        splits={
            "stored": SubKind("the log holds it"),
            "not stored": SubKind("neither the journal nor the log knows it"),
        },
    ),
)
