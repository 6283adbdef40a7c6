"""Sealing: the raw segments of all workers become the Parquet files that analysis reads.

    raw/<worker>/*.seg, names.jsonl, log_bounds.jsonl   ->   sealed/<table>/bucket=NN/part-0.parquet
                                                             sealed/names.jsonl  log_bounds.jsonl  seal.json

Every file appears whole (``.part``, fsync, rename) and ``seal.json`` appears last, so its presence says
that the rest is complete. A sealing that was cut off, by a crash or a full disk, is simply done again:
raw segments are only read. The order of rows in a bucket is owner, then the order they were recorded in.
"""

from __future__ import annotations

import errno
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from filelock import FileLock

from harness.errors import EnvironmentNotReady, UsageError
from harness.plan.model import Plan
from harness.records import TABLE_NAMES, TableId
from harness.rundir import RunDir, read_json, read_jsonl, write_json, write_jsonl
from harness.seal.columns import Source
from harness.seal.names import (
    Names,
    WorkerNames,
    read_worker_names,
)
from harness.seal.parquet import PART_SUFFIX, sync_folder
from harness.seal.route import Router
from harness.seal.segments import (
    Counts,
    Damage,
    Segment,
    find_segments,
    whole_rows,
    worker_folders,
)
from harness.seal.table import Memory, TableSealer

