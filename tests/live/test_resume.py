"""A run whose command is killed with -9 while a broker is down goes on, or is judged by what it
left."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from harness.clusters import leftovers
from harness.errors import Exit
from harness.rundir import RunDir, read_json
from harness.waiting import wait_until
from tests.live.printed import follow_summary
from tests.live.run_rig import BROKERSTORM, RUN_TIMEOUT_S, brokerstorm

pytestmark = [pytest.mark.live, pytest.mark.spark]

SCENARIO = """
name: cut
topics: {orders: {partitions: 6}}
load:
  rate: 1500
  duration: %s
  warm_up: 1s
  # One request in flight: with more, librdkafka#4953 stores a batch twice, now and then, when leaders move.
  producers:
    shop:
      count: 2
      options: {acks: all, enable.idempotence: true, linger.ms: 5, max.in.flight.requests.per.connection: 1}
  consumers: {billing: {}}
faults:
  - {fault: kill, target: "leader-of:orders", at: 3s, for: 60s}
  - {fault: leader-move, topic: orders, at: 40s}
require: {rate_ratio: 0.5}
"""


def killed(folder: Path, duration: str) -> RunDir:
    """A run that is not looked after any more, with a broker down."""
    path = folder / "cut.yaml"
    path.write_text(SCENARIO % duration)
    command = [*BROKERSTORM, "--run-dir", str(folder / "runs"), "run", str(path), "--seed", "7"]
    with (folder / "said").open("wb") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True)

    def is_down() -> bool:
        return any(
            '"effect"' in each.read_text() for each in folder.glob("runs/*-cut/faults.jsonl")
        )

    try:
        assert wait_until(is_down, RUN_TIMEOUT_S), (folder / "said").read_text()
    finally:
        process.kill()
        process.wait()
    (run,) = folder.glob("runs/*-cut")
    return RunDir(run)


def resumed(run: RunDir) -> tuple[int, Any]:
    said = brokerstorm("--json", "--run-dir", str(run.root.parent), "run", "--resume", run.run_id)
    return said.code, said.document


def checks(document: Any) -> dict[str, Any]:
    return {each["name"]: each for each in document["coverage"]}


def test_clients_begin_again_and_the_rest_of_the_load_is_offered(tmp_path: Path) -> None:
    run = killed(tmp_path, "60s")
    code, document = resumed(run)
    assert (code, document["verdict"]) == (Exit.PASS, "pass"), document["reasons"]
    assert "the harness was killed" in checks(document)["run"]["text"]
    workers = {each["name"]: each for each in read_json(run.manifest)["workers"]}
    assert {name for name, each in workers.items() if each["life_of"]} == {
        "producer-shop-1.2", "producer-shop-2.2", "consumer-billing.2",
    }  # fmt: skip
    assert all(workers[name]["killed"] for name in ("producer-shop-1", "consumer-billing"))
    assert [fault["healed"] for fault in document["faults"]] == [True, True]
    assert 40_000 < document["sends"]["attempted"] < 92_000
    assert 1_000 < document["rate"]["offered_per_s"] < 1_500, document["rate"]
    assert leftovers.find(run.run_id) == []
    follow_summary(run.root)
    code, document = resumed(run)
    assert (code, "was not killed" in str(document)) == (Exit.USAGE, True)


@pytest.mark.extended
def test_without_its_brokers_what_it_captured_is_judged(tmp_path: Path) -> None:
    run = killed(tmp_path, "60s")
    leftovers.remove(leftovers.find(run.run_id))
    code, document = resumed(run)
    assert (code, document["verdict"]) == (Exit.UNKNOWN, "unknown"), document["reasons"]
    assert document["sends"]["attempted"] > 1000
    assert not [each for each in document["findings"] if each["status"] == "violation"]
    follow_summary(run.root)
