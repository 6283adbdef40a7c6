"""One worker process: commands on its stdin, JSON lines on its stdout, bounded waits.

docs/worker-protocol.md is the contract. Messages never pass through the pipe; the worker writes its
capture itself. Its stdout is kept next to the capture (stdout.jsonl), its client's log too
(stderr.log), both without the secrets that it was handed.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from harness.clusters.clocks.clocks import OwnClocks
from harness.connections.redaction import SecretRemover
from harness.contracts.rows import WorkerRow
from harness.contracts.worker import ErrorLine, ProcessSpec, ReadyLine, StatsLine
from harness.errors import WorkerError
from harness.run.crashes import TAIL_BYTES, Crash, crash_of_client
from harness.run.hosts import THIS_MACHINE, Host, Process
from harness.run.liveness import CallSource
from harness.waiting import wait_until, wait_while
from harness.workers.security import NOTHING_SECURE, SecureOptions

#: A worker that was asked to stop gets this long before SIGKILL.
STOP_GRACE_S = 5.0
#: A dump that was asked for comes within this; so long without a further line, and it is complete.
DUMP_WAIT_S = 4.0
DUMP_STILL_S = 0.4
#: Last lines of a dead worker's log that an error shows.
LOG_TAIL_LINES = 5

#: A line as the worker printed it.
Message = dict[str, Any]
OnMessage = Callable[["WorkerProcess", Message], None]


class WorkerProcess:
    """One worker process. Attributes are filled by its reader thread; every wait is bounded."""

    def __init__(
        self,
        spec: ProcessSpec,
        folder: Path,
        *,
        on_message: OnMessage | None = None,
        host: Host = THIS_MACHINE,
        own_clock: bool = False,
    ) -> None:
        """``host``: the machine that it runs on; ``folder`` is on this one in any case.
        ``own_clock``: faults set its wall clock, where it runs on this machine."""
        self._host = host
        self.clock = OwnClocks({spec.name: folder} if own_clock and host is THIS_MACHINE else {})
        self.name = spec.name
        self.role = spec.role
        self.spec = spec
        self.folder = folder
        self.ready = threading.Event()
        self.done = threading.Event()
        self.ready_line: ReadyLine | None = None
        self.done_line = StatsLine()
        self.stats = StatsLine()
        self.errors: list[ErrorLine] = []
        #: Its client said that it is of no further use; the process lives on.
        self.client_died = False
        #: The client of the plan whose later life it is; empty = the first.
        self.life_of = ""
        #: The run ends it now, and ended it by SIGKILL: no death to be told.
        self.is_ending = self.was_killed = False
        #: Its client took the process down.
        self.has_crashed = False
        #: It did not end when it was asked to, and the run ended it.
        self.was_stuck = False
        #: What an earlier life of the same consumer was handed: stream -> next position.
        self.carried: dict[str, int] = {}
        #: For a client with several lives: when it offered messages (0 = as the plan says), what it
        #: left open.
        self.offers_from_ns = self.offers_until_ns = self.open_sends = 0
        self.t_start_ns = 0
        self.t_end_ns = 0
        self._on_message = on_message
        self._process: Process | None = None
        self._telling = threading.Lock()
        self._reader: threading.Thread | None = None
        self._log_reader: threading.Thread | None = None
        self._redactor: SecretRemover | None = None

    def start(
        self, argv: Sequence[str], env: Mapping[str, str], handed: SecureOptions = NOTHING_SECURE
    ) -> None:
        """Start the process on its host. ``handed``: what the cluster asks of its client.

        Raises:
            BrokerstormError: the host cannot start it.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self._redactor = SecretRemover(handed.secrets) if handed.secrets else None
        self.t_start_ns = time.monotonic_ns()
        self._process = self._host.start(self.spec, self.folder, argv, env, handed)
        # first: the other waits for it when the process is gone at once
        if self._process.stderr is not None:
            self._log_reader = threading.Thread(
                target=self._keep_log, name=f"log-{self.name}", daemon=True
            )
            self._log_reader.start()
        self._reader = threading.Thread(target=self._read, name=f"worker-{self.name}", daemon=True)
        self._reader.start()

    def _keep_log(self) -> None:
        """The client's log, line by line, on its way to the file."""
        assert self._process is not None
        assert self._process.stderr is not None
        redactor = self._redactor
        said = self._process.stderr
        with contextlib.closing(said), (self.folder / "stderr.log").open("ab", buffering=0) as kept:
            for line in said:
                with contextlib.suppress(OSError):
                    kept.write((redactor.text(line) if redactor else line).encode())

    def _read(self) -> None:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        with (self.folder / "stdout.jsonl").open("ab", buffering=0) as kept:
            for line in process.stdout:
                message, line = self._understood(line)
                with contextlib.suppress(OSError):  # a full disk must not make us deaf
                    kept.write(line.encode())
                if message:
                    self._take(message)
        process.wait()
        if self._log_reader is not None:
            self._log_reader.join(1.0)  # a process that it left may still hold the pipe
        self.t_end_ns = time.monotonic_ns()
        self.ready.set()  # a dead worker is not waited for
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):  # a command that was not read
                if pipe is not None:
                    pipe.close()

    def _understood(self, line: str) -> tuple[Message, str]:
        """The message of a line (none where a client prints: not ours to judge), and the line to
        keep."""
        line = self._redactor.printed(line) if self._redactor else line
        try:
            message = json.loads(line)
        except ValueError:
            message = None
        return message if isinstance(message, dict) else {}, line

    def _take(self, message: Message) -> None:
        try:
            self._keep(message)
        except ValidationError:
            self.errors.append(ErrorLine(text=f"no line of the worker protocol: {message}"))
        if self._on_message is not None:
            self._on_message(self, message)

    def _keep(self, message: Message) -> None:
        kind = message.get("type")
        if kind == "ready":
            self.ready_line = ReadyLine.model_validate(message)
            self.ready.set()
        elif kind == "stats":
            self.stats = self._with_carried(StatsLine.model_validate(message))
        elif kind == "error":
            self.errors.append(ErrorLine.model_validate(message))
        elif kind == "done":
            self.done_line = StatsLine.model_validate(message)
            self.done.set()

    def _with_carried(self, stats: StatsLine) -> StatsLine:
        if not self.carried:
            return stats
        return stats.model_copy(update={"positions": {**self.carried, **stats.positions}})

    def recall(self) -> None:
        """Take what it said, and when it ran, from its folder: a harness that is gone started
        it."""
        with (self.folder / "stdout.jsonl").open(errors="replace") as kept:
            for line in kept:
                message, _ = self._understood(line)
                with contextlib.suppress(ValidationError):  # the last line may be cut
                    self._keep(message)
        now_ns, wall_ns = time.monotonic_ns(), time.time_ns()
        began_ns = (self.folder / "spec.json").stat().st_mtime_ns
        ended_ns = max(path.stat().st_mtime_ns for path in self.folder.iterdir())
        self.t_start_ns, self.t_end_ns = (
            now_ns - (wall_ns - began_ns),
            now_ns - (wall_ns - ended_ns),
        )
        self.was_killed, self.offers_until_ns = not self.done.is_set(), self.t_end_ns
        if self.is_sender:
            self.open_sends = self.calls().open_calls().count
        client, _, life = self.name.partition(".")
        if life:
            self.life_of, self.offers_from_ns = client, self.t_start_ns

    @property
    def plan_name(self) -> str:
        """Return the client's name in the plan."""
        return self.life_of or self.name

    @property
    def is_sender(self) -> bool:
        """Return whether the worker has a producer. A member of a pipeline also has a consumer."""
        return self.spec.producer is not None

    @property
    def is_reader(self) -> bool:
        """Return whether the worker has a consumer."""
        return self.spec.consumer is not None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def was_started(self) -> bool:
        """Whether `start` was called with success."""
        return self._process is not None

    @property
    def exit_code(self) -> int | None:
        """Return the exit code; None while the process runs."""
        return self._process.poll() if self._process else None

    @property
    def is_alive(self) -> bool:
        """Whether the process was started and runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def is_stopped(self) -> bool:
        """Return whether the process is stopped at this moment (SIGSTOP, a paused container). A
        stopped process is not to blame for what it does not do.
        """
        return self._process is not None and self._host.is_stopped(self._process)

    def calls(self) -> CallSource:
        """Return the source of the worker's open calls."""
        return self._host.calls(self.name, self.folder)

    @property
    def is_signalled(self) -> bool:
        """SIGKILL ended it."""
        return self.exit_code == -signal.SIGKILL

    def with_life(self, row: WorkerRow) -> WorkerRow:
        """The row of the manifest, with what it says of a client that has several lives."""
        if not self.life_of and not self.offers_until_ns:
            return row
        return replace(
            row,
            life_of=self.life_of,
            killed=self.was_killed,
            offers_from_ns=self.offers_from_ns,
            offers_until_ns=self.offers_until_ns,
            open_sends=self.open_sends,
        )

    def wait_ready(self, timeout_s: float) -> None:
        """Wait for the ``ready`` line.

        Raises:
            WorkerError: it ended or stayed silent; with its own error line or the end of its log.
        """
        self.ready.wait(timeout_s)
        if self.ready_line:
            return
        what = "ended" if not self.is_alive else f"was not ready after {timeout_s:.0f} s"
        raise WorkerError(
            f"worker {self.name} ({self.spec.client.library}) {what}: {self.why()}",
            hint=self._next_step(),
        )

    def _next_step(self) -> str:
        log = f"its log: {self.folder / 'stderr.log'}"
        if self._redactor is None:
            return log
        return f"check tls and auth of the connection file; {log}"

    def why(self) -> str:
        """The worker's own word on what went wrong, else the end of its log."""
        said = self._last_error()
        if said:
            return said
        lines = self._log_end().splitlines()
        return " | ".join(lines[-LOG_TAIL_LINES:]) or f"exit code {self.exit_code}, no message"

    def crash(self) -> Crash | None:
        """How its client took the process down; None while it lives, and where the client did
        not."""
        return crash_of_client(self.exit_code, self._log_end(), self._last_error())

    def _last_error(self) -> str:
        if not self.errors:
            return ""
        return self.errors[-1].text or str(self.errors[-1])

    def _log_end(self) -> str:
        """The end of what it printed: its client's log, then lines outside the worker protocol."""
        log, printed = (
            _end_of(self.folder / name, TAIL_BYTES) for name in ("stderr.log", "stdout.jsonl")
        )
        said = b"".join(map(_no_message, printed.splitlines(keepends=True)))
        return (log + said).decode(errors="replace")

    def tell(self, line: str) -> None:
        """Send one command line, whole, whoever calls; a dead worker is not an error here, its exit
        code tells."""
        process = self._process
        if process is None or process.stdin is None:
            return
        try:
            with self._telling:
                process.stdin.write(line + "\n")
                process.stdin.flush()
        except (BrokenPipeError, ValueError):
            return

    def wait_done(self, timeout_s: float) -> bool:
        """Wait until it said ``done`` or died; True when it said so."""
        wait_while(lambda: self.is_alive, timeout_s, every_s=0.05, stop=self.done)
        if self._reader is not None and not self.is_alive:
            self._reader.join(1.0)
        return self.done.is_set()

    def dump_stack(self, target: Path) -> None:
        """Ask the process for its stacks (SIGQUIT: Python kit, Go and Java all answer) and keep
        them.

        A dump comes in several writes without an end mark: it is complete when nothing was added
        for a while.
        """
        if not self.is_alive or self._process is None:
            return
        # a JVM prints it on stdout
        files = [self.folder / "stderr.log", self.folder / "stdout.jsonl"]
        before = [_size(path) for path in files]
        self._process.send_signal(signal.SIGQUIT)
        seen, still_since = before, 0.0

        def is_complete() -> bool:
            nonlocal seen, still_since
            sizes = [_size(path) for path in files]
            if sizes != seen:
                seen, still_since = sizes, time.monotonic()
            is_still = still_since > 0 and time.monotonic() - still_since > DUMP_STILL_S
            return is_still or not self.is_alive

        wait_until(is_complete, DUMP_WAIT_S, every_s=DUMP_STILL_S / 4)
        target.parent.mkdir(parents=True, exist_ok=True)
        said, printed = (_from(path, at) for path, at in zip(files, before, strict=True))
        target.write_bytes(said + b"".join(map(_no_message, printed.splitlines(keepends=True))))

    def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """End the process: politely, then SIGCONT + SIGKILL. Idempotent."""
        if not self.is_alive:
            return
        self.tell("stop")
        if self._wait_exit(grace_s):
            return
        self.kill()

    def kill(self) -> None:
        """SIGKILL, frozen or not; its capture survives."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGCONT)  # `Popen` does not signal a pid that was given on
        process.kill()
        self._wait_exit(STOP_GRACE_S)

    def _wait_exit(self, timeout_s: float) -> bool:
        assert self._process is not None
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        if self._reader is not None:
            self._reader.join(1.0)
        return True


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _no_message(line: bytes) -> bytes:
    """A line of what a worker printed; nothing where it told us something by it."""
    return b"" if line.startswith(b"{") else line


def _end_of(path: Path, limit: int) -> bytes:
    """At most ``limit`` bytes; empty where the file cannot be read."""
    try:
        return _from(path, max(0, _size(path) - limit))
    except OSError:
        return b""


def _from(path: Path, at: int) -> bytes:
    if not path.exists():
        return b""
    with path.open("rb") as file:
        file.seek(at)
        return file.read()
