"""A cluster that is only state and a run to write into; the engine's clocks go faster."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness.rundir import RunDir
from tests.unit.fault_cluster import StateCluster

#: Module -> its waits, in seconds. They are meant for brokers; nodes that are only state change at
#: once.
FAST = {
    "kit.cluster_view": {"POLL_S": 0.01},
    "engine.firing": {"POLL_S": 0.01, "_RETRY_S": 0.05},
    "engine.prover": {"POLL_S": 0.01, "_SETTLE_S": 0.2},
    "kit.resources": {"_CATCH_UP_S": 0.7, "_NOTICED_S": 0.6},
}


@pytest.fixture(autouse=True)
def _fast_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, waits in FAST.items():
        for name, seconds in waits.items():
            monkeypatch.setattr(sys.modules[f"faults.{module}"], name, seconds)


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path / "run").create()


@pytest.fixture
def cluster() -> StateCluster:
    return StateCluster()
