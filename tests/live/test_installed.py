"""A whole run by the installed command, where folders named like ours stand in its way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.installed import build, install
from tests.machine import ORPHANS

pytestmark = pytest.mark.live


@pytest.mark.extended
def test_an_installed_command_runs_and_judges(tmp_path: Path) -> None:
    installed = install(build("wheel", tmp_path / "wheel"), tmp_path)
    words = [str(installed.command), "--json", "--run-dir", str(tmp_path / "runs")]
    try:
        done = installed.call(*words, "run", "kafka-smoke", PYTHONSAFEPATH="1")
        assert done.returncode == 0, done.stdout + done.stderr
        assert json.loads(done.stdout)["verdict"] == "pass"
    finally:
        with ORPHANS:
            installed.call(*words, "clean")
