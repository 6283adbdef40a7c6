"""The messages that a producer sends and records: rows, identity, payloads."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest

from harness.records import Check, Kind, Outcome, TableId
from tests.live.kafka_workers import MARKS, every_producer, every_producer_with_threads
from tests.live.worker_rig import PARTITIONS, Rig, begin, dense, sizes_of, whole_run

pytestmark = MARKS


@every_producer
@pytest.mark.parametrize(
    ("mode", "count"),
    [("partition", PARTITIONS), ("key", 50), pytest.param("routed", 1, marks=pytest.mark.slow)],
)
def test_every_send_is_one_row_with_one_outcome(rig: Rig, library: str, mode: str, count: int) -> None:
    topic = rig.topic()
    producer = whole_run(rig.producer(library, topic, mode=mode, count=count))
    sends = producer.rows(TableId.SENDS)
    assert len(sends) == 4000 == producer.done_message["attempted"] == producer.done_message["ok"]
    assert dense(sends)
    assert set(sends["lane"].tolist()) == set(range(count))
    assert set(sends["outcome"].tolist()) == {Outcome.OK}
    assert np.bincount(sends["kind"]).tolist() == [0, 1000, 3000]
    assert (np.diff(sends["t_intended_ns"]) > 0).all()
    assert (sends["t_start_ns"] >= sends["t_intended_ns"]).all()
    assert (sends["t_done_ns"] >= sends["t_start_ns"]).all()

    log = rig.audit(topic).rows(TableId.LOG)
    assert set(log["check"].tolist()) == {Check.OK}
    found = {
        (int(h["lane"]), int(h["seq"])): (int(r["stream"]), int(r["position"]), int(h["t_intended_ns"]))
        for r, h in zip(log, log["header"], strict=True)
    }
    told = {
        (int(r["lane"]), int(r["seq"])): (int(r["stream"]), int(r["position"]), int(r["t_intended_ns"]))
        for r in sends
    }
    assert found == told
    if mode == "partition":
        assert (sends["stream"] == sends["lane"] + 1).all()
    if mode == "key":
        assert all(len(set(sends["stream"][sends["lane"] == lane])) == 1 for lane in range(count))
        assert (log["header"]["key"] == log["header"]["lane"]).all()


@pytest.mark.parametrize(
    ("library", "version"),
    [pytest.param("confluent-kafka", "2.1.0", marks=pytest.mark.slow), ("kafka-python", "2.3.0")],
)
def test_an_older_release_in_an_environment_of_its_own_writes_the_same_rows(
    rig: Rig, library: str, version: str
) -> None:
    producer = whole_run(rig.producer(library, rig.topic(), version=version, rate=1000))
    assert producer.ready_message["client_version"].startswith(version)
    sends = producer.rows(TableId.SENDS)
    assert len(sends) == 2000 == producer.done_message["ok"]
    assert set(sends["outcome"].tolist()) == {Outcome.OK}
    assert (sends["position"] >= 0).all()
    assert (sends["stream"] > 0).all()


@every_producer_with_threads
def test_threads_share_the_lanes_and_sizes_differ_by_message(rig: Rig, library: str) -> None:
    topic = rig.topic()
    producer = whole_run(rig.producer(library, topic, threads=4, payload=100, payload_max=2000))
    sends = producer.rows(TableId.SENDS)
    assert dense(sends)
    assert 4000 <= len(sends) == producer.done_message["ok"] <= 4004, "a schedule of its own for each thread"
    assert set(sends["lane"].tolist()) == set(range(PARTITIONS))
    log = rig.audit(topic).rows(TableId.LOG)
    assert len(log) == len(sends)
    assert set(log["check"].tolist()) == {Check.OK}
    stored = log["header"]
    assert stored["length"].tolist() == sizes_of(stored, producer.spec["producer"]["instance"], 100, 2000)
    assert stored["length"].min() < 150
    assert stored["length"].max() > 1950


@every_producer
def test_payload_size_and_unlimited_rate_without_capture(rig: Rig, library: str) -> None:
    topic = rig.topic()
    producer = whole_run(
        rig.producer(library, topic, rate=0, warm_up_s=0, load_s=0.4, payload=1000, capture=False)
    )
    assert not list(producer.folder.glob("*.seg"))
    assert producer.done_message["attempted"] == producer.done_message["ok"] > 1000
    log = rig.audit(topic).rows(TableId.LOG)
    assert len(log) == producer.done_message["ok"]
    assert set(log["header"]["length"].tolist()) == {1000}
    assert set(log["header"]["kind"].tolist()) == {Kind.LOAD}


@every_producer
def test_kill_9_leaves_readable_rows(rig: Rig, library: str) -> None:
    topic = rig.topic()
    producer = rig.producer(library, topic, load_s=30)
    begin(producer)
    producer.wait_stats(lambda stats: stats["ok"] > 1000)
    assert producer.pid is not None
    os.kill(producer.pid, signal.SIGKILL)
    assert producer.wait_end() == -signal.SIGKILL
    assert not producer.done.is_set()
    sends = producer.rows(TableId.SENDS)
    assert dense(sends)
    assert set(sends["outcome"].tolist()) <= {Outcome.NONE, Outcome.OK}
    assert np.count_nonzero(sends["outcome"]) >= producer.stats["ok"]
    stored = rig.audit(topic).rows(TableId.LOG)["header"]
    intent = set(zip(sends["lane"].tolist(), sends["seq"].tolist(), strict=True))
    assert set(zip(stored["lane"].tolist(), stored["seq"].tolist(), strict=True)) <= intent
