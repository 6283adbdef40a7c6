"""A confluent-kafka consumer that pauses while its group rebalances."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import TopicPartition

PART = {"session": 1, "group": "g", "topics": ["orders"], "commit_every_s": 1.0}


class Group:
    """As much of a client as a pause needs: its partitions, and which of them are paused."""

    def __init__(self) -> None:
        self.own = [TopicPartition("orders", 0)]
        self.paused: set[int] = set()

    def assignment(self) -> list[TopicPartition]:
        return self.own

    def pause(self, partitions: list[TopicPartition]) -> None:
        self.paused |= {each.partition for each in partitions}

    def resume(self, partitions: list[TopicPartition]) -> None:
        self.paused -= {each.partition for each in partitions}

    def committed(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        return []


@pytest.fixture
def role(worker_module: Callable[[str, str], ModuleType], tmp_path: Path) -> Any:
    worker = worker_module("confluent_kafka", "consumer")
    streams = {"orders-0": 1, "orders-1": 2}
    topics = {"orders": SimpleNamespace(address="orders", partitions=2)}
    spec = SimpleNamespace(
        part=PART, run_tag=1, folder=tmp_path, streams=streams, topics=topics, bootstrap="b:1"
    )
    session = SimpleNamespace(
        spec=spec,
        names=SimpleNamespace(id=lambda kind, text: 1),
        report=SimpleNamespace(event=lambda *args, **more: None),
        control=SimpleNamespace(stop_load=False, t0_ns=0),
    )
    return worker.ConsumerRole(session, lambda on_commit: Group(), commits_itself=False)


def test_partitions_that_come_during_a_pause_are_paused_and_all_are_resumed(role: Any) -> None:
    group, wanted = role.consumer, {"paused": True}
    role.interruptions.is_paused = lambda: wanted["paused"]
    role._interrupt()
    group.own.append(TopicPartition("orders", 1))
    role._assigned(group, group.own[1:])
    role._interrupt()
    assert group.paused == {0, 1}
    role._assigned(group, group.own[1:])
    wanted["paused"] = False  # the pause ends before the application looks again
    role._interrupt()
    assert group.paused == set()
