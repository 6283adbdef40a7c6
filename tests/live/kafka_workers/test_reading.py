"""Consumers journal what they see; the audit reads what there is and names what is not ours."""

from __future__ import annotations

import os
import signal
import time

import numpy as np
import pytest

from harness.records import Check, Event, TableId
from tests.live.kafka_workers import MARKS, every_consumer
from tests.live.worker_rig import PARTITIONS, RUN_TAG, Rig, Worker, whole_run

pytestmark = MARKS


def delivered(consumer: Worker) -> dict[int, list[int]]:
    """Stream -> positions in the order of the journal."""
    rows = consumer.rows(TableId.DELIVERIES)
    rows = rows[rows["kind"] == Event.DELIVER]
    return {int(s): rows["position"][rows["stream"] == s].tolist() for s in np.unique(rows["stream"])}


@every_consumer
def test_a_consumer_journals_what_it_saw_and_committed(rig: Rig, library: str) -> None:
    topic = rig.topic()
    consumer = rig.consumer(library, topic)
    consumer.wait_ready(30)
    producer = whole_run(rig.producer("confluent-kafka", topic))
    count = producer.done_message["ok"]
    stats = consumer.wait_stats(lambda stats: stats["delivered"] >= count)
    assert sum(stats["positions"].values()) == count
    consumer.tell("stop")
    assert consumer.wait_end() == 0
    assert consumer.done_message["delivered"] == count

    rows = consumer.rows(TableId.DELIVERIES)
    got = rows[rows["kind"] == Event.DELIVER]
    assert set(got["check"].tolist()) == {Check.OK}
    assert set(got["header"]["instance"].tolist()) == {producer.spec["producer"]["instance"]}
    assert all(positions == list(range(len(positions))) for positions in delivered(consumer).values())
    assert len(rows[rows["kind"] == Event.ASSIGN]) == PARTITIONS
    assert len(rows[rows["kind"] == Event.REVOKE]) == PARTITIONS
    assert len(set(got["epoch"].tolist())) == 1
    called = rows[rows["kind"] == Event.COMMIT_CALLED]
    confirmed = rows[rows["kind"] == Event.COMMIT]
    # a commit that was under way when the session ended is never confirmed
    assert PARTITIONS < len(confirmed) <= len(called)
    places = {(int(r["stream"]), int(r["position"])) for r in called}
    assert {(int(r["stream"]), int(r["position"])) for r in confirmed} <= places
    for stream, positions in delivered(consumer).items():
        assert confirmed["position"][confirmed["stream"] == stream].max() == len(positions)
    assert (np.diff(rows["t_ns"]) >= 0).all() or library == "kafka-python"

    # the next session of the group goes on behind the commits
    again = rig.consumer(library, topic)
    again.wait_ready(30)
    whole_run(rig.producer("confluent-kafka", topic, rate=100))
    again.wait_stats(lambda stats: stats["delivered"] >= 200)
    again.tell("stop")
    assert again.wait_end() == 0
    for stream, positions in delivered(again).items():
        assert positions[0] == len(delivered(consumer)[stream])


@every_consumer
def test_a_second_member_takes_partitions_over(rig: Rig, library: str) -> None:
    topic = rig.topic()
    first = rig.consumer(library, topic)
    first.wait_ready(30)
    second = rig.consumer(library, topic)
    second.wait_ready(30)
    producer = whole_run(rig.producer("confluent-kafka", topic))
    deadline = time.monotonic() + 20
    while first.stats.get("delivered", 0) + second.stats.get("delivered", 0) < producer.done_message["ok"]:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    for consumer in (first, second):
        consumer.tell("stop")
        assert consumer.wait_end() == 0
    rows = first.rows(TableId.DELIVERIES)
    assert rows["epoch"].max() > 1 or len(rows[rows["kind"] == Event.REVOKE]) > 0
    assert len(delivered(second)) > 0
    together = sorted((s, p) for c in (first, second) for s, ps in delivered(c).items() for p in ps)
    assert len(together) == len(set(together)) == producer.done_message["ok"]


