"""The worker protocol on real brokers, for every worker of Kafka: what docs/worker-protocol.md promises."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from harness.clusters.cluster import open_cluster
from harness.clusters.kafka import KafkaCluster
from harness.records import Check, Event, Kind, Outcome, TableId
from harness.workers import load_worker, worker_names
from tests.live.worker_rig import PARTITIONS, RUN_TAG, Rig, Worker, begin, dense, finish, whole_run

pytestmark = [
    pytest.mark.live,
    # kafka-python leaves the sockets of refused connections to the garbage collector
    pytest.mark.filterwarnings(
        "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"
    ),
]

every_producer = pytest.mark.parametrize(
    "library", [name for name in worker_names("kafka") if "producer" in load_worker(name).roles]
)
every_consumer = pytest.mark.parametrize(
    "library", [name for name in worker_names("kafka") if "consumer" in load_worker(name).roles]
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    root = tmp_path_factory.mktemp("workers")
    found = open_cluster("kafka", run_id=f"test-{root.name}-{time.monotonic_ns()}", folder=root / "cluster")
    try:
        found.up(timeout_s=120)
        yield found
    finally:
        found.down()
        with warnings.catch_warnings():  # kafka-python leaves sockets of refused connections to the collector
            warnings.simplefilter("ignore", ResourceWarning)
            del found
            gc.collect()


@pytest.fixture
def rig(cluster: KafkaCluster, tmp_path: Path) -> Iterator[Rig]:
    made = Rig(cluster, tmp_path)
    yield made
    made.close()


# -- producers


@every_producer
@pytest.mark.parametrize(("mode", "count"), [("partition", PARTITIONS), ("key", 50), ("routed", 1)])
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


@pytest.mark.parametrize(("library", "version"), [("confluent-kafka", "2.1.0"), ("kafka-python", "2.3.0")])
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


@every_producer
def test_payload_size_and_unlimited_rate_without_capture(rig: Rig, library: str) -> None:
    topic = rig.topic()
    producer = whole_run(
        rig.producer(library, topic, rate=0, warm_up_s=0, load_s=1, payload=1000, capture=False)
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
@pytest.mark.parametrize("how", ["stop", "end of input", "SIGTERM"])
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


@every_producer
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


@every_producer
def test_too_large_for_the_client_is_a_fail(rig: Rig, library: str) -> None:
    limit = {
        "confluent-kafka": "message.max.bytes",
        "kafka-python": "max_request_size",
        "kafka-clients": "max.request.size",
        "sarama": "Producer.MaxMessageBytes",
    }[library]
    topic = rig.topic()
    producer = whole_run(rig.producer(library, topic, rate=50, payload=2000, options={limit: "1000"}))
    sends = producer.rows(TableId.SENDS)
    assert set(sends["outcome"].tolist()) == {Outcome.FAIL}
    assert producer.done_message["fail"] == len(sends)
    assert producer.errors_of(sends)
    assert len(rig.audit(topic).rows(TableId.LOG)) == 0


@every_producer
def test_refused_by_the_broker_is_a_fail(rig: Rig, library: str) -> None:
    topic = rig.topic(**{"max.message.bytes": "500"})
    producer = whole_run(rig.producer(library, topic, rate=50, payload=1000))
    sends = producer.rows(TableId.SENDS)
    assert set(sends["outcome"].tolist()) == {Outcome.FAIL}
    assert len(rig.audit(topic).rows(TableId.LOG)) == 0
    assert sum(error["type"] == "error" for error in producer.errors) == len(producer.errors_of(sends))


@every_producer
def test_no_answer_in_time_is_info(rig: Rig, library: str) -> None:
    """Every broker frozen: nobody can know what became of a send."""
    options = {
        "confluent-kafka": {"message.timeout.ms": "2000", "socket.timeout.ms": "1500"},
        # its idempotent producer never sends again after this: a hang of the client, not of the worker
        "kafka-python": {
            "delivery_timeout_ms": "2000",
            "request_timeout_ms": "1500",
            "enable_idempotence": "false",
        },
        "kafka-clients": {"delivery.timeout.ms": "2000", "request.timeout.ms": "1500", "linger.ms": "5"},
        "sarama": {"Net.ReadTimeout": "1500ms", "Producer.Retry.Max": "0"},
    }[library]
    topic = rig.topic()
    producer = rig.producer(library, topic, rate=200, load_s=60, options=options)
    begin(producer)
    producer.wait_stats(lambda stats: stats["ok"] > 100, 40)
    nodes = [node.name for node in rig.cluster.runtime.nodes]
    try:
        for node in nodes:
            rig.cluster.runtime.pause(node)
        producer.wait_stats(lambda stats: stats["info"] > 0, 40)
    finally:
        for node in nodes:
            rig.cluster.runtime.resume(node)
    rig.cluster.admin.wait_ready([topic], timeout_s=60, run_tag=1)
    finish(producer)
    sends = producer.rows(TableId.SENDS)
    lost = sends[sends["outcome"] == Outcome.INFO]
    assert len(lost) == producer.done_message["info"] > 0
    assert set(sends["outcome"].tolist()) == {Outcome.OK, Outcome.INFO}
    assert all("imed" in text or "imeout" in text for text in producer.errors_of(lost))
    first_info = next(e for e in producer.errors if not e["fatal"])
    assert first_info["name"] == first_info["text"].partition(":")[0]


def test_full_queue_of_confluent_waits_or_fails(rig: Rig) -> None:
    options = {"queue.buffering.max.messages": "50", "linger.ms": "20"}
    topic = rig.topic()
    waits = whole_run(rig.producer("confluent-kafka", topic, rate=0, warm_up_s=0, load_s=1, options=options))
    sends = waits.rows(TableId.SENDS)
    # the very last one may still have been waiting for room when the load was stopped
    assert set(sends["outcome"][:-1].tolist()) == {Outcome.OK}
    assert waits.done_message["blocked_ns"] > 0.3e9
    fails = whole_run(
        rig.producer(
            "confluent-kafka", topic, rate=5000, warm_up_s=0, load_s=1, when_full="fail", options=options
        )
    )
    sends = fails.rows(TableId.SENDS)
    assert set(sends["outcome"].tolist()) == {Outcome.OK, Outcome.FAIL}
    refused = sends[sends["outcome"] == Outcome.FAIL]
    assert [text.partition(":")[0] for text in fails.errors_of(refused)] == ["_QUEUE_FULL"]
    assert len(rig.audit(topic).rows(TableId.LOG)) == waits.done_message["ok"] + fails.done_message["ok"]


# -- consumers


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


# -- audit


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
