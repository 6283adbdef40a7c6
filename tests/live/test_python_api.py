"""The example project of people who test their own client, with an installed brokerstorm."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.installed import ROOT, build, install
from tests.machine import ORPHANS

pytestmark = pytest.mark.live


@pytest.mark.extended
def test_the_example_project(tmp_path: Path) -> None:
    """Its folder holds modules named like ours: they must not come before ours, nor ours before
    them."""
    installed = install(build("wheel", tmp_path / "wheel"), tmp_path)
    shutil.copytree(ROOT / "examples" / "pytest", installed.hostile, dirs_exist_ok=True)
    runs = tmp_path / "runs"
    try:
        done = installed.call(
            *(
                str(installed.python),
                "-m",
                "pytest",
                "-q",
                "-p",
                "no:cacheprovider",
                "-W",
                "ignore",
            ),
            f"--brokerstorm-runs={runs}",
        )
        assert "3 passed" in done.stdout, done.stdout + done.stderr
    finally:
        with ORPHANS:
            installed.call(str(installed.command), "--run-dir", str(runs), "clean")
