"""Clients that are killed, shut down, or come and go: each life is judged, and none for another."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import Exit
from harness.rundir import RunDir, read_json
from tests.live.printed import follow_summary
from tests.live.run_rig import LiveRun

pytestmark = [pytest.mark.live, pytest.mark.slow]

SCENARIO = """
name: lives
SYSTEM
load:
  rate: 200
  duration: 16s
  warm_up: 1s
  producers:
    shop: {count: 2, PRODUCER}
    job: {comes_and_goes: {every: 6s, away: 1s}, PRODUCER}
  consumers:
    billing: {group: billing, CONSUMER}
faults:
  - {fault: client-kill, target: "client:shop-1", at: 2s, for: 1s}
  - {fault: client-restart, target: "client:shop-2", at: 3s}
  - {fault: client-kill, target: "client:billing", at: 5s, for: 1s}
require: {rate_ratio: 0.5}
"""


#: What differs: system and topics, a producer, a consumer.
KAFKA = (
    "topics: {orders: {partitions: 4}}",
    "options: {acks: all, enable.idempotence: true}",
    "options: {session.timeout.ms: 6000}",
)
PULSAR = (
    "system: pulsar\ntopics: {orders: {count: 4}}",
    "client: pulsar-client",
    "client: pulsar-client",
)
QPID = (
    "system: qpid\ntopics: {orders: {}}",
    "client: pika",
    "client: pika, settle: transacted, per_transaction: 5",
)


@pytest.mark.parametrize("system", [KAFKA, PULSAR, QPID], ids=["kafka", "pulsar", "qpid"])
def test_every_life_is_a_client_of_its_own(tmp_path: Path, system: tuple[str, str, str]) -> None:
    scenario = SCENARIO
    for name, text in zip(("SYSTEM", "PRODUCER", "CONSUMER"), system, strict=True):
        scenario = scenario.replace(name, text)
    with LiveRun(tmp_path, scenario=scenario) as live:
        assert live.wait() == Exit.PASS, live.errors()
        found = live.document()
        assert [(f["kind"], f["effective"], f["healed"]) for f in found["faults"]] == [
            ("client-kill", True, True), ("client-restart", True, True), ("client-kill", True, True),
        ]  # fmt: skip
        workers = {w["name"]: w for w in read_json(RunDir(live.root).manifest)["workers"]}
        lives = {name: w.get("instance") for name, w in workers.items() if w["role"] == "producer"}
        assert len(set(lives.values())) == len(lives) == 7, "two of the shop's, three of the job's"
        assert {
            "producer-shop-1.2",
            "producer-shop-2.2",
            "producer-job.2",
            "producer-job.3",
            "consumer-billing.2",
        } <= set(workers)
        killed = {name for name, w in workers.items() if w.get("killed")}
        assert killed == {"producer-shop-1", "consumer-billing"}
        assert all(w["done"] for name, w in workers.items() if name not in killed)
        follow_summary(live.root)


CLOCKS = """
name: clocks
topics: {orders: {partitions: 4}}
load:
  rate: 200
  duration: 10s
  warm_up: 1s
  producers: {shop: {options: {acks: all, enable.idempotence: true}}}
  consumers: {billing: {group: billing, client: kafka-clients}}
faults:
  - {fault: clock-jump, target: client, by: 30m, at: 1s, for: 2s}
  - {fault: clock-jump, target: "client:shop", by: 24h, way: back, at: 4s, for: 1s}
  - {fault: clock-drift, target: "client:billing", speed: 3, at: 6s, for: 2s}
require: {rate_ratio: 0.5}
"""


def test_clients_whose_clocks_are_wrong_lose_nothing(tmp_path: Path) -> None:
    with LiveRun(tmp_path, scenario=CLOCKS) as live:
        assert live.wait() == Exit.PASS, live.errors()
        found = live.document()["faults"]
        follow_summary(live.root)
    assert [(f["effective"], f["healed"]) for f in found] == [(True, True)] * 3, found
