"""The same scenario, seed and faults come to the same verdict on both runtimes (figures: bench.runtimes)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.live.run_rig import BROKERSTORM

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.usefixtures("plugin")]

RUN_S = 900.0
#: Rates are a matter of the machine; these runs are about what became of the messages.
SLOW_MACHINE = ["--set", "require.rate_ratio=0.1"]
SUITE = {
    "kafka-storm": ["--set", "load.rate=10000"],
    "pulsar-storm": ["--set", "load.rate=10000"],
    "qpid-storm": [],
}


def run(folder: Path, scenario: str, runtime: str) -> dict[str, Any]:
    command = [*BROKERSTORM, "--json", "--run-dir", str(folder), "run", scenario, "--seed", "7"]
    command += ["--runtime", runtime, *SUITE[scenario], *SLOW_MACHINE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=False)
    assert done.stdout, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def summary(document: dict[str, Any]) -> dict[str, Any]:
    return {
        "verdict": document["verdict"],
        "violations": {f["class"]: f["count"] for f in document["findings"] if f["status"] == "violation"},
        "faults": [
            (f["id"], f["kind"], f["effective"], f["healed"], f["skipped"]) for f in document["faults"]
        ],
    }


@pytest.mark.parametrize("scenario", SUITE)
def test_both_runtimes_come_to_the_same_verdict(
    scenario: str, image: Callable[..., Any], tmp_path: Path
) -> None:
    image(scenario.partition("-")[0])
    found = {runtime: summary(run(tmp_path, scenario, runtime)) for runtime in ("process", "docker")}
    assert found["docker"] == found["process"]
    assert found["docker"]["verdict"] == "pass"
