"""A night on live brokers: killed in the middle, it goes on; shared cluster, rows in the
history."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from harness.waiting import wait_until
from tests.unit.test_imports import ROOT

pytestmark = [pytest.mark.live, pytest.mark.slow]
SUITE = """
name: two
cells:
  - scenarios: [kafka-smoke]
    settings: {small: {load.rate: 600, load.duration: 4s, faults: [], require.rate_ratio: 0.2}}
    runtimes: [process]
    rounds: 2
"""


def test_a_night_that_is_killed_goes_on(tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text(SUITE)
    runs = tmp_path / "runs"
    command = [
        sys.executable,
        "-m",
        "brokerstorm",
        "--json",
        "--run-dir",
        str(runs),
        "suite",
        "run",
    ]
    command.append(str(tmp_path / "two.yaml"))
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "launcher")}

    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as first:
        assert wait_until(lambda: any(runs.glob("*/rounds.jsonl")), timeout_s=200)
        assert wait_until(lambda: len(list(runs.glob("*/kafka-smoke-*/raw"))) == 2, timeout_s=100)
        first.send_signal(signal.SIGKILL)
    done = subprocess.run(
        [*command, "--resume"], env=environment, capture_output=True, text=True, check=False
    )

    document = json.loads(done.stdout)
    assert done.returncode == document["exit_code"]
    (cell,) = document["cells"]
    assert [each["verdict"] for each in cell["rounds"]] == ["pass", "pass"]
    with closing(sqlite3.connect(runs / "history.sqlite")) as file:
        assert file.execute("SELECT count(*), count(DISTINCT seed) FROM rounds").fetchone() == (
            2,
            2,
        )
    assert len(list(runs.glob("*/*-cut-1"))) == 1  # what was captured until then
