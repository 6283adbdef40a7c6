"""Runs `brokerstorm` as a user would, in a process of its own or in this one, and looks at the
outcome."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TextIO

import psutil

from cli import main
from harness.clusters import leftovers
from harness.clusters.nodes.processes import identify
from harness.errors import Exit
from harness.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
BROKERSTORM = [sys.executable, str(ROOT / "cli.py")]
RUN_TIMEOUT_S = 300.0

SCENARIO = """
name: rig
topics:
  orders: {partitions: 6}
load:
  rate: 2000
  duration: 8s
  warm_up: 1s
  producers:
    shop:
      options: {acks: all, enable.idempotence: true, linger.ms: 5}
  consumers:
    billing: {group: billing}
faults:
  - {fault: pause, target: "leader-of:orders", at: 1s, for: 4s}  # it is fenced after 3 s
require:
  rate_ratio: 0.5  # the machine that runs the tests may be busy; rates are measured in bench/
"""


@dataclass(frozen=True)
class Said:
    """What a command wrote, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The one JSON document on stdout."""
        assert self.out, self.err
        found: dict[str, Any] = json.loads(self.out)
        return found


def brokerstorm(*arguments: str) -> Said:
    """A command in this process: quicker, where neither signals nor the process are the subject.
    What judges uses the Spark session that is open (fixture `spark`)."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(arguments)
    return Said(code, out.getvalue(), err.getvalue())


class InsideCommand:
    """A command that runs in this process when it is waited for, with as much of `subprocess.Popen`
    as a `LiveRun` needs. It judges in the Spark session that is open."""

    def __init__(self, arguments: list[str], stdout: TextIO, stderr: TextIO) -> None:
        self.pid = os.getpid()
        self._arguments, self._stdout, self._stderr = arguments, stdout, stderr
        self._code: int | None = None

    def poll(self) -> int | None:
        return self._code

    def wait(self, timeout_s: float | None = None) -> int:
        """Its exit code; a run of ours ends by itself."""
        if self._code is None:
            with redirect_stdout(self._stdout), redirect_stderr(self._stderr):
                self._code = main(self._arguments)
        return self._code

    def kill(self) -> None:
        """It runs only while it is waited for."""
        self._code = Exit.INTERRUPTED


class LiveRun:
    """One ``brokerstorm run``; ``run_dir`` holds nothing else.

    Args:
        replay: an earlier one, to do again with its faults; else ``scenario`` is run.
        inside: in this process, while `wait` is called: where signals and processes are not the
            subject.
    """

    def __init__(
        self,
        folder: Path,
        *,
        scenario: str = SCENARIO,
        runtime: str = "process",
        replay: LiveRun | None = None,
        inside: bool = False,
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.run_dir = folder / "runs"
        path = folder / "rig.yaml"
        path.write_text(scenario)
        self.stdout = (folder / "stdout").open("w+")
        self.stderr = (folder / "stderr").open("w+")
        what = ["--replay", str(replay.root)] if replay else [str(path), "--seed", "3"]
        arguments = ["--json", "--run-dir", str(self.run_dir), "run", *what, "--runtime", runtime]
        self.process: subprocess.Popen[bytes] | InsideCommand = (
            InsideCommand(arguments, self.stdout, self.stderr)
            if inside
            else subprocess.Popen(
                [*BROKERSTORM, *arguments], stdout=self.stdout, stderr=self.stderr, cwd=folder
            )
        )

    @property
    def root(self) -> Path:
        """The run's folder; there is one from the first moments on."""
        return next(path for path in self.run_dir.iterdir() if not path.is_symlink())

    def wait_for(self, what: str, seen: Callable[[], bool]) -> None:
        def is_seen() -> bool:
            if self.run_dir.is_dir() and any(self.run_dir.iterdir()) and seen():
                return True
            assert self.process.poll() is None, f"ended before {what}: {self.errors()}"
            return False

        assert wait_until(is_seen, RUN_TIMEOUT_S), (
            f"no {what} in {RUN_TIMEOUT_S} s: {self.errors()}"
        )

    def wait_for_phase(self, name: str) -> None:
        if name == "up":
            self.wait_for("a cluster folder", lambda: (self.root / "cluster").is_dir())
            return
        self.wait_for(f"phase {name}", lambda: name in self.phases())

    def phases(self) -> list[str]:
        try:
            manifest = json.loads((self.root / "manifest.json").read_text())
        except (OSError, ValueError):
            return []
        return [phase["name"] for phase in manifest["phases"]]

    def wait_for_fault(self) -> None:
        """Until a fault is applied."""
        self.wait_for("a fault", lambda: '"inject"' in self.journal())

    def journal(self) -> str:
        """The rows of the faults as they were written; empty before the first."""
        path = self.root / "faults.jsonl"
        return path.read_text() if path.exists() else ""

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def wait(self) -> int:
        try:
            return self.process.wait(RUN_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"did not end: {self.errors()}") from None

    def document(self) -> dict[str, Any]:
        """The one JSON document on stdout."""
        self.stdout.seek(0)
        document: dict[str, Any] = json.loads(self.stdout.read())
        return document

    def errors(self) -> str:
        self.stderr.seek(0)
        return self.stderr.read()[-3000:]

    def processes(self) -> list[psutil.Process]:
        """Whatever lives and carries this run's id."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("BROKERSTORM_RUN_ID") == self.root.name:
                    found.append(process)
            except psutil.Error:
                continue
        return [process for process in found if identify(process.pid)]

    def command(self, *arguments: str) -> Said:
        """Another command on the same run folder, in this process."""
        return brokerstorm("--run-dir", str(self.run_dir), *arguments)

    def wait_while(self, meanwhile: Callable[[], None]) -> int:
        """As `wait`, with something else on a thread beside it."""
        with ThreadPoolExecutor(1) as beside:
            done = beside.submit(meanwhile)
            code = self.wait()
            done.result()
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave nothing behind, whatever the test did."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.run_dir.is_dir() and any(self.run_dir.iterdir()) and leftovers.find(self.root.name):
            self.command("clean", self.root.name)
        self.stdout.close()
        self.stderr.close()
