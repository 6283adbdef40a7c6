"""A producer's life and end: told to, frozen, without disk, without brokers."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import pytest

from harness.records import Outcome, TableId
from tests.live.kafka_workers import MARKS, every_producer, every_producer_but
from tests.live.worker_rig import Rig, begin, dense, finish

pytestmark = MARKS


@every_producer
def test_stop_load_ends_the_offering_and_drain_the_run(rig: Rig, library: str) -> None:
    producer = rig.producer(library, rig.topic(), load_s=30)
    begin(producer)
    producer.wait_stats(lambda stats: stats["attempted"] > 500)
    stopped_ns = time.monotonic_ns()
    producer.tell("stop-load")
    attempted = producer.wait_stats(lambda stats: stats["t_ns"] > stopped_ns + 1.2e9)["attempted"]
    finish(producer)
    sends = producer.rows(TableId.SENDS)
    assert len(sends) == attempted == producer.done_message["ok"]
    assert sends["t_start_ns"].max() < stopped_ns + 0.5e9


@every_producer
@pytest.mark.parametrize(
    "how", ["end of input", *(pytest.param(how, marks=pytest.mark.slow) for how in ("stop", "SIGTERM"))]
)
def test_stop_ends_at_once_and_orderly(rig: Rig, library: str, how: str) -> None:
    producer = rig.producer(library, rig.topic(), load_s=30)
    begin(producer)
    producer.wait_stats(lambda stats: stats["attempted"] > 500)
    if how == "stop":
        producer.tell("stop")
    elif how == "SIGTERM":
        assert producer.pid is not None
        os.kill(producer.pid, signal.SIGTERM)
    else:
        assert producer._process is not None
        assert producer._process.stdin is not None
        producer._process.stdin.close()
    assert producer.wait_end(10) == 0
    assert producer.done.is_set()
    assert len(producer.rows(TableId.SENDS)) == producer.done_message["attempted"]


@every_producer
def test_a_stopped_process_reports_frozen_time(rig: Rig, library: str) -> None:
    producer = rig.producer(library, rig.topic(), rate=500, load_s=30)
    begin(producer)
    producer.wait_stats(lambda stats: stats["attempted"] > 300)
    assert producer.pid is not None
    begun_ns = time.monotonic_ns()
    os.kill(producer.pid, signal.SIGSTOP)
    time.sleep(1.5)
    os.kill(producer.pid, signal.SIGCONT)
    stats = producer.wait_stats(lambda stats: stats["frozen_ns"] > 0)
    assert 1.0e9 < stats["frozen_ns"] < time.monotonic_ns() - begun_ns
    assert any(line.get("kind") == "frozen" for line in producer.said)
    finish(producer)
    late = [line["late_max_ns"] for line in producer.said if line["type"] == "stats"]
    assert max(late) < 1.0e9, "frozen time was charged to the generator"


@every_producer
def test_a_full_disk_is_a_clear_error_and_loses_nothing(rig: Rig, library: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small tmpfs")
    disk = rig.folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)], check=True)
    try:
        # one segment of 6 MB fits, two do not
        producer = rig.producer(
            library, rig.topic(), rate=0, warm_up_s=0, load_s=60, folder=disk / "p", payload=52
        )
        begin(producer)
        assert producer.wait_end(60) == 4
        error = producer.errors[-1]
        assert error["fatal"]
        assert "No space left on device" in error["text"]
        assert "sends-1-000001" in error["text"]
        assert not producer.done.is_set()
        sends = producer.rows(TableId.SENDS)
        assert len(sends) == 65_536
        assert dense(sends)
        assert set(sends["outcome"].tolist()) == {Outcome.OK}, "calls in flight were not waited for"
        assert [path.name for path in producer.folder.glob("*.part")] == []
    finally:
        rig.close()
        subprocess.run(["umount", str(disk)], check=True)


@every_producer
def test_a_bad_option_ends_with_the_clients_own_words(rig: Rig, library: str) -> None:
    producer = rig.producer(library, rig.topic(), options={"no.such.option": "1"})
    assert producer.wait_end() == 4
    error = producer.errors[-1]
    assert error["fatal"]
    assert library in error["text"]
    assert "no.such.option" in error["text"]
    assert error["hint"]


@every_producer_but("confluent-kafka")  # it asks for 20 s
def test_brokers_that_do_not_answer_end_it_before_ready(rig: Rig, library: str) -> None:
    options = {
        "kafka-python": {"bootstrap_timeout_ms": "3000"},
        "kafka-clients": {"max.block.ms": "3000"},
    }.get(library)
    producer = rig.producer(library, "nowhere", options=options, bootstrap="127.0.0.1:1")
    assert producer.wait_end(30) == 4
    assert not producer.ready_message
    assert producer.errors[-1]["fatal"]


@every_producer
def test_an_unknown_topic_ends_it_before_ready(rig: Rig, library: str) -> None:
    options = {
        "kafka-python": {"max_block_ms": "2000"},
        "kafka-clients": {"max.block.ms": "2000"},
    }.get(library)
    producer = rig.producer(library, "no-such-topic", options=options)
    assert producer.wait_end(30) == 4
    assert "no-such-topic" in producer.errors[-1]["text"]
