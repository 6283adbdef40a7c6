"""The rows of a seek by pulsar-client: one before the call, and one more if a failed call took
effect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

Load = Callable[[str, str], ModuleType]


@dataclass(frozen=True)
class Id:
    """A message id of a topic without batches."""

    entry: int

    def ledger_id(self) -> int:
        return 1

    def entry_id(self) -> int:
        return self.entry

    def batch_index(self) -> int:
        return -1


def handed(entry: int) -> Any:
    return SimpleNamespace(message_id=lambda: Id(entry), topic_name=lambda: "orders")


@pytest.mark.parametrize("fails", [False, True])
def test_a_seek_is_written_before_the_call_and_again_if_it_failed_and_messages_go_back(
    worker_module: Load, fails: bool
) -> None:
    pulsar = pytest.importorskip("pulsar")
    consumer = worker_module("pulsar_client", "consumer")
    journal: list[tuple[str, Any]] = []
    report = SimpleNamespace(
        event=lambda kind, text: journal.append((kind, text)),
        error=lambda name, text: journal.append(("error", name)),
    )
    control = SimpleNamespace(t0_ns=1, stop_load=False)
    spec = SimpleNamespace(part={"seeks": {"every_s": 0.001, "back": 3}})
    session = SimpleNamespace(spec=spec, report=report, control=control)
    rows = SimpleNamespace(sought=lambda topic, target: journal.append(("row", target.entry)))
    replay = consumer.Replay(session, rows)

    def seek(target: Id) -> None:
        journal.append(("call", target.entry))
        if fails:
            raise pulsar.Timeout

    client = SimpleNamespace(seek=seek)
    assert not replay.seek_if_due(client), "nothing was handed over yet"
    for entry in range(6):
        replay.handed_over(handed(entry))
    replay._interruptions._seeks_done = 0  # the next one is due
    assert replay.seek_if_due(client)
    end = ("error", "Timeout") if fails else ("seek", "3 messages back")
    assert journal == [("row", 3), ("call", 3), end]
    journal.clear()
    for entry in (6, 3, 4):  # 6 lay in the client
        replay.handed_over(handed(entry))
    assert journal == ([("row", 3)] if fails else [])
