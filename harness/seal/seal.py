"""Sealing: the raw segments of all workers become the Parquet files that analysis reads.

    raw/<worker>/*.seg, names.jsonl, log_bounds.jsonl   ->   sealed/<table>/bucket=NN/part-0.parquet
                                                             sealed/names.jsonl, log_bounds.jsonl,
                                                             seal.json
    leaderships.jsonl                                  ->   sealed/leaderships.jsonl
    raw/<worker>/transactions-*.seg                    ->   sealed/transactions.jsonl
    log_transactions.jsonl                             ->   columns of sealed/log
    committed_offsets.jsonl                            ->   sealed/committed_offsets.jsonl
    replicas.jsonl                                     ->   sealed/replicas.jsonl

Every file appears whole (``.part``, fsync, rename) and ``seal.json`` appears last, so its presence
says that the rest is complete; it holds the checksum of every other file, and of what else judging
reads of the run. A sealing that was cut off, by a crash or a full disk, is simply done again: raw
segments are only read. What was sealed is never replaced by less. The order of rows in a bucket is
owner, then the order they were recorded in.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock

from harness.contracts import read_document, read_rows, typed
from harness.contracts.plan import Plan
from harness.contracts.rows import (
    Bounds,
    CommittedOffset,
    Leadership,
    Manifest,
    NameRow,
    ReplicaRow,
    StreamTransactions,
    TransactionRow,
)
from harness.contracts.seal import Damage, SealedFile, SealReport, TableReport, WorkerReport
from harness.errors import NO_SPACE, EnvironmentNotReady, UsageError
from harness.records import BUCKETED, TABLE_NAMES, TableId
from harness.rundir import (
    MOST_ROWS_BYTES,
    Document,
    RunDir,
    read_bytes,
    read_json,
    write_json,
    write_jsonl,
)
from harness.seal.columns import ONE_CLOCK, Clocks, Pipelines, RowSource
from harness.seal.names import NameTable, WorkerNames, read_worker_names
from harness.seal.parquet import PART_SUFFIX, sha256_of, sync_folder
from harness.seal.parts import SECOND_ANSWER_S, SealedPart, SealedSoFar, all_taken, key_of
from harness.seal.route import Router
from harness.seal.segments import (
    Counts,
    Segment,
    find_segments,
    is_finished,
    remove_segment,
    whole_rows,
    worker_folders,
)
from harness.seal.share import MachineShare, ShareReport, together
from harness.seal.table import BufferPool, TableSealer
from harness.seal.transactions import LogTransactions, sealed_transactions
from harness.systems import SYSTEMS

#: A row of a small file, and one that is about a stream.
SmallRow = Bounds | CommittedOffset | Leadership | NameRow | ReplicaRow | TransactionRow
OfStream = TypeVar("OfStream", Bounds, CommittedOffset, Leadership, ReplicaRow)
OnProgress = Callable[[int, int], None]
#: Names of the run so far -> what the other machines of the load made of their shares.
Shares = Callable[[list[tuple[str, str]]], list[ShareReport]]


def load_report(run: RunDir) -> SealReport:
    """The report of a sealed run.

    Raises:
        UsageError: seal.json is missing or not ours.
    """
    hint = "delete it and run `brokerstorm analyze` again to seal from the raw segments"
    return typed(read_json(run.seal_report), SealReport, str(run.seal_report), hint=hint)


def seal(
    run: RunDir,
    plan: Plan,
    *,
    threads: int = 2,
    on_progress: OnProgress | None = None,
    shares: Shares | None = None,
    clocks: Clocks = ONE_CLOCK,
) -> SealReport:
    """Seal a run, or return at once what was sealed before. Safe to call from several processes.

    Args:
        shares: seals what lies on other machines; None: this is not possible any more, and they are
            missing.
        clocks: of the producers there.
        threads: row groups converted and encoded at the same time.
        on_progress: called with (raw bytes done, raw bytes in all) after every segment.

    Raises:
        EnvironmentNotReady: the disk is full; what was written is removed, a later call starts
            again.
        UsageError: the run holds neither raw nor sealed data, cannot be read, or has lost its
            seal.json and holds more in its sealed files than the raw segments would give.
    """
    if run.seal_report.exists():
        return load_report(run)
    if not run.raw.is_dir():
        raise _no_capture(run)
    with _disk_errors(run):
        run.sealed.mkdir(parents=True, exist_ok=True)
        with FileLock(run.sealed / ".lock"):
            if run.seal_report.exists():
                return load_report(run)
            before = SealedSoFar.read(run)
            sealing = _Sealing(
                run, plan, on_progress or (lambda done, total: None), clocks=clocks, before=before
            )
            _refuse_less(run, sealing.raw_rows(), before.next_part)
            _remove_unfinished(run, before.next_part)
            report = sealing.do(threads, shares)
            run.sealed_parts.unlink(missing_ok=True)
            return report


def seal_finished(run: RunDir, plan: Plan, *, least_bytes: int = 0) -> int:
    """Seal the raw segments of a running run that are finished, as its next part, and
    remove them. Not for a load from other machines.

    Args:
        least_bytes: of raw rows; fewer make no part yet.

    Returns:
        Bytes of the segments that were removed.

    Raises:
        EnvironmentNotReady, UsageError: as `seal`; every segment is still there.
    """
    with _disk_errors(run):
        run.sealed.mkdir(parents=True, exist_ok=True)
        with FileLock(run.sealed / ".lock"):
            before = SealedSoFar.read(run)
            _remove_unfinished(run, before.next_part)
            return _Sealing(run, plan, lambda done, total: None, before=before).do_part(
                least_bytes, threads=1
            )


def seal_share(run: RunDir, plan: Plan, share: MachineShare) -> ShareReport:
    """Seal what workers on this machine captured, as a part of a run that is elsewhere.

    Raises:
        EnvironmentNotReady, UsageError: as `seal`.
    """
    with _disk_errors(run):
        run.sealed.mkdir(parents=True, exist_ok=True)
        return _Sealing(run, plan, lambda done, total: None, share).do_share(threads=2)


def write_sealed_rows(path: Path, rows: Iterable[Document]) -> SealedFile:
    """Write one of the small sealed files (JSON lines), and what a reader holds it against."""
    lines = list(rows)
    write_jsonl(path, lines)
    with path.open("rb") as file:
        return SealedFile(len(lines), os.fstat(file.fileno()).st_size, sha256_of(file))


def sealed_documents(run: RunDir) -> dict[str, SealedFile]:
    """Return the documents that judging reads besides the sealed files, by name, each with its
    state when the run was sealed.
    """
    paths = (run.plan, run.manifest, run.faults, run.events, run.metrics)
    return {path.name: _sealed_document(path) for path in paths if path.exists()}


def _sealed_document(path: Path) -> SealedFile:
    data = read_bytes(path, MOST_ROWS_BYTES)
    return SealedFile(data.count(b"\n"), len(data), hashlib.sha256(data).hexdigest())


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

    def __init__(
        self,
        run: RunDir,
        plan: Plan,
        on_progress: OnProgress,
        share: MachineShare = MachineShare(),  # noqa: B008 - frozen
        *,
        clocks: Clocks = ONE_CLOCK,
        before: SealedSoFar | None = None,
    ) -> None:
        self._before = before or SealedSoFar()
        self._ordinals = self._before.ordinals
        self._share = share
        self._clocks = clocks
        self._run = run
        self._plan = plan
        self._on_progress = on_progress
        self._damage: Counts = {}
        self._rows: dict[str, Counter[str]] = {}
        self._names = NameTable(plan, [*share.names, *self._before.names], share.part)
        self._worker_names: dict[str, WorkerNames] = {}
        self._files: dict[str, SealedFile] = {}
        self._done_bytes = 0
        self._in_log = read_rows(run.log_transactions, StreamTransactions)

    def raw_rows(self) -> dict[TableId, int]:
        """Rows of each table that the raw segments have room for: never fewer than they hold."""
        rows = dict.fromkeys(TableId, 0)
        for segment in self._segments({}):
            rows[segment.table] += segment.room
        return rows

    def do(self, threads: int, shares: Shares | None) -> SealReport:
        """Seal everything that is left, write the small files, and return the report."""
        wall, cpu = time.monotonic(), time.process_time()
        segments = self._segments(self._damage)
        self._read_names()
        others = shares(self._names.pairs()) if shares else _lost_shares(self._run)
        parts = [ShareReport(tables=part.tables, files=part.files) for part in self._before.parts]
        tables = together(self._seal_tables(segments, threads), [*parts, *others])
        for path, rows in self._documents(segments, others):
            self._files[path.name] = write_sealed_rows(path, map(asdict, rows))
        for share in (*parts, *others):
            self._files |= share.files
        report = SealReport(
            rows={name: table.rows for name, table in tables.items()},
            tables=tables,
            workers=self._worker_reports(segments)
            | {k: v for each in others for k, v in each.workers.items()},
            files=dict(sorted(self._files.items())),
            documents=sealed_documents(self._run),
            wall_s=round(time.monotonic() - wall, 4),
            cpu_s=round(time.process_time() - cpu, 4),
        )
        write_json(self._run.seal_report, asdict(report))
        sync_folder(self._run.sealed)
        return report

    def do_part(self, least_bytes: int, threads: int) -> int:
        """Bytes of the segments that are sealed now and gone."""
        found = self._segments(self._damage)
        # What was seen of files that are not taken yet is seen again by who takes them.
        self._damage = {name: Counter() for name in self._damage}
        chosen = self._finished(found)
        size = sum(segment.bytes for segment in chosen)
        if not chosen or size < least_bytes:
            return 0
        # After the choice: a worker that runs writes a name down before the first row that has it.
        known = len(self._names.pairs())
        self._read_names()
        tables = self._seal_tables(chosen, threads)
        reports = self._worker_reports(chosen, own=True)
        part = SealedPart(
            part=self._before.next_part,
            taken=all_taken(self._before, chosen),
            ordinals=dict(self._ordinals),
            names=self._names.pairs()[known:],
            pipelines=np.flatnonzero(self._pipelines(found)).tolist(),
            files=self._files,
            tables=tables,
            workers={name: report for name, report in reports.items() if report.segments},
            log_ends=self._log_ends(),
        )
        self._before.append(self._run, part)
        for segment in chosen:
            remove_segment(segment)
        return size

    def _log_ends(self) -> dict[int, int]:
        """By stream id, the position after the last row of the log in the files of this sealing."""
        ends: Counter[int] = Counter()
        for path in self._files:
            if path.startswith(f"{TABLE_NAMES[TableId.LOG]}/"):
                found = pq.read_table(
                    self._run.sealed / path, columns=["stream", "position"], partitioning=None
                )
                last = found.group_by("stream").aggregate([("position", "max")])
                for stream, position in zip(*last.to_pydict().values(), strict=True):
                    ends |= Counter({stream: position + 1})
        return dict(ends)

    def _finished(self, segments: list[Segment]) -> list[Segment]:
        """Return the segments that can be sealed now without a change of order: no earlier one of
        their worker, table and owner is left.
        """
        before_ns = time.monotonic_ns() - int(SECOND_ANSWER_S * 1e9)
        chosen: list[Segment] = []
        # How transactions ended is decided for the whole log, at the end.
        is_told_later = any(producer.transactions for producer in self._plan.producers)
        tables = [table for table in BUCKETED if not (table is TableId.LOG and is_told_later)]
        following = Counter({key_of(segment): self._before.taken(segment) for segment in segments})
        for segment in segments:
            is_next = segment.table in tables and segment.index == following[key_of(segment)]
            if is_next and is_finished(segment, before_ns):
                chosen.append(segment)
                following[key_of(segment)] += 1
        return chosen

    def _segments(self, damage: Counts) -> list[Segment]:
        """Return the segments whose rows are in no part; what a kill left of the others is
        removed."""
        found = []
        for segment in find_segments(self._run, self._plan.run_tag, damage, self._before.taken):
            if segment.table in BUCKETED and segment.index < self._before.taken(segment):
                remove_segment(segment)
            else:
                found.append(segment)
        return found

    def do_share(self, threads: int) -> ShareReport:
        """Seal what this machine captured, as a part of a run that is on another machine."""
        segments = self._segments(self._damage)
        self._read_names()
        tables = self._seal_tables(segments, threads)
        return ShareReport(
            tables=tables,
            workers=self._worker_reports(segments),
            files=dict(sorted(self._files.items())),
            transactions=self._journalled(segments),
            names=self._names.new_rows(),
        )

    def _read_names(self) -> None:
        folders = worker_folders(self._run)
        self._worker_names = {f.name: read_worker_names(f, self._names) for f in folders}

    def _seal_tables(self, segments: list[Segment], threads: int) -> dict[str, TableReport]:
        total_bytes = sum(segment.bytes for segment in segments)
        router = Router(self._plan, self._names.extra_streams())
        table_bytes = Counter({table: 0 for table in TableId})
        for segment in segments:
            table_bytes[segment.table] += segment.bytes
        memory = BufferPool(router.buckets, max(table_bytes.values()))
        tables: dict[str, TableReport] = {}
        with ThreadPoolExecutor(threads, thread_name_prefix="seal") as pool:
            pipelines = self._pipelines(segments)
            for table in BUCKETED:
                mine = [s for s in segments if s.table is table]
                held = self._log_transactions() if table is TableId.LOG else None
                sealer = TableSealer(
                    table,
                    self._run,
                    router=router,
                    pool=pool,
                    memory=memory,
                    run_tag=self._plan.run_tag,
                    transactions=held,
                    pipelines=pipelines,
                    clocks=self._clocks,
                    part=self._share.part or self._before.next_part,
                    ordinals=self._ordinals,
                )
                tables[TABLE_NAMES[table]] = self._seal_table(sealer, mine, total_bytes)
        return tables

    def _seal_table(
        self, sealer: TableSealer, segments: list[Segment], total_bytes: int
    ) -> TableReport:
        sources: dict[tuple[str, int, int], RowSource] = {}
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
        self._files |= {
            path.relative_to(self._run.sealed).as_posix(): file for path, file in files.items()
        }
        return TableReport(
            rows=sealer.rows, files=len(files), bytes=sum(f.bytes for f in files.values())
        )

    def _log_transactions(self) -> LogTransactions | None:
        """Return the transactions of the log; None if no client used transactions, or if readers
        see only committed rows.
        """
        is_told = not SYSTEMS[self._plan.system].reads_uncommitted
        if is_told or not any(producer.transactions for producer in self._plan.producers):
            return None
        return LogTransactions(self._in_log, lambda stream: self._names.add("stream", stream))

    def _pipelines(self, segments: list[Segment]) -> Pipelines:
        """Instances that sent for pipelines, later lives included; on other machines by the
        manifest."""
        members = {member.name for member in self._plan.pipelines}
        sends = (segment for segment in segments if segment.table is TableId.SENDS)
        own = [s.owner for s in sends if s.worker.partition(".")[0] in members]
        own += self._before.pipelines
        if members and self._run.manifest.exists():
            told = read_document(self._run.manifest, Manifest).workers
            own += [
                w.instance
                for w in told
                if w.instance is not None and (w.life_of or w.name) in members
            ]
        flags = np.zeros(max(own, default=-1) + 2, np.bool_)
        flags[own] = True
        return flags

    def _journalled(self, segments: list[Segment]) -> list[TransactionRow]:
        """The transactions of all producers."""
        return [
            row
            for segment in segments
            if segment.table is TableId.TRANSACTIONS
            for rows in whole_rows(segment, self._damage[segment.worker])
            for row in sealed_transactions(rows, self._source(segment))
        ]

    def _source(self, segment: Segment) -> RowSource:
        names = self._worker_names[segment.worker]
        local = np.array([segment.subscription], np.int32)
        return RowSource(segment.owner, int(names.to_global(local)[0]), names, self._share.clock)

    def _documents(
        self, segments: list[Segment], others: list[ShareReport]
    ) -> Iterator[tuple[Path, Sequence[SmallRow]]]:
        """The small files; names last, as the others add to them."""
        yield self._run.log_bounds, self._log_bounds()
        told = [row for share in others for row in share.transactions]
        if transactions := [*self._journalled(segments), *told]:
            yield self._run.transactions, transactions
        run = self._run
        if run.raw_leaderships.exists():
            yield run.leaderships, self._of_streams(read_rows(run.raw_leaderships, Leadership))
        if run.raw_committed_offsets.exists():
            yield (
                run.committed_offsets,
                self._of_streams(read_rows(run.raw_committed_offsets, CommittedOffset)),
            )
        if run.raw_replicas.exists():
            yield run.replicas, self._of_streams(read_rows(run.raw_replicas, ReplicaRow))
        yield (
            self._run.names,
            [*self._names.rows(), *(row for share in others for row in share.names)],
        )

    def _of_streams(self, rows: Iterable[OfStream]) -> list[OfStream]:
        """Return rows with the global id of their stream."""
        return [replace(row, stream_id=self._names.add("stream", row.stream)) for row in rows]

    def _log_bounds(self) -> list[Bounds]:
        """All audits' bounds, each with its stream as the capture calls it, the reader that wrote
        it down, and what was seen of its transactions."""
        seen = {self._names.stream(one.stream): one for one in self._in_log}
        rows = [
            replace(row, stream=self._names.stream(row.stream), reader=folder.name)
            for folder in worker_folders(self._run)
            for row in read_rows(folder / self._run.log_bounds.name, Bounds)
        ]
        return self._of_streams(_with_hidden(_with_seen(row, seen.get(row.stream))) for row in rows)

    def _worker_reports(
        self, segments: list[Segment], *, own: bool = False
    ) -> dict[str, WorkerReport]:
        """``own``: of this part alone."""
        before = SealedSoFar() if own else self._before
        return {
            f.name: self._worker_report(f.name, segments, before.worker(f.name))
            for f in worker_folders(self._run)
        }

    def _worker_report(
        self, worker: str, segments: list[Segment], before: WorkerReport
    ) -> WorkerReport:
        damage = +self._damage[worker]
        damage.update(before.damage)
        if unknown := self._worker_names[worker].unknown:
            damage[Damage.UNKNOWN_NAMES] = len(unknown)
        return WorkerReport(
            segments=sum(s.worker == worker for s in segments) + before.segments,
            rows=dict(Counter(self._rows.get(worker, {})) + Counter(before.rows)),
            damage={str(kind): count for kind, count in sorted(damage.items())},
        )


def _with_seen(row: Bounds, seen: StreamTransactions | None) -> Bounds:
    if seen is None:
        return row
    return replace(
        row,
        stable=seen.stable,
        marked=seen.read_to,
        disagree=seen.disagree,
        stale=tuple(seen.stale),
        log_end=seen.log_end,
    )


def _with_hidden(row: Bounds) -> Bounds:
    """Where readers are given committed data only, a stream was read when the rest of it was
    reported."""
    if row.isolation != "read_committed" or row.marked >= max(row.log_end, 0):
        return row
    return replace(row, end=max(row.end, row.read_to + 1), why="transactions")


def _lost_shares(run: RunDir) -> list[ShareReport]:
    """Return the reports on workers of other machines, for a run whose command was killed before it
    was sealed.
    """
    if not run.manifest.exists():
        return []
    away = {
        name for each in read_document(run.manifest, Manifest).executors for name in each.clients
    }
    lost = [folder.name for folder in worker_folders(run) if folder.name.partition(".")[0] in away]
    return [ShareReport.missing(lost)] if lost else []


def _refuse_less(run: RunDir, raw_rows: Mapping[TableId, int], part: int) -> None:
    """Refuse to seal less than an earlier part holds. An interrupted sealing left a part of the raw
    segments' rows; if it holds more than they do, raw segments are missing.

    Events without a stream are in every bucket and left out of the count.

    Raises:
        UsageError: sealing again would leave less than there is.
    """
    for table, name in TABLE_NAMES.items():
        files = run.sealed.glob(f"{name}/bucket=*/part-{part}.parquet")
        sealed = sum(_rows_with_a_stream(path) for path in files)
        if sealed > raw_rows[table]:
            raise UsageError(
                f"{run.seal_report} is missing, and {run.sealed} holds {sealed:,} rows of {name}, but "
                f"{run.raw} only {raw_rows[table]:,}: sealing again would destroy the capture",
                hint="bring seal.json back from a copy; nothing was changed",
            )


def _no_capture(run: RunDir) -> UsageError:
    if run.result.exists():
        return UsageError(
            f"{run.root} was judged, and its captured data was removed since, by `keep` of a suite",
            hint=f"`brokerstorm show {run.root}` shows its verdict; docs/howto/run-in-ci.md has `keep`",
        )
    return UsageError(
        f"{run.root} holds no capture: it has neither raw/ nor sealed/seal.json",
        hint="`brokerstorm list runs` shows the runs that can be analysed",
    )


def _rows_with_a_stream(path: Path) -> int:
    try:
        stream = pq.read_table(path, columns=["stream"]).column(0)
    except (OSError, pa.ArrowException):
        return 0
    return int(np.count_nonzero(stream.to_numpy()))


def _remove_unfinished(run: RunDir, part: int) -> None:
    """Remove the output of an interrupted sealing. The raw segments still exist."""
    for path in run.sealed.glob(f"*/bucket=*/part-{part}.parquet*"):
        if path.name.endswith((PART_SUFFIX, ".parquet")):
            path.unlink()


@contextmanager
def _disk_errors(run: RunDir) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in NO_SPACE:
            raise EnvironmentNotReady(
                f"no space left on the disk of {run.sealed} while sealing the capture",
                hint=f"free some space, then `brokerstorm analyze {run.root}` seals it from raw/",
            ) from error
        raise UsageError(f"cannot seal {run.root}: {error}") from error
