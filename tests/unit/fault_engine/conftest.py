"""A cluster that is only state and a run to write into; the engine looks at them often."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.rundir import RunDir
from tests.unit.fault_cluster import StateCluster


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("kit.site", "engine.firing", "engine.prover"):
        monkeypatch.setattr(f"faults.{module}.POLL_S", 0.01)


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path / "run").create()


@pytest.fixture
def cluster() -> StateCluster:
    return StateCluster()
