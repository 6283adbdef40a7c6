"""Node processes without Java: who gets a signal, and who never does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from harness.clusters.nodes.node_process import NodeFolder, NodeProcess, telling_lines
from harness.clusters.nodes.processes import ProcessId, end, identify, run_processes
from harness.errors import EnvironmentNotReady
from harness.owners import RUN_ID, other_runs
from harness.waiting import wait_until

IDLE = ["sleep", "600"]
#: Ignores SIGTERM and says when it does.
STUBBORN = [
    sys.executable, "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "print('up', flush=True); time.sleep(600)",
]  # fmt: skip


@pytest.fixture
def run_id() -> str:
    return f"unit-{os.getpid()}-{time.monotonic_ns()}"


@pytest.fixture
def node(tmp_path: Path, run_id: str) -> Iterator[NodeProcess]:
    process = NodeProcess("node-1", NodeFolder(tmp_path / "node-1"), run_id)
    process.folder.root.mkdir()
    yield process
    process.kill()


def test_launch_carries_the_run_id_and_has_its_own_group(node: NodeProcess, run_id: str) -> None:
    node.launch(IDLE, dict(os.environ))
    assert node.is_running()
    assert node.pid is not None
    assert os.getpgid(node.pid) == node.pid != os.getpgid(0)
    assert psutil.Process(node.pid).environ()[RUN_ID] == run_id
    assert json.loads(node.folder.pid_file.read_text())["pid"] == node.pid


def test_what_a_killed_node_unpacked_is_gone_at_its_next_start(node: NodeProcess) -> None:
    node.launch(IDLE, dict(os.environ))
    (node.folder.temporary / "librocksdbjni.so").touch()
    node.kill()
    node.launch(IDLE, dict(os.environ))
    assert list(node.folder.temporary.iterdir()) == []


def test_a_second_launch_is_a_no_op(node: NodeProcess) -> None:
    node.launch(IDLE, dict(os.environ))
    first = node.pid
    node.launch(IDLE, dict(os.environ))
    assert node.pid == first


def test_kill_ends_it_leaves_no_zombie_and_can_be_repeated(node: NodeProcess) -> None:
    node.launch(IDLE, dict(os.environ))
    pid = node.pid
    assert pid is not None
    node.kill()
    assert not node.is_running()
    assert node.pid is None
    assert not psutil.pid_exists(pid)
    assert not node.folder.pid_file.exists()
    node.kill()
    node.resume()
    node.launch(IDLE, dict(os.environ))
    assert node.pid not in (None, pid)


def test_pause_and_resume(node: NodeProcess) -> None:
    node.launch(IDLE, dict(os.environ))
    node.pause()
    assert node.is_paused()
    assert node.is_running()
    node.resume()
    assert wait_until(lambda: not node.is_paused(), 10)


def test_a_paused_process_can_be_killed_and_stopped(node: NodeProcess) -> None:
    for finish in (node.kill, lambda: node.stop(5.0)):
        node.launch(IDLE, dict(os.environ))
        node.pause()
        finish()
        assert not node.is_running()
        assert not node.is_paused()


def test_pause_of_a_node_that_is_down_is_an_error(node: NodeProcess) -> None:
    with pytest.raises(EnvironmentNotReady, match="cannot pause node-1"):
        node.pause()


def test_stop_is_graceful_and_gives_up_in_time(node: NodeProcess) -> None:
    node.launch(IDLE, dict(os.environ))
    started = time.monotonic()
    node.stop(300.0)
    assert time.monotonic() - started < 60.0

    node.launch(STUBBORN, dict(os.environ))
    out = node.folder.logs / "stdout.log"
    assert wait_until(lambda: "up" in out.read_text(), 10)
    started = time.monotonic()
    node.stop(0.5)
    assert 0.5 <= time.monotonic() - started < 60.0
    assert not node.is_running()


def test_a_kill_overtakes_a_stop_that_waits(node: NodeProcess) -> None:
    node.launch(STUBBORN, dict(os.environ))
    out = node.folder.logs / "stdout.log"
    assert wait_until(lambda: "up" in out.read_text(), 10)
    stopping = threading.Thread(target=node.stop, args=(300.0,))
    stopping.start()
    started = time.monotonic()
    assert node.is_running()  # reads do not wait for it either
    node.kill()
    stopping.join(60.0)
    assert not stopping.is_alive()
    assert time.monotonic() - started < 60.0


def test_a_process_that_dies_at_once_says_why(node: NodeProcess) -> None:
    script = "echo booting; echo 'ERROR java.net.BindException: Address already in use' >&2; exit 3"
    node.launch(["sh", "-c", script], dict(os.environ))
    assert wait_until(lambda: not node.is_running(), 10)
    error = node.why_dead()
    assert "node-1 died (exit code 3)" in str(error)
    assert "Address already in use" in str(error)
    assert "ss -ltnp" in error.hint


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux bounds a process that runs")
def test_a_process_that_wants_more_memory_than_it_may_have_ends(node: NodeProcess) -> None:
    asks = "kept = []\nwhile len(kept) < 1024: kept.append(bytearray(2**20))"
    node.launch([sys.executable, "-c", asks], dict(os.environ), memory_max_mb=200)
    assert wait_until(lambda: not node.is_running(), 60, every_s=0.02)
    assert node.exit_code == 1
    assert "MemoryError" in str(node.why_dead())


def test_a_program_that_is_not_there_is_an_error(node: NodeProcess) -> None:
    with pytest.raises(EnvironmentNotReady, match="cannot start /nowhere/java"):
        node.launch(["/nowhere/java"], dict(os.environ))


def test_another_object_adopts_the_process(node: NodeProcess, run_id: str) -> None:
    node.launch(IDLE, dict(os.environ))
    other = NodeProcess("node-1", node.folder, run_id)
    assert not other.is_running()
    other.adopt()
    assert other.pid == node.pid
    other.pause()
    assert node.is_paused()
    other.kill()
    assert not other.is_running()
    assert wait_until(lambda: not node.is_running(), 10)


def test_a_pid_file_that_names_a_stranger_is_not_believed(node: NodeProcess, run_id: str) -> None:
    """The pid was reused, by a process without our run id or one that started at another time."""
    stranger = subprocess.Popen(IDLE, start_new_session=True)
    try:
        identity = identify(stranger.pid)
        assert identity is not None
        for started_s in (identity.started_s, identity.started_s - 3600.0):
            row = {"run_id": run_id, "node": "node-1", "pid": stranger.pid, "started_s": started_s}
            node.folder.pid_file.write_text(json.dumps(row))
            node.adopt()
            assert not node.is_running()
            node.kill()
        node.folder.pid_file.write_text("{torn")
        node.adopt()
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_process_is_the_same_when_the_clock_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a virtual machine was resumed; psutil's start times move with it."""
    identity = identify(os.getpid())
    assert identity is not None
    before_s = psutil.Process().create_time()
    boot_time_s = psutil.boot_time()
    monkeypatch.setattr("psutil._pslinux.boot_time", lambda: boot_time_s + 60.0)
    assert psutil.Process().create_time() > before_s + 50.0, "the clock was not set"
    assert identity.is_alive()
    assert identify(os.getpid()) == identity


