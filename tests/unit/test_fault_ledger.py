"""The ledger with real processes: what another process left stopped goes on, and nothing else is
touched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

import faults
from faults.engine.ledger import Ledger
from faults.kit.identity import process_of
from harness.contracts.ledger import LedgerEntry, StoppedProcess
from harness.faultlog import read_faults
from harness.owners import marks_of
from harness.rundir import RunDir, read_jsonl, write_json, write_jsonl
from harness.start_times import started_s
from harness.waiting import wait_until
from tests.unit.fault_cluster import StateCluster

KILLED = LedgerEntry(id=2, kind="kill", targets=("kafka-2",), down=("kafka-2",))


def paused(fault_id: int, process: StoppedProcess) -> LedgerEntry:
    return LedgerEntry(id=fault_id, kind="pause", targets=(process.node,), paused=(process,))


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path / "run").create()


@pytest.fixture
def sleeper() -> Iterator[psutil.Process]:
    """A process group of its own with the variables of the run, as a node is."""
    child = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)"],
        start_new_session=True,
        env={**os.environ, **marks_of("run")},
    )
    yield psutil.Process(child.pid)
    child.kill()
    child.wait()


def wait_status(process: psutil.Process, *, stopped: bool) -> None:
    assert wait_until(
        lambda: (process.status() == psutil.STATUS_STOPPED) == stopped, 5, every_s=0.01
    )


def stop(process: psutil.Process) -> None:
    process.send_signal(signal.SIGSTOP)
    wait_status(process, stopped=True)


def test_a_stopped_process_goes_on_without_any_cluster(
    run: RunDir, sleeper: psutil.Process
) -> None:
    stop(sleeper)
    Ledger(run).write(paused(3, process_of("kafka-1", sleeper.pid)))
    assert faults.heal_from_ledger(None, run) == []
    wait_status(sleeper, stopped=False)
    assert Ledger(run).entries() == []
    assert faults.heal_from_ledger(None, run) == []


def test_a_reused_pid_is_left_alone(run: RunDir, sleeper: psutil.Process) -> None:
    stop(sleeper)
    earlier = replace(process_of("kafka-1", sleeper.pid), started_s=started_s(sleeper.pid) - 100)
    Ledger(run).write(paused(1, earlier))
    assert faults.heal_from_ledger(None, run) == []
    assert sleeper.status() == psutil.STATUS_STOPPED


def test_a_process_that_is_gone_needs_nothing(run: RunDir) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    process = process_of("kafka-1", child.pid)
    child.wait()
    Ledger(run).write(paused(1, process))
    assert faults.heal_from_ledger(None, run) == []
    assert Ledger(run).entries() == []
    assert process_of("kafka-1", child.pid).pid is None


def test_killed_nodes_are_started_only_on_a_cluster_that_is_kept(run: RunDir) -> None:
    cluster = StateCluster()
    cluster.runtime.kill("kafka-2")
    Ledger(run).write(KILLED)
    assert faults.heal_from_ledger(None, run) == []
    assert not cluster.runtime.is_running("kafka-2")

    Ledger(run).write(KILLED)
    assert faults.heal_from_ledger(cluster, run) == []  # type: ignore[arg-type]
    assert cluster.runtime.is_running("kafka-2")
    assert [(row["id"], row["event"]) for row in read_jsonl(run.faults)] == [
        (2, "heal"),
        (2, "healed"),
    ]


def test_a_fault_that_leaves_nothing_to_undo_is_not_said_to_be_applied(run: RunDir) -> None:
    """The harness was killed between a leader move and the look at its effect."""
    row = {
        "id": 1,
        "event": "inject",
        "kind": "leader-move",
        "target": "orders",
        "targets": ["orders-0"],
    }
    write_jsonl(run.faults, [{**row, "planned_s": 8.0, "params": {}, "t_ns": 1}])
    assert faults.heal_from_ledger(None, run) == []
    assert [fault.is_applied for fault in read_faults(run.faults)] == [True]
    assert faults.heal_from_ledger(StateCluster(), run) == []  # type: ignore[arg-type]
    assert [(fault.is_applied, fault.effective) for fault in read_faults(run.faults)] == [
        (False, False)
    ]


def test_rounds_of_a_campaign(run: RunDir, sleeper: psutil.Process) -> None:
    write_json(run.campaign, {"schema_version": 1, "runs": ["1-unsafe", "2-safe"]})
    stop(sleeper)
    second = RunDir(run.root / "2-safe").create()
    Ledger(second).write(paused(3, process_of("kafka-1", sleeper.pid)))
    assert faults.heal_from_ledger(None, run) == []
    wait_status(sleeper, stopped=False)
    assert Ledger(second).entries() == []


def test_what_cannot_be_healed_stays(run: RunDir) -> None:
    cluster = StateCluster()
    cluster.runtime.kill("kafka-2")
    cluster.runtime.start_fails = 1
    Ledger(run).write(KILLED)
    assert faults.heal_from_ledger(cluster, run) == ["fault 2 (kill): kafka-2 died at start"]  # type: ignore[arg-type]
    assert len(Ledger(run).entries()) == 1
    assert read_jsonl(run.faults) == []
    assert faults.heal_from_ledger(cluster, run) == []  # type: ignore[arg-type]


def test_a_torn_entry_is_reported_where_it_matters(run: RunDir) -> None:
    (run.ledger / "fault-000004.json").write_text('{"id": 4, "pau')
    (failure,) = faults.heal_from_ledger(StateCluster(), run)  # type: ignore[arg-type]
    assert "fault-000004.json is not valid JSON" in failure
    assert faults.heal_from_ledger(None, run) == []  # the cluster goes away: nothing to ask
    assert Ledger(run).entries() == []


def test_no_ledger_folder(tmp_path: Path) -> None:
    assert faults.heal_from_ledger(None, RunDir(tmp_path / "nothing")) == []
