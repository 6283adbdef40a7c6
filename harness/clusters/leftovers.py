"""What runs leave behind when their harness is killed, and its removal: processes, addresses, pid files.

A process belongs to a run when its environment says so (BROKERSTORM_RUN_ID), whatever a pid file claims.
Runs that are still looked after are not leftovers: their harness lives, or their cluster was kept on
purpose. Asked for by run id, they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from harness.clusters import addresses
from harness.clusters.node_process import NodeFolder
from harness.clusters.processes import ProcessId, end, run_processes
from harness.errors import HealError

_END_S = 4.0


@dataclass(frozen=True, slots=True)
class Leftover:
    """Everything that one run left behind."""

    run_id: str
    processes: tuple[ProcessId, ...] = ()
    claims: tuple[addresses.Claim, ...] = ()
    kept: bool = False

    def describe(self) -> str:
        """One line for people."""
        held = ", ".join(f"127.0.{claim.block}.0" for claim in self.claims)
        parts = [
            f"{len(self.processes)} processes ({names_of(self.processes)})" if self.processes else "",
            f"addresses {held}" if held else "",
        ]
        return f"{self.run_id}: {', '.join(part for part in parts if part)}"


def find(run_id: str | None = None) -> list[Leftover]:
    """Leftovers of one run, alive or kept or not; with None those of all runs that nobody looks after."""
    claims = [claim for claim in addresses.claims() if run_id in (None, claim.run_id)]
    kept = {claim.run_id for claim in claims if claim.kept}
    tended = {claim.run_id for claim in claims if claim.owner.is_alive()} | kept
    processes: dict[str, list[ProcessId]] = {}
    for identity, found in run_processes(run_id):
        if run_id is None and (found in tended or _has_parent(identity)):
            continue
        processes.setdefault(found, []).append(identity)
    run_ids = set(processes) | {claim.run_id for claim in claims if run_id or claim.run_id not in tended}
    return [
        Leftover(
            one,
            tuple(processes.get(one, ())),
            tuple(claim for claim in claims if claim.run_id == one),
            one in kept,
        )
        for one in sorted(run_ids)
    ]


def remove(leftovers: Iterable[Leftover]) -> None:
    """Kill the processes (checked again by start time and run id), then drop pid files and addresses.

    Raises:
        HealError: a process is still there.
    """
    leftovers = list(leftovers)
    left = end([(identity, one.run_id) for one in leftovers for identity in one.processes], timeout_s=_END_S)
    for one in leftovers:
        for claim in one.claims:
            _drop_pid_files(Path(claim.folder), one.run_id)
        addresses.release(one.run_id)
    if left:
        raise HealError(
            f"{len(left)} processes survived SIGKILL: {', '.join(str(identity.pid) for identity in left)}",
            hint="they hang in the kernel; look at their disk with `ps -o pid,stat,wchan`",
        )


def names_of(processes: Iterable[ProcessId]) -> str:
    """Pids with the names of their programs."""
    shown = []
    for identity in processes:
        try:
            shown.append(f"{psutil.Process(identity.pid).name()} {identity.pid}")
        except psutil.NoSuchProcess:
            continue
    return ", ".join(shown)


def _has_parent(identity: ProcessId) -> bool:
    """Whether the Python process that started it still waits for it, as a worker's does.

    An orphan is the child of process 1 or of a service manager.
    """
    try:
        parent = psutil.Process(identity.pid).parent()
        # The name of a script's process is the script's; its program is Python all the same.
        return parent is not None and parent.pid != 1 and "python" in Path(parent.cmdline()[0]).name
    except (psutil.Error, IndexError):
        return False


def _drop_pid_files(folder: Path, run_id: str) -> None:
    for path in folder.glob(f"*/{NodeFolder(folder).pid_file.name}"):
        try:
            if json.loads(path.read_text()).get("run_id") == run_id:
                path.unlink(missing_ok=True)
        except (OSError, ValueError):
            continue