def test_end_kills_only_after_checking_again(run_id: str) -> None:
    ours = subprocess.Popen(IDLE, env={**os.environ, RUN_ID: run_id})
    stranger = subprocess.Popen(IDLE)
    try:
        mine, other = identify(ours.pid), identify(stranger.pid)
        assert mine is not None
        assert other is not None
        reused = ProcessId(stranger.pid, other.started_s - 3600.0)
        reaper = threading.Thread(target=ours.wait)  # a child stays a zombie until its parent waits
        reaper.start()
        assert end([(mine, run_id), (other, run_id), (reused, run_id)]) == []
        reaper.join(5.0)
        assert ours.returncode == -signal.SIGKILL
        assert stranger.poll() is None
    finally:
        for process in (ours, stranger):
            process.kill()
            process.wait()


def test_processes_are_found_by_environment_but_never_ourselves(
    run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RUN_ID, run_id)
    child = subprocess.Popen(IDLE)
    try:
        assert wait_until(lambda: [i.pid for i, _ in run_processes(run_id)] == [child.pid], 10)
    finally:
        child.kill()
        child.wait()
    assert list(run_processes(run_id)) == []


def test_the_telling_lines_of_a_java_log() -> None:
    log = (
        "INFO a\nERROR it broke\n\tat x.Y.z(Y.java:1)\n\t... 5 more\n"
        "Caused by: x.FooException: why\nINFO b\n"
    )
    assert telling_lines(log) == ["ERROR it broke", "Caused by: x.FooException: why"]
    assert telling_lines("one\ntwo\n") == ["one", "two"]


def test_the_telling_lines_of_a_program_in_go() -> None:
    log = (
        "[7] 2026/11/26 [INF] Starting JetStream\nfatal error: runtime: cannot allocate memory\n\n"
        "goroutine 1 [running]:\nmain.(*msgBlock).indexCacheBuf(0xc000)\n\t/filestore.go:8757 +0x1d4\n"
    )
    assert telling_lines(log) == ["fatal error: runtime: cannot allocate memory"]


def test_the_telling_lines_of_nothing() -> None:
    assert telling_lines("") == []


def test_a_folder_fills_only_its_own_words(tmp_path: Path) -> None:
    folder = NodeFolder(tmp_path)
    assert folder.fill("-Dx={conf}/a {other}") == f"-Dx={tmp_path}/conf/a {{other}}"


def test_other_runs_of_the_machine_are_seen() -> None:
    environment = {**os.environ, RUN_ID: "20260101-000000-other", "BROKERSTORM_STATE": "/elsewhere"}
    with subprocess.Popen(["sleep", "60"], env=environment) as process:
        try:
            assert "20260101-000000-other" in other_runs("20260101-000000-mine")
            assert "20260101-000000-other" not in other_runs("20260101-000000-other")
        finally:
            process.kill()
