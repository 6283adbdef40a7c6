"""The driver's end of a task on another machine: its workers as processes, its clock, its
answers."""

from __future__ import annotations

import json
import queue
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final

from harness.clock_line import Anchor, ClockLine, shortest
from harness.contracts.worker import ProcessSpec
from harness.errors import UsageError, WorkerError
from harness.remote.wire import Channel, Message
from harness.run.hosts import Process
from harness.run.liveness import CallSource, OpenCalls
from harness.rundir import json_object, write_json
from harness.workers.security import SecureOptions

#: Round trips of one measurement of a clock; the shortest counts.
TRIPS: Final = 25
#: A machine that does not say the time for so long is lost: power that is gone closes no
#: connection.
TRIP_S: Final = 30.0
#: What a worker's process ends with whose machine cannot be heard any more.
LOST_CODE: Final = 255
_TIMED: Final = re.compile(r"(start|drain) (\d+)(\s*)$")

#: Library, argv and environment of a worker here -> the command in the box of a task.
Relocate = Callable[[str, Sequence[str], Mapping[str, str]], tuple[list[str], dict[str, str]]]
#: Library of a worker -> how a task finds what the cluster asks of its client: names, no secrets.
WaysIn = Callable[[str], Mapping[str, Any]]


class Executor:
    """A task that has connected. `Host` of the workers that it is given."""

    def __init__(self, hello: Message, control: Channel, clock: Channel) -> None:
        self.address = control.peer
        self.number = int(hello["task"])
        self.name = str(hello["host"])
        self.machine = str(hello.get("machine", ""))
        self.lost = ""
        self._control = control
        self._clock = clock
        self._anchors: list[Anchor] = []
        self._measuring = threading.Lock()
        self._lock = threading.Lock()
        self._processes: dict[str, RemoteProcess] = {}
        self._answers: dict[int, Future[Any]] = {}
        self._run = ""
        self._relocate: Relocate = lambda library, argv, env: (list(argv), dict(env))
        self._ways_in: WaysIn | None = None
        self._is_over = self._is_gone = False
        threading.Thread(target=self._listen, name=f"executor-{self.number}", daemon=True).start()

    def begin(self, run_id: str, relocate: Relocate, ways_in: WaysIn | None = None) -> None:
        """Begin a run: what is started from now on belongs to it. If ``ways_in`` is None, the other
        machine has no secrets.
        """
        self._run, self._relocate, self._ways_in = run_id, relocate, ways_in

    # ----- clock ----------------------------------------------------------------------------------

    def measure(self) -> None:
        """Measure its clock once more; one that does not answer is lost."""
        if self._is_gone:
            return
        trips = []
        with self._measuring:
            self._clock.limit(TRIP_S)
            for number in range(TRIPS):
                asked_ns = time.monotonic_ns()
                self._clock.send({"n": number})
                told = self._clock.receive()
                came_ns = time.monotonic_ns()
                if told is None or told.get("n") != number:
                    self.lost = self.lost or f"task {self.number} on {self.name} does not answer"
                    self._control.close()  # its workers end with it, if they are there
                    return
                trips.append(Anchor.of_trip(asked_ns, int(told["t_ns"]), came_ns))
            self._anchors.append(shortest(trips))

    @property
    def is_timed(self) -> bool:
        """Its clock was measured at least once."""
        return bool(self._anchors)

    @property
    def line(self) -> ClockLine:
        """Its clock, by what was measured until now.

        Raises:
            WorkerError: nothing was.
        """
        if not self._anchors:
            raise WorkerError(f"task {self.number} on {self.name} does not tell its time")
        return ClockLine(tuple(self._anchors))

    # ----- a host of workers ----------------------------------------------------------------------

    def start(
        self,
        spec: ProcessSpec,
        folder: Path,
        argv: Sequence[str],
        env: Mapping[str, str],
        handed: SecureOptions,
    ) -> Process:
        """Start a process; see `harness.run.hosts.Host.start`. Credentials are not sent: a task
        reads those of its machine.
        """
        if handed.options and self._ways_in is None:
            raise UsageError(
                "secrets go to no other machine, and this cluster does not say where they are there",
                hint="--cluster FILE names the variables and files that hold them",
            )
        library = spec.client.library
        ways_in = self._ways_in(library) if self._ways_in and handed.options else None
        document = spec.document()
        write_json(folder / "spec.json", document)
        words, changes = self._relocate(library, argv, env)
        name = spec.name
        process = RemoteProcess(self, name)
        with self._lock:
            self._processes[name] = process
        told: Message = {
            "do": "spawn",
            "run": self._run,
            "name": name,
            "argv": words,
            "env": changes,
        }
        told["ways_in"] = ways_in
        if self._is_gone or not self._control.send({**told, "spec": document}):
            process.lose(self._why())
        return process

    def calls(self, name: str, folder: Path) -> CallSource:
        """Return the open calls of a worker; see `harness.run.hosts.Host.calls`."""
        return _ToldCalls(lambda: self._processes.get(name))

    def is_stopped(self, process: Process) -> bool:
        """Return whether the process is stopped; see `harness.run.hosts.Host.is_stopped`."""
        return isinstance(process, RemoteProcess) and process.is_stopped

    def send(self, message: Message) -> None:
        """A command to one of its workers; who is dead does not obey."""
        self._control.send(message)

    # ----- questions ------------------------------------------------------------------------------

    def ask(self, do: str, timeout_s: float, **more: Any) -> Any:
        """Ask the task, and return its answer.

        Raises:
            WorkerError: nothing in time, or that it could not; in its own words.
        """
        future: Future[Any] = Future()
        with self._lock:
            number = len(self._answers)
            self._answers[number] = future
        asked = {"do": do, "id": number, "run": self._run, **more}
        if self._is_gone or not self._control.send(asked):
            raise WorkerError(self._why())
        try:
            answer = future.result(timeout_s)
        except TimeoutError as error:
            raise WorkerError(
                f"task {self.number} on {self.name}: no answer in {timeout_s:.0f} s"
            ) from error
        if "error" in answer:
            raise WorkerError(f"task {self.number} on {self.name}: {answer['error']}")
        return answer["found"]

    def end(self) -> None:
        """End the task and its workers. Idempotent."""
        self._is_over = True
        self._control.send({"do": "end"})
        self._control.close()
        self._clock.close()

    def _why(self) -> str:
        return self.lost or f"task {self.number} on {self.name} cannot be reached"

    def _listen(self) -> None:
        for message in self._control.messages():
            self._take(message)
        self._is_gone = True
        if not self._is_over:
            self.lost = self.lost or f"task {self.number} on {self.name} is gone"
        with self._lock:
            processes, answers = list(self._processes.values()), list(self._answers.values())
        for process in processes:
            process.lose(self._why())
        for answer in answers:
            if not answer.done():
                answer.set_result({"error": "it is gone"})

    def _take(self, message: Message) -> None:
        what = message.get("is")
        if what == "answer":
            self._answers[int(message["id"])].set_result(message)
        elif what == "orphan":
            self.lost = f"task {self.number} on {self.name} was ended by Spark"
        elif (process := self._processes.get(str(message.get("name")))) is not None:
            process.take(message)


