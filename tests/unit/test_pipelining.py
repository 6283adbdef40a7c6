"""Members of a pipeline, confluent-kafka's: what is made of what is read, what is read again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from harness.records import RAW, SEGMENT_HEADER_BYTES, Asked, Event, Outcome, TableId
from workers.python_kit.worker_kit import layouts as lay
from workers.python_kit.worker_kit.payload import encode

STREAMS = {"orders-0": 1, "orders-1": 2, "orders-2": 3, "bills-0": 4, "bills-1": 5}
PART = {
    "lane_groups": [{"topic": "bills", "mode": "partition", "first": 3, "count": 2}],
    "instance": 7,
    "payload_bytes": 150,
    "when_full": "wait",
    "rate_per_s": 0.0,
    "warm_up_s": 0.0,
    "load_s": 10.0,
}
TRANSACTIONS = {"id": "bill", "messages": 4, "every_s": 3600.0, "abort_every": 0}
READING = {"session": 9, "group": "bill", "topics": ["orders"], "commit_every_s": 3600.0}


def order(partition: int, offset: int, kind: int = lay.LOAD) -> Any:
    value = encode(1, 2, partition, offset, 5, kind)
    return SimpleNamespace(
        topic=lambda: "orders", partition=lambda: partition, offset=lambda: offset, value=lambda: value,
        error=lambda: None,
    )  # fmt: skip


class Reader:
    """Hands over what a test lays out: messages, and calls for what happens between them; then it
    is over."""

    def __init__(self, control: Any) -> None:
        self.control, self.inbox, self.sought = control, list[Any](), list[tuple[int, int]]()
        self.committed_at: dict[int, int] = {}
        self.refused: list[KafkaError] = []

    def subscribe(self, _: list[str], **callbacks: Any) -> None:
        self.on = SimpleNamespace(**callbacks)
        self.inbox.insert(0, lambda: self.assign(0, 1, 2))

    def assign(self, *partitions: int) -> None:
        self.on.on_assign(self, [TopicPartition("orders", p) for p in partitions])

    def lose(self, *partitions: int) -> None:
        self.on.on_lost(self, [TopicPartition("orders", p) for p in partitions])

    def revoke(self, *partitions: int) -> None:
        self.on.on_revoke(self, [TopicPartition("orders", p) for p in partitions])

    def poll(self, _: float) -> Any:
        if not self.inbox:
            self.control.stopped = True
            return None
        found = self.inbox.pop(0)
        return found() if callable(found) else found

    def committed(self, asked: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        return [
            TopicPartition(p.topic, p.partition, self.committed_at.get(p.partition, -1001))
            for p in asked
        ]

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> list[TopicPartition]:
        if self.refused:
            raise KafkaException(self.refused.pop(0))
        self.committed_at |= {p.partition: p.offset for p in offsets}
        return offsets

    def seek(self, place: TopicPartition) -> None:
        self.sought.append((place.partition, place.offset))

    def consumer_group_metadata(self) -> str:
        return "member"

    def close(self) -> None:
        self.revoke(0, 1, 2)


class Sender:
    """Says what a test has it say, and keeps what it was asked."""

    def __init__(self, reader: Reader, transactional_id: str = "") -> None:
        self.id, self.reader = transactional_id, reader
        self.calls: list[str] = []
        self.sent: list[bytes] = []
        self.errors: dict[str, list[KafkaError | None]] = {}
        self.offsets: dict[int, int] = {}

    def _call(self, name: str) -> None:
        self.calls.append(name)
        said = self.errors.get(name)
        if said and (error := said.pop(0)):
            raise KafkaException(error)

    def list_topics(self, topic: str, timeout: float) -> Any:
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None)})

    def init_transactions(self, _: float) -> None:
        self._call("init")

    def begin_transaction(self) -> None:
        self._call("begin")

    def send_offsets_to_transaction(
        self, offsets: list[TopicPartition], member: str, _: float
    ) -> None:
        assert member == "member"
        self._call("offsets")
        self.offsets = {p.partition: p.offset for p in offsets}

    def commit_transaction(self, _: float) -> None:
        self._call("commit")
        self.reader.committed_at |= self.offsets

    def abort_transaction(self, _: float) -> None:
        self._call("abort")

    def produce(
        self, topic: str, value: bytes, key: None, partition: int, told: Callable[..., None]
    ) -> None:
        said = self.errors.get("produce")
        if said and (error := said.pop(0)):
            raise KafkaException(error)
        self.sent.append(value)
        answers = self.errors.get("answer")
        error = answers.pop(0) if answers else None
        told(error, SimpleNamespace(offset=lambda: len(self.sent), partition=lambda: partition))

    def poll(self, _: float) -> int:
        return 0

    flush = poll

    def __len__(self) -> int:
        return 0

    def close(self) -> None: ...


Member = tuple[Any, Reader, Sender]


@pytest.fixture
def member(
    worker_module: Callable[[str, str], ModuleType], tmp_path: Path
) -> Callable[..., Member]:
    """``member(transactions)``: a role, with what it reads from and what it sends with."""
    worker = worker_module("confluent_kafka", "pipeline")
    process = worker_module("confluent_kafka", "worker_kit.process")
    spec_module = worker_module("confluent_kafka", "worker_kit.spec")

    def make(transactions: dict[str, Any] | None) -> Member:
        control = SimpleNamespace(stop_load=False, stopped=False, deadline_ns=2**63)
        report = SimpleNamespace(
            error=lambda *_: None, event=lambda *_, **__: None, ready=lambda **_: None, died=False,
            client_died=lambda *_: setattr(report, "died", True),
        )  # fmt: skip
        names = SimpleNamespace(id=lambda kind, text: STREAMS.get(text, 99))
        part = PART | ({"transactions": transactions} if transactions else {})
        whole = spec_module.Spec(
            "run", 1, "pipeline", "bill", tmp_path, "", STREAMS, {}, "confluent-kafka", "", {}, {}
        )
        halves = {"producer": replace(whole, part=part), "consumer": replace(whole, part=READING)}
        session = process.Session(replace(whole, halves=halves), control, report, names)
        reader = Reader(control)
        sender = Sender(reader)

        def made(own: str) -> Sender:
            sender.id = own
            return sender

        outcomes = SimpleNamespace(reported=lambda _: Outcome.FAIL)
        writing = session.half("producer")
        role = worker.PipelineRole(
            session,
            lambda _on_commit: reader,
            lambda consumer: (
                worker.Together(writing, made, outcomes, consumer)
                if transactions
                else worker.Apart(writing, sender, outcomes, consumer, 3600 * 10**9)
            ),
        )
        return role, reader, sender

    return make


def rows(folder: Path, table: TableId) -> Any:
    (path,) = folder.glob(f"{table.name.lower()}-*.seg")
    found = np.frombuffer(path.read_bytes()[SEGMENT_HEADER_BYTES:], RAW[table])
    return found[found["kind" if table is TableId.DELIVERIES else "state"] > 0]


def journal(folder: Path, *kinds: Event) -> list[tuple[Event, int, int]]:
    found = rows(folder, TableId.DELIVERIES)
    return [
        (Event(row["kind"]), int(row["stream"]) - 1, int(row["position"]))
        for row in found
        if row["kind"] in kinds
    ]


def test_of_each_message_one_is_made_that_names_it_and_both_end_in_one_transaction(
    member: Callable[..., Member], tmp_path: Path
) -> None:
    role, reader, sender = member(TRANSACTIONS)
    reader.inbox = [
        order(0, 5),
        order(2, 6),
        order(1, 8, lay.WARM_UP),
        order(0, 6),
        order(1, 9, lay.PROBE),
    ]
    role.run()
    assert sender.id == "bill-0"
    assert sender.calls == ["init", "begin", "offsets", "commit", "begin", "offsets", "commit"]
    assert reader.committed_at == {0: 7, 1: 10, 2: 7}, "a probe is read, and nothing is made of it"
    sources = [
        (int.from_bytes(v[38:40], "little"), int.from_bytes(v[44:48], "little"))
        for v in sender.sent
    ]
    assert sources == [(0, 5), (2, 6), (1, 8), (0, 6)]
    sends = rows(tmp_path, TableId.SENDS)
    assert sends["lane"].tolist() == [3, 3, 4, 3]
    assert sends["seq"].tolist() == [0, 1, 0, 2]
    assert sends["kind"].tolist() == [lay.LOAD, lay.LOAD, lay.WARM_UP, lay.LOAD]
    assert sends["transaction"].tolist() == [1] * 4
    assert sends["outcome"].tolist() == [Outcome.OK] * 4
    delivered = rows(tmp_path, TableId.DELIVERIES)
    handed = delivered[delivered["kind"] == Event.DELIVER]
    assert sends["t_intended_ns"].tolist() == handed["t_ns"][:4].tolist()
    assert role.counts()["positions"] == {"orders-0": 7, "orders-1": 10, "orders-2": 7}
    commits = journal(tmp_path, Event.COMMIT)
    assert sorted(commits) == [(Event.COMMIT, *at) for at in ((0, 7), (1, 9), (1, 10), (2, 7))]


@pytest.mark.parametrize("where", ["offsets", "commit"])
def test_what_the_client_would_not_commit_is_aborted_and_read_again(
    member: Callable[..., Member], tmp_path: Path, where: str
) -> None:
    role, reader, sender = member(TRANSACTIONS)
    stale = KafkaError(KafkaError.ILLEGAL_GENERATION, "stale", txn_requires_abort=True)
    sender.errors[where] = [None, stale]
    reader.inbox = [order(0, k) for k in range(8)]
    again = [order(0, k) for k in range(4, 8)]
    reader.inbox.append(lambda: reader.inbox.extend(again))
    role.run()
    assert reader.sought == [(0, 4), (1, -2), (2, -2)], (
        "from where it stands, or from the beginning"
    )
    own, sends = rows(tmp_path, TableId.TRANSACTIONS), rows(tmp_path, TableId.SENDS)
    assert own["outcome"].tolist() == [Outcome.OK, Outcome.ABORTED, Outcome.OK]
    asked = Asked.ABORT if where == "offsets" else Asked.ABORT | Asked.COMMIT
    assert own["asked"].tolist() == [Asked.COMMIT, asked, Asked.COMMIT]
    assert sends["outcome"].tolist() == [Outcome.OK] * 4 + [Outcome.FAIL] * 4 + [Outcome.OK] * 4
    assert sends["seq"].tolist() == list(range(12)), "what is made again is another message"
    assert (Event.SEEK, 0, 4) in journal(tmp_path, Event.SEEK)
    assert reader.committed_at[0] == 8


def test_a_message_that_the_client_did_not_take_is_not_committed_without(
    member: Callable[..., Member], tmp_path: Path
) -> None:
    role, reader, sender = member(TRANSACTIONS)
    sender.errors["produce"] = [None, KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, "no")]
    reader.inbox = [order(0, k) for k in range(4)]
    role.run()
    assert "commit" not in sender.calls
    assert reader.committed_at == {}
    assert set(rows(tmp_path, TableId.SENDS)["outcome"].tolist()) == {Outcome.FAIL}


def test_a_transaction_ends_before_partitions_go(
    member: Callable[..., Member], tmp_path: Path
) -> None:
    role, reader, sender = member(TRANSACTIONS)
    reader.inbox = [order(0, 0), lambda: reader.revoke(0, 1, 2), lambda: reader.assign(1)]
    reader.inbox += [order(1, 0), lambda: reader.lose(1)]
    role.run()
    assert sender.calls == ["init", "begin", "offsets", "commit", "begin", "abort"]
    sends = rows(tmp_path, TableId.SENDS)
    assert sends["outcome"].tolist() == [Outcome.OK, Outcome.ABORTED], (
        "what is lost, the application aborts"
    )
    assert reader.committed_at == {0: 1}
    kinds = [kind for kind, *_ in journal(tmp_path, Event.COMMIT, Event.REVOKE)]
    assert kinds[0] == Event.COMMIT


def test_apart_positions_follow_what_was_acknowledged_and_what_failed_is_made_again(
    member: Callable[..., Member], tmp_path: Path
) -> None:
    role, reader, sender = member(None)
    refused = KafkaError(KafkaError.NOT_ENOUGH_REPLICAS, "no")
    sender.errors["answer"] = [None, None, refused]
    reader.inbox = [order(0, 0), order(0, 1), role._settle, order(0, 2), role._settle]
    reader.inbox += [lambda: None, order(0, 2), role._settle]
    reader.refused = []
    role.run()
    assert reader.sought[0] == (0, 2)
    assert rows(tmp_path, TableId.SENDS)["outcome"].tolist() == [1, 1, Outcome.FAIL, 1]
    assert reader.committed_at == {0: 3}


def test_a_refused_commit_is_repeated_with_the_next(member: Callable[..., Member]) -> None:
    role, reader, _ = member(None)
    reader.refused = [KafkaError(KafkaError.REBALANCE_IN_PROGRESS, "wait")]
    reader.inbox = [order(0, 0), role._settle, order(1, 3)]
    role.run()
    assert reader.sought == []
    assert reader.committed_at == {0: 1, 1: 4}


def test_an_offset_that_no_header_holds_ends_the_worker(member: Callable[..., Member]) -> None:
    role, reader, _ = member(None)
    reader.inbox = [order(0, 2**32)]
    with pytest.raises(
        Exception, match=r"orders-0 is at offset 4294967296: outputs name their input up to"
    ):
        role.run()
