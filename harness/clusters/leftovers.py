"""Finds and removes what runs leave behind when their harness is killed: processes, containers with their
networks and volumes, addresses, pid files.

A process belongs to a run when its environment says so (BROKERSTORM_RUN_ID), whatever a pid file claims; what
is in a Docker engine, when its label says so. An engine may serve several users: what is there of a run
that has no claim here is somebody else's, unless it is asked for by run id.
Runs that are still looked after are not leftovers: their harness lives, or their cluster was kept on
purpose. Asked for by run id, they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from harness.clusters.docker import engine
from harness.clusters.layout import addresses
from harness.clusters.limits import node_limits
from harness.clusters.network import packets
from harness.clusters.nodes.node_process import NodeFolder
from harness.clusters.nodes.processes import ProcessId, end, run_processes
from harness.clusters.security import made
from harness.errors import EnvironmentNotReady, HealError

_END_S = 4.0


@dataclass(frozen=True, slots=True)
class Leftover:
    """Everything that one run left behind."""

    run_id: str
    processes: tuple[ProcessId, ...] = ()
    claims: tuple[addresses.Claim, ...] = ()
    kept: bool = False
    #: "containers", "networks" and "volumes" -> their names.
    in_engine: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: Why the Docker engine could not be asked; empty when it answered or need not be asked.
    unseen: str = ""

    @property
    def is_in_engine(self) -> bool:
        """Whether containers of it may be in a Docker engine."""
        return bool(self.in_engine) or any(claim.runtime == "docker" for claim in self.claims)

    def describe(self) -> str:
        """One line for people."""
        held = ", ".join(f"127.0.{claim.block}.0" for claim in self.claims)
        parts = [
            f"{len(self.processes)} processes ({names_of(self.processes)})" if self.processes else "",
            *(f"{len(names)} {kind} ({', '.join(names)})" for kind, names in self.in_engine.items()),
            f"containers ({self.unseen})" if self.unseen else "",
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
        if run_id is None and (found in tended or has_parent(identity)):
            continue
        processes.setdefault(found, []).append(identity)
    run_ids = set(processes) | {claim.run_id for claim in claims if run_id or claim.run_id not in tended}
    in_engine, unseen = _in_engine(claims, run_id, run_ids)
    run_ids |= set(in_engine)
    left = [
        Leftover(
            one,
            tuple(processes.get(one, ())),
            tuple(claim for claim in claims if claim.run_id == one),
            one in kept,
            in_engine.get(one, {}),
        )
        for one in sorted(run_ids)
    ]
    return [replace(one, unseen=unseen) if one.is_in_engine else one for one in left]


def remove(leftovers: Iterable[Leftover]) -> None:
    """Kill the processes (checked again by start time and run id), then remove what is in the engine, then
    drop pid files and addresses. What needs no engine is gone also when none answers.

    Raises:
        HealError: something is still there.
        EnvironmentNotReady: containers were left, and the engine no longer answers.
    """
    leftovers = sorted(leftovers, key=lambda one: one.is_in_engine)
    # Processes first: a compose plugin among them would go on creating.
    left = end([(identity, one.run_id) for one in leftovers for identity in one.processes], timeout_s=_END_S)
    with ExitStack() as stack:
        client: Any = None
        for one in leftovers:
            if one.is_in_engine:
                client = client or stack.enter_context(closing(engine.connect()))
                _empty_engine(client, one)
            _forget(one)
    if left:
        raise HealError(
            f"{len(left)} processes survived SIGKILL: {', '.join(str(identity.pid) for identity in left)}",
            hint="they hang in the kernel; look at their disk with `ps -o pid,stat,wchan`",
        )


def _forget(one: Leftover) -> None:
    """Drop what a run has on this machine besides processes and containers."""
    for claim in one.claims:
        _drop_pid_files(Path(claim.folder), one.run_id)
    packets.clear(one.run_id)
    made.forget(one.run_id)
    node_limits.clear(one.run_id, [Path(claim.folder) for claim in one.claims])
    addresses.release(one.run_id)


def _in_engine(
    claims: Iterable[addresses.Claim], run_id: str | None, run_ids: set[str]
) -> tuple[dict[str, dict[str, tuple[str, ...]]], str]:
    """Run id -> what is left of it in the Docker engine; and why that is not known, if a run had containers
    and no engine answers."""
    expected = {claim.run_id for claim in claims if claim.runtime == "docker" and claim.run_id in run_ids}
    if not expected and run_id is None:
        return {}, ""
    try:
        client = engine.connect()
    except EnvironmentNotReady as error:
        return {}, str(error) if expected else ""
    wanted = expected if run_id is None else {run_id}
    with closing(client):
        found = {one: engine.leftovers(client, one) for one in wanted}
    seen = {one: {kind: tuple(names) for kind, names in left.items()} for one, left in found.items() if left}
    return seen, ""


def _empty_engine(client: Any, one: Leftover) -> None:
    """Remove what is in the engine, once what the containers said is kept where processes write theirs."""
    for claim in one.claims:
        engine.keep_logs(client, one.run_id, Path(claim.folder))
    engine.remove(client, one.run_id)


def names_of(processes: Iterable[ProcessId]) -> str:
    """Pids with the names of their programs."""
    shown = []
    for identity in processes:
        try:
            shown.append(f"{psutil.Process(identity.pid).name()} {identity.pid}")
        except psutil.NoSuchProcess:
            continue
    return ", ".join(shown)


def has_parent(identity: ProcessId) -> bool:
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