@pytest.mark.slow
@every_consumer
def test_kill_9_of_a_consumer_leaves_its_journal(rig: Rig, library: str) -> None:
    topic = rig.topic()
    consumer = rig.consumer(library, topic)
    consumer.wait_ready(30)
    whole_run(rig.producer("confluent-kafka", topic))
    consumer.wait_stats(lambda stats: stats["delivered"] >= 4000)
    assert consumer.pid is not None
    os.kill(consumer.pid, signal.SIGKILL)
    assert consumer.wait_end() == -signal.SIGKILL
    assert sum(map(len, delivered(consumer).values())) == 4000


def test_audit_names_what_is_not_ours(rig: Rig) -> None:
    from confluent_kafka import Producer

    from harness.workers.python_kit.worker_kit import payload

    topic = rig.topic()
    ours = payload.encode(run_tag=RUN_TAG, instance=1, lane=0, seq=0, t_intended_ns=1, length=100)
    other = payload.encode(run_tag=1, instance=1, lane=0, seq=0, t_intended_ns=1, length=100)
    producer = Producer({"bootstrap.servers": rig.cluster.bootstrap})
    for value in (ours, ours[:-1] + bytes([ours[-1] ^ 1]), ours[:60], b"hello", None, other):
        producer.produce(topic, value, b"k", 2)
    assert producer.flush(10) == 0
    audit = rig.audit(topic)
    log = audit.rows(TableId.LOG)
    assert log["check"].tolist() == [
        Check.OK, Check.CORRUPT, Check.CORRUPT, Check.FOREIGN, Check.FOREIGN, Check.OTHER_RUN,
    ]  # fmt: skip
    assert log["position"].tolist() == list(range(6))
    assert (log["broker_time_ms"] > 1.6e12).all()
    bounds = audit.bounds()[f"{topic}-2"]
    assert (bounds["begin"], bounds["end"], bounds["read_to"], bounds["why"]) == (0, 6, 6, "end")
    assert audit.bounds()[f"{topic}-0"]["why"] == "end"


def test_audit_of_transactions(rig: Rig) -> None:
    from confluent_kafka import Producer

    topic = rig.topic()
    producer = Producer({"bootstrap.servers": rig.cluster.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    for commit in (True, False, True):
        producer.begin_transaction()
        for _ in range(10):
            producer.produce(topic, b"x", None, 0)
        producer.flush(10)
        (producer.commit_transaction if commit else producer.abort_transaction)(10)
    for isolation, count in (("read_uncommitted", 30), ("read_committed", 20)):
        audit = rig.audit(topic, isolation=isolation, name=isolation)
        assert len(audit.rows(TableId.LOG)) == count
        bounds = audit.bounds()[f"{topic}-0"]
        assert (bounds["end"], bounds["read_to"], bounds["why"]) == (33, 33, "end"), (
            "markers have offsets too"
        )
        assert bounds["isolation"] == isolation


@pytest.mark.slow
def test_audit_gives_one_stalled_partition_up_and_reads_the_others(rig: Rig) -> None:
    topic = rig.topic(replication=1)
    whole_run(rig.producer("confluent-kafka", topic, rate=20_000, warm_up_s=0, load_s=2))
    leaders = rig.cluster.admin.leaders(topic)
    node = leaders[0]
    assert node is not None
    # small fetches, so that the audit is still reading when the broker freezes
    slow = {"fetch.message.max.bytes": "50000", "queued.min.messages": "1", "queued.max.messages.kbytes": "1"}
    audit = rig.auditor(topic, stall_s=8, options=slow)
    audit.wait_ready(20)
    audit.tell("start 1")
    try:
        audit.wait_stats(lambda stats: stats["read"] > 0)
        rig.cluster.runtime.pause(node)
        assert audit.wait_done(90)
    finally:
        rig.cluster.runtime.resume(node)
        rig.cluster.admin.wait_ready([topic], timeout_s=60, run_tag=1)
    bounds = audit.bounds()
    stalled = {f"{topic}-{p}" for p, leader in leaders.items() if leader == node}
    assert {name for name, row in bounds.items() if row["why"] == "stall"} == stalled
    assert all(row["read_to"] == row["end"] for name, row in bounds.items() if name not in stalled)
    assert all(row["read_to"] < row["end"] for name, row in bounds.items() if name in stalled)
    log = audit.rows(TableId.LOG)
    for row in bounds.values():
        positions = log["position"][log["stream"] == row["stream_id"]]
        assert positions.tolist() == list(range(row["read_to"]))
