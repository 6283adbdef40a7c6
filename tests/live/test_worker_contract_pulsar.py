"""The worker protocol on real brokers, for every worker of Pulsar: what docs/worker-protocol.md promises."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from harness.clusters.pulsar import PulsarCluster
from harness.records import Check, Event, Kind, Outcome, TableId
from harness.workers import load_worker, worker_names
from tests.live.cluster_rig import up
from tests.live.pulsar_rig import WORDS, PulsarRig
from tests.live.worker_rig import RUN_TAG, Rows, Worker, begin, dense, finish, sizes_of, whole_run

pytestmark = pytest.mark.live

LIBRARIES = [name for name in worker_names("pulsar") if name in WORDS]
every_producer = pytest.mark.parametrize(
    "library", [name for name in LIBRARIES if "producer" in load_worker(name).roles]
)
every_consumer = pytest.mark.parametrize(
    "library", [name for name in LIBRARIES if "consumer" in load_worker(name).roles]
)
every_audit = pytest.mark.parametrize(
    "library", [name for name in LIBRARIES if "audit" in load_worker(name).roles]
)
READER = "pulsar-client-java"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarCluster]:
    with up("pulsar", tmp_path_factory.mktemp("workers")) as found:
        yield found


@pytest.fixture
def rig(cluster: PulsarCluster, tmp_path: Path) -> Iterator[PulsarRig]:
    made = PulsarRig(cluster, tmp_path)
    yield made
    made.close()


def placed(rows: Rows) -> list[tuple[int, ...]]:
    """Where messages are, in the order of the rows."""
    return [tuple(map(int, row)) for row in rows[["stream", "ledger", "position", "batch"]]]


def stored(audit: Worker) -> Rows:
    """What the log holds, but for the probes of the readiness check."""
    log = audit.rows(TableId.LOG)
    return log[log["header"]["kind"] != Kind.PROBE]


def identities(rows: Rows) -> list[tuple[int, int]]:
    return [(int(row["lane"]), int(row["seq"])) for row in rows]


# -- producers


@every_producer
@pytest.mark.parametrize(
    "mode", ["partition", *(pytest.param(mode, marks=pytest.mark.slow) for mode in ("key", "routed"))]
)
def test_every_send_is_one_row_with_one_outcome(rig: PulsarRig, library: str, mode: str) -> None:
    topic = rig.topic()
    producer = whole_run(rig.sender(library, topic, mode=mode))
    sends = producer.rows(TableId.SENDS)
    assert len(sends) == 4000 == producer.done_message["attempted"] == producer.done_message["ok"]
    assert dense(sends)
    assert set(sends["outcome"].tolist()) == {Outcome.OK}
    assert (sends["t_done_ns"] >= sends["t_start_ns"]).all()

    audit = rig.reader(READER, topic)
    log = stored(audit)
    assert set(log["check"].tolist()) == {Check.OK}
    found = dict(zip(identities(log["header"]), placed(log), strict=True))
    assert found == dict(zip(identities(sends), placed(sends), strict=True))
    if mode == "partition":
        assert (sends["stream"] == sends["lane"] + 1).all()
    if mode == "key":
        assert all(len(set(sends["stream"][sends["lane"] == lane])) == 1 for lane in range(50))
    for stream in np.unique(log["stream"]):
        rows = log[log["stream"] == stream]
        assert (np.diff(rows["client_seq"]) > 0).all()
        assert sorted(placed(rows)) == placed(rows)
        if mode == "partition" and library == READER:  # which shows its own sequence ids
            own = sends[sends["stream"] == stream]
            assert own["client_seq"].tolist() == rows["client_seq"].tolist() == list(range(len(rows)))
            assert len(set(own["client_name"].tolist())) == 1
    assert all(row["why"] == "end" and row["read_to"] == row["end"] for row in audit.bounds().values())


@every_producer
def test_threads_share_the_lanes_and_sizes_differ_by_message(rig: PulsarRig, library: str) -> None:
    topic = rig.topic(partitions=2)
    sender = rig.sender(library, topic, mode="key", threads=4, payload=100, payload_max=2000)
    sends = whole_run(sender).rows(TableId.SENDS)
    assert dense(sends)
    assert set(sends["outcome"].tolist()) == {Outcome.OK}
    log = stored(rig.reader(READER, topic))
    assert set(log["check"].tolist()) == {Check.OK}
    assert sorted(identities(log["header"])) == sorted(identities(sends))
    instance = sender.spec["producer"]["instance"]
    assert log["header"]["length"].tolist() == sizes_of(log["header"], instance, 100, 2000)


@pytest.mark.slow
@every_producer
def test_kill_9_leaves_readable_rows(rig: PulsarRig, library: str) -> None:
    topic = rig.topic(partitions=1)
    producer = rig.sender(library, topic, load_s=30)
    begin(producer)
    producer.wait_stats(lambda stats: stats["ok"] > 1000)
    assert producer.pid is not None
    os.kill(producer.pid, signal.SIGKILL)
    assert producer.wait_end() == -signal.SIGKILL
    sends = producer.rows(TableId.SENDS)
    assert dense(sends)
    assert np.count_nonzero(sends["outcome"]) >= producer.stats["ok"]
    log = stored(rig.reader(READER, topic))
    assert set(identities(log["header"])) <= set(identities(sends))


@every_producer
def test_a_bad_option_names_it_and_a_near_one(rig: PulsarRig, library: str) -> None:
    wrong, near = {
        "pulsar-client-java": ("maxPendingMessage", "maxPendingMessages"),
        "pulsar-client": ("max_pending_message", "max_pending_messages"),
    }[library]
    producer = rig.sender(library, rig.topic(partitions=1), options={wrong: "1"})
    assert producer.wait_end(30) == 4
    error = producer.errors[-1]
    assert error["fatal"]
    assert wrong in error["text"]
    assert near in error["text"] + error["hint"]


@pytest.mark.slow
@every_producer
def test_brokers_that_do_not_answer_end_it_before_ready(rig: PulsarRig, library: str) -> None:
    options = WORDS[library]["gives up after 3 s"]
    producer = rig.sender(library, "nowhere", options=options, bootstrap="pulsar://127.0.0.1:1")
    assert producer.wait_end(40) == 4
    assert not producer.ready_message
    assert producer.errors[-1]["fatal"]


class Paused:
    """Every broker stands still."""

    def __init__(self, rig: PulsarRig) -> None:
        self.runtime = rig.pulsar.runtime
        self.nodes = [node.name for node in self.runtime.nodes if "broker" in node.roles]

    def __enter__(self) -> None:
        for node in self.nodes:
            self.runtime.pause(node)

    def __exit__(self, *_: object) -> None:
        for node in self.nodes:
            self.runtime.resume(node)


@every_producer
def test_no_answer_in_time_is_info_and_a_full_queue_a_fail(rig: PulsarRig, library: str) -> None:
    topic = rig.topic(partitions=1)
    words = WORDS[library]
    options = {**words["send timeout of 1 s"], **words["queue of 20"]}
    producer = rig.sender(library, topic, rate=100, load_s=60, when_full="fail", options=options)
    begin(producer)
    producer.wait_stats(lambda stats: stats["ok"] > 50, 40)
    with Paused(rig):
        producer.wait_stats(lambda stats: stats["info"] > 0 and stats["fail"] > 0, 30)
    rig.pulsar.admin.wait_ready([topic], timeout_s=60, run_tag=RUN_TAG)
    finish(producer)
    sends = producer.rows(TableId.SENDS)
    assert set(sends["outcome"].tolist()) == {Outcome.OK, Outcome.FAIL, Outcome.INFO}
    info, fail = (sends[sends["outcome"] == outcome] for outcome in (Outcome.INFO, Outcome.FAIL))
    assert all("imeout" in text for text in producer.errors_of(info))
    assert all("QueueIsFull" in text for text in producer.errors_of(fail))
    found = set(identities(stored(rig.reader(READER, topic))["header"]))
    assert not found & set(identities(fail))
    assert set(identities(sends[sends["outcome"] == Outcome.OK])) <= found


@every_producer
def test_an_application_that_sends_again(rig: PulsarRig, library: str) -> None:
    if "resent" not in load_worker(library).supports.get("results", ()):
        pytest.skip("does not re-send")
    topic = rig.topic(partitions=1)
    options = WORDS[library]["queue of 20"]
    producer = rig.sender(
        library, topic, rate=500, load_s=4, when_full="fail", results="resent", options=options
    )
    begin(producer)
    producer.wait_stats(lambda stats: stats["ok"] > 50, 40)
    with Paused(rig):
        producer.wait_stats(lambda stats: stats["fail"] > 100, 30)
    rig.pulsar.admin.wait_ready([topic], timeout_s=60, run_tag=RUN_TAG)
    producer.wait_stats(lambda stats: stats["ok"] >= 1000, 60)
    finish(producer)
    sends = producer.rows(TableId.SENDS)
    assert 1 <= sends["attempt"].max() <= 9
    attempts = sorted(
        zip(identities(sends), sends["attempt"].tolist(), sends["outcome"].tolist(), strict=True)
    )
    for (message, attempt, _), (before, last, outcome) in zip(attempts[1:], attempts, strict=False):
        assert message != before or (attempt == last + 1 and outcome != Outcome.OK)


# -- consumers


def events(consumer: Worker, kind: Event) -> Rows:
    """Rows of one kind; deliveries without the probes of the readiness check."""
    rows = consumer.rows(TableId.DELIVERIES)
    rows = rows[rows["kind"] == kind]
    return rows[rows["header"]["kind"] != Kind.PROBE] if kind == Event.DELIVER else rows


def entries(rows: Rows) -> set[tuple[int, ...]]:
    """Places without the index in the batch."""
    return {place[:3] for place in placed(rows)}


def journalled(rig: PulsarRig, library: str, receive: str) -> str:
    """A topic of which a consumer got and acknowledged everything, as its journal says."""
    topic = rig.topic()
    consumer = rig.consumer(library, topic, how={"receive": receive, "settle": "ack"})
    consumer.wait_ready(40)
    producer = whole_run(rig.sender(READER, topic, mode="key"))
    consumer.wait_stats(lambda stats: stats["delivered"] >= producer.done_message["ok"])
    consumer.tell("stop")
    assert consumer.wait_end() == 0
    got = events(consumer, Event.DELIVER)
    assert set(got["check"].tolist()) == {Check.OK}
    assert sorted(identities(got["header"])) == sorted(identities(producer.rows(TableId.SENDS)))
    assert set(got["redelivery"].tolist()) == {0}
    called = placed(events(consumer, Event.ACK_CALLED))
    assert set(placed(got)) <= set(called)
    assert sorted(placed(events(consumer, Event.ACK_CONFIRMED))) == sorted(called)
    for stream in np.unique(got["stream"]):
        places = placed(got[got["stream"] == stream])
        assert places == sorted(places)
    return topic


@every_consumer
def test_a_consumer_journals_what_it_got_and_is_not_given_again_what_it_acknowledged(
    rig: PulsarRig, library: str
) -> None:
    topic = journalled(rig, library, "loop")
    again = rig.consumer(library, topic)
    again.wait_ready(40)
    whole_run(rig.sender(READER, topic, rate=50))
    again.wait_stats(lambda stats: stats["delivered"] >= 100)
    again.tell("stop")
    assert again.wait_end() == 0
    assert len(events(again, Event.DELIVER)) == 100, "acknowledged messages came again"


@every_consumer
@pytest.mark.parametrize("receive", ["listener", pytest.param("batch", marks=pytest.mark.slow)])
def test_a_listener_and_a_batch_are_journalled_too(rig: PulsarRig, library: str, receive: str) -> None:
    journalled(rig, library, receive)


@every_consumer
def test_refused_messages_come_again(rig: PulsarRig, library: str) -> None:
    topic = rig.topic(partitions=1)
    options = WORDS[library]["shared"]
    consumer = rig.consumer(library, topic, how={"settle": "ack", "nack_every": 10}, options=options)
    consumer.wait_ready(40)
    producer = whole_run(rig.sender(READER, topic, rate=200))
    count = producer.done_message["ok"]
    consumer.wait_stats(lambda stats: stats["delivered"] >= count + count // 10)
    consumer.tell("stop")
    assert consumer.wait_end() == 0
    got = events(consumer, Event.DELIVER)
    assert set(identities(got["header"])) == set(identities(producer.rows(TableId.SENDS)))
    refused = events(consumer, Event.NACK)
    assert len(refused) >= count // 10
    again = got[got["redelivery"] > 0]
    assert len(again) >= len(entries(refused)) // 2
    assert entries(again) <= entries(refused), "a refused entry comes again as a whole"


@pytest.mark.slow
def test_failover_gives_the_streams_to_who_is_left(rig: PulsarRig) -> None:
    """The Java client tells of its turns; all before a cumulative acknowledgement is settled."""
    topic = rig.topic()
    how, options = {"settle": "cumulative"}, {"subscriptionType": "Failover"}
    first = rig.consumer(READER, topic, how=how, options={**options, "consumerName": "a"})
    first.wait_ready(40)
    second = rig.consumer(READER, topic, how=how, options={**options, "consumerName": "b"})
    second.wait_ready(40)
    before = whole_run(rig.sender(READER, topic, mode="key")).done_message["ok"]
    deadline = time.monotonic() + 60
    while sum(consumer.stats.get("delivered", 0) for consumer in (first, second)) < before:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    first.tell("stop")
    assert first.wait_end() == 0
    after = whole_run(rig.sender(READER, topic, mode="key"))
    second.wait_stats(lambda stats: stats["delivered"] >= after.done_message["ok"], 60)
    second.tell("stop")
    assert second.wait_end() == 0
    turns = events(second, Event.ASSIGN)
    assert set(turns["stream"].tolist()) == {1, 2, 3}
    assert (np.diff(turns["epoch"].astype(np.int64)) >= 1).all()
    got = events(second, Event.DELIVER)
    assert set(identities(after.rows(TableId.SENDS))) <= set(identities(got["header"]))
    confirmed = events(second, Event.ACK_CONFIRMED)
    for stream in (1, 2, 3):
        last = max(placed(got[got["stream"] == stream]))
        assert max(placed(confirmed[confirmed["stream"] == stream])) == last


# -- audit


@every_audit
def test_audit_reads_many_topics_to_their_last_message(rig: PulsarRig, library: str) -> None:
    topic = rig.topic(partitions=12)
    producer = whole_run(rig.sender(READER, topic, rate=0, warm_up_s=0, load_s=1))
    empty = rig.topic(partitions=1, probed=False)
    audit = rig.reader(library, topic)
    assert len(stored(audit)) == producer.done_message["ok"] > 1000
    assert {row["why"] for row in audit.bounds().values()} == {"end"}
    assert sum(row["end"] for row in audit.bounds().values()) == len(audit.rows(TableId.LOG))
    bounds = rig.reader(library, empty, name="empty").bounds()[f"{empty}-0"]
    assert (bounds["begin"], bounds["end"], bounds["read_to"], bounds["why"]) == (0, 0, 0, "end")
