"""Starts `brokerstorm run` as a user would, in a process of its own, and looks at it from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import psutil

ROOT = Path(__file__).resolve().parents[2]
BROKERSTORM = [sys.executable, str(ROOT / "cli.py")]
RUN_TIMEOUT_S = 300.0

SCENARIO = """
name: rig
topics:
  orders: {partitions: 6}
load:
  rate: 2000
  duration: 12s
  warm_up: 1s
  producers:
    shop:
      options: {acks: all, enable.idempotence: true, linger.ms: 5}
  consumers:
    billing: {group: billing}
faults:
  - {fault: pause, target: "leader-of:orders", at: 2s, for: 5s}
require:
  rate_ratio: 0.5  # the machine that runs the tests may be busy; rates are measured in bench/
"""


class LiveRun:
    """One ``brokerstorm run``; ``run_dir`` holds nothing else."""

    def __init__(self, folder: Path, *, scenario: str = SCENARIO, runtime: str = "process") -> None:
        self.run_dir = folder / "runs"
        path = folder / "rig.yaml"
        path.write_text(scenario)
        self.stdout = (folder / "stdout").open("w+")
        self.stderr = (folder / "stderr").open("w+")
        command = [*BROKERSTORM, "--json", "--run-dir", str(self.run_dir), "run", str(path), "--seed", "3"]
        command += ["--runtime", runtime]
        self.process = subprocess.Popen(command, stdout=self.stdout, stderr=self.stderr, cwd=folder)

    @property
    def root(self) -> Path:
        """The run's folder; there is one from the first moments on."""
        return next(path for path in self.run_dir.iterdir() if not path.is_symlink())

    def wait_for(self, what: str, seen: Callable[[], bool]) -> None:
        deadline = time.monotonic() + RUN_TIMEOUT_S
        while time.monotonic() < deadline:
            if self.run_dir.is_dir() and any(self.run_dir.iterdir()) and seen():
                return
            assert self.process.poll() is None, f"ended before {what}: {self.errors()}"
            time.sleep(0.05)
        raise AssertionError(f"no {what} in {RUN_TIMEOUT_S} s: {self.errors()}")

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
        log = lambda: self.root / "faults.jsonl"  # noqa: E731
        self.wait_for("a fault", lambda: log().exists() and '"inject"' in log().read_text())

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def wait(self) -> int:
        try:
            return self.process.wait(RUN_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGKILL)
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
        return [p for p in found if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Another command on the same run folder."""
        return subprocess.run(
            [*BROKERSTORM, "--run-dir", str(self.run_dir), *arguments],
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT_S,
            check=False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave nothing behind, whatever the test did."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.run_dir.is_dir():
            self.command("clean")
        self.stdout.close()
        self.stderr.close()
