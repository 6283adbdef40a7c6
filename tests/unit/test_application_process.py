"""Processes of applications: ready, ended, killed with their children; their output within a
bound."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from harness.clusters.limits.groups import why_not
from harness.connections.security import Security, Tls
from harness.contracts.plan import ApplicationPlan
from harness.errors import WorkerError
from harness.owners import ROLE, marks_of
from harness.run import application_process
from harness.run.application_container import ApplicationContainer
from harness.run.application_limits import InstanceLimits
from harness.run.application_process import ApplicationProcess
from harness.run.applications import Applications
from harness.run.output_files import BoundedFile
from harness.run.place import RunPlace
from harness.run.worker_specs import Endpoints
from harness.rundir import RunDir
from harness.waiting import wait_until
from tests.http_server import Answer, Request, answering
from tests.planted.tiny_applications import applied

PLAN = {
    "name": "billing",
    "run": [],
    "env": {},
    "folder": "/",
    "instances": 1,
    "ready": {"log": "started"},
    "ready_within_s": 5.0,
    "stop_signal": signal.SIGTERM,
    "stop_within_s": 5.0,
    "restarts": "never",
    "source": "orders",
    "to": "invoices",
    "group": "billing",
    "session": 1,
    "makes": "one",
    "promise": "at-least-once",
    "order": "none",
}


def started(folder: Path, program: str, **changes: Any) -> ApplicationProcess:
    plan = ApplicationPlan(**{**PLAN, **changes})
    process = ApplicationProcess(plan, "application-billing", 1, folder)
    run_id = f"20260101-000000-{folder.name[-20:]}"  # tests run side by side
    process.start([sys.executable, "-c", program], {**marks_of(run_id), ROLE: process.instance})
    return process


def test_it_is_ready_when_it_prints_the_text_in_any_number_of_pieces(tmp_path: Path) -> None:
    program = (
        "import sys, time\n"
        "for c in 'it has started':\n"
        "    sys.stdout.write(c)\n"
        "    sys.stdout.flush()\n"
        "time.sleep(60)"
    )
    process = started(tmp_path, program)
    process.wait_ready()
    assert process.stop()
    assert process.exit_code == -signal.SIGTERM
    assert (tmp_path / "stdout.log").read_text() == "it has started"


@pytest.mark.parametrize(("status", "is_ready"), [(200, True), (302, True), (503, False)])
def test_a_url_is_asked_without_a_proxy_and_its_redirection_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, is_ready: bool
) -> None:
    """Both would lead to another machine."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9/")
    asked: list[str] = []

    def answer(request: Request) -> Answer:
        asked.append(request.path)
        return status, {}, {"Location": "/elsewhere"}

    with answering(answer) as port:
        url = f"http://127.0.0.1:{port}/health?deep=1"
        process = started(tmp_path, "import time; time.sleep(60)", ready={"http": url})
        assert process.is_ready() is is_ready
        process.kill()
    assert asked == ["/health?deep=1"]


@pytest.mark.parametrize(
    ("program", "changes", "said"),
    [
        (
            "import sys; sys.exit('no such topic')",
            {},
            "ended with exit code 1 before it was ready: no such topic",
        ),
        (
            "import time; time.sleep(60)",
            {"ready_within_s": 0.3},
            "not ready after 0.3 s (log: started)",
        ),
    ],
)
def test_one_that_does_not_get_ready_is_an_error_with_its_last_words(
    tmp_path: Path, program: str, changes: dict[str, Any], said: str
) -> None:
    process = started(tmp_path, program, **changes)
    with pytest.raises(WorkerError, match="application-billing") as error:
        process.wait_ready()
    process.kill()
    assert said in str(error.value)


def test_a_program_that_cannot_be_started_is_an_error(tmp_path: Path) -> None:
    process = ApplicationProcess(ApplicationPlan(**PLAN), "application-billing", 1, tmp_path)
    with pytest.raises(WorkerError, match="cannot be started"):
        process.start(["./no-such-program"], {})


