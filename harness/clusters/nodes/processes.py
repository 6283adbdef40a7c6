"""Processes of a run: who they are, whether they live, and ending exactly those.

Every process that a run starts has the variables of `harness.owners.marks_of` in its environment. A
pid alone proves nothing (pids are reused), so before any signal to a process that is not our child
its start time, user, state folder and run id are checked.
"""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import psutil

from harness.errors import EnvironmentNotReady
from harness.owners import RunOwner, is_pid, owner_of, run_id_of
from harness.start_times import SAME_START_S, started_s
from harness.waiting import wait_while

_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process that cannot be mistaken for a later one with the same pid.

    Raises:
        ValueError: no process can have this pid or start time: it may come from a damaged file.
    """

    pid: int
    started_s: float

    def __post_init__(self) -> None:
        if not is_pid(self.pid):
            raise ValueError(f"{str(self.pid)[:40]!r} is not a pid")
        if type(self.started_s) not in (int, float) or not math.isfinite(self.started_s):
            raise ValueError(f"{str(self.started_s)[:40]!r} is not a start time")

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


def run_processes(run_id: str | None = None) -> Iterator[tuple[ProcessId, str]]:
    """Every live process of a run of ours (of any when None) with its run id, but never this one or
    its parents: a user may have the variable in the shell."""
    for identity, owner in _marked_processes(run_id):
        if owner.is_us:
            yield identity, owner.run_id


def processes_of_others(run_id: str | None = None) -> Iterator[tuple[ProcessId, RunOwner]]:
    """Every live process of a run (of any when None) that another user, or another state folder,
    has."""
    for identity, owner in _marked_processes(run_id):
        if not owner.is_us:
            yield identity, owner


def _marked_processes(run_id: str | None) -> Iterator[tuple[ProcessId, RunOwner]]:
    own = {os.getpid(), *(p.pid for p in psutil.Process().parents())}
    for pid in psutil.pids():
        if pid in own:
            continue
        owner = owner_of(pid)
        if owner and run_id in (None, owner.run_id) and (identity := identify(pid)):
            yield identity, owner


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
