"""The kit of Java workers by the protocol, with a worker that has no client
(tests/data/java/Echo.java)."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from harness.contract.running import compare_with_golden
from harness.records import RAW, Outcome, TableId
from harness.run.worker_process import WorkerProcess
from harness.waiting import wait_until
from harness.workers import OPTIONS, java_build
from harness.workers.security import SecureOptions
from tests.specs import sending, worker_spec

ECHO = Path(__file__).parents[1] / "data" / "java" / "Echo.java"
pytestmark = pytest.mark.skipif(shutil.which("javac") is None, reason="needs a JDK")
Start = Callable[..., WorkerProcess]
Rows = npt.NDArray[np.void]


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    classes = tmp_path_factory.mktemp("classes")
    kit = [str(path) for path in java_build.sources(java_build.KIT)]
    subprocess.run(
        ["javac", "--release", "11", "-nowarn", "-XDignore.symbol.file", "-d", classes, *kit, ECHO],
        check=True,
    )
    return ["java", *java_build.JVM, "-cp", str(classes), "Echo"]


@pytest.fixture
def start(command: list[str], tmp_path: Path) -> Iterator[Start]:
    started: list[WorkerProcess] = []

    def begin(
        answers: str = "ok", env: dict[str, str] | None = None, secret: str = "", **producer: Any
    ) -> WorkerProcess:
        group = {"topic": "t", "mode": "partition", "first": 0, "count": 4, "partitions": 4}
        usual = {"lane_groups": [group], "rate_per_s": 1000, "warm_up_s": 0.25, "load_s": 0.5}
        spec = worker_spec(
            "p",
            part=sending(**usual).model_copy(update=producer),
            options={"answers": answers},
            streams={f"t-{p}": p + 1 for p in range(4)},
            capture_dir=str(tmp_path / "p"),
        )
        worker = WorkerProcess(spec, tmp_path / "p")
        started.append(worker)
        worker.start(command, env or {}, SecureOptions({"answers": answers}, (secret,)))
        return worker

    yield begin
    for worker in started:
        worker.kill()


def run(worker: WorkerProcess, *, rows: int, drain_s: float = 20) -> Rows:
    """Start, wait for so many rows, drain; the rows that it left."""
    worker.wait_ready(20)
    worker.tell(f"start {time.monotonic_ns() + 50_000_000}")
    assert wait_until(lambda: len(sends(worker)) >= rows, 20, every_s=0.05)
    worker.tell(f"drain {time.monotonic_ns() + int(drain_s * 1e9)}")
    assert worker.wait_done(drain_s + 10)
    assert worker._wait_exit(5)
    assert worker.exit_code == 0
    return sends(worker)


def sends(worker: WorkerProcess) -> Rows:
    parts = [
        np.fromfile(path, RAW[TableId.SENDS], offset=64)
        for path in worker.folder.glob("sends-*.seg")
    ]
    rows = np.concatenate(parts) if parts else np.empty(0, RAW[TableId.SENDS])
    return rows[rows["state"] != 0]


@pytest.mark.long
def test_a_schedule_becomes_rows_and_numbers(start: Start) -> None:
    worker = start()
    rows = run(worker, rows=750)
    assert len(rows) == 750 == worker.done_line.attempted == worker.done_line.ok
    assert np.bincount(rows["kind"]).tolist() == [0, 250, 500]
    assert [rows["seq"][rows["lane"] == lane].tolist() for lane in range(4)] == [
        list(range(len(rows) // 4 + (lane < len(rows) % 4))) for lane in range(4)
    ]
    assert np.allclose(np.diff(rows["t_intended_ns"]), 1e6, atol=1)
    assert (rows["t_start_ns"] >= rows["t_intended_ns"]).all()
    assert (rows["position"] == rows["seq"]).all()


@pytest.mark.long
def test_sync_calls_follow_each_other(start: Start) -> None:
    rows = run(start(calls="sync", rate_per_s=200), rows=150)
    assert (rows["t_start_ns"][1:] >= rows["t_done_ns"][:-1]).all()


@pytest.mark.long
def test_threads_share_the_lanes_and_the_rate(start: Start) -> None:
    rows = run(start(threads=3), rows=751)
    assert [int((rows["lane"] == lane).sum()) for lane in range(4)] == [188, 188, 188, 187]
    for lane in range(4):
        mine = rows[rows["lane"] == lane]
        assert mine["seq"].tolist() == list(range(len(mine)))
        assert np.allclose(np.diff(mine["t_intended_ns"]), 4e6, atol=1)
    assert set(rows["outcome"].tolist()) == {Outcome.OK}


def test_a_thread_of_the_client_that_is_interrupted_writes_names(start: Start) -> None:
    rows = run(start(answers="interrupted", rate_per_s=100), rows=75)
    assert set(rows["outcome"].tolist()) == {Outcome.INFO}


@pytest.mark.long
def test_an_application_that_sends_again(start: Start) -> None:
    worker = start(answers="second time", results="resent", rate_per_s=100)
    rows = run(worker, rows=150)
    assert worker.done_line.resent == 75
    first, second = (rows[rows["attempt"] == attempt] for attempt in (0, 1))
    assert set(first["outcome"].tolist()) == {Outcome.INFO}
    assert set(second["outcome"].tolist()) == {Outcome.OK}
    again = {(int(r["lane"]), int(r["seq"])): r for r in second}
    for row in first:
        later = again[int(row["lane"]), int(row["seq"])]
        assert later["t_start_ns"] - row["t_done_ns"] >= 500_000_000
        assert later["t_intended_ns"] == row["t_intended_ns"]


def test_a_call_that_blocks_is_no_lateness_of_the_generator(start: Start) -> None:
    """One is due every 0.8 s, and is sent again 0.5 s after it failed. That call blocks beyond the
    next."""
    worker = start(answers="holds the second call", results="resent", rate_per_s=1.25, load_s=2.4)
    worker.wait_ready(20)
    lines: list[dict[str, Any]] = []
    worker._on_message = lambda _, message: lines.append(dict(message))
    run(worker, rows=3)
    assert worker.done_line.blocked_ns > 700_000_000
    late_ns = max(line["late_max_ns"] for line in lines if line["type"] == "stats")
    assert late_ns < 300_000_000, "blocked time was charged to the generator"


def test_calls_that_never_return_stay_open(start: Start) -> None:
    worker = start(answers="never", rate_per_s=100)
    rows = run(worker, rows=75, drain_s=0.3)
    assert set(rows["outcome"].tolist()) == {Outcome.NONE}
    assert worker.done_line.open == 75


def test_a_call_that_raises_is_a_fail_with_one_text(start: Start) -> None:
    worker = start(answers="refuses messages", rate_per_s=100)
    rows = run(worker, rows=75)
    assert set(rows["outcome"].tolist()) == {Outcome.FAIL}
    assert len(set(rows["error"].tolist())) == 1
    names = [json.loads(line) for line in (worker.folder / "names.jsonl").read_text().splitlines()]
    assert names[-1]["text"] == "IllegalArgumentException: message * of bs-* is too large"
    assert [error.name for error in worker.errors] == ["IllegalArgumentException"]


def test_no_secret_stands_in_the_name_of_an_error(start: Start) -> None:
    worker = start(answers="refuses messages", rate_per_s=100, secret="bs-3da4fe90")
    run(worker, rows=75)
    kept = (worker.folder / "names.jsonl").read_text()
    assert "IllegalArgumentException: message * of (secret) is too large" in kept


def test_the_clients_refusal_ends_it(start: Start) -> None:
    worker = start(answers="refuses options")
    assert worker._wait_exit(20)
    assert worker.exit_code == 4
    assert worker.errors[-1].text.endswith("no; did you mean answers?")


@pytest.mark.filterwarnings("ignore:Pydantic serializer")  # a harness would not write such a spec
@pytest.mark.parametrize(
    "broken", [{"rate_per_s": "fast"}, {"lane_groups": []}, {"calls": "batch"}]
)
def test_a_spec_that_cannot_be_used(start: Start, broken: dict[str, Any]) -> None:
    worker = start(**broken)
    assert worker._wait_exit(20)
    assert worker.exit_code == 4
    assert worker.errors[-1].fatal


def test_a_jar_that_the_client_lacks_is_no_bug_of_the_worker(start: Start) -> None:
    worker = start(answers="lacks a jar")
    assert worker._wait_exit(20)
    assert worker.exit_code == 4
    assert "org/apache/mina/common/IoHandlerAdapter" in worker.errors[-1].text
    assert worker.errors[-1].hint.startswith("a jar is missing that the client needs")


def test_defaults_of_the_worker_give_way_to_the_scenario(start: Start) -> None:
    env = {OPTIONS: json.dumps({"producer": {"answers": "never"}})}
    rows = run(start(env=env, rate_per_s=100), rows=75)
    assert set(rows["outcome"].tolist()) == {Outcome.OK}


def test_commands_it_does_not_know_and_stacks(start: Start) -> None:
    worker = start(load_s=30)
    worker.wait_ready(20)
    worker.tell("dance")
    worker.tell(f"start {time.monotonic_ns()}")
    target = worker.folder / "stacks.txt"
    worker.dump_stack(target)
    assert "brokerstorm.kit.OpenLoop" in target.read_text()
    assert worker._process is not None
    worker._process.send_signal(signal.SIGINT)  # the harness's to handle
    worker._process.send_signal(signal.SIGTERM)
    assert worker._wait_exit(10)
    assert worker.exit_code == 0
    assert worker.done.is_set()
    assert any("dance" in error.text for error in worker.errors)


def test_what_a_library_unpacks_is_in_the_workers_folder_and_goes_with_it(start: Start) -> None:
    worker = start(answers="unpacks a library", load_s=30)
    worker.wait_ready(20)
    assert [path.suffix for path in (worker.folder / "tmp").iterdir()] == [".so"]
    worker.tell("stop")
    assert worker._wait_exit(10)
    assert not (worker.folder / "tmp").exists()


def test_the_self_test_writes_the_golden_bytes(command: list[str], tmp_path: Path) -> None:
    subprocess.run([*command, "--self-test", str(tmp_path)], check=True)
    compare_with_golden(tmp_path)


def test_usage(command: list[str]) -> None:
    done = subprocess.run([*command, "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("usage:")