class FakeContainer:
    """Stands for a container of the engine: the command that starts it exits as the engine's does,
    with 128 and the number of the signal that ended the program."""

    def __init__(
        self, run_id: str, instance: str, image: str, argv: Any, env: Any, folders: Any
    ) -> None:
        self.asked = (run_id, instance, image, list(argv), env["IN"], list(folders))
        self.sent: list[int] = []
        self.is_removed = False
        self._told = folders[0] / "told"
        program = (
            "import os, sys, time\n"
            "print('started', flush=True)\n"
            f"while not os.path.exists({str(self._told)!r}): time.sleep(0.01)\n"
            f"sys.exit(128 + int(open({str(self._told)!r}).read()))"
        )
        self.start_command = (sys.executable, "-c", program)

    def pid(self) -> int:
        return 4711

    def send(self, number: int) -> None:
        self.sent.append(int(number))
        whole = self._told.with_suffix(".part")
        whole.write_text(str(int(number)))
        whole.rename(self._told)

    def remove(self) -> None:
        self.is_removed = True


def test_one_in_an_image_is_a_container_that_gets_its_signals_and_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[FakeContainer] = []

    def make(*asked: Any) -> FakeContainer:
        made.append(FakeContainer(*asked))
        return made[-1]

    monkeypatch.setattr("harness.run.application_container.ProgramContainer", make)
    plan = ApplicationPlan(**{**PLAN, "image": "billing:1", "run": ["--mode", "storm"]})
    own = tmp_path / "own"
    own.mkdir()
    life = ApplicationContainer(plan, "application-billing", 1, tmp_path, [own])
    env = {"IN": "orders", **marks_of("20260101-000000-test")}
    life.start(["--mode", "storm"], env)
    life.wait_ready()
    (container,) = made
    assert container.asked == (
        *("20260101-000000-test", "application-billing", "billing:1"),
        *(["--mode", "storm"], "orders", [own]),
    )
    assert life.pid == 4711
    assert own.stat().st_mode & 0o777 == 0o777  # the user inside may be any
    assert life.stop()
    assert (life.exit_code, container.sent) == (-signal.SIGTERM, [signal.SIGTERM])
    assert container.is_removed
    assert (tmp_path / "stdout.log").read_text() == "started\n"


def test_one_that_ignores_its_signal_is_killed(tmp_path: Path) -> None:
    program = (
        "import signal, time\nsignal.signal(15, signal.SIG_IGN)\n"
        "print('started', flush=True)\ntime.sleep(60)"
    )
    process = started(tmp_path, program)
    process.wait_ready()
    assert not process.stop(0.3)
    assert process.was_killed


def test_one_that_ends_in_time_was_not_killed_though_its_children_take_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()
    monkeypatch.setattr(application_process, "_GONE_S", 0.0)
    monkeypatch.setattr(application_process, "end", lambda *_, **__: over.wait(20))
    process = started(tmp_path, "import time\nprint('started', flush=True)\ntime.sleep(60)")
    process.wait_ready()
    assert process.stop()
    over.set()


@pytest.mark.parametrize(
    ("how", "session", "environment"),
    [
        ("killed", "the same", "the same"),
        ("killed", "the same", "none"),
        ("killed", "its own", "the same"),
        ("killed", "its own", "none"),
        ("by itself", "the same", "the same"),
        ("by itself", "the same", "none"),
        ("by itself", "its own", "the same"),
        # by itself, its own, none: nothing says whose the child was
    ],
)
def test_its_children_end_with_it(tmp_path: Path, how: str, session: str, environment: str) -> None:
    """One that lives on would make outputs next to the next life, and stay when the run is over."""
    program = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'],"
        f" start_new_session={session == 'its own'}, env={'{}' if environment == 'none' else None})\n"
        f"print(child.pid, 'started', flush=True)\ntime.sleep({60 if how == 'killed' else 0})"
    )
    process = started(tmp_path, program)
    assert wait_until(lambda: "started" in told(tmp_path / "stdout.log"), 20, every_s=0.02)
    child = int(told(tmp_path / "stdout.log").split()[0])
    if how == "killed":
        assert process.kill()
    else:
        assert wait_until(lambda: process.t_end_ns > 0, 20, every_s=0.02)

    def is_gone() -> bool:
        try:
            return Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except FileNotFoundError:
            return True

    assert wait_until(is_gone, 5.0, every_s=0.02)


def told(path: Path) -> str:
    """What a program has printed until now."""
    return path.read_text() if path.exists() else ""


def test_a_program_that_prints_much_keeps_the_disk_free_and_its_last_words(tmp_path: Path) -> None:
    path = tmp_path / "stdout.log"
    kept = BoundedFile(path, head=1000, tail=100)
    for _ in range(1000):
        kept.write(b"x" * 99 + b"\n")
    kept.write(b"the last line\n")
    kept.close()
    text = path.read_bytes()
    assert len(text) < 1300
    assert text.endswith(b"the last line\n")
    assert b"brokerstorm left out" in text
    assert kept.left_out > 98_000


