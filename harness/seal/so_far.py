"""Writes what is sealed of a running run as a run of its own, which can be judged like any other.

Its sealed files are the run's (links). Its streams are read as far as its log goes, and no further.
Its workers have not ended and nothing is restored, so that judging takes for certain only what is.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import asdict
from typing import Final

from filelock import FileLock

from harness.contracts.plan import Plan
from harness.contracts.rows import Bounds
from harness.contracts.seal import SealReport, TableReport
from harness.records import BUCKETED, TABLE_NAMES
from harness.rundir import RunDir, write_json
from harness.seal.names import NameTable
from harness.seal.parts import SealedSoFar
from harness.seal.seal import write_sealed_rows
from harness.seal.share import ShareReport, together

#: Why a stream of it is not read to its end.
WHY: Final = "goes on"


def write_so_far(run: RunDir, plan: Plan, into: RunDir) -> bool:
    """Write it to ``into``, replacing what is there; False where nothing is sealed yet.

    Raises:
        OSError: the disk is full.
        UsageError: ``parts.jsonl`` is damaged.
    """
    shutil.rmtree(into.root, ignore_errors=True)
    with FileLock(run.sealed / ".lock"):
        sealed = SealedSoFar.read(run)
        files = {path: file for part in sealed.parts for path, file in part.files.items()}
        for name in files:
            target = into.sealed / name
            target.parent.mkdir(parents=True, exist_ok=True)
            os.link(run.sealed / name, target)
    if not files:
        return False
    for path in (run.plan, run.manifest, run.faults, run.events, run.metrics):
        if path.exists():
            shutil.copyfile(path, into.root / path.name)
    names = NameTable(plan, sealed.names)
    ends = {number: 0 for number in range(1, names.planned_streams + 1)}
    for part in sealed.parts:
        ends |= {stream: max(end, ends.get(stream, 0)) for stream, end in part.log_ends.items()}
    streams = plan.streams()
    bounds = [
        Bounds(end=end + 1, read_to=end, why=WHY, stream=streams[number - 1], stream_id=number)
        for number, end in ends.items()
        if number <= len(streams)
    ]
    rows = ((into.log_bounds, bounds), (into.names, names.rows()))
    files |= {path.name: write_sealed_rows(path, map(asdict, lines)) for path, lines in rows}
    tables = {TABLE_NAMES[table]: TableReport(rows=0, files=0, bytes=0) for table in BUCKETED}
    tables = together(tables, [ShareReport(tables=part.tables) for part in sealed.parts])
    report = SealReport(
        rows={name: table.rows for name, table in tables.items()},
        tables=tables,
        workers={name: sealed.worker(name) for part in sealed.parts for name in part.workers},
        files=files,
        wall_s=0.0,
        cpu_s=0.0,
    )
    write_json(into.seal_report, asdict(report))
    return True
