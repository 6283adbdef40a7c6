"""Workers of a task, as the driver has them. Tasks are processes of this machine; Spark is not
needed."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.clusters.nodes.processes import identify
from harness.errors import EnvironmentNotReady, UsageError, WorkerError
from harness.records import TableId
from harness.remote import executor as module
from harness.remote.executor import Executor
from harness.remote.server import LoadServer
from harness.run.worker_process import WorkerProcess
from harness.waiting import wait_until
from harness.workers.security import SecureOptions
from tests.planted.raw import raw_rows, segment_bytes
from tests.specs import worker_spec
from tests.unit.seal_rows import plan_of, sends

ROOT = Path(__file__).resolve().parents[2]
HOST = "127.0.0.1"
WAIT_S = 20.0
#: Says what it was told, and when by its own clock.
ECHO = """
import json, sys, time
say = lambda **row: print(json.dumps({**row, "t_ns": time.monotonic_ns()}), flush=True)
say(type="ready", folder=json.load(open(sys.argv[1]))["capture_dir"])
print("a client's own words", file=sys.stderr, flush=True)
for line in sys.stdin:
    say(type="stats", told=line.split())
    if line.startswith("stop"):
        say(type="done")
        break
"""


def task(server: LoadServer, box: Path) -> subprocess.Popen[str]:
    host, port = server.address
    process = subprocess.Popen(
        [sys.executable, "-m", "harness.remote.agent", host, str(port), "0", str(box)],
        stdin=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
    )
    assert process.stdin is not None
    process.stdin.write(f"{server.token}\n")
    process.stdin.close()
    return process


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[tuple[Executor, subprocess.Popen[str]]]:
    server = LoadServer(HOST, 1)
    process = task(server, tmp_path / "box")
    try:
        (executor,) = server.wait(WAIT_S, lambda: "")
        executor.begin("run-1", lambda library, argv, env: (["{python}", *argv], dict(env)))
        executor.measure()
        yield executor, process
    finally:
        server.close()
        process.send_signal(signal.SIGCONT)  # one that a test stopped
        process.wait(WAIT_S)


def started(executor: Executor, folder: Path, program: str = ECHO) -> WorkerProcess:
    worker = WorkerProcess(worker_spec(), folder / "p-1", host=executor)
    worker.start(["-u", "-c", program], {})
    worker.wait_ready(WAIT_S)
    return worker


def folder_of(worker: WorkerProcess) -> str:
    """Where it captures, by its own words."""
    assert worker.ready_line is not None
    return str((worker.ready_line.model_extra or {})["folder"])


def pid_of(task_process: subprocess.Popen[str]) -> int:
    """Of the worker of a task."""
    return next(child.pid for child in psutil.Process(task_process.pid).children())


def test_a_worker_there_is_heard_told_and_ended_as_one_here(rig: Any, tmp_path: Path) -> None:
    worker = started(rig[0], tmp_path)
    assert worker.pid is None  # a number of another machine: nobody may signal it here
    assert worker.is_alive
    assert not worker.is_stopped
    worker.tell("start 1000")
    worker.tell("stop")
    assert worker.wait_done(WAIT_S)
    assert wait_until(lambda: worker.exit_code == 0, WAIT_S)
    assert wait_until(lambda: "own words" in (tmp_path / "p-1" / "stderr.log").read_text(), WAIT_S)
    assert folder_of(worker).endswith("/run-1/raw/p-1")


def test_times_go_there_and_come_back_on_the_clock_of_the_reader(rig: Any, tmp_path: Path) -> None:
    """A task whose clock is 1000 s behind: a time namespace has such a clock."""
    executor, _ = rig
    real = executor._anchors[0]
    executor._anchors[:] = [type(real)(real.t_ns, real.ahead_ns + 10**12, real.bound_ns)]
    worker = started(executor, tmp_path)
    worker.tell(f"drain {5 * 10**12}")
    assert wait_until(lambda: worker.stats.t_ns, WAIT_S)
    assert int((worker.stats.model_extra or {})["told"][1]) == pytest.approx(4 * 10**12, abs=10**8)
    assert worker.stats.t_ns == pytest.approx(time.monotonic_ns() + 10**12, abs=10**10)


def test_a_stopped_worker_is_seen_and_open_calls_are_told(rig: Any, tmp_path: Path) -> None:
    worker = started(rig[0], tmp_path)
    rows = raw_rows(TableId.SENDS, sends(8))
    rows["outcome"][3:], rows["t_done_ns"][3:] = 0, 0
    content = segment_bytes(TableId.SENDS, rows, owner=1, index=0)
    (Path(folder_of(worker)) / "sends-1-0.seg").write_bytes(content)
    assert wait_until(lambda: worker.calls().open_calls().count == 5, WAIT_S)
    process = worker._process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    assert wait_until(lambda: worker.is_stopped, WAIT_S)
    process.send_signal(signal.SIGCONT)
    assert wait_until(lambda: not worker.is_stopped, WAIT_S)


def test_workers_end_with_their_task_however_it_ends(rig: Any, tmp_path: Path) -> None:
    executor, process = rig
    worker = started(executor, tmp_path)
    pid = pid_of(process)
    process.kill()
    assert wait_until(lambda: identify(pid) is None, WAIT_S)
    assert wait_until(lambda: not worker.is_alive, WAIT_S)
    assert wait_until(lambda: "task 0 on" in worker.why(), WAIT_S)
    assert "is gone" in executor.lost
    with pytest.raises(WorkerError, match="is gone"):
        executor.ask("names", WAIT_S)


def test_a_machine_that_does_not_answer_is_lost(
    rig: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing closes its connection."""
    executor, process = rig
    worker = started(executor, tmp_path)
    monkeypatch.setattr(module, "TRIP_S", 0.5)
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)  # until then its threads go on answering
    executor.measure()
    assert wait_until(lambda: not worker.is_alive, WAIT_S)
    assert wait_until(lambda: "does not answer" in worker.why(), WAIT_S)
    assert executor.line.bound_ns > 0  # what was measured before stays


