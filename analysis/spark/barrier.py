"""Runs one program on several machines at once: a Spark job of barrier tasks.

Barrier tasks start together or not at all, and when one fails Spark ends all. The program is a
process of the task, signalled by the kernel when the task is gone: a cancelled job kills Python
tasks without their ``finally``. What the program needs comes in one archive, which every task
unpacks for itself.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from harness.errors import EnvironmentNotReady

if TYPE_CHECKING:
    from pyspark import SparkContext

#: Last lines of a program that failed.
_LINES: Final = 3
_SIGTERM: Final = "15"


@dataclass(frozen=True, slots=True)
class Program:
    """The program that every task runs.

    Attributes:
        archive: name of a file that Spark has sent to every executor.
        paths: folders of it that are Python's path.
        bound: a script of it that becomes another program which is signalled when its parent dies.
        words: arguments of Python; ``{task}`` and ``{box}``: the number and the unpacked archive.
        told: a line on its stdin, in no list of processes.
    """

    archive: str
    paths: tuple[str, ...]
    bound: str
    words: tuple[str, ...]
    told: str

    def run(self, _rows: Iterator[Any]) -> Iterator[str]:
        """The task itself."""
        from pyspark import BarrierTaskContext, SparkFiles

        number = BarrierTaskContext.get().partitionId()
        # Below the executor's own folder: Spark removes that when a task is killed before it can.
        box = Path(tempfile.mkdtemp(prefix="brokerstorm-box-", dir=SparkFiles.getRootDirectory()))
        try:
            with tarfile.open(SparkFiles.get(self.archive)) as packed:
                packed.extractall(box, filter="data")
            self._run(number, box)
        finally:
            shutil.rmtree(box, ignore_errors=True)
        yield ""

    def _run(self, number: int, box: Path) -> None:
        words = [word.format(task=number, box=box) for word in self.words]
        bound = [sys.executable, "-I", str(box / self.bound), _SIGTERM, str(os.getpid())]
        environment = {**os.environ, "PYTHONPATH": ":".join(str(box / path) for path in self.paths)}
        process = subprocess.Popen(
            [*bound, sys.executable, "-P", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment,
            text=True,
        )
        _, said = process.communicate(f"{self.told}\n")
        if process.returncode:
            lines = " | ".join(said.strip().splitlines()[-_LINES:])
            raise RuntimeError(f"task {number} ended with {process.returncode}: {lines}")


def executors_of(session: SparkContext) -> int:
    """How many executors there are now, without the driver."""
    return int(session._jsc.sc().getExecutorMemoryStatus().size()) - 1


class BarrierJob:
    """The job, from a thread of its own. `start` once, `end` always."""

    def __init__(self, session: SparkContext, program: Program, tasks: int) -> None:
        self._context = session
        self._program = program
        self._tasks = tasks
        self._group = f"load-{id(self):x}"
        self._thread = threading.Thread(target=self._run, name="load-job", daemon=True)
        self._error: Exception | None = None

    def start(self) -> None:
        """
        Raises:
            EnvironmentNotReady: there is not enough room for the tasks; Spark would wait for it.
        """
        slots = self._context.defaultParallelism
        if slots < self._tasks:
            raise EnvironmentNotReady(
                f"{self._tasks} tasks need as many cores of executors, and there are {slots}",
                hint="start more Spark workers, or name fewer with --load-tasks",
            )
        self._thread.start()

    def _run(self) -> None:
        self._context.setJobGroup(self._group, "brokerstorm's load", interruptOnCancel=True)
        try:
            rows = self._context.parallelize(range(self._tasks), self._tasks)
            rows.barrier().mapPartitions(self._program.run).collect()
        except Exception as error:  # noqa: BLE001 - `failed` returns whatever Spark makes of it
            self._error = error

    def failed(self) -> Exception | None:
        """Return the error that ended it early; None if there is none."""
        return self._error

    def end(self, timeout_s: float) -> None:
        """Wait for tasks that were asked to end; cancel any that do not. Idempotent."""
        if self._thread.ident is None:
            return
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self._context.cancelJobGroup(self._group)
            self._thread.join(timeout_s)
