"""The faults applied right now, on disk, so that another process can heal them if this one is
killed.

One JSON file per fault in ``ledger/`` of the run, written before the fault is applied and removed
after its heal was verified. A harness that is SIGKILLed leaves its entries; `heal_from_ledger`
(called by `clean` and by the next run on a kept cluster) takes them from there.

    {"id": 3, "kind": "pause", "targets": ["kafka-1"], "t_ns": ..., "paused": [{"node", "pid",
    "started_s"}]} {"id": 4, "kind": "kill", "targets": ["kafka-2"], "t_ns": ..., "down":
    ["kafka-2"]} {"id": 5, "kind": "disk-full", "targets": ["kafka-3"], "t_ns": ..., "limited":
    [...], "down": [...]} {"id": 6, "kind": "change-config", "targets": ["orders"], "t_ns": ...,
    "settings": {"orders": {...}}} {"id": 5, "kind": "latency", "targets": ["kafka-3"], "t_ns": ...,
    "impaired": ["fault-1a2b3c4d"]}

For a cluster that somebody else started, it also says ``"outside": true``: the cluster continues
whatever becomes of the run, and can be healed only with its connection file.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

import psutil

from faults.kit.cluster_view import A, ability_text, find_ability
from harness.contracts import read_document
from harness.contracts.ledger import LedgerEntry, StoppedProcess
from harness.errors import BrokerstormError, EnvironmentNotReady, UsageError
from harness.faultlog import read_faults
from harness.owners import run_id_of
from harness.protocols.cluster import ChangesTopics, Cluster, RaisesAlarms
from harness.protocols.limits import LiftsLimits
from harness.protocols.network import HasDetours, LosesPackets
from harness.protocols.nodes import Pausable, Startable, TellsRunning
from harness.rundir import RunDir, append_jsonl, write_json
from harness.start_times import SAME_START_S, started_s
from harness.waiting import wait_while

_NAME: Final = re.compile(r"fault-(\d{1,9})\.json", re.ASCII)
#: psutil computes start times from the boot time, which moves a little when the clock is set.
#: SIGCONT takes effect when the kernel next looks; more means that somebody stops it again.
_CONTINUE_S: Final = 5.0


class Ledger:
    """The ledger of one run."""

    def __init__(self, run: RunDir) -> None:
        self._folder = run.ledger

    def write(self, entry: LedgerEntry) -> None:
        """Write the entry of a fault; file and folder are synced to disk on return."""
        write_json(
            self._path(entry.id), {key: value for key, value in asdict(entry).items() if value}
        )
        self._sync_folder()

    def remove(self, fault_id: int) -> None:
        """Remove the entry of a healed fault. Idempotent."""
        self._path(fault_id).unlink(missing_ok=True)
        self._sync_folder()

    def entries(self) -> list[LedgerEntry]:
        """Return the faults that are applied, the oldest first. A file that cannot be read counts
        as an entry without content.
        """
        found: list[LedgerEntry] = []
        if self._folder.is_symlink():
            return found  # entries are removed, and elsewhere nothing is
        for path in sorted(self._folder.glob("fault-*.json")):
            named = _NAME.fullmatch(path.name)
            number = int(named[1]) if named else 0
            try:
                entry = read_document(path, LedgerEntry)
                damaged = "" if entry.id == number else f"{path} holds the fault {entry.id}"
            except UsageError as error:
                entry, damaged = LedgerEntry(), str(error)
            found.append(replace(entry, id=number, damaged=damaged))
        return found

    def _path(self, fault_id: int) -> Path:
        return self._folder / f"fault-{fault_id:06d}.json"

    def _sync_folder(self) -> None:
        """A new name is durable only when its folder is."""
        with contextlib.suppress(FileNotFoundError):
            handle = os.open(self._folder, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


def heal_from_ledger(cluster: Cluster | None, run: RunDir, owner: str = "") -> list[str]:
    """Heal what another process left applied in a run, or in any round of a campaign.

    Stopped processes are continued in any case (a stopped one cannot even be asked to end); nodes
    that were killed or stopped are started only on a cluster that is to be kept. Does not wait for
    the ISR. What was injected and has no entry any more is not applied, and the journal of a
    cluster that is kept says so.

    Args:
        cluster: the run's cluster if it is to be kept, else None.
        owner: run id that the processes of the run have; empty = the name of its folder.

    Returns:
        What could not be healed, as text; those entries stay.
    """
    owner = owner or run.run_id
    return [failure for each in (run, *run.rounds()) for failure in _heal_run(cluster, each, owner)]


def _heal_run(cluster: Cluster | None, run: RunDir, owner: str) -> list[str]:
    ledger = Ledger(run)
    failures: list[str] = []
    for entry in ledger.entries():
        if problems := _heal_entry(entry, cluster, owner):
            failures += problems
            continue
        if cluster is not None:
            _note_healed(run, entry.id, "undone from the ledger")
        ledger.remove(entry.id)
    if cluster is not None and not failures:
        for fault in read_faults(run.faults):
            if fault.is_applied:  # as written down: what lasts has its entry until it is healed
                _note_healed(run, fault.id, "nothing of it was left to undo")
    return failures


def _note_healed(run: RunDir, fault_id: int, evidence: str) -> None:
    for event in (
        {"event": "heal"},
        {"event": "healed", "ok": True, "undone": True, "evidence": evidence},
    ):
        append_jsonl(run.faults, {"id": fault_id, **event, "t_ns": time.monotonic_ns()})


def _heal_entry(entry: LedgerEntry, cluster: Cluster | None, owner: str) -> list[str]:
    name = f"fault {entry.id} ({entry.kind})"
    if entry.outside and cluster is None:
        return [
            f"{name}: brokerstorm does not start its nodes; `brokerstorm clean --cluster FILE` undoes it"
        ]
    said = (_continue(process, owner) for process in entry.paused)
    problems = [f"{name}: {problem}" for problem in said if problem]
    if cluster is not None:
        problems += [f"{name}: {text}" for text in _restore(cluster, entry)]
    if entry.damaged and cluster is not None:
        problems.append(f"{name}: {entry.damaged}")
    return problems


def _continue(process: StoppedProcess, owner: str) -> str:
    """SIGCONT a process if it is still the one that was stopped. Empty text = nothing is stopped
    any more.

    The ledger is a file, and a file may be forged: only a process of the run is sent a signal.
    """
    pid = process.pid
    if pid is None or run_id_of(pid) != owner:
        return ""
    try:
        found = psutil.Process(pid)
        if abs(started_s(pid) - process.started_s) > SAME_START_S:
            return ""  # the pid belongs to another process by now
        # A node leads its own process group, and all of it was stopped.
        send = os.killpg if os.getpgid(pid) == pid else os.kill
        send(pid, signal.SIGCONT)
        if wait_while(lambda: found.status() == psutil.STATUS_STOPPED, _CONTINUE_S, every_s=0.01):
            return f"{process.node} (pid {pid}) is still stopped after SIGCONT"
    except (psutil.NoSuchProcess, ProcessLookupError):
        return ""
    except (psutil.AccessDenied, PermissionError):
        return f"{process.node} (pid {pid}) is stopped and belongs to another user"
    return ""


def _restore(cluster: Cluster, entry: LedgerEntry) -> list[str]:
    """Resume and start nodes through a cluster that is kept."""
    paused = {process.node for process in entry.paused}
    limited = find_ability(cluster, LiftsLimits)
    problems = []
    nodes = {node.name for node in cluster.runtime.nodes}  # a paused process may also be a client's
    try:
        for node in nodes & paused:
            _part(cluster, Pausable).resume(node)
        for node in entry.limited:  # before the start: a full disk ends it again
            if limited is not None:
                limited.lift_limits(node)
        for node in entry.down:
            _part(cluster, Startable).start(node)
        _repair_network(cluster, entry)
        for node in entry.alarmed:
            # A node that starts has the limits of its settings.
            if _part(cluster, TellsRunning).is_running(node):
                _part(cluster, RaisesAlarms).clear_alarms(node)
        for topic, own in entry.settings.items():
            _part(cluster, ChangesTopics).change_settings(topic, own)
    except BrokerstormError as error:
        problems.append(str(error))
    return problems


def _part(cluster: Cluster, ability: type[A]) -> A:
    """The part of a cluster that could once do a thing.

    Raises:
        EnvironmentNotReady: none can any more: a driver was taken out of the connection file.
    """
    found = find_ability(cluster, ability)
    if found is None:
        raise EnvironmentNotReady(
            f"nothing can {ability_text(ability)} any more",
            hint="restore the driver in the connection file of the run",
        )
    return found


def _repair_network(cluster: Cluster, entry: LedgerEntry) -> None:
    if entry.impaired and (detours := find_ability(cluster, HasDetours)):
        for name in entry.impaired:
            detours.repair(name)
    if entry.losing and (packets := find_ability(cluster, LosesPackets)):
        for name in entry.losing:
            packets.repair(name)
