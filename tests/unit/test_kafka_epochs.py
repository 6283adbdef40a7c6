"""Kafka's leader epochs: read from a metadata log, and walked back through the leader of now."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from kafka.record.default_records import DefaultRecordBatchBuilder

from harness.contracts.rows import Leadership
from harness.protocols.cluster import Endpoint, Node
from harness.systems.kafka.epochs import leaderships
from harness.systems.kafka.metadata_log import Epoch, LeaderHistory

TOPIC_ID = bytes(range(16))
NODES = [
    Node(
        f"kafka-{n}",
        n,
        *(Endpoint("127.0.250.1", port) for port in (1, 2, 3)),
        folder=Path("/nowhere"),
    )
    for n in (1, 2, 3)
]
Change = tuple[int, bytes]  # ms, record


def frame(kind: int, body: bytes) -> bytes:
    return bytes([1, kind, 0]) + body + b"\0" * (kind != 5)  # a change writes its tags itself


def numbers(*values: int) -> bytes:
    return bytes([len(values) + 1]) + b"".join(
        value.to_bytes(4, "big", signed=True) for value in values
    )


def int32(value: int) -> bytes:
    return value.to_bytes(4, "big", signed=True)


def topic(name: str) -> bytes:
    return frame(2, bytes([len(name) + 1]) + name.encode() + TOPIC_ID)


def created(leader: int, isr: tuple[int, ...]) -> bytes:
    arrays = numbers(1, 2, 3) + numbers(*isr) + numbers() + numbers()
    return frame(3, int32(0) + TOPIC_ID + arrays + int32(leader) + int32(0) + int32(0))


def changed(
    leader: int | None = None, isr: tuple[int, ...] | None = None, *, unclean: bool = False
) -> bytes:
    tags = {}
    if isr is not None:
        tags[0] = numbers(*isr)
    if leader is not None:
        tags[1] = int32(leader)
    if unclean:
        tags[5] = b"\1"
    told = b"".join(bytes([tag, len(value)]) + value for tag, value in tags.items())
    return frame(5, int32(0) + TOPIC_ID + bytes([len(tags)]) + told)


def registered(node: int) -> bytes:
    return frame(27, int32(node) + bytes(24))


def log_of(*changes: Change, base: int = 0) -> bytes:
    found = b""
    for number, (t_ms, value) in enumerate(changes):
        batch = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 10_000)
        batch.append(0, timestamp=t_ms, key=None, value=value, headers=[])
        data = bytearray(batch.build())
        data[:8] = (base + number).to_bytes(8, "big")
        found += bytes(data)
    return found


STORY = log_of(
    (100, topic("orders")),
    (101, created(1, (1, 2, 3))),
    (900, changed(leader=2, isr=(2, 3))),  # kafka-1 was fenced
    (1_300, changed(isr=(2, 3, 1))),  # and follows again
    (2_000, changed(leader=3)),
    (3_000, changed(leader=-1, isr=())),
    (4_000, changed(leader=1, isr=(1,), unclean=True)),
    (5_000, registered(3)),
)


def test_every_change_of_the_leader_is_an_epoch_with_its_time() -> None:
    assert list(LeaderHistory(STORY).epochs("orders", 0)) == [
        Epoch(0, 1, 101, over_ms=1_300),
        Epoch(1, 2, 900),
        Epoch(2, 3, 2_000, over_ms=5_000),
        Epoch(3, -1, 3_000),
        Epoch(4, 1, 4_000, unclean=True),
    ]


def test_of_topics_with_one_name_the_latest_counts() -> None:
    log = STORY + log_of((9_000, topic("orders")), (9_001, created(2, (2,))), base=8)
    assert [epoch.since_ms for epoch in LeaderHistory(log).epochs("orders", 0)] == [9_001]
    assert LeaderHistory(STORY).epochs("payments", 0) == ()


@pytest.mark.parametrize(
    "log",
    [
        log_of((1, topic("orders")), base=7),
        log_of((1, changed(leader=1))),
        log_of((1, frame(3, b"\0"))),
    ],
    ids=["begins in the middle", "a change of nothing known", "a record cut short"],
)
def test_a_log_that_is_not_whole_tells_nothing(log: bytes) -> None:
    with pytest.raises(ValueError, match=r"begins|created|ends"):
        LeaderHistory(log)


class Leader:
    """Answers what Kafka's LeaderEpochFileCache answers for entries {0: 0, 2: 40, 4: 90}."""

    entries: Mapping[int, int] = {0: 0, 2: 40, 4: 90}

    def epoch_ends(
        self, asked: Mapping[tuple[str, int], int]
    ) -> dict[tuple[str, int], tuple[int, int]]:
        return {one: self._end(epoch) for one, epoch in asked.items()}

    def _end(self, epoch: int) -> tuple[int, int]:
        if epoch < 0:
            return -1, -1
        at = max(known for known in self.entries if known <= epoch)
        return at, min((start for known, start in self.entries.items() if known > at), default=95)


def asked_of(broker: Any) -> Any:
    def ask(question: Callable[[Any], Any], *, only: str = "") -> Any:
        return question(broker)

    return ask


def told(log: bytes | None, now: dict[tuple[str, int], tuple[str | None, int]]) -> list[Leadership]:
    return leaderships(asked_of(Leader()), lambda node, path: log, NODES, lambda: now, within_s=0)


def test_where_each_epoch_begins_is_told_by_the_leader_of_now() -> None:
    now = {("orders", 0): ("kafka-1", 4)}
    found = told(STORY, now)
    assert [(one.term, one.leader, one.first) for one in found] == [
        (0, "kafka-1", 0),
        (1, "kafka-2", None),
        (2, "kafka-3", 40),
        (3, None, None),
        (4, "kafka-1", 90),
    ]
    assert found[1].t_ns - found[0].t_ns == 799 * 10**6
    assert abs(found[0].t_ns - (101 * 10**6 - time.time_ns() + time.monotonic_ns())) < 10**9


@pytest.mark.parametrize("log", [None, b"\0" * 90, log_of((1, topic("payments")))])
def test_without_a_metadata_log_there_are_epochs_and_no_leaders(log: bytes | None) -> None:
    found = told(log, {("orders", 0): ("kafka-1", 4)})
    assert [(one.term, one.leader, one.t_ns, one.first) for one in found] == [
        (0, "", 0, 0),
        (2, "", 0, 40),
        (4, "", 0, 90),
    ]


@pytest.mark.parametrize(
    "now",
    [(None, 4), ("kafka-1", 3), ("kafka-1", 5)],
    ids=["no leader", "a broker that has not heard of it yet", "a log that is behind"],
)
def test_while_the_sources_disagree_no_epoch_begins_anywhere(now: tuple[str | None, int]) -> None:
    assert {one.first for one in told(STORY, {("orders", 0): now})} == {None}


def test_it_is_asked_again_until_the_sources_agree() -> None:
    answers = iter([("kafka-3", 2), ("kafka-1", 4)])
    found = leaderships(
        asked_of(Leader()), lambda node, path: STORY, NODES, lambda: {("orders", 0): next(answers)}
    )
    assert found[-1].first == 90
