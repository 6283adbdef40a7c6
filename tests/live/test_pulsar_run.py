"""A whole run on Pulsar from outside: cluster, two clients, two subscriptions, a broker lost, a
verdict."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.errors import Exit
from tests.live.printed import follow_summary
from tests.live.run_rig import LiveRun

pytestmark = pytest.mark.live

SCENARIO = """
name: rig
system: pulsar
topics:
  orders: {count: 2}
  clicks: {partitions: 2}
load:
  rate: 400
  duration: 12s
  warm_up: 1s
  producers:
    shop:
      topics: [orders]
      options: {sendTimeoutMs: 0, blockIfQueueFull: true}
    web:
      client: pulsar-client
      topics: [clicks]
      lanes: key
      keys: 20
      options: {send_timeout_millis: 0, block_if_queue_full: true}
  consumers:
    billing: {client: pulsar-client, topics: [orders], group: billing}
    stats: {topics: [clicks], group: stats, options: {subscriptionType: Shared}}
faults:
  - {fault: unload, target: namespace, at: 1s}
  - {fault: kill, target: "leader-of:orders-000", at: 6s, for: 2s, wait: 5s}  # not while owners are sought
limits:
  drain: 120s
  stall: 60s  # the back-off of a client that reconnects, on a machine that may be busy
require:
  rate_ratio: 0  # the machine that runs the tests may be busy
"""


@pytest.fixture
def run(tmp_path: Path, spark: object) -> Iterator[LiveRun]:
    with LiveRun(tmp_path, scenario=SCENARIO, inside=True) as live:
        yield live


@pytest.mark.extended  # pulsar-18911 in test_bugs.py is a run from cluster to verdict, too
def test_a_run_from_cluster_to_verdict(run: LiveRun) -> None:
    code = run.wait()
    document = run.document()
    sends = document["sends"]
    assert (code, document["verdict"], document["reasons"]) == (Exit.PASS, "pass", []), run.errors()
    assert 0 < sends["attempted"] == sends["ok"] <= 13 * 400  # neither client ever gives up
    assert [fault["kind"] for fault in document["faults"]] == ["unload", "kill"]
    assert all(fault["effective"] and fault["healed"] for fault in document["faults"]), (
        run.journal()
    )
    assert document["rows"]["log"] >= sends["ok"]
    # handed over, ack called, ack answered
    assert document["rows"]["deliveries"] >= 3 * sends["ok"]
    assert run.processes() == []
    follow_summary(run.root)
