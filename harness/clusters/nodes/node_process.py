"""One broker as a process: launch, signal, wait, adopt, and say why it died."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from harness.clusters.nodes.processes import ProcessId, identify
from harness.errors import EnvironmentNotReady, HealError, UsageError
from harness.owners import marks_of, run_id_of
from harness.rundir import PathBelow, read_json, write_json
from harness.waiting import wait_until, wait_while

_POLL_S = 0.02
_GONE_TIMEOUT_S = 10.0
_TAIL_BYTES = 256 * 1024  # a program in Go says why it ends before the stacks of all it did
_CAUSES = (
    (
        r"Address already in use|Cannot assign requested address",
        "the port is taken: see `ss -ltnp`",
    ),
    (
        r"[Cc]annot allocate memory|Could not reserve enough space|insufficient memory|OutOfMemoryError"
        r"|out of memory",
        "free some memory: three brokers need about 1 GB; see `brokerstorm doctor`",
    ),
    (r"Too many open files", "raise the limit of open files: `ulimit -n 65536`"),
    (r"No space left on device", "free some disk space or choose another --run-dir"),
    (r"UnsupportedClassVersionError", "this version needs a newer Java; see `brokerstorm doctor`"),
    (r"ConfigException", "see cluster.config of the scenario; the names are the broker's own"),
)
_TELLING = re.compile(
    r"ERROR|FATAL|Exception|Error:|OutOfMemory|\[(ERR|FTL)\]|^fatal error: |^panic: "
)


@dataclass(frozen=True, slots=True)
class NodeFolder:
    """Folders of a node inside the cluster's."""

    root: Path

    conf = PathBelow("conf")
    data = PathBelow("data")
    logs = PathBelow("logs")
    #: What the node's libraries unpack, empty at each start: a node that is killed removes nothing.
    temporary = PathBelow("tmp")
    pid_file = PathBelow("pid.json")
    #: The version that the node was changed to, where it was.
    version_file = PathBelow("version")

    def fill(self, text: str) -> str:
        """``{conf}``, ``{data}`` and ``{logs}`` as paths; other braces stay."""
        for name in ("conf", "data", "logs"):
            text = text.replace(f"{{{name}}}", str(self.root / name))
        return text