def test_workers_and_task_end_with_the_driver(rig: Any, tmp_path: Path) -> None:
    executor, process = rig
    started(executor, tmp_path)
    pid = pid_of(process)
    executor._control.close()
    assert wait_until(lambda: identify(pid) is None, WAIT_S)
    assert process.wait(WAIT_S) == 0


def test_a_task_that_spark_ended_still_seals_what_it_has(rig: Any, tmp_path: Path) -> None:
    """What the kernel sends it when the Python task is gone."""
    executor, process = rig
    worker = started(executor, tmp_path)
    content = segment_bytes(TableId.SENDS, raw_rows(TableId.SENDS, sends(30)), owner=1, index=0)
    (Path(folder_of(worker)) / "sends-1-0.seg").write_bytes(content)
    process.send_signal(signal.SIGTERM)
    assert wait_until(lambda: not worker.is_alive, WAIT_S)
    assert wait_until(lambda: "ended by Spark" in executor.lost, WAIT_S)
    told = {
        "part": 1,
        "names": [],
        "clock": executor.line.document(),
        "target": str(tmp_path / "run"),
    }
    report = executor.ask("seal", WAIT_S, plan=plan_of().model_dump(mode="json"), **told)
    assert report["tables"]["sends"]["rows"] == 30
    assert (
        sorted(path.name for path in (tmp_path / "run").rglob("*.parquet"))
        == ["part-1.parquet"] * 2
    )


def test_a_share_that_cannot_be_written_stays_and_is_named(rig: Any, tmp_path: Path) -> None:
    worker = started(rig[0], tmp_path)
    content = segment_bytes(TableId.SENDS, raw_rows(TableId.SENDS, sends(30)), owner=1, index=0)
    (Path(folder_of(worker)) / "sends-1-0.seg").write_bytes(content)
    (tmp_path / "run").write_text("no folder")
    told = {
        "part": 1,
        "names": [],
        "clock": rig[0].line.document(),
        "target": str(tmp_path / "run"),
    }
    report = rig[0].ask("seal", WAIT_S, plan=plan_of().model_dump(mode="json"), **told)
    kept = Path(report["left"].partition(":")[0])
    assert len(list(kept.rglob("*.parquet"))) == 2
    assert report["workers"]["p-1"]["damage"] == {"missing_segments": 1}
    shutil.rmtree(kept)  # in the folder for temporary files of this machine


