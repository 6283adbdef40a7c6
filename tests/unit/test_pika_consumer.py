"""The consumer of pika, without a broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest


@pytest.mark.parametrize(("prefetch", "messages"), [("1", 1), ("0", 10), ("100", 10)])
def test_a_transaction_has_no_more_messages_than_the_broker_hands_over(
    worker_module: Callable[[str, str], ModuleType],
    tmp_path: Path,
    prefetch: str,
    messages: int,
) -> None:
    worker = worker_module("pika_client", "consumer")
    part = {"topics": ["orders"], "group": "g", "session": 1, "per_transaction": 10}
    spec = SimpleNamespace(part=part, run_tag=1, folder=tmp_path, streams={"orders-0": 1})
    names = SimpleNamespace(id=lambda kind, text: 1)
    session = SimpleNamespace(spec=spec, names=names, report=None, control=None)
    options = worker.Options({"prefetch_count": prefetch}, "consumer")
    assert worker.ConsumerRole(session, None, options).per_transaction == messages
