"""The consumer of the kafka-python worker, up to where it needs a broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


class Joining(Exception):
    """The role polls: the client joins the group."""


class Client:
    """Remembers in which order it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def subscribe(self, topics: list[str], listener: object) -> None:
        self.asked.append(f"subscribe {topics}")

    def topics(self) -> set[str]:
        self.asked.append("topics")
        return {"orders", "refunds"}

    def poll(self, timeout_ms: int) -> None:
        raise Joining


def test_a_member_knows_its_topics_before_it_joins(
    worker_module: Callable[[str, str], ModuleType], tmp_path: Path
) -> None:
    # kafka-python 3.0: a leader that learns of them after its first join may lose the answer of its
    # second
    client = Client()
    part = {
        "group": "billing",
        "topics": ["orders", "refunds"],
        "session": 1,
        "commit_every_s": 1.0,
    }
    spec = SimpleNamespace(
        part=part, run_tag=1, folder=tmp_path, streams={}, bootstrap="127.0.0.1:1"
    )
    names = SimpleNamespace(id=lambda kind, text: 1)
    control = SimpleNamespace(stopped=False)
    session: Any = SimpleNamespace(
        spec=spec, names=names, report=SimpleNamespace(), control=control
    )
    worker = worker_module("kafka_python", "consumer")
    role = worker.ConsumerRole(
        session, {"enable_auto_commit": False}, lambda kind, settings: client
    )
    with pytest.raises(Joining):
        role.run()
    assert client.asked == ["subscribe ['orders', 'refunds']", "topics"]
