"""Makes a sealed run of an import: validate all, then write; a wrong import leaves no files.

    sends.csv ... import.yaml  -->  spool of rows  -->  sealed/<table>/bucket=NN/part-0.parquet

The files are read once, in pieces. What is checked is kept in a spool next to the run, for only
after the last row it is known which lanes share a stream and so a bucket. From then on an import is
a run like any other.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from harness.contracts.rows import Bounds
from harness.contracts.seal import SealedFile, SealReport, TableReport
from harness.errors import NO_SPACE, EnvironmentNotReady, UsageError
from harness.importing.buckets import EVERY, BucketFiles, refuse_two_messages, refuse_two_sends
from harness.importing.facts import ImportFacts, Routing, routing_of
from harness.importing.plan import fault_rows, make_manifest, make_plan
from harness.importing.rows import Range, Read, Rows, TableReader, ranges_of
from harness.importing.source import HINT, ImportSource
from harness.importing.values import ImportedNames
from harness.records import SEALED, Check, Column, Event
from harness.rundir import RunDir, new_run, point_latest, write_json, write_jsonl
from harness.seal.parquet import arrow_schema
from harness.seal.seal import sealed_documents, write_sealed_rows
from harness.systems import system_of

#: Several a core, so that cores stay busy to the end; more only costs files.
BUCKETS: Final = 16
_SPOOL_PREFIX: Final = ".import-"


class CheckedImport:
    """An import whose every row is valid, in a spool on disk. `write` makes a run of it."""

    def __init__(self, source: ImportSource, spool: Path) -> None:
        self._source = source
        self._spool = spool
        self._names = ImportedNames(source.description.streams())
        self._ranges = ranges_of(source, self._names)
        self._facts = ImportFacts(source, self._ranges)
        for table in SEALED:
            self._check(table)
        self._facts.finish()
        groups = {self._names.text(s.subscription) for s in self._facts.sessions.values()}
        _require_consistent(source, self._facts, groups)

    def write(self, run: RunDir, *, buckets: int = BUCKETS) -> None:
        """Fill ``run``, an empty folder.

        Raises:
            UsageError: a message has two rows in sends, or a lane's topic is not known.
            EnvironmentNotReady: the disk is full.
        """
        began, cpu = time.monotonic(), time.process_time()
        said, facts = self._source.description, self._facts
        routing = routing_of(self._source, facts, buckets)
        plan = make_plan(said, facts, routing, self._names)
        has_consumers = bool(self._source.files["deliveries"])
        run.create()
        files: dict[str, SealedFile] = {}
        tables = {}
        for table in SEALED:
            written = self._seal(run, table, routing)
            tables[table] = TableReport(
                rows=facts.rows[table],
                files=len(written),
                bytes=sum(f.bytes for f in written.values()),
            )
            files |= {
                path.relative_to(run.sealed).as_posix(): file for path, file in written.items()
            }
        files[run.names.name] = write_sealed_rows(run.names, map(asdict, self._names.rows()))
        files[run.log_bounds.name] = write_sealed_rows(run.log_bounds, map(asdict, self._bounds()))
        run.plan.write_text(plan.model_dump_json(indent=1) + "\n")
        manifest = make_manifest(run.run_id, self._source.uri, said, plan, facts, has_consumers)
        write_json(run.manifest, asdict(manifest))
        write_jsonl(run.faults, map(asdict, fault_rows(said)))
        for path in (run.events, run.metrics):
            write_jsonl(path, ())
        report = SealReport(
            rows=dict(facts.rows),
            tables=tables,
            workers={},
            files=dict(sorted(files.items())),
            documents=sealed_documents(run),
            wall_s=round(time.monotonic() - began, 4),
            cpu_s=round(time.process_time() - cpu, 4),
        )
        write_json(run.seal_report, asdict(report) | {"imported": self._source.uri})

    # -- checking

    def _check(self, table: str) -> None:
        """Read the files of a table into the spool."""
        reader = TableReader(self._source, table, self._names)
        schema = arrow_schema(SEALED[table])
        with (
            pa.OSFile(str(self._spool / table), "wb") as sink,
            pa.ipc.new_file(sink, schema) as writer,
        ):
            for read in reader.read():
                self._facts.add(table, read)
                writer.write_batch(_sealed_batch(read, table, schema))
        self._facts.has_columns(table, reader.present or frozenset())

    def _bounds(self) -> list[Bounds]:
        names = self._source.description.streams()
        remaining = system_of(self._source.description.system).is_queue
        return [
            self._bound(names[stream - 1], stream, found, remaining)
            for stream, found in self._ranges.items()
        ]

    def _bound(self, name: str, stream: int, found: Range, remaining: bool) -> Bounds:
        why = "end" if found.read_to == found.end else "not read to the end"
        isolation = "remaining" if remaining else ""
        return Bounds(
            **asdict(found),
            why=why,
            isolation=isolation,
            stream=name,
            stream_id=stream,
            reader="import",
        )

    # -- writing

    def _seal(self, run: RunDir, table: str, routing: Routing) -> dict[Path, SealedFile]:
        """The bucket files of a table."""
        buckets = BucketFiles(
            table, routing.buckets, lambda number: run.bucket_file(table, number, 0)
        )
        place = _Places(table, routing)
        try:
            with (
                pa.memory_map(str(self._spool / table)) as source,
                pa.ipc.open_file(source) as reader,
            ):
                for index in range(reader.num_record_batches):
                    batch = reader.get_batch(index)
                    columns = {
                        n: c.to_numpy()
                        for n, c in zip(batch.schema.names, batch.columns, strict=True)
                    }
                    buckets.add(columns, place.places_of(columns))
            files = buckets.commit()
        except BaseException:
            buckets.abort()
            raise
        said = self._source.description
        for path in files:
            if table == "sends":
                refuse_two_sends(path)
            elif table == "log" and not system_of(said.system).is_queue:
                refuse_two_messages(path, said.streams())
        return files


def import_run(source: ImportSource, runs: Path, *, buckets: int = BUCKETS) -> RunDir:
    """Validate an import and make a new, sealed run of it in ``runs``.

    Args:
        buckets: tasks to judge it with, at most.

    Raises:
        UsageError: anything that is not as docs/reference/import.md has it; nothing is left in
            ``runs``.
        EnvironmentNotReady: the disk is full.
    """
    is_new = not runs.exists()
    with _disk_errors(runs):
        runs.mkdir(parents=True, exist_ok=True)
        try:
            with tempfile.TemporaryDirectory(prefix=_SPOOL_PREFIX, dir=runs) as spool:
                checked = CheckedImport(source, Path(spool))
                run = new_run(runs, "imported")
                try:
                    checked.write(run, buckets=buckets)
                except BaseException:
                    shutil.rmtree(run.root, ignore_errors=True)
                    raise
        except BaseException:
            if is_new:
                with contextlib.suppress(OSError):  # another run may have come into it
                    runs.rmdir()
            raise
    point_latest(run)
    return run


@contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in NO_SPACE:
            raise EnvironmentNotReady(
                f"no space left on the disk of {folder} for the import",
                hint="free some space, or name another folder with --run-dir",
            ) from error
        raise UsageError(f"cannot import into {folder}: {error}") from error


def _require_consistent(
    source: ImportSource, facts: ImportFacts, groups_seen: Collection[str]
) -> None:
    """import.yaml and the rows must fit.

    Raises:
        UsageError: they do not.
    """
    said, system = source.description, system_of(source.description.system)
    if system.is_queue and not source.files["deliveries"]:
        raise UsageError(
            "no deliveries: without them, messages lost from a queue cannot be found", hint=HINT
        )
    if said.groups and not source.files["deliveries"]:
        source.refuse(("groups",), "there are groups, but no deliveries")
    if source.files["deliveries"] and not said.groups:
        raise UsageError("there are deliveries, but import.yaml has no groups", hint=HINT)
    for name in said.groups:
        if name not in groups_seen:
            source.refuse(("groups", name), "no row of deliveries is of this group")
    _require_producers(source, facts)
    settled = set(Event) - {Event.DELIVER, Event.OUTPUT, Event.ASSIGN, Event.REVOKE, Event.SEEK}
    for name, group in said.groups.items():
        if system.is_queue and group.settle in ("ack", "transacted") and not facts.events & settled:
            source.refuse(
                ("groups", name, "settle"),
                f"{group.settle}, but no row of deliveries settles anything",
            )
    if said.stall and system.subscription == "group" and Event.ASSIGN not in facts.events:
        source.refuse(
            ("stall",), "needs assign events in deliveries: who held which partition when"
        )
    if not facts.first_due_ns:
        raise UsageError("sends holds probes only: there is nothing to judge")


def _require_producers(source: ImportSource, facts: ImportFacts) -> None:
    for number in sorted(set(source.description.producers.each) - facts.instances):
        source.refuse(("producers", "each", number), "no row of sends is of this instance")


def _sealed_batch(read: Read, table: str, schema: pa.Schema) -> pa.RecordBatch:
    columns = [_column(read.rows, column, read.batch.rows) for column in SEALED[table]]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _column(rows: Rows, column: Column, count: int) -> npt.NDArray[np.int64]:
    return rows[column.name] if column.name in rows else np.full(count, column.missing, np.int64)


class _Places:
    """Bucket of each row, by the rule of sealing: the message's lane, else the stream; -1 = every
    bucket."""

    def __init__(self, table: str, routing: Routing) -> None:
        self._table = table
        self._lanes = _lookup(routing.lanes)
        self._streams = _lookup(routing.streams)

    def places_of(self, columns: Rows) -> npt.NDArray[np.int64]:
        """Return the place of each row: its lane's, or its stream's if it has no name."""
        by_lane = _taken(self._lanes, columns["lane"])
        if self._table == "sends":
            return by_lane
        by_stream = _taken(self._streams, columns["stream"])
        named = columns["check"] == Check.OK
        if self._table == "log":
            return np.where(named, by_lane, by_stream)
        given = columns["event"] == Event.DELIVER
        everywhere = ~given & (columns["stream"] == 0)
        return np.where(everywhere, EVERY, np.where(named & given, by_lane, by_stream))


def _lookup(buckets: Mapping[int, int]) -> npt.NDArray[np.int64]:
    table = np.zeros(max(buckets, default=0) + 2, np.int64)  # the last one: unknown, in bucket 0
    for number, bucket in buckets.items():
        table[number] = bucket
    return table


def _taken(table: npt.NDArray[np.int64], numbers: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    return table[np.minimum(numbers.astype(np.int64), len(table) - 1)]
