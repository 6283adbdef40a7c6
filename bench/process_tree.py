"""Wall time, CPU time and peak memory of a command and all its descendants, by sampling."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

_SAMPLE_S = 0.05


@dataclass(frozen=True, slots=True)
class TreeUsage:
    """``peak_bytes``: the largest sum of resident memory seen at once (shared pages count for
    each)."""

    wall_s: float
    cpu_s: float
    peak_bytes: int


class TreeMeter:
    """Watches a process and its descendants from `start` to `stop`; both may be called again."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._stop = threading.Event()
        self._cpu: dict[int, float] = {}
        self._before: dict[int, float] = {}
        self._peak = 0
        self._began = 0.0
        self._thread = threading.Thread()

    def start(self) -> None:
        self._stop.clear()
        self._cpu, self._peak = {}, 0
        self._sample()
        self._before = dict(self._cpu)
        self._began = time.perf_counter()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> TreeUsage:
        wall_s = time.perf_counter() - self._began
        self._stop.set()
        self._thread.join()
        self._sample()
        cpu_s = sum(cpu - self._before.get(pid, 0.0) for pid, cpu in self._cpu.items())
        return TreeUsage(wall_s, cpu_s, self._peak)

    def _watch(self) -> None:
        while not self._stop.wait(_SAMPLE_S):
            self._sample()

    def _sample(self) -> None:
        total = 0
        try:
            processes = [self._root, *self._root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return
        for process in processes:
            try:
                times = process.cpu_times()
                self._cpu[process.pid] = times.user + times.system
                total += process.memory_info().rss
            except psutil.NoSuchProcess:
                continue
        self._peak = max(self._peak, total)


def measure(argv: Sequence[str], cwd: Path) -> tuple[TreeUsage, subprocess.CompletedProcess[str]]:
    """Run a command to its end."""
    process = subprocess.Popen(
        argv, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    meter = TreeMeter(process.pid)
    meter.start()
    output, errors = process.communicate()
    return meter.stop(), subprocess.CompletedProcess(argv, process.returncode, output, errors)
