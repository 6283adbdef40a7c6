"""Finds the logs of a run: its brokers' and its workers' clients'."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.contracts import read_document
from harness.contracts.plan import Plan
from harness.contracts.rows import Manifest
from harness.log_stamp import Stamp
from harness.rundir import RunDir, reading
from harness.systems import SYSTEMS

_NODE_LOGS = ("stdout.log", "stderr.log")
_WORKER_LOG = "stderr.log"


@dataclass(frozen=True, slots=True)
class LogFile:
    """One log that holds anything.

    Attributes:
        source: the node or the worker that wrote it.
        stamps: how its lines begin, any of these; none = not stated, so no line of it can be
            placed.
    """

    source: str
    path: Path
    is_node: bool
    stamps: tuple[Stamp, ...]


def log_files(run: RunDir) -> list[LogFile]:
    """Every log of a run with its brokers' first; of rounds of one campaign, the brokers' are the
    same.

    Raises:
        UsageError: the plan or the manifest is missing or damaged.
    """
    with reading(run):
        system = SYSTEMS.get(read_document(run.plan, Plan).system)
        of_nodes = tuple(map(Stamp, system.log_stamps)) if system else ()
        of_workers = {
            row.name: (Stamp(row.log_stamp),)
            for row in read_document(run.manifest, Manifest).workers
            if row.log_stamp
        }
    found = [
        LogFile(folder.name, folder / "logs" / name, True, of_nodes)
        for folder in _folders(_cluster_of(run))
        for name in _NODE_LOGS
    ]
    found += [
        LogFile(folder.name, folder / _WORKER_LOG, False, of_workers.get(folder.name, ()))
        for folder in _folders(run.raw)
    ]
    return [each for each in found if _holds_anything(each.path)]


def _cluster_of(run: RunDir) -> Path:
    """The cluster's folder: the run's own, or the one of its campaign or experiment."""
    above = RunDir(run.root.parent)
    is_round = above.campaign.exists() or above.experiment.exists()
    return above.cluster if not run.cluster.is_dir() and is_round else run.cluster


def _folders(above: Path) -> list[Path]:
    return sorted(each for each in above.iterdir() if each.is_dir()) if above.is_dir() else []


def _holds_anything(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0
