"""`clean` and its kin as an attacker, or another user, would have them: what is not ours is not
touched."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from cli import main
from experiments.leftovers import remove
from harness.clusters import leftovers
from harness.clusters.layout import addresses
from harness.clusters.nodes.processes import ProcessId, identify
from harness.contracts.ledger import LedgerEntry, StoppedProcess
from harness.errors import Exit
from harness.owners import RUN_ID, STATE
from harness.rundir import RunDir, write_json
from harness.start_times import started_s
from harness.waiting import wait_until

_NOBODY = 65534
_FORK = "sleep 600 >/dev/null & echo $!"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(STATE, str(tmp_path / "state"))
    return tmp_path / "state" / "addresses"


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The pids that `clean` sees: a defect here must not end what others have on this machine."""
    pids: list[int] = []
    monkeypatch.setattr("psutil.pids", lambda: [1, *pids])
    return pids


@pytest.fixture
def run_id() -> str:
    return f"unit-{os.getpid()}-{time.monotonic_ns()}"


@pytest.fixture
def start_orphan(machine: list[int]) -> Iterator[Callable[..., ProcessId]]:
    """Starts processes without a parent, as a killed harness leaves them."""
    started: list[ProcessId] = []

    def start(uid: int | None = None, **environment: str) -> ProcessId:
        done = subprocess.run(
            ["/bin/sh", "-c", _FORK],
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            check=True,
            cwd="/",
            user=uid,
        )
        identity = identify(int(done.stdout))
        assert identity is not None
        started.append(identity)
        machine.append(identity.pid)
        return identity

    yield start
    for identity in started:
        if identity.is_alive():
            os.kill(identity.pid, signal.SIGKILL)


def claim_of_a_dead_harness(run_id: str, folder: Path) -> int:
    """A claim as a killed harness leaves it, with the cluster's folder."""
    block = addresses.claim(run_id, folder, [])
    path = addresses.state_folder() / f"127.0.{block}.json"
    row = json.loads(path.read_text())
    path.write_text(json.dumps({**row, "started_s": 0.5}))
    write_json(folder / "cluster.json", {"run_id": run_id})
    return block


def clean_all() -> None:
    remove(leftovers.find())


@pytest.mark.parametrize("text", ["{victim}", "../../victim", "../victim"])
def test_a_process_cannot_name_a_folder_that_clean_removes(
    text: str, tmp_path: Path, start_orphan: Callable[..., ProcessId]
) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "kept").touch()
    (tmp_path / "state" / "security").mkdir(parents=True)
    named = start_orphan(**{RUN_ID: text.format(victim=victim)})
    clean_all()
    assert (victim / "kept").exists()
    assert named.is_alive(), "what has no run id is no process of a run"


@pytest.mark.skipif(os.geteuid() != 0, reason="starts a process of another user")
def test_root_leaves_processes_of_other_users_alone(
    run_id: str, start_orphan: Callable[..., ProcessId]
) -> None:
    foreign = start_orphan(_NOBODY, **{RUN_ID: run_id})
    assert leftovers.find(run_id) == []
    clean_all()
    assert foreign.is_alive()


def test_a_cluster_that_another_state_folder_claims_is_left_alone_and_named(
    run_id: str,
    tmp_path: Path,
    start_orphan: Callable[..., ProcessId],
    capsys: pytest.CaptureFixture[str],
) -> None:
    other = tmp_path / "other"
    broker = start_orphan(**{RUN_ID: run_id, STATE: str(other)})
    assert main(["clean"]) == Exit.PASS
    assert broker.is_alive()
    told = capsys.readouterr().out
    assert f"left alone  {run_id}" in told
    assert f"{STATE}={other} brokerstorm clean" in told

    assert main(["clean", run_id]) == Exit.USAGE, "a name does not make it ours"
    assert broker.is_alive()
    assert f"{STATE}={other} brokerstorm clean {run_id}" in capsys.readouterr().err


def test_the_state_folder_of_a_run_that_nobody_tends_cleans_it(
    run_id: str, start_orphan: Callable[..., ProcessId], tmp_path: Path
) -> None:
    broker = start_orphan(**{RUN_ID: run_id, STATE: str(tmp_path / "state")})
    assert main(["clean", run_id]) == Exit.PASS
    assert not broker.is_alive()


def test_links_in_a_run_folder_are_not_followed(run_id: str, tmp_path: Path) -> None:
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "run" / "cluster"
    (elsewhere / "data").mkdir(parents=True)
    (elsewhere / "data" / "kept").touch()
    (elsewhere / "pid.json").write_text(json.dumps({"run_id": run_id}))
    (folder / "kafka-1" / "data").mkdir(parents=True)
    (folder / "kafka-2").mkdir()
    (folder / "kafka-2" / "data").symlink_to(elsewhere / "data")
    (folder / "evil").symlink_to(elsewhere)
    claim_of_a_dead_harness(run_id, folder)
    clean_all()
    assert (elsewhere / "data" / "kept").exists()
    assert (elsewhere / "pid.json").exists()
    assert not (folder / "kafka-1" / "data").exists(), "its own data goes"
    assert addresses.claims() == []


