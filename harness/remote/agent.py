"""The program of a task on another machine: starts workers on command, relays what they say, seals.

    python -m harness.remote.agent HOST PORT TASK BOX      (the token comes on stdin)

Two connections to the driver: one for commands and lines, one that only tells the time. Workers end
with this process (`harness.remote.bound`), it ends with the connection, and when the kernel says
that the task is gone (SIGTERM) it ends the workers and stays to seal what they captured, for
`LINGER_S` at most.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, Final

from harness.clock_line import ClockLine
from harness.connections.file import security_here
from harness.connections.redaction import SecretRemover
from harness.contracts import typed
from harness.contracts.plan import Plan
from harness.errors import BrokerstormError
from harness.filesystems import filesystem_of, put_file
from harness.remote.wire import Channel, Message
from harness.run.liveness import SendSegments
from harness.rundir import Document, RunDir, read_jsonl, write_json
from harness.seal.names import NAMES_FILE
from harness.seal.seal import seal_share
from harness.seal.share import MachineShare, ShareReport
from harness.workers.security import NOTHING_SECURE, SecureOptions, SecurityWords, handed_over

#: Between two looks at open calls and at whether a process is stopped.
LOOK_EVERY_S: Final = 0.5
#: Without its task it stays no longer than an audit may take.
LINGER_S: Final = 900.0
CONNECT_S: Final = 30.0
_BOUND: Final = Path(__file__).with_name("bound.py")


class Agent:
    """Commands come in one thread, which starts the workers: they learn when that thread ends."""

    def __init__(self, control: Channel, box: Path, work: Path) -> None:
        self._control = control
        self._box = box
        self._work = work
        self._workers: dict[str, _Worker] = {}
        self._is_over = threading.Event()
        self._task_is_gone = threading.Event()
        self._java = _java_of_parents()

    def serve(self) -> None:
        """Until the driver says so or is gone."""
        for target in (self._look, self._linger):
            threading.Thread(target=target, daemon=True).start()
        try:
            for message in self._control.messages():
                if message.get("do") == "end":
                    break
                self._obey(message)
        finally:
            self._is_over.set()
            self._kill_all()

    def task_is_gone(self, *_: object) -> None:
        """The handler of the kernel's signal: it may only note it."""
        self._task_is_gone.set()

    def _linger(self) -> None:
        while not self._task_is_gone.wait(LOOK_EVERY_S):
            if self._is_over.is_set():
                return
        self._control.send({"is": "orphan"})
        self._kill_all()
        self._is_over.wait(LINGER_S)
        self._control.close()

    def _kill_all(self) -> None:
        for worker in list(self._workers.values()):
            worker.signal(signal.SIGCONT)
            worker.signal(signal.SIGKILL)

    def _obey(self, message: Message) -> None:
        do, name = message.get("do"), str(message.get("name", ""))
        if do == "spawn":
            self._spawn(name, message)
        elif do == "tell" and name in self._workers:
            self._workers[name].tell(str(message["line"]))
        elif do == "signal" and name in self._workers:
            self._workers[name].signal(int(message["number"]))
        elif do in ("names", "seal", "probe", "secrets"):
            answer = {
                "names": self._names,
                "seal": self._seal,
                "probe": self._probe,
                "secrets": lambda told: bool(security_here(told["connection"])),
            }[do]
            threading.Thread(target=self._answer, args=(answer, message), daemon=True).start()

    def _answer(self, answer: Any, message: Message) -> None:
        try:
            found = {"found": answer(message)}
        except BrokerstormError as error:
            found = {"error": str(error)}
        except (OSError, ValueError) as error:
            found = {"error": f"{type(error).__name__}: {error}"}
        self._control.send({"is": "answer", "id": message["id"], **found})

    # ----- workers --------------------------------------------------------------------------------

    def _spawn(self, name: str, message: Message) -> None:
        folder = self._run(message).worker(name)
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "spec.json", {**message["spec"], "capture_dir": str(folder)})
        argv = [self._here(word) for word in message["argv"]]
        env = {key: self._here(value) for key, value in message["env"].items()}
        bound = [sys.executable, "-I", str(_BOUND), str(int(signal.SIGKILL)), str(os.getpid())]
        if shutil.which(argv[0]) is None:
            self._refuse(name, f"there is no {argv[0]} on that machine")
            return
        try:
            handed = _handed(message["ways_in"], message["spec"]["client"]["library"])
        except BrokerstormError as error:
            self._refuse(name, str(error))
            return
        with handed_over(handed) as (more_env, passed):
            process = subprocess.Popen(
                [*bound, *argv, str(folder / "spec.json")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, **env, **more_env},
                encoding="utf-8",
                errors="replace",
                start_new_session=True,
                pass_fds=passed,
            )
        remover = SecretRemover(handed.secrets)
        self._workers[name] = _Worker(name, process, self._control, SendSegments(folder), remover)

    def _refuse(self, name: str, why: str) -> None:
        """Say what ends a worker before it begins."""
        self._control.send({"is": "err", "name": name, "line": f"{why}\n"})
        self._control.send({"is": "exit", "name": name, "code": 127, "t_ns": time.monotonic_ns()})

    def _here(self, text: str) -> str:
        places = {
            "{box}": str(self._box),
            "{python}": sys.executable,
            "{java}": self._java or "java",
        }
        for place, path in places.items():
            text = text.replace(place, path)
        return text

    def _look(self) -> None:
        while not self._is_over.wait(LOOK_EVERY_S):
            for worker in list(self._workers.values()):
                if worker.is_alive:
                    # a segment that appears right now
                    with contextlib.suppress(OSError, ValueError):
                        self._control.send(worker.state())

    # ----- what they captured ---------------------------------------------------------------------

    def _run(self, message: Message) -> RunDir:
        return RunDir(self._work / str(message["run"]))

    def _names(self, message: Message) -> dict[str, list[Document]]:
        raw = self._run(message).raw
        return {folder.name: read_jsonl(folder / NAMES_FILE) for folder in raw.iterdir()}

    def _probe(self, message: Message) -> bool:
        """Whether the run's folder can be written; of a folder on a mount: whether it is the
        run's."""
        target, name = str(message["target"]), f".part-{message['part']}"
        put_file(_BOUND, target, name)
        filesystem, folder = filesystem_of(target)
        filesystem.delete_file(f"{folder}/{name}")
        return (Path(target) / str(message["sees"])).exists() if message["sees"] else True

    def _seal(self, message: Message) -> Document:
        run = self._run(message).create()
        plan = typed(message["plan"], Plan, "the plan of the run")
        clock = ClockLine.of_document(message["clock"])
        share = MachineShare(
            int(message["part"]), [(kind, text) for kind, text in message["names"]], clock
        )
        workers = [folder.name for folder in run.raw.iterdir()]
        try:
            report = seal_share(run, plan, share)
            for path in report.files:
                put_file(run.sealed / path, str(message["target"]), f"sealed/{path}")
        except (OSError, BrokerstormError) as error:
            # the place refuses it, or this machine's disk is full
            kept = tempfile.mkdtemp(prefix=f"brokerstorm-{run.run_id}-part-{share.part}-")
            shutil.move(run.root, kept)
            left = f"{kept}: {str(error).strip().partition(chr(10))[0][:200]}"
            return asdict(ShareReport.missing(workers, left))
        shutil.rmtree(run.root, ignore_errors=True)
        return asdict(report)