def test_what_is_not_there_and_what_may_not_go_there(rig: Any, tmp_path: Path) -> None:
    executor, _ = rig
    executor.begin("run-1", lambda library, argv, env: (["/no/such/program"], dict(env)))
    worker = WorkerProcess(worker_spec(), tmp_path / "p-1", host=executor)
    worker.start([], {})
    with pytest.raises(WorkerError, match="there is no /no/such/program on that machine"):
        worker.wait_ready(WAIT_S)
    with pytest.raises(UsageError, match="secrets go to no other machine"):
        worker.start([], {}, SecureOptions({"sasl.password": "x"}, ("x",)))


#: Says what it was handed, in a line for us, and in the words of a careless client.
CARELESS = """
import json, os, sys
handed = json.load(open(os.environ["BROKERSTORM_SECURITY"]))["options"]
print(json.dumps({"type": "error", "text": str(handed)}))
print(json.dumps({"type": "ready", "length": len(handed["sasl.password"])}), flush=True)
print(handed, file=sys.stderr, flush=True)
"""


def guarded(executor: Executor, folder: Path) -> None:
    """What it starts goes to a cluster whose password is in a file of that folder."""
    auth = {"mechanism": "plain", "user": "me", "password": {"file": "secret"}}
    file = {"system": "kafka", "bootstrap": "b:1", "tls": {"ca": "ca.pem"}, "auth": auth}
    words = {
        "tls": {"ssl.ca": "{ca}"},
        "auth": {"plain": {"sasl.password": "{secret}", "user": "{user}"}},
    }
    told = {"words": words, "connection": {"file": file, "folder": str(folder)}}
    executor.begin(
        "run-1", lambda library, argv, env: (["{python}", *argv], dict(env)), lambda _: told
    )


def test_a_worker_there_gets_the_secret_of_its_machine_and_it_does_not_come_back(
    rig: Any, tmp_path: Path
) -> None:
    executor, _ = rig
    (tmp_path / "secret").write_text("there-w1th-them\n")
    (tmp_path / "ca.pem").write_text("authority")
    guarded(executor, tmp_path)
    sent: list[str] = []
    channel = executor._control
    send, take = channel.send, executor._take
    channel.send = lambda message: sent.append(str(message)) or send(message)
    executor._take = lambda message: (sent.append(str(message)), take(message))
    worker = WorkerProcess(worker_spec(), tmp_path / "p-1", host=executor)
    worker.start(["-u", "-c", CARELESS], {}, SecureOptions({"sasl.password": "h3re"}, ("h3re",)))
    worker.wait_ready(WAIT_S)
    assert worker.ready_line is not None
    assert (worker.ready_line.model_extra or {})["length"] == len("there-w1th-them")
    log = tmp_path / "p-1" / "stderr.log"
    assert wait_until(lambda: "(secret)" in log.read_text(), WAIT_S)
    assert str(tmp_path / "ca.pem") in log.read_text()
    assert not [text for text in sent if "w1th" in text or "h3re" in text]


@pytest.mark.parametrize(
    ("there", "says"),
    [
        ("ca.pem", "auth.password: cannot read"),
        ("secret", "tls.ca: cannot read .*ca.pem: No such file"),
    ],
)
def test_a_task_without_a_secret_says_so_when_asked_and_when_it_starts_a_worker(
    rig: Any, there: str, says: str, tmp_path: Path
) -> None:
    executor, _ = rig
    (tmp_path / there).write_text("x")
    guarded(executor, tmp_path)
    with pytest.raises(WorkerError, match=says):
        executor.ask("secrets", WAIT_S, connection=executor._ways_in("")["connection"])
    worker = WorkerProcess(worker_spec(), tmp_path / "p-1", host=executor)
    worker.start([], {}, SecureOptions({"sasl.password": "h3re"}, ("h3re",)))
    with pytest.raises(WorkerError, match=says):
        worker.wait_ready(WAIT_S)


def test_who_does_not_know_the_token_is_nobody(tmp_path: Path) -> None:
    server = LoadServer(HOST, 1)
    try:
        with socket.create_connection(server.address) as stranger:
            stranger.sendall(b'{"token": "guess", "task": 0, "kind": "control"}\n')
            assert stranger.recv(1) == b""
        reason: Callable[[], str] = lambda: "a task ended with 1: No module named 'numpy'"  # noqa: E731
        with pytest.raises(
            EnvironmentNotReady, match="did not start on the executors: a task ended with 1"
        ):
            server.wait(WAIT_S, reason)
    finally:
        server.close()