class _ToldCalls:
    """Open calls as the task told them last."""

    def __init__(self, process: Callable[[], RemoteProcess | None]) -> None:
        self._process = process

    def open_calls(self) -> OpenCalls:
        process = self._process()
        return process.open_calls if process else OpenCalls(0, 0)


class _Lines:
    """The lines that a process prints, as they arrive."""

    def __init__(self) -> None:
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def put(self, line: str | None) -> None:
        """Add a line; None ends the lines."""
        self._lines.put(line)

    def __iter__(self) -> Iterator[str]:
        while (line := self._lines.get()) is not None:
            yield line

    def close(self) -> None:
        """Nothing to be closed: the end comes from the other machine."""


class RemoteProcess:
    """A worker on another machine, as `harness.run.hosts.Process`: times come on this machine's
    clock, and times in commands use the other's. It has no pid here: nothing may signal a process
    by its number."""

    pid = None

    def __init__(self, executor: Executor, name: str) -> None:
        self._executor = executor
        self._name = name
        self._code: int | None = None
        self._ended = threading.Event()
        self.stdin = self
        self.stdout, self.stderr = _Lines(), _Lines()
        self.open_calls = OpenCalls(0, 0)
        self.is_stopped = False

    # ----- what comes from there

    def take(self, message: Message) -> None:
        """One message of the task about it."""
        what = message["is"]
        if what == "out":
            self.stdout.put(self._on_this_clock(str(message["line"])))
        elif what == "err":
            self.stderr.put(str(message["line"]))
        elif what == "state":
            self._take_open(message["open"])
            self.is_stopped = bool(message["stopped"])
        elif what == "exit":
            if "open" in message:
                self._take_open(message["open"])
            self._end(int(message["code"]))

    def _take_open(self, told: Sequence[int]) -> None:
        count, *times = map(int, told)
        oldest, last, answered = (self._executor.line.here(t_ns) if t_ns else 0 for t_ns in times)
        self.open_calls = OpenCalls(count, oldest, last, answered)

    def lose(self, why: str) -> None:
        """Its machine cannot be heard any more."""
        if self._code is None:
            self.stderr.put(f"{why}\n")
            self._end(LOST_CODE)

    def _end(self, code: int) -> None:
        if self._code is None:
            self._code = code
            self.stdout.put(None)
            self.stderr.put(None)
            self._ended.set()

    def _on_this_clock(self, line: str) -> str:
        """A line of a worker with its time here; what a client prints stays as it is."""
        if not line.startswith("{"):
            return line
        try:
            message = json_object(line)
        except ValueError:
            return line
        if isinstance(message.get("t_ns"), int):
            message["t_ns"] = self._executor.line.here(message["t_ns"])
        return json.dumps(message) + "\n"

    # ----- what goes there

    def write(self, text: str) -> None:
        """A command; the time in it is converted to the clock there."""
        if timed := _TIMED.match(text):
            there_ns = self._executor.line.there(int(timed[2]))
            text = f"{timed[1]} {there_ns}{timed[3]}"
        self._executor.send({"do": "tell", "name": self._name, "line": text})

    def flush(self) -> None:
        """Sent already."""

    def close(self) -> None:
        """Do nothing: it has no pipe."""

    def send_signal(self, number: int) -> None:
        """Send a signal, as `subprocess.Popen` does."""
        if self._code is None:
            self._executor.send({"do": "signal", "name": self._name, "number": int(number)})

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def poll(self) -> int | None:
        """Return the exit code; None while the process runs, as far as its machine has reported."""
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end, as `subprocess.Popen` does.

        Raises:
            TimeoutExpired: it lives.
        """
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired(self._name, timeout or 0.0)
        assert self._code is not None
        return self._code