class _Worker:
    """A worker process, and the threads that relay what it says."""

    def __init__(
        self,
        name: str,
        process: subprocess.Popen[str],
        control: Channel,
        sends: SendSegments,
        remover: SecretRemover,
    ) -> None:
        self._remover = remover
        self._name = name
        self._process = process
        self._control = control
        self._sends = sends
        self._relays = [
            threading.Thread(target=self._relay, args=(what, pipe), daemon=True)
            for what, pipe in (("out", process.stdout), ("err", process.stderr))
        ]
        for relay in self._relays:
            relay.start()
        threading.Thread(target=self._see_end, daemon=True).start()

    @property
    def is_alive(self) -> bool:
        """Return whether the worker's process runs."""
        return self._process.poll() is None

    def _relay(self, what: str, pipe: IO[str]) -> None:
        clean = self._remover.printed if what == "out" else self._remover.text
        with pipe:
            for line in pipe:
                self._control.send({"is": what, "name": self._name, "line": clean(line)})

    def _see_end(self) -> None:
        code = self._process.wait()
        t_ns = time.monotonic_ns()
        for relay in self._relays:
            relay.join(1.0)  # a process that it left may hold a pipe
        told = {"is": "exit", "name": self._name, "code": code, "t_ns": t_ns}
        with contextlib.suppress(OSError, ValueError):
            told["open"] = self._open_calls()
        self._control.send(told)

    def tell(self, line: str) -> None:
        """Write a line to the worker; a worker that has ended does not read it."""
        with contextlib.suppress(OSError, ValueError):  # a command that is not read
            assert self._process.stdin is not None
            self._process.stdin.write(line)
            self._process.stdin.flush()

    def signal(self, number: int) -> None:
        """Send a signal to the worker's process."""
        self._process.send_signal(number)

    def state(self) -> Message:
        """Its open calls, and whether it is stopped at this moment."""
        stat = Path(f"/proc/{self._process.pid}/stat").read_text()
        is_stopped = stat.rpartition(")")[2].split()[0] == "T"
        return {
            "is": "state",
            "name": self._name,
            "open": self._open_calls(),
            "stopped": is_stopped,
        }

    def _open_calls(self) -> list[int]:
        calls = self._sends.open_calls()
        return [calls.count, calls.oldest_start_ns, calls.last_done_ns, calls.answered_start_ns]


