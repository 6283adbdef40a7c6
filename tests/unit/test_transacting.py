"""Producers in transactions, kafka-python's: what the client says, and what is written of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from kafka.errors import KafkaError, KafkaTimeoutError, ProducerFencedError

from harness.records import RAW, SEGMENT_HEADER_BYTES, Asked, Outcome, TableId
from workers.python_kit.worker_kit.layouts import LOAD

PART = {
    "lane_groups": [{"topic": "orders", "mode": "partition", "first": 0, "count": 2}],
    "instance": 1,
    "payload_bytes": 150,
    "when_full": "wait",
    "rate_per_s": 1000.0,
    "warm_up_s": 0.0,
    "load_s": 10.0,
    "transactions": {"id": "shop", "messages": 4, "every_s": 0.0, "abort_every": 3},
}


class Answer:
    """Of a send, which is there at once."""

    def __init__(self, error: Exception | None, offset: int) -> None:
        self.error = error
        self.metadata = SimpleNamespace(topic="orders", partition=offset % 2, offset=offset)

    def add_callback(self, told: Callable[..., None], *of: Any) -> None:
        if not self.error:
            told(*of, self.metadata)

    def add_errback(self, told: Callable[..., None], *of: Any) -> None:
        if self.error:
            told(*of, self.error)


class Client:
    """Says what a test has it say, and keeps what it was asked."""

    def __init__(self, transactional_id: str) -> None:
        self.id, self.calls, self.sent = transactional_id, list[str](), 0
        self.is_begun = False
        self.errors: dict[str, list[Exception | None]] = {}

    def _call(self, name: str) -> None:
        self.calls.append(name)
        said = self.errors.get(name)
        if said and (error := said.pop(0)):
            raise error

    def begin_transaction(self) -> None:
        self.is_begun = False
        self._call("begin")
        self.is_begun = True

    def commit_transaction(self) -> None:
        self._call("commit")

    def abort_transaction(self) -> None:
        self._call("abort")

    def send(self, *_: Any) -> Answer:
        if not self.is_begun:
            raise KafkaError("not in a transaction")
        said = self.errors.get("send")
        self.sent += 1
        return Answer(said.pop(0) if said else None, self.sent)


@pytest.fixture
def role(worker_module: Callable[[str, str], ModuleType], tmp_path: Path) -> Any:
    worker = worker_module("kafka_python", "transactional")
    said: list[tuple[str, ...]] = []
    report = SimpleNamespace(error=lambda *_: None, client_died=lambda *words: said.append(words))
    spec = SimpleNamespace(
        part=PART, run_tag=1, folder=tmp_path, streams={"orders-0": 1, "orders-1": 2}
    )
    control = SimpleNamespace(stop_load=False, stopped=False, deadline_ns=2**63)
    names = SimpleNamespace(id=lambda kind, text: 1)
    session = SimpleNamespace(spec=spec, names=names, report=report, control=control)
    made = worker.TransactionalRole(
        session, Client, SimpleNamespace(reported=lambda _: Outcome.INFO)
    )
    made.said = said
    return made


def rows(folder: Path, table: TableId) -> Any:
    (path,) = folder.glob(f"{table.name.lower()}-1-*.seg")
    found = np.frombuffer(path.read_bytes()[SEGMENT_HEADER_BYTES:], RAW[table])
    return found[found["state"] > 0]


def test_an_application_commits_aborts_and_aborts_what_failed(role: Any, tmp_path: Path) -> None:
    role.producer.errors["send"] = [None] * 5 + [KafkaTimeoutError("expired")]
    role.offer(0, 16, LOAD)
    assert role.producer.id == "shop-0"
    assert role.producer.calls == [
        "begin",
        "commit",
        "begin",
        "abort",
        "begin",
        "abort",
        "begin",
        "commit",
    ]
    sends, own = rows(tmp_path, TableId.SENDS), rows(tmp_path, TableId.TRANSACTIONS)
    ok, fail, aborted = Outcome.OK, Outcome.FAIL, Outcome.ABORTED
    assert sends["outcome"].tolist() == [ok] * 4 + [fail] * 4 + [aborted] * 4 + [ok] * 4
    assert sends["transaction"].tolist() == [1] * 4 + [2] * 4 + [3] * 4 + [4] * 4
    assert own["outcome"].tolist() == [ok, aborted, aborted, ok]
    assert own["asked"].tolist() == [Asked.COMMIT, Asked.ABORT, Asked.ABORT, Asked.COMMIT]
    assert (role.ok, role.fail, role.aborted, role.open_calls()) == (8, 4, 4, 0)


def test_a_commit_that_is_refused_is_aborted_and_one_that_nobody_answers_for_is_unknown(
    role: Any, tmp_path: Path
) -> None:
    role.producer.errors = {
        "commit": [KafkaError("abort it"), KafkaError("and?")],
        "abort": [None, KafkaError("?")],
    }
    role.offer(0, 8, LOAD)
    sends, own = rows(tmp_path, TableId.SENDS), rows(tmp_path, TableId.TRANSACTIONS)
    assert sends["outcome"].tolist() == [Outcome.FAIL] * 4 + [Outcome.INFO] * 4
    assert own["outcome"].tolist() == [Outcome.ABORTED, Outcome.INFO]
    assert own["asked"].tolist() == [Asked.COMMIT | Asked.ABORT] * 2


@pytest.mark.parametrize(
    "error", [ProducerFencedError("another"), KafkaError("because we are in an error state: x")]
)
def test_after_its_death_nothing_is_begun_and_every_send_fails(
    role: Any, tmp_path: Path, error: KafkaError
) -> None:
    role.producer.errors["begin"] = [None, error]
    role.offer(0, 10, LOAD)
    assert len(role.said) == 1
    sends, own = rows(tmp_path, TableId.SENDS), rows(tmp_path, TableId.TRANSACTIONS)
    assert own["outcome"].tolist() == [Outcome.OK, Outcome.FAIL]
    assert sends["transaction"].tolist() == [1] * 4 + [0] * 6
    assert (role.ok, role.fail, role.open_calls()) == (4, 6, 0)