class NodeProcess:
    """The process of one node. Safe to use from several threads.

    Reads take no lock: asking must not wait for a stop that takes its time. The process is our
    child when this object launched it; one adopted from a pid file is not, and is checked for
    identity before every signal.
    """

    def __init__(self, name: str, folder: NodeFolder, run_id: str) -> None:
        self.name = name
        self.folder = folder
        self._run_id = run_id
        self._lock = threading.RLock()
        self._child: subprocess.Popen[bytes] | None = None
        self._identity: ProcessId | None = None

    def launch(
        self, command: Sequence[str], environment: Mapping[str, str], *, memory_max_mb: int = 0
    ) -> None:
        """Start the process in its own session; no-op when it runs.

        Args:
            memory_max_mb: of its own memory; 0 = as much as it wants.
        """
        with self._lock:
            if self.is_running():
                return
            shutil.rmtree(self.folder.temporary, ignore_errors=True)
            for folder in (self.folder.logs, self.folder.temporary):
                folder.mkdir(parents=True, exist_ok=True)
            out = (self.folder.logs / "stdout.log").open("ab")
            err = (self.folder.logs / "stderr.log").open("ab")
            with out, err:
                try:
                    self._child = subprocess.Popen(
                        command,
                        cwd=self.folder.root,
                        env={**environment, **marks_of(self._run_id)},
                        stdin=subprocess.DEVNULL,
                        stdout=out,
                        stderr=err,
                        start_new_session=True,
                    )
                except OSError as error:
                    raise EnvironmentNotReady(
                        f"{self.name}: cannot start {command[0]}: {error}"
                    ) from error
            if memory_max_mb:
                _bound_memory(self._child.pid, memory_max_mb)
            self._identity = identify(self._child.pid)
            if self._identity is None:
                return  # died at once: is_running() says so and why_dead() why
            row = {"run_id": self._run_id, "node": self.name, "pid": self._child.pid}
            write_json(self.folder.pid_file, {**row, "started_s": self._identity.started_s})

    def adopt(self) -> None:
        """Take over the process that another one started, when it still runs and ours does not."""
        if self._child is not None and self._child.poll() is None:
            return
        try:
            row = read_json(self.folder.pid_file)
            found = ProcessId(row["pid"], row["started_s"])
        except (UsageError, ValueError, KeyError):
            return
        if found.is_alive() and run_id_of(found.pid) == self._run_id:
            self._identity, self._child = found, None

    @property
    def pid(self) -> int | None:
        identity = self._identity
        return identity.pid if identity and self.is_running() else None

    @property
    def command(self) -> list[str]:
        """The arguments that the process has; empty when it does not run."""
        pid = self.pid
        with contextlib.suppress(psutil.Error):
            return psutil.Process(pid).cmdline() if pid else []
        return []

    @property
    def exit_code(self) -> int | None:
        """Return the exit code; None while the process runs, and for a process that another harness
        started.
        """
        return self._child.poll() if self._child else None

    def is_running(self) -> bool:
        child, identity = self._child, self._identity
        if child is not None:
            return child.poll() is None  # also reaps, so that no zombie is left
        return identity is not None and identity.is_alive()

    def is_paused(self) -> bool:
        identity = self._identity
        if identity is None or not self.is_running():
            return False
        try:
            return bool(psutil.Process(identity.pid).status() == psutil.STATUS_STOPPED)
        except psutil.NoSuchProcess:
            return False

    def kill(self) -> None:
        """SIGKILL; returns when the process is gone."""
        self._signal(signal.SIGKILL)
        if not self._wait_gone(_GONE_TIMEOUT_S):
            raise HealError(
                f"{self.name} (pid {self.pid}) is still there {_GONE_TIMEOUT_S:.0f} s after SIGKILL",
                hint="it hangs in the kernel; look at its disk",
            )
        self.folder.pid_file.unlink(missing_ok=True)

    def stop(self, timeout_s: float) -> bool:
        """SIGTERM, SIGKILL after the timeout; returns when the process is gone: whether by
        itself."""
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)  # a paused process gets its SIGTERM only when it runs
        by_itself = self._wait_gone(timeout_s)
        if not by_itself:
            self.kill()
        self.folder.pid_file.unlink(missing_ok=True)
        return by_itself

    def pause(self) -> None:
        """SIGSTOP; returns when the process is stopped.

        Raises:
            EnvironmentNotReady: the node does not run.
        """
        self._signal(signal.SIGSTOP)
        wait_until(
            lambda: self.is_paused() or not self.is_running(), _GONE_TIMEOUT_S, every_s=_POLL_S
        )
        if not self.is_paused():
            raise EnvironmentNotReady(f"cannot pause {self.name}: it is not running")

    def resume(self) -> None:
        """SIGCONT. No-op for a node that is down or not paused."""
        self._signal(signal.SIGCONT)

    def why_dead(self) -> EnvironmentNotReady:
        """The error for a node that should run and does not: its last telling log lines and a
        remedy."""
        code = (
            f" (exit code {self._child.returncode})"
            if self._child and self._child.returncode
            else ""
        )
        tail = self._log_tail()
        hint = cause_of(tail)
        logs = f"its log is {self.folder.logs / 'stdout.log'}"
        lines = "\n".join(f"    {line}" for line in telling_lines(tail)) or "    (it wrote nothing)"
        return EnvironmentNotReady(
            f"{self.name} died{code}; last lines:\n{lines}",
            hint=f"{hint}; {logs}" if hint else logs,
        )

    def _log_tail(self) -> str:
        parts = []
        for name in ("stdout.log", "stderr.log"):
            with contextlib.suppress(OSError), (self.folder.logs / name).open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
                parts.append(file.read().decode(errors="replace"))
        return "\n".join(parts)

    def _signal(self, number: signal.Signals) -> None:
        # The lock keeps a launch from replacing the process between the check and the signal.
        with self._lock:
            identity = self._identity
            if identity is None or not self.is_running():
                return
            if self._child is None and run_id_of(identity.pid) != self._run_id:
                return
            with contextlib.suppress(ProcessLookupError):
                os.killpg(identity.pid, number)  # it leads its own group

    def _wait_gone(self, timeout_s: float) -> bool:
        """Wait outside the lock: a kill must be able to overtake a stop."""
        return not wait_while(self.is_running, timeout_s, every_s=_POLL_S)


def _bound_memory(pid: int, most_mb: int) -> None:
    """Only Linux has this for a process that runs already; elsewhere it is not bounded."""
    if sys.platform == "linux":
        most = most_mb * 2**20
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_DATA, (most, most))


def cause_of(log: str) -> str:
    """The remedy for what a log complains of; empty when nothing in it is known."""
    return next((remedy for pattern, remedy in _CAUSES if re.search(pattern, log)), "")


def telling_lines(log: str) -> list[str]:
    """The lines of a log of Java or Go that say what went wrong: errors and causes, else the last
    ones."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    lines = [line for line in lines if not re.match(r"^(at |\.\.\. \d+ more)", line)]
    telling = [line for line in lines if _TELLING.search(line)]
    return [line[:300] for line in (telling or lines)[-6:]]