SCHEMA_VERSION: Final = 1
OnProgress = Callable[[int, int], None]
_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_SAY: Final = {
    Damage.TORN_ROWS: "rows begun but not finished",
    Damage.SHORT_FILES: "segment files cut short",
    Damage.BAD_MAGIC: "segment files of another format, left out",
    Damage.FOREIGN_RUN: "segment files of another run, left out",
    Damage.MISSING_SEGMENTS: "segment files missing",
    Damage.UNKNOWN_NAMES: "ids that names.jsonl does not explain",
    Damage.BAD_HEADERS: "rows marked intact whose header is not ours",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReport:
    """Rows taken in, files written and their size. Rows that went to every bucket count once."""

    rows: int
    files: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReport:
    """What one worker left: rows by table, and `harness.seal.segments.Damage` by kind (0s left out)."""

    segments: int
    rows: dict[str, int]
    damage: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SealReport:
    """What sealing did; the content of seal.json."""

    tables: dict[str, TableReport]
    workers: dict[str, WorkerReport]
    wall_s: float
    cpu_s: float

    @property
    def rows(self) -> dict[str, int]:
        return {name: table.rows for name, table in self.tables.items()}

    def damage(self, worker: str) -> dict[str, int]:
        """Damage of a worker; empty for an unknown one and for none."""
        report = self.workers.get(worker)
        return report.damage if report else {}

    def problems(self) -> list[str]:
        """One sentence for each kind of damage of each worker."""
        return [
            f"{name}: {count} {_SAY[Damage(kind)]}"
            for name, worker in self.workers.items()
            for kind, count in worker.damage.items()
        ]

    def document(self) -> dict[str, Any]:
        return {"schema_version": SCHEMA_VERSION, "rows": self.rows, **asdict(self)}


def load_report(run: RunDir) -> SealReport:
    """The report of a sealed run.

    Raises:
        UsageError: seal.json is missing or not ours.
    """
    document = read_json(run.seal_report)
    try:
        return SealReport(
            tables={name: TableReport(**t) for name, t in document["tables"].items()},
            workers={name: WorkerReport(**w) for name, w in document["workers"].items()},
            wall_s=float(document["wall_s"]),
            cpu_s=float(document["cpu_s"]),
        )
    except (KeyError, TypeError) as error:
        raise UsageError(
            f"{run.seal_report} is not a seal report of this version: {error}",
            hint="delete it and run `brokerstorm analyze` again to seal from the raw segments",
        ) from error


def seal(run: RunDir, plan: Plan, *, threads: int = 2, on_progress: OnProgress | None = None) -> SealReport:
    """Seal a run, or return at once what was sealed before. Safe to call from several processes.

    Args:
        threads: row groups converted and encoded at the same time.
        on_progress: called with (raw bytes done, raw bytes in all) after every segment.

    Raises:
        EnvironmentNotReady: the disk is full; what was written is removed, a later call starts again.
        UsageError: the run holds neither raw nor sealed data, or cannot be read.
    """
    if run.seal_report.exists():
        return load_report(run)
    if not run.raw.is_dir():
        raise UsageError(
            f"{run.root} holds no capture: it has neither raw/ nor sealed/seal.json",
            hint="`brokerstorm list runs` shows the runs that can be analysed",
        )
    with _disk_errors(run):
        run.sealed.mkdir(parents=True, exist_ok=True)
        with FileLock(run.sealed / ".lock"):
            if run.seal_report.exists():
                return load_report(run)
            _remove_unfinished(run)
            return _Sealing(run, plan, on_progress or (lambda done, total: None)).do(threads)


def drop_segments(run: RunDir) -> int:
    """Remove the raw segments of a sealed run whose capture is undamaged; bytes freed (0: kept)."""
    if not run.seal_report.exists() or load_report(run).problems():
        return 0
    freed = 0
    for folder in worker_folders(run):
        for path in folder.glob("*.seg"):
            freed += path.stat().st_blocks * 512
            path.unlink()
    return freed


class _Sealing:
    """One sealing from its first segment to seal.json."""

    def __init__(self, run: RunDir, plan: Plan, on_progress: OnProgress) -> None:
        self._run = run
        self._plan = plan
        self._on_progress = on_progress
        self._damage: Counts = {}
        self._rows: dict[str, Counter[str]] = {}
        self._names = Names(plan)
        self._worker_names: dict[str, WorkerNames] = {}
        self._done_bytes = 0

    def do(self, threads: int) -> SealReport:
        wall, cpu = time.monotonic(), time.process_time()
        folders = worker_folders(self._run)
        self._worker_names = {f.name: read_worker_names(f, self._names) for f in folders}
        segments = find_segments(self._run, self._plan.run_tag, self._damage)
        total_bytes = sum(segment.bytes for segment in segments)
        router = Router(self._plan, self._names.extra_streams())
        table_bytes = Counter({table: 0 for table in TableId})
        for segment in segments:
            table_bytes[segment.table] += segment.bytes
        memory = Memory(router.buckets, max(table_bytes.values()))
        tables: dict[str, TableReport] = {}
        with ThreadPoolExecutor(threads, thread_name_prefix="seal") as pool:
            for table in TableId:
                mine = [s for s in segments if s.table is table]
                sealer = TableSealer(table, self._run, router, pool, memory, self._plan.run_tag)
                tables[TABLE_NAMES[table]] = self._seal_table(sealer, mine, total_bytes)
        write_jsonl(self._run.log_bounds, self._log_bounds())
        write_jsonl(self._run.names, self._names.rows())
        report = SealReport(
            tables=tables,
            workers={f.name: self._worker_report(f.name, segments) for f in folders},
            wall_s=round(time.monotonic() - wall, 4),
            cpu_s=round(time.process_time() - cpu, 4),
        )
        write_json(self._run.seal_report, report.document())
        sync_folder(self._run.sealed)
        return report

    def _seal_table(self, sealer: TableSealer, segments: list[Segment], total_bytes: int) -> TableReport:
        sources: dict[tuple[str, int, int], Source] = {}
        try:
            for segment in segments:
                key = (segment.worker, segment.owner, segment.subscription)
                source = sources.get(key) or sources.setdefault(key, self._source(segment))
                counts = self._damage[segment.worker]
                before = sealer.rows
                for rows in whole_rows(segment, counts):
                    sealer.add(rows, source, counts)
                taken = self._rows.setdefault(segment.worker, Counter())
                taken[TABLE_NAMES[sealer.table]] += sealer.rows - before
                self._done_bytes += segment.bytes
                self._on_progress(self._done_bytes, total_bytes)
            files = sealer.finish()
        except BaseException:
            sealer.abort()
            raise
        return TableReport(rows=sealer.rows, files=len(files), bytes=sum(size for _, size in files))

    def _source(self, segment: Segment) -> Source:
        names = self._worker_names[segment.worker]
        local = np.array([segment.subscription], np.int32)
        return Source(segment.owner, int(names.to_global(local)[0]), names)

    def _log_bounds(self) -> list[dict[str, Any]]:
        """All audits' bounds, each with the global id of its stream."""
        rows = [row for f in worker_folders(self._run) for row in read_jsonl(f / self._run.log_bounds.name)]
        return [row | {"stream_id": self._names.add("stream", str(row["stream"]))} for row in rows]

    def _worker_report(self, worker: str, segments: list[Segment]) -> WorkerReport:
        damage = +self._damage[worker]
        if unknown := self._worker_names[worker].unknown:
            damage[Damage.UNKNOWN_NAMES] = len(unknown)
        return WorkerReport(
            segments=sum(s.worker == worker for s in segments),
            rows=dict(self._rows.get(worker, {})),
            damage={str(kind): count for kind, count in sorted(damage.items())},
        )


def _remove_unfinished(run: RunDir) -> None:
    """What an earlier, cut-off sealing left; the raw segments are still there."""
    for path in run.sealed.glob("*/bucket=*/part-0.parquet*"):
        if path.name.endswith((PART_SUFFIX, ".parquet")):
            path.unlink()


@contextmanager
def _disk_errors(run: RunDir) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _NO_SPACE:
            raise EnvironmentNotReady(
                f"no space left on the disk of {run.sealed} while sealing the capture",
                hint=f"free some space, then `brokerstorm analyze {run.root}` seals it again from raw/",
            ) from error
        raise UsageError(f"cannot seal {run.root}: {error}") from error
