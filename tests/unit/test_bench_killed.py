"""Runs that are killed amid a fault: each kind has one, and what is looked for when it was cleaned
up."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.killed_faults import left, scenario
from experiments.plans import ScenarioRequest, resolve
from experiments.resolved import RoundOptions
from faults.kinds import KINDS


@pytest.mark.long
def test_every_kind_has_a_run_to_be_killed_in(tmp_path: Path) -> None:
    file = tmp_path / "killed.yaml"
    for kind in KINDS:
        file.write_text(json.dumps(scenario(kind)))
        (timeline,) = resolve(ScenarioRequest(scenario=str(file), seed=1), RoundOptions()).timelines
        (firing,) = timeline.firings
        assert (firing.kind, firing.t_s) == (kind, 1.0)


def test_a_kind_is_shown_on_another_system_with_keys_of_that_system() -> None:
    made = scenario("request-error", "rabbitmq")
    (step,) = made["faults"]
    assert (made["system"], step["requests"], step["error"]) == (
        "rabbitmq",
        ["basic.publish"],
        "basic.nack",
    )


def test_what_is_left_is_found_by_the_folder(tmp_path: Path) -> None:
    entry = tmp_path / "runs" / "one" / "ledger" / "fault-000001.json"
    entry.parent.mkdir(parents=True)
    assert list(left("no-such-run", tmp_path)) == []
    entry.touch()
    clock = {"LD_PRELOAD": "", "BROKERSTORM_CLOCK": f"{tmp_path}/runs/one/cluster/kafka-1/clock"}
    command = [sys.executable, "-c", "print(flush=True); input()"]
    with subprocess.Popen(
        command, env=clock, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as node:
        assert node.stdout is not None
        node.stdout.readline()
        found = list(left("no-such-run", tmp_path))
        node.kill()
    assert found[0].startswith(f"process {node.pid} ")
    assert found[1:] == [f"ledger {entry}"]
