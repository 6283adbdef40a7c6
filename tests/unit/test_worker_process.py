"""A worker's process as the harness hears it: lines, noise, ends. The processes are programs of
ours."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.errors import WorkerError
from harness.run.worker_process import WorkerProcess
from tests.specs import worker_spec

Start = Callable[[str], WorkerProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a Python program as a worker."""
    made: list[WorkerProcess] = []

    def begin(program: str) -> WorkerProcess:
        worker = WorkerProcess(worker_spec(), tmp_path / "p-1")
        made.append(worker)
        worker.start([sys.executable, "-u", "-c", program], {})
        return worker

    yield begin
    for worker in made:
        worker.kill()


def test_what_is_no_json_is_kept_and_not_heard(start: Start, tmp_path: Path) -> None:
    """Also bytes that are no text: a client may print what it likes."""
    worker = start(
        "import os\n"
        "os.write(1, b'caf\\xe9 \\xff\\xfe\\n[1, 2]\\n')\n"
        'print(\'{"type": "ready", "pid": 1}\')\n'
        "input()\n"
        'print(\'{"type": "done", "ok": 3}\')\n'
    )
    worker.wait_ready(20)
    worker.tell("go on")
    assert worker.wait_done(20)
    assert worker.done_line.ok == 3
    lines = (tmp_path / "p-1" / "stdout.jsonl").read_text().splitlines()
    assert lines[0].startswith("caf")
    assert lines[1] == "[1, 2]"
    assert len(lines) == 4


def test_who_ends_before_it_is_ready_is_told_with_its_last_words(start: Start) -> None:
    worker = start("import sys; print('no such thing', file=sys.stderr); sys.exit(4)")
    with pytest.raises(WorkerError, match=r"worker p-1 \(echo\) ended: no such thing"):
        worker.wait_ready(20)
    assert worker.exit_code == 4
    assert not worker.is_alive
    worker.tell("hello")  # to nobody, and no error
    worker.stop()


@pytest.mark.long
def test_who_does_not_stop_is_killed(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.run.worker_process.STOP_GRACE_S", 0.2)
    worker = start('import time; print(\'{"type": "ready"}\'); time.sleep(600)')
    worker.wait_ready(20)
    worker.stop()
    assert not worker.is_alive
    worker.stop()
    worker.kill()


def test_a_stack_holds_nothing_that_the_worker_said_meanwhile(start: Start, tmp_path: Path) -> None:
    worker = start(
        "import signal, sys\n"
        "def dump(*_):\n"
        "    print('Thread 1 in producer', flush=True)\n"
        '    print(\'{"type": "stats", "ok": 3}\', flush=True)\n'
        "    print('  at send', file=sys.stderr)\n"
        "signal.signal(signal.SIGQUIT, dump)\n"
        'print(\'{"type": "ready", "pid": 1}\')\n'
        "while True: signal.pause()\n"
    )
    worker.wait_ready(20)
    worker.dump_stack(tmp_path / "stacks.txt")
    assert (tmp_path / "stacks.txt").read_text() == "  at send\nThread 1 in producer\n"
