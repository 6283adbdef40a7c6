"""Hangs while they happen: planted journals, frozen processes, and the stack that waits in a
dump."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from harness.plan.build import build_plan
from harness.progress.plain import PlainProgress
from harness.records import RAW_SENDS, SEGMENT_HEADER_BYTES
from harness.run.hangs import hang_sentence, take_stacks
from harness.run.liveness import Hang, HangDetector, OpenCalls, SendSegments
from harness.run.manifest import ManifestFile
from harness.run.place import RunPlace
from harness.run.stacks import parse, waiting
from harness.run.worker_pool import WorkerPool
from harness.run.worker_process import WorkerProcess
from harness.run.worker_specs import Endpoints
from harness.rundir import RunDir, read_jsonl
from harness.scenario.model import Scenario
from harness.waiting import wait_until
from tests.specs import sending, worker_spec

S = 1_000_000_000
CAPACITY = 8


def plant(folder: Path, index: int, calls: list[tuple[float, float]]) -> None:
    """A segment of calls (start, done; 0 = still open), in seconds; the rest of it is unused."""
    rows = np.zeros(CAPACITY, RAW_SENDS)
    for row, (start, done) in zip(rows, calls, strict=False):
        row["state"], row["t_start_ns"] = 1, int(start * S)
        if done:
            row["t_done_ns"], row["outcome"] = int(done * S), 1
    folder.mkdir(parents=True, exist_ok=True)
    header = bytes(SEGMENT_HEADER_BYTES)
    (folder / f"sends-1-{index:06d}.seg").write_bytes(header + rows.tobytes())


def judge(folder: Path, deadline_s: float = 5) -> HangDetector:
    return HangDetector(SendSegments(folder), deadline_s)


def look(judged: HangDetector, at_s: float, *, is_stopped: bool = False) -> Hang | None:
    return judged.check(int(at_s * S), is_stopped=is_stopped)


def test_open_calls_over_segments(tmp_path: Path) -> None:
    journal = SendSegments(tmp_path)
    assert journal.open_calls() == OpenCalls(0, 0, 0)
    plant(tmp_path, 0, [(i, i + 1) for i in range(1, CAPACITY + 1)])
    plant(tmp_path, 1, [(10, 11), (12, 0), (11, 0)])
    assert journal.open_calls() == OpenCalls(2, 11 * S, 11 * S, 1 * S)
    plant(tmp_path, 1, [(10, 11), (12, 20), (11, 19)])
    assert journal.open_calls() == OpenCalls(0, 0, 20 * S, 11 * S)


def test_a_hang_is_what_two_looks_in_a_row_have_seen(tmp_path: Path) -> None:
    plant(tmp_path, 0, [(1, 2), (3, 0), (4, 0)])
    judged = judge(tmp_path)
    assert look(judged, 8.0) is None, "the deadline is 5 s after the call"
    assert look(judged, 9.0) is None, "seen once"
    assert look(judged, 10.0) == Hang(2, 3 * S, 7.0, 5, 2 * S)


def test_a_call_that_is_answered_late_is_no_hang(tmp_path: Path) -> None:
    plant(tmp_path, 0, [(1, 0)])
    judged = judge(tmp_path)
    assert look(judged, 6.5) is None
    plant(tmp_path, 0, [(1, 7), (7, 0)])
    assert look(judged, 7.5) is None
    assert look(judged, 8.5) is None


def test_a_client_that_answers_overdue_calls_is_left_to_answer_the_rest(tmp_path: Path) -> None:
    """A thousand sends time out together, and the client is slow to say so."""
    judged = judge(tmp_path)
    calls = [(1.0, 0.0)] * CAPACITY
    for second in range(7, 7 + CAPACITY - 1):
        plant(tmp_path, 0, calls)
        assert look(judged, second) is None
        calls[second - 7] = (1, second + 0.5)
    plant(tmp_path, 0, calls)
    assert look(judged, 20) is None, "it answered one since the last look"
    assert look(judged, 21) is None, "seen once"
    assert look(judged, 22) is not None, "it answers no more"


def test_a_slow_client_is_no_hang_however_long_it_is_slow(tmp_path: Path) -> None:
    """A broker is away for less than the deadline, again and again: each call ends, the next one is
    open."""
    judged = judge(tmp_path)
    for second in range(0, 100, 4):
        plant(tmp_path, 0, [(second + 0.5, 0)])
        assert look(judged, second + 4) is None


def test_a_call_without_a_limit_waits_for_earlier_ones(tmp_path: Path) -> None:
    """A client writes one batch after the other, and each takes six seconds to fail."""
    judged = HangDetector(SendSegments(tmp_path), 5, limits_calls=False)
    calls = [(1.0, 0.0), (1.1, 0.0), (1.2, 0.0)]
    plant(tmp_path, 0, calls)
    assert [look(judged, second) for second in (2, 6)] == [None, None]
    calls[0] = (1, 7)
    plant(tmp_path, 0, calls)
    assert look(judged, 7.5) is None
    assert judged.moved == (int(7.5 * S), int(1.1 * S))
    assert [look(judged, second) for second in (8.5, 9.5, 12.5)] == [None] * 3
    assert judged.moved is None
    assert look(judged, 13) is None, "seen once"
    found = look(judged, 14)
    assert found is not None
    assert (found.count, found.open_s) == (2, 6.5)


def test_answers_to_later_calls_hide_no_hang(tmp_path: Path) -> None:
    judged = HangDetector(SendSegments(tmp_path), 5, limits_calls=False)
    plant(tmp_path, 0, [(1, 0)])
    assert look(judged, 2) is None
    plant(tmp_path, 0, [(1, 0), (2, 3), (3, 4), (4, 5), (5, 6)])
    assert look(judged, 6.5) is None, "seen once"
    assert look(judged, 7.5) is not None


def test_frozen_time_is_no_waiting(tmp_path: Path) -> None:
    plant(tmp_path, 0, [(1, 0)])
    judged = judge(tmp_path)
    assert look(judged, 2) is None
    for second in range(3, 30):
        assert look(judged, second, is_stopped=True) is None, "it does not run: nobody hangs"
    assert look(judged, 30) is None, "runs again, and has not said yet that it was frozen"
    judged.froze(int(30.1 * S), int(27 * S))
    assert look(judged, 31) is None
    assert look(judged, 32.5) is None, "4.5 s of its own time"
    assert look(judged, 34) is None
    found = look(judged, 35)
    assert found is not None
    assert found.open_s == pytest.approx(7.0)


def test_reports_of_one_freeze_count_once(tmp_path: Path) -> None:
    plant(tmp_path, 0, [(1, 0)])
    judged = judge(tmp_path)
    for _ in range(3):
        judged.froze(11 * S, 8 * S)
    assert look(judged, 16) is None
    assert look(judged, 17) is not None


def test_the_sentence_tells_since_when_and_the_last_progress() -> None:
    text = hang_sentence(Hang(20, 71 * S, 31.2, 30.0, 70 * S), epoch_ns=64 * S - S // 4)
    assert (
        text
        == "20 sends open, the oldest since 00:07.2 (31.2 s, deadline 30 s), last answer at 00:06.2"
    )
    assert hang_sentence(Hang(1, 71 * S, 31.2, 30.0, 0), epoch_ns=64 * S).endswith("no answer ever")


class Hung(WorkerProcess):
    """A producer whose process waits; nothing of it is started."""

    is_alive = True  # type: ignore[assignment]
    is_stopped = False  # type: ignore[assignment]

    def kill(self) -> None: ...


def test_whoever_hangs_is_told_of_before_the_first_stack_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, order, said = RunDir(tmp_path / "run").create(), list[str](), io.StringIO()
    manifest = ManifestFile(run, command="x", versions={})
    manifest.set_epoch(64 * S)
    plan = build_plan(
        Scenario.model_validate({"name": "x", "load": {"producers": {"p": {}}}}), seed=1
    )
    pool = WorkerPool(
        RunPlace(plan, run, Endpoints("", ""), manifest, PlainProgress(said), "x", offline=True)
    )
    for number in (1, 2):
        spec = worker_spec(f"producer-{number}", "sarama", sending(instance=number))
        pool._now["producer"].append(Hung(spec, tmp_path))
        plant(tmp_path / str(number), 0, [(time.monotonic() - 100, 0)])
        pool._detectors[f"producer-{number}"] = judge(tmp_path / str(number))

    def slow(worker: WorkerProcess, run: RunDir) -> dict[str, str]:
        order.append(f"stacks of {worker.name}, {len(said.getvalue().splitlines())} told")
        return {}

    monkeypatch.setattr("harness.run.worker_pool.take_stacks", slow)
    pool.end_hanging_producers()
    pool.end_hanging_producers()
    assert order == ["stacks of producer-1, 2 told", "stacks of producer-2, 2 told"]
    rows = read_jsonl(run.events)
    assert [(row["kind"], row["instance"], row["open"]) for row in rows] == [
        ("hang", 1, 1),
        ("hang", 2, 1),
    ]
    assert pool._hung == {"producer-1", "producer-2"}


GO = """[sarama] 2026/11/21 10:03:47 client/metadata fetching
goroutine 1 [sleep]:
time.Sleep(0x1e8480)
\truntime/time.go:368 +0x115
brokerstorm/kit.(*OpenLoop).Run(0xc0, {0x8, 0xc1})
\tbrokerstorm/kit/openloop.go:96 +0x12a
main.main()
\tbrokerstorm/sarama/main.go:18 +0x8a

