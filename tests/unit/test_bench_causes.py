"""The bench that holds causes against the brokers' logs tells overlapping leader epochs apart by
time."""

from __future__ import annotations

import pytest

from analysis.findings import Cause
from bench.causes import Line, agrees

#: kafka-2 froze, was deposed by kafka-3 at 7 s, acknowledged 120 to 179 when it thawed at 10 s, and
#: led again from 14 s on, from a lower offset on than it had come to itself.
LOGS = [
    Line("kafka-2", -5.0, "Leader", "orders-0", 0, 0),
    Line("kafka-3", 7.0, "Leader", "orders-0", 100, 1),
    Line("kafka-2", 10.05, "Follower", "orders-0", 180, 1),
    Line("kafka-2", 10.06, "Truncates", "orders-0", 100),
    Line("kafka-2", 14.2, "Leader", "orders-0", 120, 2),
    Line("kafka-3", 14.2, "Follower", "orders-0", 121, 2),
    Line("kafka-3", 14.3, "Truncates", "orders-0", 120),
    Line("kafka-2", 20.0, "Follower", "orders-0", 400, 3),
    Line("kafka-3", 30.0, "Follower", "orders-0", 500, 4),
]


def blamed(
    leader: str, term: int, following: str, first: int, *, at_s: float, to: int = 179
) -> Cause:
    return Cause(
        sentence="", named=True, count=60, episodes=1, stream="orders-0", places=f"120 to {to}",
        leader=leader, term=term, next_leader=following, next_term=term + 1, next_first=str(first),
        acked_s=(at_s, at_s + 0.01),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("cause", "wrong"),
    [
        (blamed("kafka-2", 0, "kafka-3", 100, at_s=10.04), []),
        (blamed("kafka-3", 1, "kafka-2", 120, at_s=10.04), ["had reached it", "nobody else"]),
        (blamed("kafka-3", 1, "kafka-2", 120, at_s=14.1, to=120), []),
        (blamed("kafka-3", 1, "kafka-2", 120, at_s=15.0, to=120), ["in time"]),
        (blamed("kafka-3", 1, "kafka-2", 120, at_s=6.0, to=120), ["in time", "nobody else"]),
    ],
    ids=[
        "the one that thawed",
        "the one after it",
        "just before the move",
        "long after it",
        "before it led",
    ],
)
def test_each_statement_is_held_against_the_acknowledgement(cause: Cause, wrong: list[str]) -> None:
    assert [check for check, held in agrees(cause, LOGS).items() if not held] == wrong
