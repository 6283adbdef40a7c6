"""Copies of a stream are told apart by what the consumer on each server gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import cycle
from typing import Any

import pytest

from analysis.kernels.replicas import stretches
from harness.admin.failover import NoAnswer
from harness.protocols.cluster import PartitionState
from harness.systems.nats import replicas
from harness.systems.nats.replicas import StreamReading

NODES = ("nats-1", "nats-2", "nats-3")
STATE = PartitionState("nats-1", NODES, NODES)
LOG = {sequence: b"message %d" % sequence for sequence in range(1, 7)}


class Servers:
    """Three servers with their copies; consumers are placed on one after the other of
    ``placed``."""

    def __init__(
        self, copies: Mapping[str, Mapping[int, bytes]], placed: tuple[str, ...], stuck: str
    ) -> None:
        self._copies, self._placed, self._stuck = copies, cycle(placed), stuck
        self._at: dict[str, int] = {}

    def ask(self, what: str, body: Any = None) -> dict[str, Any]:
        if what.startswith("STREAM.INFO"):
            return {"state": {"first_seq": 1, "last_seq": 6}}
        node = next(self._placed) if what.startswith("CONSUMER.CREATE") else ""
        return {"name": f"on-{node}", "cluster": {"leader": node}}

    @contextmanager
    def link(self, node: str) -> Iterator[Link]:
        yield Link(self._copies[node], gives_up=node == self._stuck)


class Link:
    def __init__(self, copy: Mapping[int, bytes], *, gives_up: bool) -> None:
        self._copy, self._gives_up, self._next = copy, gives_up, 1

    def pull(
        self, subject: str, count: int, *, within_s: float
    ) -> Iterator[tuple[str, bytes, bytes]]:
        for sequence in sorted(s for s in self._copy if s >= self._next):
            if self._gives_up and sequence > 3:
                raise NoAnswer("does not answer in time")
            self._next = sequence + 1
            yield f"$JS.ACK.orders-0.c.1.{sequence}.{sequence}.0.0", b"", self._copy[sequence]

    def ask(self, subject: str) -> dict[str, Any]:
        return {"num_pending": len([s for s in self._copy if s >= self._next])}


def found(
    other: Mapping[int, bytes], placed: tuple[str, ...] = NODES, stuck: str = ""
) -> tuple[Any, Any]:
    """What is wrong with the copy of nats-2, and what was not read."""
    servers = Servers({"nats-1": LOG, "nats-2": other, "nats-3": LOG}, placed, stuck)
    reading = StreamReading(servers, "orders-0", {node: node for node in NODES})  # type: ignore[arg-type]
    reading.read(float("inf"))
    rows = list(reading.rows("orders-0", STATE, STATE))
    wrong = [(one.replica.node, one.first, one.last, one.split) for one in stretches(rows)]
    return wrong, [(row.node, row.read_to, row.why) for row in rows if not row.is_read]


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "_STUCK_S", 0.0)


@pytest.mark.parametrize(
    ("other", "wrong"),
    [
        (LOG, []),
        ({s: LOG[s] for s in (1, 2, 5, 6)}, [("nats-2", 3, 4, "missing")]),
        ({s: LOG[s] for s in (1, 2, 3)}, [("nats-2", 4, 6, "missing")]),
        (LOG | {2: b"another"}, [("nats-2", 2, 2, "other")]),
    ],
    ids=["alike", "a hole", "no end", "other"],
)
def test_a_copy_beside_two_others(other: Mapping[int, bytes], wrong: list[Any]) -> None:
    assert found(other) == (wrong, [])


def test_a_copy_that_was_not_read_is_named() -> None:
    assert found(LOG, placed=("nats-1", "nats-3")) == (
        [],
        [("nats-2", 1, "no consumer was given to it")],
    )
    assert found(LOG, stuck="nats-2") == ([], [("nats-2", 4, "does not answer in time")])
