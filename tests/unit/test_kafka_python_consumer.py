"""The consumer of the kafka-python worker, up to where it needs a broker."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

WORKERS = Path(__file__).resolve().parents[2] / "harness/workers"


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The worker's module `consumer`, found as its own process finds it."""
    before = set(sys.modules)
    for folder in ("python_kit", "kafka_python"):
        monkeypatch.syspath_prepend(WORKERS / folder)
    yield importlib.import_module("consumer")
    for name in set(sys.modules) - before:
        del sys.modules[name]


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


def test_a_member_knows_its_topics_before_it_joins(worker: ModuleType, tmp_path: Path) -> None:
    # kafka-python 3.0: a leader that learns of them after its first join may lose the answer of its second
    client = Client()
    part = {"group": "billing", "topics": ["orders", "refunds"], "session": 1, "commit_every_s": 1.0}
    spec = SimpleNamespace(part=part, run_tag=1, folder=tmp_path, streams={}, bootstrap="127.0.0.1:1")
    names = SimpleNamespace(id=lambda kind, text: 1)
    control = SimpleNamespace(stopped=False)
    session: Any = SimpleNamespace(spec=spec, names=names, report=SimpleNamespace(), control=control)
    role = worker.ConsumerRole(session, {"enable_auto_commit": False}, lambda kind, settings: client)
    with pytest.raises(Joining):
        role.run()
    assert client.asked == ["subscribe ['orders', 'refunds']", "topics"]
