"""Entries of a Pulsar log that readers are not given: as brokers answer them, and what becomes of
them."""

from __future__ import annotations

import struct
import time
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from harness.admin.probe import probe_payload
from harness.contracts.plan import TransactionsPlan
from harness.contracts.rows import HiddenMessage, LogSpan, StreamTransactions
from harness.errors import EnvironmentNotReady
from harness.plan.build import build_plan as plan_of
from harness.records import Check, Txn
from harness.run.transactions import check_of, record_transactions
from harness.rundir import RunDir, read_jsonl, write_jsonl
from harness.scenario.model import Scenario
from harness.seal.seal import seal
from harness.systems.pulsar.admin import PulsarAdmin
from harness.systems.pulsar.transactions import TopicEntry, entries_of, entry_of, scan
from tests.planted.plans import RUN_TAG, build_plan

Headers = dict[str, str]
COMMIT, ABORT = "21", "22"
PLAIN: Headers = {"X-Pulsar-txn-uncommitted": "false"}


def batch(*payloads: bytes) -> bytes:
    """As in an entry: a property stands before the size of each."""
    made = b""
    for data in payloads:
        metadata = (
            b"\x0a\x06\x0a\x01a\x12\x01b"
            + b"\x18"
            + bytes([len(data) & 0x7F | 0x80, len(data) >> 7])
        )
        made += struct.pack(">I", len(metadata)) + metadata + data
    return made


def of(number: int, *, marker: str = "", aborted: bool = False, behind: bool = False) -> Headers:
    """Headers of an entry of transaction (3, number)."""
    made = {
        "X-Pulsar-txnid-most-bits": "3",
        "X-Pulsar-txnid-least-bits": str(number),
        "X-Pulsar-txn-aborted": str(aborted).lower(),
        "X-Pulsar-txn-uncommitted": str(behind).lower(),
    }
    return made | ({"X-Pulsar-marker-type": marker} if marker else {})


def scanned(
    answers: Mapping[int, Headers], given: Collection[tuple[int, int]], *, count: int = 0
) -> StreamTransactions:
    """Ledger 5, with a message of one byte in each entry; of entries without an answer no broker
    tells."""

    def get(stream: str, ledger: int, entry: int) -> tuple[Headers, bytes]:
        if entry not in answers:
            raise EnvironmentNotReady("nobody")
        return answers[entry], bytes([entry])

    last = count or max([*answers, *(entry for _, entry in given)]) + 1
    internal = {"ledgers": [{"ledgerId": 5, "entries": 0}], "lastConfirmedEntry": f"5:{last - 1}"}
    with ThreadPoolExecutor(2) as pool:
        return scan(get, "orders-0", internal, given, pool=pool, deadline=time.monotonic() + 10)


def hidden(told: StreamTransactions) -> dict[int, Txn]:
    return {message.entry: Txn(message.txn) for message in told.hidden}


def test_the_messages_of_a_batch_and_of_no_batch() -> None:
    long = b"x" * 200
    found = entry_of(
        5, 1, of(7, aborted=True) | {"X-Pulsar-num-batch-message": "2"}, batch(b"first", long)
    )
    assert found == TopicEntry(5, 1, (3, 7), is_aborted=True, messages=((0, b"first"), (1, long)))
    assert entry_of(5, 2, PLAIN, b"alone") == TopicEntry(5, 2, None, messages=((-1, b"alone"),))
    with pytest.raises(ValueError, match="ends after 1"):
        entry_of(5, 1, {"X-Pulsar-num-batch-message": "2"}, batch(b"first"))


def test_entries_of_closed_ledgers_and_of_the_one_that_is_written() -> None:
    ledgers = [{"ledgerId": 9, "entries": 0}, {"ledgerId": 7, "entries": 4}]
    assert entries_of({"ledgers": ledgers, "lastConfirmedEntry": "9:1"}) == {7: 4, 9: 2}


def test_aborted_messages_are_told_and_what_the_reader_was_given_is_not_asked_for() -> None:
    told = scanned(
        {1: of(7, aborted=True), 2: of(7, aborted=True), 3: of(7, marker=ABORT)}, {(5, 0), (5, 4)}
    )
    assert told.spans == [LogSpan(3, 7, 1, 2, 3, "aborted", ledger=5)]
    assert told.hidden[0] == HiddenMessage(5, 1, -1, Txn.ABORTED, b"\1")
    assert (told.read_to, told.log_end, told.stable) == (5, 5, 5)


def test_behind_an_open_transaction_the_markers_say_what_readers_will_see() -> None:
    answers = {
        1: of(7, behind=True), 2: of(8, behind=True), 3: PLAIN | {"X-Pulsar-txn-uncommitted": "true"},
        4: of(9, behind=True), 5: of(8, marker=COMMIT, behind=True), 6: of(9, marker=ABORT, behind=True),
    }  # fmt: skip
    told = scanned(answers, {(5, 0)})
    assert hidden(told) == {1: Txn.OPEN, 2: Txn.COMMITTED, 3: Txn.NONE, 4: Txn.ABORTED}
    assert told.stable == 1