goroutine 35 [chan receive, 1 minutes]:
github.com/Shopify/sarama.(*syncProducer).SendMessages(0x1, {0x2, 0x32, 0x32})
\tgithub.com/Shopify/sarama@v1.37.2/sync_producer.go:138 +0x132
main.(*producer).Send.func1()
\tbrokerstorm/sarama/producer.go:166 +0x42
created by brokerstorm/kit.(*OpenLoop).Run in goroutine 1
\tbrokerstorm/kit/openloop.go:96 +0x25

goroutine 36 [IO wait]:
internal/poll.runtime_pollWait(0x7f, 0x72)
\truntime/netpoll.go:345 +0x85
github.com/Shopify/sarama.(*Broker).responseReceiver(0xc2)
\tgithub.com/Shopify/sarama@v1.37.2/broker.go:1023 +0x1d5
created by github.com/Shopify/sarama.(*Broker).Open.func1 in goroutine 34
\tgithub.com/Shopify/sarama@v1.37.2/broker.go:251 +0xfe5
"""
JVM = """2026-11-21 10:00:00
Full thread dump OpenJDK 64-Bit Server VM (17.0.15+6 mixed mode):

"main" #1 prio=5 os_prio=0 cpu=310.00ms elapsed=9.10s tid=0x00007f nid=0x1a waiting on condition  [0x00007f]
   java.lang.Thread.State: TIMED_WAITING (parking)
