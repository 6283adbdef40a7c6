"""The worker protocol on a real broker, for every worker of Qpid: what docs/worker-protocol.md promises."""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.clusters.qpid import QpidCluster
from harness.protocols.cluster import TopicSettings
from harness.records import Event, Outcome, TableId
from harness.workers import worker_names
from tests.live.cluster_rig import up
from tests.live.worker_rig import Rig, Worker, begin, dense, finish, whole_run

pytestmark = pytest.mark.live

every_worker = pytest.mark.parametrize("library", worker_names("qpid"))
READER = "qpid-jms-legacy"
#: In AMQP 0-10, its default, a receive of this client may wait for good when a connection breaks.
OLDER = {"qpid-jms-legacy": {"qpid.amqp.version": "0-9-1"}, "pika": {}}


class QpidRig(Rig):
    def __init__(self, cluster: QpidCluster, folder: Path) -> None:
        super().__init__(cluster, folder)  # type: ignore[arg-type]
        self.qpid = cluster

    def topic(self, **_: Any) -> str:
        name = f"t-{uuid.uuid4().hex[:8]}"
        self.qpid.admin.create_topics([TopicSettings(name, 1, 1)])
        return name

    def describe(self, topic: str) -> dict[str, Any]:
        return {
            "system": "qpid",
            "admin_url": self.qpid.admin_url,
            "topics": {topic: {"address": topic, "partitions": 1}},
            "streams": {f"{topic}-0": 1},
        }

    def remaining(self, topic: str) -> Worker:
        """What the audit finds in a queue."""
        part = {"reader": 1, "streams": [f"{topic}-0"], "isolation": "remaining", "stall_s": 10}
        worker = self.start("audit", READER, topic, part)
        worker.wait_ready(30)
        worker.tell("start 1")
        assert worker.wait_done(60), worker.said[-3:]
        assert worker.wait_end() == 0
        return worker


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QpidCluster]:
    with up("qpid", tmp_path_factory.mktemp("workers")) as found:
        yield found


@pytest.fixture
def rig(cluster: QpidCluster, tmp_path: Path) -> Iterator[QpidRig]:
    made = QpidRig(cluster, tmp_path)
    yield made
    made.close()


@every_worker
def test_what_was_committed_is_there_and_is_taken_once(rig: QpidRig, library: str) -> None:
    """300 messages, in the order of the queue; transactions of five, every fourth rolled back."""
    topic = rig.topic()
    producer = whole_run(
        rig.producer(library, topic, rate=200, load_s=1.0, count=1, options={"transacted": "7"})
    )
    sends = producer.rows(TableId.SENDS)
    assert len(sends) == 300
    assert dense(sends)
    assert (sends["outcome"] == Outcome.OK).all()
    how = {"settle": "transacted", "per_transaction": 5, "rollback_every": 4}
    consumer = rig.consumer(library, topic, how=how, options=OLDER[library])
    consumer.wait_ready(30)
    backlog = {"": 300}
    deadline = time.monotonic() + 60
    while backlog[""] and time.monotonic() < deadline:
        time.sleep(0.2)
        backlog = rig.qpid.admin.backlogs([topic])[f"{topic}-0"]
    consumer.tell("stop")
    assert consumer.wait_done(20), consumer.said[-3:]
    rows = consumer.rows(TableId.DELIVERIES)
    given = rows[rows["kind"] == Event.DELIVER]
    committed = set(rows["txn_id"][rows["kind"] == Event.COMMIT].tolist())
    rolled_back = set(rows["txn_id"][rows["kind"] == Event.ROLLBACK_END].tolist())
    assert backlog == {"": 0}
    assert rolled_back
    assert all(number % 4 == 0 for number in rolled_back)
    kept = given[np.isin(given["txn_id"], list(committed))]
    assert np.array_equal(_seq(kept), np.arange(300))
    again = given[np.isin(given["txn_id"], list(rolled_back))]
    assert set(_seq(again).tolist()) <= set(range(300))
    assert rig.remaining(topic).bounds()[f"{topic}-0"]["end"] == 0


def _seq(rows: Any) -> Any:
    return np.frombuffer(np.ascontiguousarray(rows["header"]).tobytes(), "<u8").reshape(len(rows), 6)[:, 2]


@every_worker
def test_a_killed_producer_leaves_every_send_and_only_commits_in_the_queue(
    rig: QpidRig, library: str
) -> None:
    topic = rig.topic()
    producer = rig.producer(library, topic, rate=300, load_s=30, count=1, options={"transacted": "10"})
    begin(producer)
    producer.wait_stats(lambda stats: stats["ok"] >= 100, 60)
    assert producer.pid is not None
    os.kill(producer.pid, signal.SIGKILL)
    producer.wait_end()
    sends = producer.rows(TableId.SENDS)
    ok = sends[sends["outcome"] == Outcome.OK]
    audit = rig.remaining(topic)
    found = audit.rows(TableId.LOG)
    bounds = audit.bounds()[f"{topic}-0"]
    assert (bounds["why"], bounds["read_to"]) == ("end", len(found))
    assert dense(sends)
    assert set(ok["seq"].tolist()) <= set(_seq(found).tolist()) <= set(sends["seq"].tolist())
    assert np.array_equal(found["position"], np.arange(len(found)))
    assert len(found) % 10 == 0


@every_worker
def test_an_option_that_the_client_lacks_ends_the_worker(rig: QpidRig, library: str) -> None:
    worker = rig.producer(library, rig.topic(), count=1, options={"heartbeatt": "5"})
    assert worker.wait_end(60) == 4
    (error,) = [said for said in worker.said if said["type"] == "error"]
    assert error["fatal"]
    assert "no option heartbeatt" in error["text"]


@every_worker
def test_a_connection_that_the_broker_closes_costs_no_more_than_its_transaction(
    rig: QpidRig, library: str
) -> None:
    topic = rig.topic()
    producer = rig.producer(
        library, topic, rate=200, load_s=4, count=1, name="cut-off", options={"transacted": "10"}
    )
    begin(producer)
    producer.wait_stats(lambda stats: stats["ok"] >= 50, 60)
    (own,) = [found for found in rig.qpid.admin.connections() if found.client_name == "cut-off"]
    assert own.pid in (producer.pid, 0)
    rig.qpid.admin.close_connection(own)
    producer.wait_stats(lambda stats: stats["attempted"] >= 900, 60)
    finish(producer)
    sends = producer.rows(TableId.SENDS)
    stored = set(_seq(rig.remaining(topic).rows(TableId.LOG)).tolist())
    ok = set(sends["seq"][sends["outcome"] == Outcome.OK].tolist())
    refused = set(sends["seq"][sends["outcome"] == Outcome.FAIL].tolist())
    assert ok <= stored
    assert not refused & stored
    assert max(ok) > 800  # it works again on a new connection
    assert (sends["outcome"] == Outcome.INFO).sum() <= 20
