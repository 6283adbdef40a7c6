"""The same scenario, seed and faults come to the same verdict on both runtimes (figures:
bench.runtimes).

Each run is held against the same words, so that one part can be run alone: ``-k
kafka-storm-docker``.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.live.printed import follow_summary
from tests.live.run_rig import BROKERSTORM

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.usefixtures("plugin")]

RUN_S = 900.0
SEED = ["--seed", "7"]
#: Rates are a matter of the machine; these runs are about what became of the messages.
SLOW_MACHINE = ["--set", "require.rate_ratio=0.1"]
SUITE = {
    "kafka-storm": ["--set", "load.rate=10000"],
    "pulsar-storm": ["--set", "load.rate=10000"],
    "qpid-storm": [],
}


def said(folder: Path, *arguments: str) -> dict[str, Any]:
    """The one JSON document of a command."""
    command = [*BROKERSTORM, "--json", "--run-dir", str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=False)
    assert done.stdout, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


@pytest.mark.parametrize("runtime", ["process", "docker"])
@pytest.mark.parametrize("scenario", SUITE)
def test_either_runtime_comes_to_the_same_verdict(
    scenario: str, runtime: str, image: Callable[..., Any], tmp_path: Path
) -> None:
    if runtime == "docker":
        image(scenario.partition("-")[0])
    arguments = [scenario, *SEED, *SUITE[scenario], *SLOW_MACHINE]
    (plan,) = said(tmp_path, "plan", *arguments)["plans"]
    document = said(tmp_path, "run", *arguments, "--runtime", runtime)
    assert document["environment"]["runtime"] == f"{runtime} (asked for)"
    assert document["verdict"] == "pass", document["reasons"]
    assert [found for found in document["findings"] if found["status"] == "violation"] == []
    follow_summary(tmp_path / "latest")
    fired = [
        (row["id"], row["kind"], row["effective"], row["healed"]) for row in document["faults"]
    ]
    assert fired == [(row["id"], row["fault"], True, True) for row in plan["timeline"]]
