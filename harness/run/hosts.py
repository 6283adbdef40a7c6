"""Where workers run: on this machine, or on others that a `Hosts` knows.

The rest of a run does not ask: it starts, tells, watches and ends a worker by its `Process`.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import psutil

from harness.contracts.plan import Plan
from harness.contracts.rows import ExecutorRow
from harness.contracts.worker import ProcessSpec
from harness.run.liveness import CallSource, SendSegments
from harness.rundir import RunDir, write_json
from harness.workers.security import SecureOptions, handed_over


class Pipe(Protocol):
    """Commands to a process."""

    def write(self, text: str, /) -> Any:
        """Write a text."""

    def flush(self) -> Any:
        """Send what was written to the process."""

    def close(self) -> Any: ...


class Lines(Iterable[str], Protocol):
    """The lines that a process prints."""

    def close(self) -> Any: ...


class Process(Protocol):
    """The process of a worker: a `subprocess.Popen`, or one on another machine.

    ``stderr`` None: it goes into a file.
    """

    @property
    def pid(self) -> int | None: ...
    @property
    def stdin(self) -> Pipe | None:
        """Where lines for the process are written; None if it was started without."""

    @property
    def stdout(self) -> Lines | None:
        """The lines of its standard output; None if it was started without."""

    @property
    def stderr(self) -> Lines | None:
        """The lines of its standard error; None if it was started without."""

    def poll(self) -> int | None:
        """Return the exit code; None while the process runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit code, as `subprocess.Popen.wait` does."""

    def send_signal(self, number: int, /) -> None:
        """Send a signal to the process."""

    def kill(self) -> None: ...


class Host(Protocol):
    """A machine that workers run on."""

    def start(
        self,
        spec: ProcessSpec,
        folder: Path,
        argv: Sequence[str],
        env: Mapping[str, str],
        handed: SecureOptions,
    ) -> Process:
        """Start a worker. ``folder``: of its spec and its log, on this machine.

        Raises:
            BrokerstormError: it cannot be started there.
        """

    def calls(self, name: str, folder: Path) -> CallSource:
        """The open calls of the worker ``name``; ``folder`` as in `start`."""

    def is_stopped(self, process: Process) -> bool:
        """Whether it is frozen at this moment (SIGSTOP, a paused container) and can do nothing."""


class ThisMachine:
    """This machine. Workers are local processes, each in a session of its own: a Ctrl-C is ours to
    handle."""

    def start(
        self,
        spec: ProcessSpec,
        folder: Path,
        argv: Sequence[str],
        env: Mapping[str, str],
        handed: SecureOptions,
    ) -> Process:
        """Start a worker as a local process; what the cluster asks of its client comes through a
        pipe."""
        path = folder / "spec.json"
        write_json(path, spec.document())
        with (
            (folder / "stderr.log").open("ab") as stderr,
            handed_over(handed) as (more_env, passed),
        ):
            return subprocess.Popen(
                [*argv, str(path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE if handed.secrets else stderr,
                env={**os.environ, **env, **more_env},
                encoding="utf-8",
                errors="replace",  # a client may print what it likes
                start_new_session=True,
                pass_fds=passed,
            )

    def calls(self, name: str, folder: Path) -> CallSource:
        """The open calls of a worker, from the segments in its folder."""
        return SendSegments(folder)

    def is_stopped(self, process: Process) -> bool:
        """Whether it is frozen at this moment (SIGSTOP); False for a process that has ended."""
        try:
            return bool(psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)
        except psutil.Error:
            return False


class Hosts(Protocol):
    """The machines of a run."""

    def open(self, plan: Plan, run: RunDir) -> None:
        """Get the machines ready for the clients of a plan.

        Raises:
            BrokerstormError: one is not available, or lacks something.
        """

    def host_of(self, client: str) -> Host:
        """The machine of a client, by its name in the plan; readers of the log are on this
        machine."""

    def rows(self) -> list[ExecutorRow]:
        """The machines other than this one, as far as they are known by now, for the manifest."""


class OneMachine:
    """The machines of a run whose workers are all on this machine."""

    def open(self, plan: Plan, run: RunDir) -> None:
        """Do nothing: this machine is ready."""

    def host_of(self, client: str) -> Host:
        """This machine, for every client."""
        return THIS_MACHINE

    def rows(self) -> list[ExecutorRow]:
        """No rows: this is the only machine."""
        return []


THIS_MACHINE = ThisMachine()