def test_what_the_reader_went_past_stays_missing_unless_it_was_aborted() -> None:
    """Committed, and not given out: the reader's word stands, and the message is lost."""
    told = scanned({1: of(7), 2: of(7, marker=COMMIT)}, {(5, 0), (5, 3)})
    assert (told.hidden, told.spans, told.read_to) == ([], [], 4)


def test_what_came_to_be_visible_after_the_reader_is_no_loss() -> None:
    assert hidden(scanned({1: of(7), 2: of(7, marker=COMMIT)}, {(5, 0)})) == {1: Txn.COMMITTED}


@pytest.mark.parametrize(
    "answers",
    [
        {1: of(7, aborted=True)},  # of entry 2 no broker tells
        # held back, and the reader was given entry 3
        {1: of(7, behind=True), 2: of(7, marker=COMMIT)},
    ],
)
def test_a_stream_that_is_not_told_to_its_end_is_not_read(answers: Mapping[int, Headers]) -> None:
    told = scanned(answers, {(5, 0), (5, 3)}, count=4)
    assert told.read_to < told.log_end


def test_a_payload_is_checked_as_every_reader_does() -> None:
    whole = probe_payload(7)
    assert check_of(whole, 7) == Check.OK
    assert check_of(whole, 8) == Check.OTHER_RUN
    assert check_of(whole[:-1] + b"!", 7) == Check.CORRUPT
    assert check_of(b"hello", 7) == Check.FOREIGN


class Told:
    """An admin that knows one aborted message of the stream, of so many entries read."""

    def __init__(self, read: int) -> None:
        self._read = read

    def hidden(
        self, given: Mapping[str, Collection[tuple[int, int]]], *, timeout_s: float
    ) -> list[StreamTransactions]:
        assert given == {"orders-0": set()}
        message = HiddenMessage(5, 1, -1, int(Txn.ABORTED), probe_payload(RUN_TAG))
        return [StreamTransactions("orders-0", self._read, 3, log_end=3, hidden=[message])]


@pytest.mark.parametrize(("read", "is_complete"), [(3, True), (2, False)])
def test_hidden_messages_are_rows_of_the_log_and_a_stream_is_read_with_all_of_them(
    tmp_path: Path, read: int, is_complete: bool
) -> None:
    plan = build_plan(topics={"orders": 1}, system="pulsar")
    own = plan.producers[0].model_copy(update={"transactions": TransactionsPlan(messages=5)})
    plan = plan.model_copy(update={"producers": [own]})
    run = RunDir(tmp_path).create()
    bounds = {
        "stream": "orders-0",
        "stream_id": 1,
        "begin": 0,
        "end": 9,
        "read_to": 9,
        "why": "end",
    }
    run.worker("audit-1").mkdir(parents=True)
    write_jsonl(
        run.worker("audit-1") / "log_bounds.jsonl", [bounds | {"isolation": "read_committed"}]
    )
    told: Any = Told(read)
    record_transactions(plan, run, told, timeout_s=1)
    assert seal(run, plan).rows["log"] == 1
    (path,) = run.sealed.glob("log/*/*.parquet")
    (row,) = pq.read_table(
        path, columns=["ledger", "position", "stream", "txn", "check"]
    ).to_pylist()
    assert row == {"ledger": 5, "position": 1, "stream": 1, "txn": Txn.ABORTED, "check": Check.OK}
    (sealed,) = read_jsonl(run.log_bounds)
    assert (sealed["read_to"] == sealed["end"]) is is_complete
    assert (sealed["why"] == "end") is is_complete


SCENARIO = {
    "name": "x",
    "system": "pulsar",
    "load": {
        "producers": {"shop": {"client": "pulsar-client-java", "transactions": {"messages": 5}}}
    },
}


def test_a_plan_with_transactions_switches_them_on_and_promises_no_order() -> None:
    plan = plan_of(Scenario.model_validate(SCENARIO), seed=1)
    assert plan.broker_config == {
        "transactionCoordinatorEnabled": "true",
        "systemTopicEnabled": "true",
    }
    (producer,) = plan.producers
    assert producer.options == {"sendTimeoutMs": "0"}
    assert (producer.promise.delivery, producer.promise.order) == ("durable", False)


def test_the_coordinator_is_the_broker_that_has_most_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client uses all in turn, whatever its name."""
    admin = PulsarAdmin([])
    owners = ["broker-2", "broker-1", None, "broker-2", "broker-1"]
    monkeypatch.setattr(admin, "_coordinators", lambda: owners)
    assert admin.coordinator("transactions", "shop-0") == "broker-1"
    assert admin.coordinator("group", "billing") is None
    owners[:] = [None]
    assert admin.coordinator("transactions", "shop-0") is None
