"""Clients that are killed, shut down, or come and go: each life is judged, and none for another."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import Exit
from harness.rundir import RunDir, read_json
from tests.live.run_rig import LiveRun

pytestmark = [pytest.mark.live, pytest.mark.slow]

SCENARIO = """
name: lives
topics: {orders: {partitions: 4}}
load:
  rate: 500
  duration: 16s
  warm_up: 1s
  producers:
    shop: {count: 2, options: {acks: all, enable.idempotence: true}}
    job: {comes_and_goes: {every: 6s, away: 1s}, options: {acks: all, enable.idempotence: true}}
  consumers:
    billing: {group: billing, options: {session.timeout.ms: 6000}}
faults:
  - {fault: client-kill, target: "client:producer-1", at: 2s, for: 1s}
  - {fault: client-restart, target: "client:producer-2", at: 3s}
  - {fault: client-kill, target: "client:consumer-1", at: 5s, for: 1s}
require: {rate_ratio: 0.5}
"""


def test_every_life_is_a_client_of_its_own(tmp_path: Path) -> None:
    with LiveRun(tmp_path, scenario=SCENARIO) as live:
        assert live.wait() == Exit.PASS, live.errors()
        found = live.document()
        assert [(f["kind"], f["effective"], f["healed"]) for f in found["faults"]] == [
            ("client-kill", True, True), ("client-restart", True, True), ("client-kill", True, True),
        ]  # fmt: skip
        workers = {w["name"]: w for w in read_json(RunDir(live.root).manifest)["workers"]}
        lives = {name: w.get("instance") for name, w in workers.items() if w["role"] == "producer"}
        assert len(set(lives.values())) == len(lives) == 7, "two of the shop's, three of the job's"
        assert {"producer-1.2", "producer-2.2", "producer-3.2", "producer-3.3", "consumer-1.2"} <= set(
            workers
        )
        killed = {name for name, w in workers.items() if w.get("killed")}
        assert killed == {"producer-1", "consumer-1"}
        assert all(w["done"] for name, w in workers.items() if name not in killed)
