"""Replicas are told apart by the bytes that their brokers give: damaged, missing, refused, or not
known."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from kafka.record.default_records import DefaultRecordBatchBuilder

from analysis.kernels.replicas import stretches
from harness.errors import EnvironmentNotReady
from harness.protocols.cluster import PartitionState
from harness.systems.kafka.replicas import ReplicaReading

NODES = ("kafka-1", "kafka-2", "kafka-3")
STATES = {"orders-0": PartitionState("kafka-1", NODES, NODES)}
CORRUPT_MESSAGE = 2


def batch(first: int, text: bytes) -> bytes:
    """Two messages."""
    made = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 16)
    for offset in range(2):
        made.append(offset, 0, None, text, [])
    data = made.build()
    return first.to_bytes(8, "big") + bytes(data[8:])


LOG = {first: batch(first, b"message %d" % first) for first in (0, 2, 4)}


@dataclass
class Row:
    """The row of a partition in a FetchResponse."""

    records: bytes = b""
    error_code: int = 0
    high_watermark: int = 6
    log_start_offset: int = 0


@dataclass
class Broker:
    log: Mapping[int, bytes]
    errors_at: Collection[int] = ()
    errors: int = 100
    answers: int = 100
    batches: int = 2
    asked: list[int] = field(default_factory=list)

    def fetch(
        self, asked: Mapping[tuple[str, int], int], *, committed_only: bool
    ) -> dict[Any, Row]:
        ((partition, offset),) = asked.items()
        self.asked.append(offset)
        if len(self.asked) > self.answers:
            raise EnvironmentNotReady("no answer")
        if offset in self.errors_at and self.asked.count(offset) <= self.errors:
            return {partition: Row(error_code=CORRUPT_MESSAGE)}
        there = [data for first, data in self.log.items() if first + 1 >= offset]
        return {partition: Row(b"".join(there[: self.batches]))}


def found(*brokers: Broker) -> tuple[list[tuple[str, int, int, str]], list[int]]:
    """What is wrong where, and how far each was read."""
    by_name = dict(zip(NODES, brokers, strict=True))

    def ask(question: Callable[[Broker], Any], *, only: str) -> Any:
        return question(by_name[only])

    reading = ReplicaReading(ask, STATES, {"orders-0": (0, 6)})  # type: ignore[arg-type]
    reading.read(within_s=0.3)
    rows = reading.rows(STATES)
    wrong = [(one.replica.node, one.first, one.last, one.split) for one in stretches(rows)]
    return wrong, [row.read_to for row in rows]


def damaged(first: int) -> dict[int, bytes]:
    data = bytearray(LOG[first])
    data[-3] ^= 1
    return LOG | {first: bytes(data)}


@pytest.mark.parametrize(
    ("other", "wrong"),
    [
        (Broker(LOG), []),
        (Broker(damaged(2)), [("kafka-2", 2, 3, "damaged")]),
        (Broker({first: LOG[first] for first in (0, 4)}), [("kafka-2", 2, 3, "missing")]),
        (Broker(LOG | {2: batch(2, b"another")}), [("kafka-2", 2, 3, "other")]),
        (Broker(LOG, errors_at=[4]), [("kafka-2", 4, 5, "unreadable")]),
        (Broker(LOG, errors_at=[4], errors=1), []),
        (Broker(damaged(2), errors_at=[2]), [("kafka-2", 2, 3, "damaged")]),
        (
            Broker(damaged(2) | {4: damaged(4)[4]}, errors_at=range(2, 6), batches=3),
            [("kafka-2", 2, 5, "damaged")],
        ),
    ],
    ids=[
        "alike",
        "damaged",
        "missing",
        "other",
        "unreadable",
        "an error that passes",
        "a damaged header",
        "two damaged headers",
    ],
)
def test_a_replica_beside_two_others(other: Broker, wrong: list[Any]) -> None:
    assert found(Broker(LOG), other, Broker(LOG))[0] == wrong


def test_what_nobody_answers_for_again_is_not_known() -> None:
    other = Broker(damaged(2), answers=2)  # it was read, and is gone when its odd span is looked at
    assert found(Broker(LOG), other, Broker(LOG)) == ([], [6, 2, 6])