\tat jdk.internal.misc.Unsafe.park(java.base@17.0.15/Native Method)
\t- parking to wait for  <0x1> (a java.util.concurrent.Semaphore$FairSync)
\tat java.util.concurrent.Semaphore.acquire(java.base@17.0.15/Semaphore.java:318)
\tat org.apache.pulsar.client.impl.ProducerImpl.canEnqueueRequest(ProducerImpl.java:990)
\tat org.apache.pulsar.client.impl.ProducerImpl.sendAsync(ProducerImpl.java:540)
\tat brokerstorm.pulsar.PulsarProducer.send(PulsarProducer.java:88)
\tat brokerstorm.kit.OpenLoop.run(OpenLoop.java:120)

"ticker" #12 daemon prio=5 os_prio=0 cpu=1.00ms elapsed=9.00s tid=0x00007e nid=0x1b waiting on condition
   java.lang.Thread.State: TIMED_WAITING (sleeping)
\tat java.lang.Thread.sleep(java.base@17.0.15/Native Method)
\tat brokerstorm.kit.Report.tick(Report.java:40)
"""
PYTHON = """Thread 0x00007f2b (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 331 in wait
  File "/opt/workers/python_kit/worker_kit/protocol.py", line 97 in _tick

Current thread 0x00007f2c (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 327 in wait
  File "/opt/venv/lib/python3.11/site-packages/kafka/producer/kafka.py", line 733 in _wait_on_metadata
  File "/opt/venv/lib/python3.11/site-packages/kafka/producer/kafka.py", line 580 in send
  File "/opt/workers/kafka_python/producer.py", line 76 in offer
  File "/opt/workers/kafka_python/worker.py", line 50 in <module>
"""
RUST = """%6|1795674807.988|INIT|producer-1| [thrd:app]: begun
"rust-rdkafka" nid=0x5635 S (sleeping), hrtimer_nanosleep
    at clock_nanosleep(libc.so.6)
    at std::thread::functions::sleep()
    at brokerstorm_kit::open_loop::OpenLoop::run()
    at brokerstorm_rdkafka::producer::produce()

"rdk:main" nid=0x563c S (sleeping), futex_do_wait

"sender-0" nid=0x5640 S (sleeping), futex_do_wait
    at __futex_abstimed_wait_common64(libc.so.6)
    at pthread_cond_wait(libc.so.6)
    at rd_kafka_q_pop_serve()
    at rdkafka::producer::base_producer::BaseProducer<C,Part>::commit_transaction()
    at <brokerstorm_rdkafka::transactional::Transacting as brokerstorm_kit::TransactionalClient>::commit()
    at brokerstorm_kit::sender::Sender::load()
    at std::sys::backtrace::__rust_begin_short_backtrace()
    at start_thread(libc.so.6)
"""


@pytest.mark.parametrize(
    ("dump", "stacks", "title", "where"),
    [
        (RUST, 3, '"sender-0" S (sleeping), futex_do_wait', "rd_kafka_q_pop_serve ()"),
        (
            GO,
            3,
            "goroutine 35 [chan receive, 1 minutes]",
            "github.com/Shopify/sarama.(*syncProducer).SendMessages (sync_producer.go:138)",
        ),
        (
            JVM,
            2,
            '"main" waiting on condition',
            "org.apache.pulsar.client.impl.ProducerImpl.canEnqueueRequest (ProducerImpl.java:990)",
        ),
        (PYTHON, 2, "Current thread", "_wait_on_metadata (kafka.py:733)"),
    ],
)
def test_the_call_that_waits_is_found(dump: str, stacks: int, title: str, where: str) -> None:
    assert len(parse(dump)) == stacks
    found = waiting(dump)
    assert found is not None
    assert found.title.startswith(title)
    assert found.where == where


def test_a_client_in_c_shows_the_workers_own_thread() -> None:
    found = waiting(
        "Thread 0x1 (most recent call first):\n"
        '  File "/opt/workers/confluent_kafka/producer.py", line 55 in serve\n'
        '  File "/opt/workers/confluent_kafka/worker.py", line 60 in produce\n'
    )
    assert found is not None
    assert found.where == "serve (producer.py:55)"


def test_a_thread_that_listens_to_the_harness_is_not_shown() -> None:
    listening = "\tat brokerstorm.kit.Control.listen(Control.java:107)\n" * 3
    found = waiting(
        f'"commands" #9 tid=0x1 nid=0x1 runnable\n\tat java.io.Reader.read(Reader.java:1)\n{listening}\n'
        '"main" #1 tid=0x2 nid=0x2 waiting on condition [0x7f]\n'
        "\tat brokerstorm.qpid.JmsConsumer.receive(JmsConsumer.java:7)\n"
    )
    assert found is not None
    assert (found.title, found.where) == (
        '"main" waiting on condition',
        "brokerstorm.qpid.JmsConsumer.receive (JmsConsumer.java:7)",
    )


@pytest.mark.parametrize(
    "text",
    ["", "no dump\n\nat all\n", 'Exception in thread "main" x\n\tat java.lang.A.b(A.java:1)\n'],
)
def test_what_is_no_dump_has_no_stack(text: str) -> None:
    assert waiting(text) is None


def test_stacks_of_a_live_process_are_kept_and_it_goes_on(tmp_path: Path) -> None:
    """Python's own handler; Go's and the JVM's are asked in the live tests."""
    program = (
        "import faulthandler, signal, time; faulthandler.register(signal.SIGQUIT)\n"
        'print(\'{"type": "ready"}\', flush=True)\ntime.sleep(60)\n'
    )
    script = tmp_path / "workers" / "some_client" / "producer.py"
    script.parent.mkdir(parents=True)
    script.write_text(program)
    worker = WorkerProcess(worker_spec("producer-1"), tmp_path / "raw")
    worker.start([sys.executable, str(script)], {})
    try:
        worker.wait_ready(20)
        assert not worker.is_stopped
        found = take_stacks(worker, RunDir(tmp_path))
        assert found["stacks"] == "stacks/producer-1.txt"
        assert found["where"].startswith("<module> (producer.py:")
        assert worker.is_alive
        assert worker.pid is not None
        subprocess.run(["kill", f"-{int(signal.SIGSTOP)}", str(worker.pid)], check=True)
        assert wait_until(lambda: worker.is_stopped, 10, every_s=0.01)
    finally:
        worker.kill()
        assert worker._process is not None
        for pipe in (worker._process.stdin, worker._process.stdout):
            if pipe is not None:
                pipe.close()
    assert take_stacks(worker, RunDir(tmp_path / "gone")) == {}
