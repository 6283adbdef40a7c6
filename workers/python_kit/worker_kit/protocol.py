"""The worker's side of docs/worker-protocol.md: commands on stdin, JSON lines on stdout.

One thread reads commands into `Control`; one thread ticks (frozen time) and prints a `stats` line
each second, so both continue while the client library blocks the worker's main thread.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import IO, Any

from .freeze import TICK_S, FreezeDetector

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
NEVER_NS = 1 << 62


class Control:
    """Commands of the harness so far. Fields are only ever set, by one thread."""

    def __init__(self) -> None:
        self.t0_ns = 0
        self.deadline_ns = NEVER_NS
        self.started = threading.Event()
        self.stop_load = False
        self.draining = False
        self.stopped = False

    def handle(self, line: str) -> None:
        """Take one command line. Unknown commands are reported and ignored."""
        word, *rest = line.split() or [""]
        if word == "start" and len(rest) == 1 and rest[0].isdigit():
            self.t0_ns = int(rest[0])
            self.started.set()
        elif word == "stop-load":
            self.stop_load = True
        elif word == "drain" and len(rest) == 1 and rest[0].isdigit():
            self.deadline_ns = int(rest[0])
            self.stop_load = self.draining = True
        elif word == "stop":
            self.stop()
        elif word:
            emit({"type": "error", "name": "protocol", "text": f"unknown command {line.strip()!r}"})

    def stop(self) -> None:
        self.stop_load = self.draining = self.stopped = True
        self.started.set()  # so that a worker still waiting for `start` ends too

    def read_from(self, commands: IO[str]) -> None:
        """Obey until the end of input, which means that the harness is gone: stop."""
        for line in commands:
            self.handle(line)
        self.stop()


_out_lock = threading.Lock()


def emit(message: Mapping[str, Any]) -> None:
    """Print one JSON line. A harness that no longer reads is not an error here: stdin tells."""
    line = json.dumps(message, ensure_ascii=False, default=str) + "\n"
    with _out_lock:
        try:
            sys.stdout.write(line)
            sys.stdout.flush()
        except (BrokenPipeError, ValueError):
            pass


def clock() -> dict[str, int]:
    """A clock anchor: monotonic and wall time read together."""
    return {"t_ns": time.monotonic_ns(), "wall_ns": time.time_ns()}


class Reporter:
    """The stats thread, and every other line the worker says.

    ``counts`` gives the role's own numbers for the stats line; it runs on the ticking thread.
    """

    def __init__(self) -> None:
        self.freeze = FreezeDetector(
            lambda frozen: self.event(
                "frozen", f"this process did not run for {frozen / 1e9:.3f} s", frozen_ns=frozen
            )
        )
        self.counts: Callable[[], Mapping[str, object]] = dict
        self.is_ready = False
        #: The client gave itself up.
        self.died = False
        self._seen: set[str] = set()
        self._ended = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._tick, name="ticker", daemon=True).start()

    def _tick(self) -> None:
        next_stats = time.monotonic() + 1.0
        while not self._ended.wait(TICK_S):
            self.freeze.check()
            if time.monotonic() >= next_stats:
                next_stats = max(next_stats + 1.0, time.monotonic())
                self.stats()

    def ready(self, **fields: Any) -> None:
        self.is_ready = True
        emit({"type": "ready", **clock(), "pid": os.getpid(), **fields})

    def stats(self) -> None:
        emit(
            {
                "type": "stats",
                **clock(),
                "cpu_s": round(time.process_time(), 4),
                "rss_bytes": resident_bytes(),
                "frozen_ns": self.freeze.frozen_ns,
                **self.counts(),
            }
        )

    def event(self, kind: str, text: str, **fields: Any) -> None:
        emit({"type": "event", **clock(), "kind": kind, "text": text, **fields})

    def error(self, name: str, text: str) -> None:
        """Say the first error of a class; further ones of the same name are only counted in
        rows."""
        if name not in self._seen:
            self._seen.add(name)
            emit({"type": "error", **clock(), "fatal": False, "name": name, "text": text})

    def client_died(self, name: str, text: str, why: str = "error") -> None:
        """Say, once, that the client declared itself dead: its error's name and text. Any thread.

        ``why``: ``error``; ``fenced``: another client has its name; ``asked``: its settings ask for
        it.
        """
        with _out_lock:
            first, self.died = not self.died, True
        if first:
            self.event("client-died", text, name=name, why=why)

    def fatal(self, name: str, text: str, hint: str = "") -> None:
        emit({"type": "error", **clock(), "fatal": True, "name": name, "text": text, "hint": hint})

    def done(self) -> None:
        """Last stats, then `done`: the capture of this worker is complete."""
        self.close()
        self.stats()
        emit({"type": "done", **clock(), **self.counts()})

    def close(self) -> None:
        self._ended.set()


def resident_bytes() -> int:
    """Resident memory of this process; 0 where /proc is missing."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * PAGE_BYTES
    except OSError:
        return 0


def listen(control: Control) -> None:
    """Read commands in the background; SIGTERM means `stop`, SIGQUIT shows the stacks on stderr.

    Ctrl-C is left to the harness.
    """
    faulthandler.register(signal.SIGQUIT, all_threads=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: control.stop())
    threading.Thread(
        target=control.read_from, args=(sys.stdin,), name="commands", daemon=True
    ).start()