def test_a_claim_on_a_folder_that_is_not_the_run_s_removes_nothing_there(
    run_id: str, tmp_path: Path
) -> None:
    folder = tmp_path / "precious"
    (folder / "project" / "data").mkdir(parents=True)
    claim_of_a_dead_harness(run_id, folder)
    write_json(folder / "cluster.json", {"run_id": "another"})
    clean_all()
    assert (folder / "project" / "data").exists()


def test_a_forged_ledger_continues_no_process_of_others(run_id: str, tmp_path: Path) -> None:
    run = RunDir(tmp_path / run_id).create()
    run.cluster.mkdir()
    claim_of_a_dead_harness(run_id, run.cluster)
    stranger = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        os.kill(stranger.pid, signal.SIGSTOP)
        process = psutil.Process(stranger.pid)
        assert wait_until(lambda: process.status() == psutil.STATUS_STOPPED, 10.0)
        stopped = StoppedProcess(
            node="kafka-1", pid=stranger.pid, started_s=started_s(stranger.pid)
        )
        document = {
            "id": 1,
            "kind": "pause",
            "paused": [{"node": stopped.node, "pid": stopped.pid}],
        }
        document["paused"][0]["started_s"] = stopped.started_s  # type: ignore[index]
        write_json(run.ledger / "fault-000001.json", document)
        clean_all()
        assert process.status() == psutil.STATUS_STOPPED
    finally:
        stranger.kill()
        stranger.wait()


def _as_fifo(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def _as_folder(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


_CLAIM = {"block": 7, "run_id": "a", "folder": "/x", "pid": 5, "started_s": 1.0, "kept": False}
DAMAGES: dict[str, object] = {
    "null": None,
    "a list": [],
    "pid -1": {**_CLAIM, "pid": -1},
    "pid of a list": {**_CLAIM, "pid": []},
    "huge pid": {**_CLAIM, "pid": 10**30},
    "endless": {**_CLAIM, "started_s": "x"},
    "a path as run id": {**_CLAIM, "run_id": "../x"},
    "a folder that is no path": {**_CLAIM, "folder": 3},
    "another block": {**_CLAIM, "block": 8},
}


@pytest.mark.parametrize("damage", [*DAMAGES, "a FIFO", "a folder"])
def test_a_damaged_claim_stops_neither_clean_nor_up(
    damage: str, state: Path, tmp_path: Path, run_id: str, capsys: pytest.CaptureFixture[str]
) -> None:
    addresses.release("makes the folder")
    path = state / "127.0.7.json"
    if damage in DAMAGES:
        path.write_text(json.dumps(DAMAGES[damage]))
    else:
        {"a FIFO": _as_fifo, "a folder": _as_folder}[damage](path)
    assert addresses.claims() == []
    # A run's name decides where it begins to look for a block: not at the damaged claim, which it
    # may overwrite.
    names = (f"{run_id}-{number}" for number in itertools.count())
    name = next(name for name in names if zlib.crc32(name.encode()) % addresses.BLOCKS + 1 != 7)
    assert addresses.claim(name, tmp_path, []) in range(1, addresses.BLOCKS + 1)
    assert main(["clean"]) == Exit.PASS
    assert f"left alone  {path}" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["fault-abc.json", "fault-000001.json"])
def test_a_damaged_ledger_does_not_keep_clean_from_its_work(
    name: str, run_id: str, tmp_path: Path
) -> None:
    run = RunDir(tmp_path / run_id).create()
    (run.cluster / "kafka-1" / "data").mkdir(parents=True)
    claim_of_a_dead_harness(run_id, run.cluster)
    (run.ledger / name).write_text("null")
    assert main(["clean"]) == Exit.PASS
    assert not (run.cluster / "kafka-1" / "data").exists()
    assert addresses.claims() == []


def test_a_clean_that_is_cut_short_can_be_given_again(
    run_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim is what the next `clean` finds the run by, so it goes last."""
    run = RunDir(tmp_path / run_id).create()
    run.cluster.mkdir()
    claim_of_a_dead_harness(run_id, run.cluster)

    def broken(*_: object) -> list[str]:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched, suppress(OSError):
        patched.setattr("faults.heal_from_ledger", broken)
        clean_all()
    assert [claim.run_id for claim in addresses.claims()] == [run_id]


def test_an_entry_of_the_ledger_removes_no_other(tmp_path: Path, run_id: str) -> None:
    from faults.engine.ledger import Ledger

    run = RunDir(tmp_path / run_id).create()
    write_json(run.ledger / "fault-000001.json", {"id": 2, "kind": "kill"})
    assert [entry.id for entry in Ledger(run).entries()] == [1]
    assert isinstance(Ledger(run).entries()[0], LedgerEntry)
