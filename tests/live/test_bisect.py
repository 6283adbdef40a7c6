"""A bisection over releases with the genuine client on live brokers: killed in the middle, it goes
on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.waiting import wait_until
from tests.unit.test_imports import ROOT

pytestmark = [pytest.mark.live, pytest.mark.slow]


def test_a_bisection_that_is_killed_ends_at_the_release_that_fixed_it(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    command = [sys.executable, "-m", "brokerstorm", "--json", "--run-dir", str(runs), "bisect"]
    asked = ["sarama-2377", "--bad", "1.33.0", "--good", "1.38.1", "--seed", "7", "--rate", "0.8"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "launcher")}

    with subprocess.Popen([*command, *asked], env=environment, stdout=subprocess.DEVNULL) as first:
        assert wait_until(
            lambda: len(list(runs.glob("*/1.38.1-2/manifest.json"))) == 1, timeout_s=600
        )
        first.send_signal(signal.SIGKILL)
    (folder,) = runs.glob("*-bisect-sarama-2377")
    done = subprocess.run(
        [*command, "--resume", folder.name],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    document = json.loads(done.stdout)
    assert (done.returncode, document["outcome"]) == (0, "found"), done.stderr[-3000:]
    assert (document["before"], document["first"]) == ("1.37.2", "1.38.0")
    assert document["error"] <= 0.05
    played = [(look["version"], look["number"]) for look in document["looks"]]
    assert len(set(played)) == len(played) == document["cost"]["rounds"]
