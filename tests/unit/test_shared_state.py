"""State that threads or processes share, under stress: who is in a run, commands, lines of a
file."""

from __future__ import annotations

import io
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.progress.plain import PlainProgress
from harness.run.manifest import ManifestFile
from harness.run.place import RunPlace
from harness.run.worker_pool import WorkerPool
from harness.run.worker_process import WorkerProcess
from harness.run.worker_specs import Endpoints
from harness.rundir import RunDir, append_jsonl, read_jsonl
from tests.specs import worker_spec
from tests.unit.seal_rows import plan_of

ROOT = Path(__file__).resolve().parents[2]
LONG = 20_000  # bytes: what a buffer of a text file writes in several pieces


def together(*targets: Callable[[], None]) -> None:
    """Run them in threads; what one of them raises is raised here."""
    raised: list[BaseException] = []

    def kept(target: Callable[[], None]) -> None:
        try:
            target()
        except BaseException as error:  # noqa: BLE001 - raised again in the thread of the test
            raised.append(error)

    threads = [threading.Thread(target=kept, args=(target,)) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]


def test_rows_of_threads_and_processes_stay_whole(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    program = (
        "import sys; from pathlib import Path; from harness.rundir import append_jsonl\n"
        f"for n in range(60):\n"
        f"  append_jsonl(Path(sys.argv[1]), {{'who': sys.argv[2], 'n': n, 'x': 'y' * {LONG}}})"
    )
    others = [
        subprocess.Popen([sys.executable, "-c", program, str(path), f"process-{k}"], cwd=ROOT)
        for k in range(2)
    ]

    def write(who: str) -> None:
        for number in range(60):
            append_jsonl(path, {"who": who, "n": number, "x": "y" * LONG})

    together(*((lambda who=f"thread-{k}": write(who)) for k in range(3)))
    assert [other.wait(60) for other in others] == [0, 0]
    found = [(row["who"], row["n"]) for row in read_jsonl(path)]
    names = [*(f"process-{k}" for k in range(2)), *(f"thread-{k}" for k in range(3))]
    assert sorted(found) == sorted((who, n) for who in names for n in range(60))


def test_a_row_after_one_that_was_cut_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    append_jsonl(path, {"n": 1})
    with path.open("a") as file:
        file.write('{"n": 2, "text": "the disk is fu')
    append_jsonl(path, {"n": 3})
    assert read_jsonl(path) == [{"n": 1}, {"n": 3}]


def test_commands_of_several_threads_arrive_whole(tmp_path: Path) -> None:
    worker = WorkerProcess(worker_spec(), tmp_path / "p-1")
    program = (
        "import json, sys\nlines = [line.rstrip('\\n') for line in iter(sys.stdin.readline, 'end\\n')]\n"
        "print(json.dumps({'type': 'done', 'lines': lines}), flush=True)"
    )
    worker.start([sys.executable, "-c", program], {})
    commands = [[f"drain {thread}-{n}-{'z' * 3000}" for n in range(50)] for thread in range(4)]
    together(
        *((lambda mine=mine: [worker.tell(line) for line in mine] and None) for mine in commands)
    )
    worker.tell("end")
    assert worker.wait_done(30)
    assert sorted((worker.done_line.model_extra or {})["lines"]) == sorted(
        line for mine in commands for line in mine
    )


class Process(WorkerProcess):
    """Starts nothing; it is ready at once, as a reader thread would say."""

    is_alive = True  # type: ignore[assignment]

    def start(self, *_: Any) -> None:
        self.told: list[str] = []
        if self.life_of and self._on_message is not None:
            self._on_message(self, {"type": "ready"})

    def tell(self, line: str) -> None:
        self.told.append(line.partition(" ")[0])


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WorkerPool:
    """Four producers and no process."""
    monkeypatch.setattr("harness.run.worker_pool.WorkerProcess", Process)
    monkeypatch.setattr("harness.run.worker_pool.launch", lambda *_, **__: ([], {}))
    run = RunDir(tmp_path / "run").create()
    manifest = ManifestFile(run, command="x", versions={})
    progress = PlainProgress(io.StringIO())
    made = WorkerPool(
        RunPlace(plan_of(), run, Endpoints("", ""), manifest, progress, "x", offline=True)
    )
    for number in range(4):
        worker = made._worker(worker_spec(f"p-{number}", "confluent-kafka"))
        worker.start([], {})
        made._now["producer"].append(worker)
        monkeypatch.setitem(
            made._detectors, worker.name, type("_", (), {"deadline_s": 1.0, "limits_calls": True})
        )
    return made


def test_lives_that_begin_while_others_look_and_the_load_ends(pool: WorkerPool) -> None:
    """Nobody sees a client twice or not at all, and no later life misses the end of the load."""
    over = threading.Event()

    def live(number: int) -> None:
        for life in range(2, 40):
            before = pool.current(f"p-{number}")
            pool.will_return(before.plan_name)
            pool.begin_life(before, before.spec.model_copy(update={"name": f"p-{number}.{life}"}))

    def look() -> None:
        while not over.is_set():
            assert [worker.plan_name for worker in pool.producers] == [f"p-{n}" for n in range(4)]
            names = [worker.name for worker in pool.all_workers]
            assert len(names) == len(set(names)) >= 4
            pool.totals()

    def lives() -> None:
        try:
            together(*((lambda n=n: live(n)) for n in range(4)), pool.stop_load)
        finally:
            over.set()

    together(look, look, lives)
    assert len(pool.all_workers) == 4 * 39
    assert all("stop-load" in worker.told for worker in pool.producers)  # type: ignore[attr-defined]
