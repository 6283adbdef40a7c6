"""Qpid as processes: one broker through a whole run; a group whose mastership moves and whose master dies."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import faults
from harness.clusters import open_cluster
from harness.clusters.qpid import QpidCluster
from harness.errors import Exit, UsageError
from harness.protocols import HasBacklogs, HasConnections, HasMastership, TellsAnswering, TopicSettings
from harness.rundir import RunDir, read_jsonl
from tests.live.run_rig import LiveRun

pytestmark = pytest.mark.live

UP_S = 120.0  # a start takes 3 to 6 s; these tests also run on machines that do other things
TOPICS = [TopicSettings("orders", 1, 1), TopicSettings("clicks", 1, 1)]
NAMES = [topic.name for topic in TOPICS]

SCENARIO = """
name: rig
system: qpid
topics: {orders: {}, clicks: {}}
load:
  rate: 200
  duration: 6s
  warm_up: 1s
  producers:
    shop: {topics: [orders], options: {transacted: 10}}
    web: {client: pika, topics: [clicks], options: {transacted: 10}}
  consumers:
    billing:
      topics: [orders]
      group: billing
      settle: transacted
      per_transaction: 5
      rollback_every: 4
      options: {qpid.amqp.version: 0-9-1}
    stats: {client: pika, topics: [clicks], group: stats, settle: transacted, per_transaction: 5}
faults:
  - {fault: connection-close, target: "client:consumer", at: 2s}
limits:
  drain: 90s
require:
  rate_ratio: 0  # the machine that runs the tests may be busy
"""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[LiveRun]:
    live = LiveRun(tmp_path, scenario=SCENARIO)
    yield live
    live.close()


def test_a_run_from_cluster_to_verdict(run: LiveRun) -> None:
    code = run.wait()
    document = run.document()
    sends = document["sends"]
    assert (code, document["verdict"], document["reasons"]) == (Exit.PASS, "pass", []), run.errors()
    assert sends["attempted"] == sends["ok"] == 7 * 200
    assert document["rows"]["deliveries"] >= sends["ok"]
    (closed,) = document["faults"]
    assert (closed["kind"], closed["effective"], closed["healed"]) == ("connection-close", True, True)
    assert run.processes() == []


@pytest.fixture
def group(tmp_path: Path) -> Iterator[QpidCluster]:
    run_id = f"live-{os.getpid()}-{time.monotonic_ns()}"
    found = open_cluster("qpid", run_id=run_id, folder=tmp_path / "cluster", topology="group")
    try:
        found.up(timeout_s=UP_S)
        yield found
    finally:
        found.down()


def inject(cluster: QpidCluster, folder: Path, step: dict[str, Any]) -> dict[str, Any]:
    """Fires one step and returns its effect row; it must be healed."""
    run = RunDir(folder).create()
    roles = {node.name: node.roles for node in cluster.runtime.nodes}
    timeline = faults.compile([{**step, "at": 0}], seed=3, load_s=60, topics=TOPICS, nodes=roles)
    faults.refuse_unsupported(timeline, cluster)
    storm = faults.Storm(timeline, cluster, run)
    storm.start(time.monotonic_ns())
    storm.join(UP_S)
    assert storm.heal_all(UP_S) == []
    rows = {row["event"]: row for row in read_jsonl(run.faults)}
    assert rows["healed"]["ok"], rows
    return rows["effect"]


def test_a_group_serves_from_another_node_when_its_master_goes(group: QpidCluster, tmp_path: Path) -> None:
    admin = group.admin
    for ability in (HasMastership, HasBacklogs, HasConnections, TellsAnswering):
        assert isinstance(admin, ability)
    admin.create_topics(TOPICS)
    with pytest.raises(UsageError, match="orders-0 exists"):
        admin.create_topics(TOPICS[:1])
    admin.wait_ready(NAMES, timeout_s=UP_S, run_tag=1)
    assert admin.backlogs(NAMES) == {"orders-0": {"": 0}, "clicks-0": {"": 0}}

    first = admin.master()
    effect = inject(group, tmp_path / "move", {"fault": "mastership-move"})
    assert effect["effective"], effect
    second = admin.master()
    assert second not in (None, first)

    effect = inject(group, tmp_path / "kill", {"fault": "kill", "target": "controller", "for": "2s"})
    assert effect["effective"], effect
    admin.wait_ready(NAMES, timeout_s=UP_S, run_tag=1)  # the queues are there on whoever serves now
    assert admin.master() is not None
    assert admin.registered() == {"qpid-1", "qpid-2", "qpid-3"}
    admin.delete_topics(NAMES)
    assert admin.topics() == []
