"""A process whose wall clock is a file's: what it is told, how long it waits, and what stays as it
is."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.clusters.clocks.clocks import OwnClocks, why_not
from harness.errors import EnvironmentNotReady
from harness.plan.build import build_plan
from harness.progress.plain import PlainProgress
from harness.run.hosts import ThisMachine
from harness.run.lives import WorkerLives
from harness.run.manifest import ManifestFile
from harness.run.place import RunPlace
from harness.run.worker_pool import WorkerPool
from harness.run.worker_process import WorkerProcess
from harness.run.worker_specs import Endpoints
from harness.rundir import RunDir
from harness.scenario.model import Scenario
from tests.specs import worker_spec

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())
#: Answers each line of its input with both clocks.
ASKED = "import sys, time\nfor _ in sys.stdin: print(time.time(), time.monotonic(), flush=True)"

#: Waits for a condition until 0.2 s later by each clock, as programs in C++ do; how long that took.
WAITS = """
import ctypes, time
C = ctypes.CDLL(None)
for clock in (0, 1):  # CLOCK_REALTIME, CLOCK_MONOTONIC
    kind, condition, mutex = (ctypes.create_string_buffer(size) for size in (16, 128, 128))
    C.pthread_condattr_init(kind)
    C.pthread_condattr_setclock(kind, clock)
    C.pthread_cond_init(condition, kind)
    end_ns = time.clock_gettime_ns(clock) + 200_000_000
    end = (ctypes.c_long * 2)(*divmod(end_ns, 1_000_000_000))
    begin = time.monotonic()
    C.pthread_mutex_lock(mutex)
    C.pthread_cond_timedwait(condition, mutex, end)
    print(time.monotonic() - begin)
"""

#: The same of librdkafka, whose waits are those of C11 threads.
FLUSHES = """
import os, time, confluent_kafka
producer = confluent_kafka.Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
producer.produce("orders", b"1")
for _ in range(2):
    begin = time.monotonic()
    producer.flush(0.2)
    print(time.monotonic() - begin, flush=True)
os._exit(0)  # or it would wait for the message
"""


@pytest.fixture
def clocks(tmp_path: Path) -> OwnClocks:
    return OwnClocks({"kafka-1": tmp_path / "kafka-1"})


def test_a_jump_and_a_drift_show_at_once_and_monotonic_time_stays(clocks: OwnClocks) -> None:
    environment = {**os.environ, **clocks.environment("kafka-1")}
    command = [sys.executable, "-c", ASKED]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def look() -> tuple[float, float]:
            process.stdin.write("\n")  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]
            wall, monotonic = process.stdout.readline().split()  # type: ignore[union-attr]
            return float(wall) - float(monotonic), float(monotonic)

        real, _ = look()
        assert not clocks.were_set()
        clocks.set("kafka-1", 3600.0)
        assert look()[0] - real == pytest.approx(3600.0, abs=0.5)
        clocks.set("kafka-1", -60.0)
        assert look()[0] - real == pytest.approx(-60.0, abs=0.5)
        clocks.set("kafka-1", 0.0, speed=3.0)
        (first, begin), (last, end) = look(), look()
        assert last - first == pytest.approx(2 * (end - begin), rel=0.05, abs=1e-3)
        clocks.set("kafka-1", 0.0)
        assert look()[0] == pytest.approx(real, abs=0.5)
        assert clocks.offset_told("kafka-1", within_s=0.05) is None, "it did not ask"
        process.stdin.close()
    assert clocks.were_set()


def test_what_the_process_was_told_is_read_from_outside(clocks: OwnClocks) -> None:
    environment = {**os.environ, **clocks.environment("kafka-1")}
    clocks.set("kafka-1", 120.0)
    asks = "import time\nwhile True: time.time(); time.sleep(0.01)"
    with subprocess.Popen([sys.executable, "-c", asks], env=environment) as process:
        try:
            assert clocks.offset_told("kafka-1", within_s=20.0) == pytest.approx(120.0, abs=1e-3)
        finally:
            process.kill()


def test_a_cluster_that_was_started_without_says_what_to_do(tmp_path: Path) -> None:
    without = OwnClocks({})
    assert without.environment("kafka-1") == {}
    with pytest.raises(
        EnvironmentNotReady, match="kafka-1 was started without own-clocks"
    ) as caught:
        without.set("kafka-1", 1.0)
    assert "brokerstorm up" in caught.value.hint


@pytest.mark.parametrize("ahead_s", [3600.0, -3600.0])
@pytest.mark.parametrize("program", [WAITS, FLUSHES], ids=["POSIX", "librdkafka"])
def test_a_wait_for_a_time_of_the_wall_clock_ends_when_that_shows_it(
    clocks: OwnClocks, program: str, ahead_s: float
) -> None:
    environment = {**os.environ, **clocks.environment("kafka-1")}
    clocks.set("kafka-1", ahead_s)
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert [float(line) >= 0.19 for line in done.stdout.splitlines()] == [True, True]


def test_a_run_sets_the_clocks_of_its_clients_on_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = [sys.executable, "-c", "import time\nwhile True: time.time(); time.sleep(0.01)"]
    monkeypatch.setattr("harness.run.worker_pool.launch", lambda *_, **__: (program, {}))
    run = RunDir(tmp_path / "run").create()
    told = (ManifestFile(run, command="x", versions={}), PlainProgress(io.StringIO()))
    plan = build_plan(Scenario.model_validate({"name": "x"}), seed=1)
    pool = WorkerPool(
        RunPlace(plan, run, Endpoints("", ""), *told, "x", offline=True, own_clocks=True)
    )
    worker = pool._start(pool._worker(worker_spec("p-1", "confluent-kafka")), "")
    pool._now["producer"].append(worker)
    lives = WorkerLives(plan, pool)
    try:
        lives.set_clock("p-1", -60.0)
        assert lives.clock_told("p-1", within_s=30.0) == pytest.approx(-60.0, abs=1e-3)
        lives.set_clock("p-1", 0.0)
        assert lives.clock_told("p-1", within_s=30.0) == pytest.approx(0.0, abs=1e-3)
    finally:
        worker.kill()
    elsewhere = WorkerProcess(worker_spec(), tmp_path, host=ThisMachine(), own_clock=True)
    assert elsewhere.clock.environment("p-1") == {}