def test_a_password_that_it_prints_is_not_kept(tmp_path: Path) -> None:
    process = ApplicationProcess(ApplicationPlan(**PLAN), "application-billing", 1, tmp_path)
    program = "print('user shop, password s3cr3t-text'); print('started')"
    process.start(
        [sys.executable, "-c", program], marks_of("20260101-000000-test"), ["s3cr3t-text"]
    )
    assert wait_until(lambda: process.t_end_ns > 0, 10.0, every_s=0.02)
    text = (tmp_path / "stdout.log").read_text()
    assert "s3cr3t" not in text
    assert "user shop" in text
    assert "started" in text


def test_a_later_life_adds_to_the_output_of_the_one_before(tmp_path: Path) -> None:
    for line in (b"first\n", b"second\n"):
        kept = BoundedFile(tmp_path / "stdout.log")
        kept.write(line)
        kept.close()
    assert (tmp_path / "stdout.log").read_text() == "first\nsecond\n"


def test_a_frozen_program_is_killed_all_the_same(tmp_path: Path) -> None:
    program = (
        "import signal, sys, time\n"
        # without a handler it would end although it is stopped
        "signal.signal(15, lambda *_: sys.exit())\n"
        "print('started', flush=True)\n"
        "time.sleep(60)"
    )
    process = started(tmp_path, program)
    process.wait_ready()
    os.kill(process.pid, signal.SIGSTOP)
    start = time.monotonic()
    assert not process.stop(0.3)
    assert time.monotonic() - start < 5


def test_the_place_java_has_a_value_in_the_environment_too(tmp_path: Path) -> None:
    plan = applied().plan
    application = plan.applications[0].model_copy(update={"env": {"JAVA": "{java}"}})
    plan = plan.model_copy(update={"applications": [application]})
    anything: Any = None
    run = RunDir(tmp_path / "run").create()
    where = Endpoints("127.0.0.1:1")
    own = Applications(RunPlace(plan, run, where, anything, anything, "run-1"), anything)
    assert Path(own._values(application, application.instance_names[0])["java"]).name == "java"


def test_files_have_absolute_paths_because_a_program_runs_in_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = applied().plan
    anything: Any = None
    files = Tls(*(Path(f"runs/{name}.pem") for name in ("ca", "certificate", "key")))
    where = Endpoints("127.0.0.1:1", security=Security(files))
    run = RunDir(Path("runs/1")).create()
    own = Applications(RunPlace(plan, run, where, anything, anything, "run-1"), anything)
    application = plan.applications[0]
    values = own._values(application, application.instance_names[0])
    for place in ("folder", "shared", "ca", "certificate", "key"):
        assert Path(values[place]).is_absolute(), place


def limited(
    tmp_path: Path, program: str, **limits: Any
) -> tuple[ApplicationProcess, InstanceLimits]:
    for controller, key in (("cpu", "cpu_cores"), ("memory", "memory_bytes")):
        if key in limits and (reason := why_not(controller)):
            pytest.skip(reason)
    process = started(tmp_path, program, ready={}, **limits)
    groups = InstanceLimits(process.plan, f"test-{time.monotonic_ns()}", "application-billing")
    groups.enter(process.pid)
    return process, groups


def test_an_instance_gets_no_more_cpu_than_its_limit(tmp_path: Path) -> None:
    process, limits = limited(tmp_path, "while True: pass", cpu_cores=0.2)
    try:
        assert wait_until(lambda: limits.throttled_s() > 0.1, 20)
    finally:
        process.kill()
        limits.drop()
    assert not any(group.path.exists() for group in limits._groups)


def test_an_instance_that_needs_more_memory_than_its_limit_is_killed(tmp_path: Path) -> None:
    program = "import time; time.sleep(1); held = b'x' * (200 << 20); time.sleep(60)"
    process, limits = limited(tmp_path, program, memory_bytes=50 << 20)
    try:
        assert wait_until(lambda: not process.is_alive, 20)
        assert process.exit_code == -signal.SIGKILL
        assert limits.killed() == 1
        assert limits.memory_text() == "52.4 MB"
    finally:
        process.kill()
        limits.drop()
