"""Processes of a run: who they are, whether they live, and ending exactly those.

Every process that a run starts has BROKERSTORM_RUN_ID in its environment. A pid alone proves nothing (pids
are reused), so before any signal to a process that is not our child its start time and run id are checked.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import psutil

from harness.errors import EnvironmentNotReady
from harness.start_times import SAME_START_S, started_s
from harness.waiting import wait_while

RUN_ID = "BROKERSTORM_RUN_ID"
_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process that cannot be mistaken for a later one with the same pid."""

    pid: int
    started_s: float

    def is_alive(self) -> bool:
        """Whether it still runs; a zombie is dead."""
        try:
            process = psutil.Process(self.pid)
            return (
                abs(started_s(self.pid) - self.started_s) < SAME_START_S
                and process.status() != psutil.STATUS_ZOMBIE
            )
        except psutil.NoSuchProcess:
            return False


def identify(pid: int) -> ProcessId | None:
    """The identity of a live process, None when there is none."""
    try:
        identity = ProcessId(pid, started_s(pid))
    except psutil.NoSuchProcess:
        return None
    return identity if identity.is_alive() else None


def run_id_of(pid: int) -> str | None:
    """The run that started a process; None when it is not ours, not readable or gone."""
    try:
        return psutil.Process(pid).environ().get(RUN_ID)
    except (psutil.Error, OSError):
        return None


def run_processes(run_id: str | None = None) -> Iterator[tuple[ProcessId, str]]:
    """Every live process of a run (of any run when None) with its run id, but never this one or its parents:
    a user may have the variable in the shell."""
    ours = {os.getpid(), *(p.pid for p in psutil.Process().parents())}
    for pid in psutil.pids():
        if pid in ours:
            continue
        found = run_id_of(pid)
        if found and run_id in (None, found) and (identity := identify(pid)):
            yield identity, found


def end(identities: Iterable[tuple[ProcessId, str]], *, timeout_s: float = 5.0) -> list[ProcessId]:
    """SIGCONT and SIGKILL processes after checking each again; return those that are still there.

    Args:
        identities: each process with the run id that it must have.
    """
    waiting = []
    for identity, run_id in identities:
        if not identity.is_alive() or run_id_of(identity.pid) != run_id:
            continue
        for number in (signal.SIGKILL, signal.SIGCONT):
            try:
                os.kill(identity.pid, number)
            except ProcessLookupError:
                break
            except PermissionError as error:
                raise EnvironmentNotReady(
                    f"process {identity.pid} of run {run_id} belongs to another user",
                    hint="run `brokerstorm clean` as the user that started the run",
                ) from error
        waiting.append(identity)
    # Not psutil.wait_procs: it would reap a child of ours before its owner reads the exit code.
    return wait_while(lambda: [p for p in waiting if p.is_alive()], timeout_s, every_s=_POLL_S)