def _handed(ways_in: Message | None, library: str) -> SecureOptions:
    """Return what the cluster asks of a client, with the secrets of this machine.

    Raises:
        EnvironmentNotReady: one is not there.
    """
    if ways_in is None:
        return NOTHING_SECURE
    words = typed(ways_in["words"], SecurityWords, "the words of the worker")
    return words.options(security_here(ways_in["connection"]), library)


def _java_of_parents() -> str:
    """The program of the executor that this is a task of: a JVM that is new enough for Spark."""
    pid = os.getppid()
    while pid > 1:
        with contextlib.suppress(OSError):
            program = os.readlink(f"/proc/{pid}/exe")
            if Path(program).name == "java":
                return program
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            break
    return ""


def connected(address: tuple[str, int], hello: Message) -> Channel:
    """A connection to the driver that has said who it is.

    Raises:
        OSError: the driver cannot be reached.
    """
    connection = socket.create_connection(address, CONNECT_S)
    connection.settimeout(None)
    channel = Channel(connection)
    channel.send(hello)
    return channel


def tell_time(channel: Channel) -> None:
    """Answer each question with this machine's clock."""
    for message in channel.messages():
        channel.send({"n": message.get("n"), "t_ns": time.monotonic_ns()})


def main(host: str, port: str, task: str, box: str) -> None:
    """Exit code 0 once the driver said that it is over, or went."""
    token = sys.stdin.readline().strip()
    hello = {
        "token": token,
        "task": int(task),
        "host": socket.gethostname(),
        "machine": platform.machine(),
        "python": ".".join(map(str, sys.version_info[:2])),
        "pid": os.getpid(),
    }
    address = host, int(port)
    control = connected(address, {**hello, "kind": "control"})
    clock = connected(address, {**hello, "kind": "clock"})
    threading.Thread(target=tell_time, args=(clock,), daemon=True).start()
    work = Path(tempfile.mkdtemp(prefix="brokerstorm-load-", dir=Path(box).parent))
    agent = Agent(control, Path(box), work)
    signal.signal(signal.SIGTERM, agent.task_is_gone)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        agent.serve()
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
