"""One process of an application under test: started, watched until it is ready, asked to end,
killed."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Final
from urllib.parse import urlsplit, urlunsplit

import psutil

from harness.clusters.nodes.processes import end, run_processes
from harness.connections.redaction import SecretRemover
from harness.contracts.plan import ApplicationPlan
from harness.errors import EnvironmentNotReady, WorkerError
from harness.owners import ROLE, RUN_ID
from harness.run.output_files import BoundedFile
from harness.waiting import wait_until, wait_while

#: Last lines of its output that an error shows.
_SHOWN_COLUMNS: Final = 200
_SHOWN_LINES: Final = 5
_SHOWN_BYTES: Final = 4096
_READ_BYTES: Final = 1 << 16
#: A process that was sent SIGKILL is gone by then, unless the kernel is stuck.
_GONE_S: Final = 10.0
_ANSWER_S: Final = 1.0
#: The least status of HTTP that is an error.
_LEAST_ERROR: Final = 400
#: stdout and stderr are read to the end within this, once the process is gone; a child may hold
#: them.
_FLUSH_S: Final = 1.0


class ApplicationProcess:
    """A life of an instance. Everything that it prints is kept in its folder, within a bound.

    Attributes:
        name: of this life: ``application-billing-1``, later ``application-billing-1.2``.
        instance: name of the instance in the plan.
        is_ending: the run or a fault ends it, so its end is not an event of its own.
        was_killed: SIGKILL of the run or of a fault ended it.
    """

    def __init__(self, plan: ApplicationPlan, instance: str, life: int, folder: Path) -> None:
        self.plan = plan
        self.instance = instance
        self.name = instance if life == 1 else f"{instance}.{life}"
        self.life = life
        self.folder = folder
        self.is_ending = self.was_killed = self.was_reported = False
        self.t_start_ns = self.t_end_ns = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._readers: list[threading.Thread] = []
        self._run_id, self._role = "", instance
        self._secrets: SecretRemover | None = None
        #: Its children and theirs, when it was asked to end or killed.
        self._children: list[psutil.Process] = []
        self._said_ready = threading.Event()
        #: The process has ended; and nothing is left of this life.
        self._exited, self._ended = threading.Event(), threading.Event()

    def start(
        self, argv: Sequence[str], env: Mapping[str, str], secrets: Sequence[str] = ()
    ) -> None:
        """Start the process in its folder, as the leader of a process group of its own.

        Args:
            secrets: texts that are taken out of what it prints before that is kept.

        Raises:
            WorkerError: the program cannot be started.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self._run_id, self._role = env.get(RUN_ID, ""), env.get(ROLE, self.instance)
        self._secrets = SecretRemover(secrets) if secrets else None
        self.t_start_ns = time.monotonic_ns()
        self._process = process = self._open(argv, env)
        for stream, name in ((process.stdout, "stdout.log"), (process.stderr, "stderr.log")):
            assert stream is not None
            reader = threading.Thread(
                target=self._keep,
                args=(stream, self.folder / name),
                name=f"{self.name}-{name}",
                daemon=True,
            )
            reader.start()
            self._readers.append(reader)
        threading.Thread(target=self._wait, name=f"end-{self.name}", daemon=True).start()

    def _open(self, argv: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Start the process whose output is kept, and whose end is the end of this life."""
        program = argv[0]
        if "/" in program:
            program = str(Path(self.plan.folder) / program)
        try:
            return subprocess.Popen(
                [program, *argv[1:]],
                cwd=self.plan.folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, **env},
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise WorkerError(
                f"{self.name}: cannot be started: {error}",
                hint=f"check applications.{self.plan.name}.run",
            ) from error

    def _keep(self, stream: IO[bytes], path: Path) -> None:
        """Copy one of its streams into a file, and look for the text that says that it is ready."""
        wanted = str(self.plan.ready.get("log", "")).encode()
        before = b""
        with stream, contextlib.closing(BoundedFile(path)) as kept:
            while data := self._next_part(stream):
                with contextlib.suppress(OSError):  # a full disk must not block the program
                    kept.write(data)
                if wanted and not self._said_ready.is_set():
                    if wanted in before + data:
                        self._said_ready.set()
                    before = (before + data)[-len(wanted) :]

    def _next_part(self, stream: IO[bytes]) -> bytes:
        """What it printed next, without secrets; empty at the end."""
        if self._secrets is None:
            return os.read(stream.fileno(), _READ_BYTES)
        line = stream.readline(_READ_BYTES)  # a secret is in one line
        return self._secrets.text(line.decode(errors="replace")).encode()

    def _wait(self) -> None:
        assert self._process is not None
        self._process.wait()
        self._exited.set()
        for reader in self._readers:
            reader.join(_FLUSH_S)
        ended_ns = time.monotonic_ns()
        self._after_end()
        self.t_end_ns = ended_ns  # from now on, the next life may begin
        self._ended.set()

    def _after_end(self) -> None:
        """Remove what is left of this life, once its process has ended."""
        self._kill_group()

    def wait_end(self) -> None:
        """Wait until nothing is left of this life, whose process has ended; at once if it never
        began."""
        if self._process is not None:
            self._ended.wait(_GONE_S)

    @property
    def pid(self) -> int:
        """Process id; 0 before it is started."""
        return self._process.pid if self._process else 0

    @property
    def is_alive(self) -> bool:
        """Whether the instance was started and its process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """Its exit code, minus the number of the signal that ended it; None while it runs."""
        return self._process.poll() if self._process else None

    def is_ready(self) -> bool:
        """Whether it runs and is ready, as the scenario says how to see it."""
        if not self.is_alive:
            return False
        ready = self.plan.ready
        if "log" in ready:
            return self._said_ready.is_set()
        if "tcp" in ready:
            return _accepts(int(ready["tcp"]))
        if "http" in ready:
            return _answers(str(ready["http"]))
        return True

    def wait_ready(self, give_up: Callable[[], bool] = lambda: False) -> None:
        """Wait until it is ready.

        Raises:
            WorkerError: it ended before, or took longer than the scenario permits.
        """
        limit_s = self.plan.ready_within_s
        if limit_s and not wait_until(
            lambda: self.is_ready() or not self.is_alive or give_up(), limit_s, every_s=0.05
        ):
            way, value = next(iter(self.plan.ready.items()))
            raise WorkerError(
                f"{self.name}: not ready after {limit_s:g} s ({way}: {value}){self.last_lines()}",
                hint=f"read its output in {self.folder}, or raise applications.{self.plan.name}.ready.within",
            )
        if not self.is_alive:
            self.wait_end()  # its last output may not be written down yet
            raise WorkerError(
                f"{self.name}: {self.end_text()} before it was ready{self.last_lines()}",
                hint=f"its output is in {self.folder}",
            )

    def stop(self, within_s: float | None = None) -> bool:
        """Ask it to end with the signal of the scenario, and kill it when it has not ended in time.

        Args:
            within_s: the time; None = the scenario's.

        Returns:
            Whether it ended without SIGKILL.
        """
        self.is_ending = True
        limit_s = self.plan.stop_within_s if within_s is None else within_s
        if self._process is not None and self.is_alive:
            self._note_children()
            self._send(self.plan.stop_signal)
        if self._process is None or self._exited.wait(limit_s):
            self.wait_end()
            return True
        self.kill()
        return False

    def _send(self, number: int) -> None:
        """Send a signal to the process, if there is one still."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def kill(self) -> bool:
        """Send SIGKILL to the process and its children; whether that ended it. Returns when it is
        gone."""
        self.is_ending = True
        alive = self.is_alive
        self._note_children()
        self._kill_group()
        self._ended.wait(_GONE_S)
        self.was_killed = alive and self.exit_code == -signal.SIGKILL
        return self.was_killed

    def _kill_group(self) -> None:
        """Kill the process and every other one of this instance: a child may have a session of its
        own, and one of a life that has ended would make outputs next to the next life."""
        if self._process is None:
            return
        self._process.kill()
        killed = []
        for each in [] if self.t_end_ns else [*self._children, *self._session()]:
            with contextlib.suppress(psutil.Error):  # one of another user
                each.kill()  # nothing if its number is another process's by now
                killed.append(each)
        wait_while(lambda: any(map(_runs, killed)), _GONE_S, every_s=0.02)
        rest = (each for each in run_processes(self._run_id) if self._is_of_instance(each[0].pid))
        with contextlib.suppress(EnvironmentNotReady):  # one of another user, which `clean` names
            end(rest, timeout_s=_GONE_S)

    def _note_children(self) -> None:
        """Remember its children while they can be found: one may have no environment, and a session
        of its own."""
        with contextlib.suppress(psutil.Error):
            if self._process is not None and self.is_alive:
                self._children = psutil.Process(self._process.pid).children(recursive=True)

    def _session(self) -> list[psutil.Process]:
        """The other processes of its session, whatever their environment is."""
        assert self._process is not None
        found = []
        for pid in psutil.pids():
            with contextlib.suppress(psutil.Error, OSError):
                if pid != self._process.pid and os.getsid(pid) == self._process.pid:
                    found.append(psutil.Process(pid))
        return found

    def _is_of_instance(self, pid: int) -> bool:
        """Whether another process than the first one belongs to this instance, by its mark."""
        assert self._process is not None
        if pid == self._process.pid:
            return False
        try:
            return psutil.Process(pid).environ().get(ROLE) == self._role
        except (psutil.Error, OSError):
            return False

    def end_text(self) -> str:
        """How it ended, for people."""
        code = self.exit_code
        if code is None:
            return "runs"
        if code < 0:
            with contextlib.suppress(ValueError):
                return f"was ended by {signal.Signals(-code).name}"
            return f"was ended by signal {-code}"
        return f"ended with exit code {code}"

    def last_lines(self) -> str:
        """The last lines of its stderr, or else of its stdout, after a colon; empty if it printed
        nothing."""
        for name in ("stderr.log", "stdout.log"):
            with contextlib.suppress(OSError), (self.folder / name).open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _SHOWN_BYTES))
                lines = file.read().decode(errors="replace").split("\n")
                shown = [line.strip() for line in lines if line.strip()][-_SHOWN_LINES:]
                if shown:
                    return ": " + " | ".join(line[:_SHOWN_COLUMNS] for line in shown)
        return ""


def _runs(process: psutil.Process) -> bool:
    """Whether a process is there and no zombie, which waits for its parent only."""
    try:
        return process.is_running() and bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _accepts(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=_ANSWER_S):
            return True
    except OSError:
        return False


def _answers(url: str) -> bool:
    """Whether a URL of this machine answers. No proxy is asked and no redirection is followed: both
    would lead elsewhere."""
    at = urlsplit(url)
    try:
        link = http.client.HTTPConnection(at.hostname or "", at.port or 80, timeout=_ANSWER_S)
        with contextlib.closing(link):
            link.request("GET", urlunsplit(("", "", at.path or "/", at.query, "")))
            return link.getresponse().status < _LEAST_ERROR
    except (http.client.HTTPException, OSError, ValueError):
        return False
