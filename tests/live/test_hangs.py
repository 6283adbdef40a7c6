"""Who waits in vain is noticed while the load is on; who cannot run, or has time left, is left
alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.errors import Exit
from harness.rundir import RunDir, read_json, read_jsonl
from tests.live.printed import follow_summary
from tests.live.run_rig import LiveRun

pytestmark = [pytest.mark.live, pytest.mark.slow]
LATEST_S = 10.0  # after a deadline

#: sarama up to v1.37.2 never answers (scenarios/bugs/sarama-2377.yaml); the load goes on for
#: longer.
SARAMA = """
name: hang
topics: {orders: {partitions: 6, config: {min.insync.replicas: 3}}, clicks: {partitions: 6}}
load:
  rate: 300
  duration: 45s
  warm_up: 1s
  producers:
    shop:
      topics: [orders]
      client: sarama
      client_version: 1.37.2
      calls: batch
      batch: 50
      options:
        {Producer.Timeout: 2s, Producer.Idempotent: true, Producer.RequiredAcks: WaitForAll, Net.MaxOpenRequests: 1}
    web: {topics: [clicks], client: kafka-python, options: {acks: all}}
faults:
  - {fault: restart, target: random, at: 2s, down: 6s}
limits: {call: 15s}
require: {rate_ratio: 0}
"""  # noqa: E501
#: qpid-client 0.12 is sent nothing more after a rollback (scenarios/bugs/qpid-2703.yaml).
QPID = """
name: stall
system: qpid
cluster: {topology: memory}
topics: {orders: {}}
load:
  rate: 200
  duration: 25s
  warm_up: 0s
  producers:
    shop: {client: qpid-jms-legacy, options: {transacted: 50}}
  consumers:
    billing:
      client: qpid-jms-legacy
      client_version: qpid-client 0.12
      settle: transacted
      per_transaction: 2
      rollback_every: 2
      options: {maxprefetch: 50, qpid.amqp.version: 0-10}
require: {rate_ratio: 0}
limits: {stall: 5s, drain: 10s}
"""
#: Frozen for longer than the deadline; then a broker that is away for less than the client's own
#: time-out.
PATIENT = """
name: patient
topics: {orders: {partitions: 6}}
load:
  rate: 300
  duration: 32s
  warm_up: 1s
  producers:
    shop: {options: {acks: all, enable.idempotence: true, message.timeout.ms: 8000}}
  consumers:
    billing: {group: billing}
faults:
  - {fault: client-freeze, target: client, at: 2s, freeze: 20s, period: [30s, 30s], for: 20s}
  - {fault: pause, target: "leader-of:orders", at: 24s, for: 5s, wait: 10s}
limits: {stall: 10s, call: 12s}
require: {rate_ratio: 0}
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], LiveRun]]:
    runs: list[LiveRun] = []

    def start(scenario: str) -> LiveRun:
        runs.append(LiveRun(tmp_path, scenario=scenario))
        return runs[-1]

    yield start
    for run in runs:
        run.close()


def noticed(live: LiveRun) -> list[dict[str, Any]]:
    """The rows that the harness wrote of workers that wait, with ``after_s``: seconds into the
    load."""
    run = RunDir(live.root)
    epoch_ns = read_json(run.manifest)["epoch_ns"]
    rows = [row for row in read_jsonl(run.events) if "since_ns" in row]
    return [{**row, "after_s": (row["t_ns"] - epoch_ns) / 1e9} for row in rows]


def test_a_hang_is_noticed_within_seconds_of_its_deadline_while_others_go_on(
    start: Callable[[str], LiveRun],
) -> None:
    live = start(SARAMA)
    assert live.wait() == Exit.FAIL, live.errors()
    (hang,) = noticed(live)
    assert (hang["kind"], hang["worker"], hang["instance"]) == ("hang", "producer-shop", 1)
    assert hang["deadline_s"] == 15  # limits.call
    assert hang["open"] > 0
    assert hang["last_progress_ns"] > 0
    late_s = (hang["t_ns"] - hang["since_ns"]) / 1e9 - hang["deadline_s"]
    assert 0 < late_s < LATEST_S
    assert hang["after_s"] < 45, "noticed while the load was on"
    assert hang["where"].startswith("github.com/Shopify/sarama.(*syncProducer).SendMessages")
    assert "goroutine" in (live.root / hang["stacks"]).read_text()
    assert "producer-shop (sarama 1.37.2) hangs: " in live.errors()
    found = live.document()
    assert {
        finding["class"] for finding in found["findings"] if finding["status"] == "violation"
    } == {"hang"}
    follow_summary(live.root)


def test_a_consumer_that_stalls_leaves_its_stacks_while_the_load_is_on(
    start: Callable[[str], LiveRun],
) -> None:
    live = start(QPID)
    assert live.wait() == Exit.FAIL, live.errors()
    (stall,) = noticed(live)
    assert (stall["kind"], stall["worker"], stall["session"]) == ("stall", "consumer-billing", 1)
    late_s = (stall["t_ns"] - stall["since_ns"]) / 1e9 - 5
    assert 0 < late_s < LATEST_S
    assert stall["after_s"] < 25, "noticed while the load was on"
    assert stall["waiting"] > 0
    assert "BasicMessageConsumer" in stall["where"]
    assert (live.root / stall["stacks"]).stat().st_size > 1000
    follow_summary(live.root)


def test_who_was_frozen_or_has_time_left_does_not_hang(start: Callable[[str], LiveRun]) -> None:
    live = start(PATIENT)
    live.wait()
    found = live.document()
    assert [(f["kind"], f["effective"]) for f in found["faults"]] == [
        ("client-freeze", True),
        ("pause", True),
    ]
    assert noticed(live) == []
    assert {finding["class"] for finding in found["findings"]}.isdisjoint({"hang", "stall"})
