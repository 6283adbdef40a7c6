"""Finds and removes what runs leave over when their harness is killed: processes, containers with
their networks and volumes, addresses, pid files.

A process belongs to a run when its environment says so (BROKERSTORM_RUN_ID), whatever a pid file
claims; what is in a Docker engine, when its label says so. The run is ours when the process runs as
this user and names this state folder (`harness.owners`), and so does the label of what is in an
engine; `find_others` lists what belongs to others, and it is left alone. An engine is asked only
for runs that have a claim here, or for the run id that is asked for. Runs that are still looked
after are not leftovers: their harness lives, or their cluster was kept on purpose. Asked for by run
id, they are.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from harness.clusters.nodes.processes import ProcessId, end, processes_of_others, run_processes
from harness.clusters.security import made
from harness.errors import EnvironmentNotReady, HealError, UsageError
from harness.owners import STATE, RunOwner, marked_owner
from harness.rundir import read_json

_END_S = 4.0
#: What a cluster's folder says of itself (`harness.clusters.cluster`).
_STATE_FILE = "cluster.json"
#: Heals what is still applied to the cluster of a claim; returns what could not be healed, as text.
Heal = Callable[[addresses.Claim], list[str]]


@dataclass(frozen=True, slots=True)
class Leftover:
    """Everything that one run left over."""

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
            f"{len(self.processes)} processes ({names_of(self.processes)})"
            if self.processes
            else "",
            *(
                f"{len(names)} {kind} ({', '.join(names)})"
                for kind, names in self.in_engine.items()
            ),
            f"containers ({self.unseen})" if self.unseen else "",
            f"addresses {held}" if held else "",
        ]
        return f"{self.run_id}: {', '.join(part for part in parts if part)}"


@dataclass(frozen=True, slots=True)
class LeftAlone:
    """Something that looks like a leftover and is not ours, or not certain to be one.

    Attributes:
        what: a run id, or a path.
        command: what its owner can do about it.
    """

    what: str
    why: str
    command: str

    def describe(self) -> str:
        """One line for people."""
        return f"{self.what}: {self.why}; {self.command}"


def find_others(run_id: str | None = None) -> list[LeftAlone]:
    """Return what `find` leaves out, for one run or for all: processes without a parent that belong
    to another user or state folder, damaged claims, and processes that a damaged claim may refer
    to.
    """
    theirs: dict[RunOwner, list[ProcessId]] = {}
    for identity, owner in processes_of_others(run_id):
        if run_id or not has_parent(identity):
            theirs.setdefault(owner, []).append(identity)
    found = [
        _left_to(owner, f"processes {names_of(processes)}", run_id)
        for owner, processes in theirs.items()
    ]
    found += _others_in_engine(run_id)
    if run_id:
        return found
    damaged = addresses.damaged_claims()
    for path, problem in damaged.items():
        found.append(LeftAlone(str(path), problem, f"`rm -r {shlex.quote(str(path))}` removes it"))
    for one, processes in _unclaimed().items() if damaged else ():
        why = f"processes {names_of(processes)}, which a damaged claim may have kept"
        found.append(LeftAlone(one, why, f"`brokerstorm clean {one}` ends them"))
    return found


def _others_in_engine(run_id: str | None) -> list[LeftAlone]:
    """Return the objects in the Docker engine that are not ours, for one run or for the runs with a
    claim here.
    """
    claimed = {claim.run_id for claim in addresses.claims() if claim.runtime == "docker"}
    wanted = sorted(claimed) if run_id is None else [run_id]
    if not wanted:
        return []
    try:
        client = engine.connect()
    except EnvironmentNotReady:
        return []  # `find` says so of a run that had containers
    found: list[LeftAlone] = []
    with closing(client):
        for one in wanted:
            for mark, left in engine.others(client, one).items():
                what = ", ".join(
                    f"{len(names)} {kind} ({', '.join(names)})" for kind, names in left.items()
                )
                if owner := marked_owner(one, mark):
                    found.append(_left_to(owner, what, run_id))
                else:
                    why = f"{what} have no owner"
                    found.append(LeftAlone(one, why, f"`{_docker_removal(left)}` removes them"))
    return found


def _docker_removal(left: Mapping[str, Sequence[str]]) -> str:
    """The command that removes what is in an engine, in an order that works."""
    verbs = {
        "containers": "docker rm -f -v",
        "networks": "docker network rm",
        "volumes": "docker volume rm",
    }
    return " && ".join(
        f"{verb} {shlex.join(left[kind])}" for kind, verb in verbs.items() if kind in left
    )


def _left_to(owner: RunOwner, what: str, run_id: str | None) -> LeftAlone:
    why = f"{what} belong to "
    again = f"brokerstorm clean{f' {run_id}' if run_id else ''}"
    if owner.uid != os.geteuid():
        return LeftAlone(owner.run_id, f"{why}user {owner.uid}", f"that user can run `{again}`")
    command = f"`{STATE}={shlex.quote(owner.state)} {again}` looks after it"
    return LeftAlone(owner.run_id, f"{why}the state folder {owner.state}", command)


def _unclaimed() -> dict[str, list[ProcessId]]:
    """Run id -> processes of ours without a parent, of runs that have no claim."""
    claimed = {claim.run_id for claim in addresses.claims()}
    found: dict[str, list[ProcessId]] = {}
    for identity, one in run_processes():
        if one not in claimed and not has_parent(identity):
            found.setdefault(one, []).append(identity)
    return found


def find(run_id: str | None = None) -> list[Leftover]:
    """Leftovers of one run, alive or kept or not; with None the leftovers of all runs without a
    living harness.
    """
    claims = [claim for claim in addresses.claims() if run_id in (None, claim.run_id)]
    kept = {claim.run_id for claim in claims if claim.kept}
    tended = {claim.run_id for claim in claims if claim.owner.is_alive()} | kept
    # A damaged claim may belong to a cluster that was kept: what has no claim then may be its.
    uncertain = set(_unclaimed()) if run_id is None and addresses.damaged_claims() else set()
    processes: dict[str, list[ProcessId]] = {}
    for identity, found in run_processes(run_id):
        if run_id is None and (found in tended or found in uncertain or has_parent(identity)):
            continue
        processes.setdefault(found, []).append(identity)
    run_ids = set(processes) | {
        claim.run_id for claim in claims if run_id or claim.run_id not in tended
    }
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


def _heals_nothing(claim: addresses.Claim) -> list[str]:
    return []


def remove(leftovers: Iterable[Leftover], heal: Heal = _heals_nothing) -> None:
    """Kill the processes (checked again by start time, user and run id), then remove what is in the
    engine, heal, drop the brokers' data and pid files, and last give back the addresses: by its
    claim the next `clean` finds a run that this one could not finish. What needs no engine is gone
    also when none answers.

    Raises:
        HealError: something is still there.
        EnvironmentNotReady: containers were left, and the engine no longer answers.
    """
    leftovers = sorted(leftovers, key=lambda one: one.is_in_engine)
    # Processes first: a compose plugin among them would continue to create.
    left = end(
        [(identity, one.run_id) for one in leftovers for identity in one.processes],
        timeout_s=_END_S,
    )
    unhealed: list[str] = []
    with ExitStack() as stack:
        client: Any = None
        for one in leftovers:
            if one.is_in_engine:
                client = client or stack.enter_context(closing(engine.connect()))
                _empty_engine(client, one)
            unhealed += _forget(one, heal)
    if left:
        raise HealError(
            f"{len(left)} processes survived SIGKILL: {', '.join(str(identity.pid) for identity in left)}",
            hint="they hang in the kernel; look at their disk with `ps -o pid,stat,wchan`",
        )
    if unhealed:
        raise HealError("; ".join(unhealed), hint="`brokerstorm clean` tries again")


def _forget(one: Leftover, heal: Heal) -> list[str]:
    """Drop what a run has on this machine besides processes and containers; what could not be
    healed."""
    for claim in one.claims:
        _drop_pid_files(Path(claim.folder), one.run_id)
    packets.clear(one.run_id)
    made.forget(one.run_id)
    folders = [
        folder for claim in one.claims if is_folder_of(folder := Path(claim.folder), one.run_id)
    ]
    node_limits.clear(one.run_id, folders)
    problems = [problem for claim in one.claims for problem in heal(claim)]
    for folder in folders:
        for node in own_folders(folder):
            # it follows no link, not even its argument
            shutil.rmtree(node / "data", ignore_errors=True)
    if not problems:
        addresses.release(one.run_id)
    return problems


def is_folder_of(folder: Path, run_id: str) -> bool:
    """Whether this is the folder of a run's cluster: a claim can name any folder, and its data is
    removed."""
    try:
        return not folder.is_symlink() and read_json(folder / _STATE_FILE).get("run_id") == run_id
    except UsageError:
        return False


def own_folders(folder: Path) -> list[Path]:
    """The folders of nodes in a cluster's folder; links lead elsewhere and are left out."""
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink())
    except OSError:
        return []


def _in_engine(
    claims: Iterable[addresses.Claim], run_id: str | None, run_ids: set[str]
) -> tuple[dict[str, dict[str, tuple[str, ...]]], str]:
    """Run id -> what is left of it in the Docker engine; and why that is not known, if a run had
    containers and no engine answers."""
    expected = {
        claim.run_id for claim in claims if claim.runtime == "docker" and claim.run_id in run_ids
    }
    if not expected and run_id is None:
        return {}, ""
    try:
        client = engine.connect()
    except EnvironmentNotReady as error:
        return {}, str(error) if expected else ""
    wanted = expected if run_id is None else {run_id}
    with closing(client):
        found = {one: engine.leftovers(client, one) for one in wanted}
    seen = {
        one: {kind: tuple(names) for kind, names in left.items()}
        for one, left in found.items()
        if left
    }
    return seen, ""


def _empty_engine(client: Any, one: Leftover) -> None:
    """Remove what is in the engine, once what the containers said is kept where processes write
    theirs."""
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
    for node in own_folders(folder):
        path = NodeFolder(node).pid_file
        try:
            if read_json(path).get("run_id") == run_id:
                path.unlink(missing_ok=True)
        except (OSError, UsageError):
            continue
