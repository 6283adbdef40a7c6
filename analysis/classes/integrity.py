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
        needs=("answers-kept",),
        excused_by=("damage",),
        asks=("payload-checks",),
        sentence="the payload is not what was sent: length or checksum is wrong",
        example="sent 7 (crc 9f2c), stored 7 (crc 1b00)",
        explanation=(
            "Every payload ends in a checksum over all its bytes, which the producer writes and "
            "the reader checks. The row has a header of this run and fails the check, so it was "
            "changed on its way. A consumer that was given a payload without such a header, from "
            "a place where the log has a message, was given that message damaged. The message is "
            "not counted as lost as well."
        ),
        splits={
            "in the log": SubKind("the reader of the log found it"),
            "in delivery": SubKind(
                "the log holds it intact, and the consumer received something else"
            ),
        },
    ),
    AnomalyClass(
        name="replica-divergence",
        rank=15,
        breaks=(ALWAYS,),
        needs=("readiness-restored",),
        asks=("replicas",),
        sentence="a replica listed as in sync differs from the other replicas",
        example="kafka-1: 0 1 2 3, kafka-2: 0 1 x 3",
        explanation=(
            "A replica in sync may become leader as soon as the leader is gone, and clients then "
            "read from it. If the scenario sets `audit: every-replica`, each replica is therefore "
            "read from its node, batch by batch (Pulsar: each entry from each bookie that "
            "acknowledged it; NATS: each message, from a consumer on that server). If two replicas "
            "hold different intact batches, the leader's batches count as the log. A replica that "
            "the brokers do not list as in sync, before or after it was read, may be catching up "
            "and is not compared."
        ),
        unit="stretches of positions",
        splits={
            "damaged": SubKind("its bytes do not match their own checksum"),
            "missing": SubKind("it has no data at positions that others have"),
            "not copied again": SubKind(
                "a bookie that a fault has wiped: entries come back to it by BookKeeper's "
                "autorecovery, which clusters of ours do without",
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
            "Sequence numbers have no gaps. So a hole in the journal of a producer, or a stored "
            "message of a producer whose journal is incomplete, is a gap in the captured data. It "
            "says nothing about the broker and makes the verdict unknown."
        ),
        splits={
            "stored": SubKind("the log holds it"),
            "not stored": SubKind("neither the journal nor the log knows it"),
        },
    ),
)
