"""Reads single rows of a sealed run: opens all files of one bucket, and filters while it reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from analysis.capture.capture import Capture, bucket_parts, damaged_files
from analysis.capture.context import Context
from analysis.capture.context_files import load_context
from analysis.capture.left_out import LeftOut
from analysis.findings import Result
from analysis.kernels.changes import LoggedRows
from analysis.report import words
from analysis.report.documents import read_result
from harness.contracts import read_document
from harness.contracts.message import MessageId
from harness.contracts.plan import Plan
from harness.contracts.rows import Manifest
from harness.errors import UsageError
from harness.faultlog import FaultRecord, read_faults
from harness.filesystems import filesystem_of
from harness.rundir import RunDir, reading

EXAMPLES = (
    "a message is INSTANCE/LANE/SEQ as in 1/3/88121, or a place TOPIC-PARTITION@OFFSET as in "
    "orders-3@41203, on Pulsar @LEDGER:ENTRY[:INDEX]"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedRow:
    """A row of any sealed table (docs/capture-format.md); columns that its table lacks are never
    read."""

    instance: int = 0
    lane: int = 0
    seq: int = 0
    attempt: int = 0
    kind: int = 0
    stream: int = 0
    position: int = -1
    ledger: int = -1
    batch: int = -1
    check: int = 0
    client_name: int = 0
    # of a send
    t_intended_ns: int = 0
    t_start_ns: int = 0
    t_done_ns: int = 0
    outcome: int = 0
    late_outcome: int = 0
    error: int = 0
    # of the log
    broker_time_ms: int = -1
    txn: int = 0
    source_partition: int = -1
    source_position: int = -1
    # of a session
    session: int = 0
    subscription: int = 0
    ordinal: int = 0
    event: int = 0
    t_ns: int = 0
    epoch: int = 0
    redelivery: int = 0

    @classmethod
    def from_row(cls, row: dict[str, int]) -> SealedRow:
        """Make a sealed row from a row as PyArrow reads it."""
        return cls(**{name: row[name] for name in cls.__slots__ if name in row})


class SealedTables:
    """The sealed tables of one run and what explains their numbers.

    Attributes:
        context: names, streams, sessions, bounds of the run.
        wall_ms: wall clock of the start of load, ms since 1970; None where the manifest does not
            say it.
        faults: the records of faults.jsonl.
        classes: message -> the classes of result.json that show it as a witness.

    Raises:
        UsageError: a document of the run is missing or damaged.
    """

    def __init__(self, run: RunDir) -> None:
        self.context: Context = load_context(run)
        with reading(run):
            self._lanes = read_document(run.plan, Plan).lane_groups
            if not all(lanes.buckets for lanes in self._lanes):
                raise ValueError("lanes without a bucket in plan.json")
            self.wall_ms = _wall_ms(read_document(run.manifest, Manifest))
            self.faults: list[FaultRecord] = read_faults(run.faults)
            self.classes = _classes(read_result(run)) if run.result.exists() else {}
            capture = Capture.find(run) if run.seal_report.exists() else None
            self._checksums = capture.checksums if capture else {}
            self._left_out = capture.left_out if capture else LeftOut()
            self._root = capture.root_uri if capture else str(run.root)
        self._run = run
        self._whole: set[int] = set()

    def read(self, table: str, bucket: int, where: pc.Expression) -> list[SealedRow]:
        """Rows of one bucket; a bucket without such a table has none.

        Raises:
            UsageError: a file of the bucket is damaged.
        """
        found = self._table(table, bucket, where)
        return [] if found is None else [SealedRow.from_row(row) for row in found.to_pylist()]

    def _table(
        self, table: str, bucket: int, where: pc.Expression, columns: list[str] | None = None
    ) -> pa.Table | None:
        self._require_whole(bucket)
        try:
            filesystem, root = filesystem_of(self._root)
            parts = bucket_parts(filesystem, root, table, bucket)
            if not parts:
                return None
            # partitioning=None: the folder's "bucket=NN" is not a column
            return pq.read_table(
                parts, filters=where, columns=columns, partitioning=None, filesystem=filesystem
            )
        except (pa.ArrowException, OSError) as error:
            folder = self._run.bucket_folder(table, bucket).relative_to(self._run.root)
            raise UsageError(
                f"cannot read {folder}: {words.plain(str(error))}",
                hint="`brokerstorm analyze` seals it again",
            ) from error

    def written(self, stream: int) -> LoggedRows:
        """Return the stream's rows in the log of its own bucket.

        Raises:
            UsageError: a file of the bucket is damaged.
        """
        bucket = self.buckets_of_stream(stream)[0]
        names = ["position", "t_intended_ns", "instance"]
        found = self._table("log", bucket, pc.field("stream") == stream, names)
        if found is None:
            return LoggedRows(*(np.empty(0, np.int64) for _ in names))
        columns = [found.column(name).to_numpy() for name in names]
        order = np.argsort(columns[0], kind="stable")
        return LoggedRows(*(column[order] for column in columns))

    def _require_whole(self, bucket: int) -> None:
        """Raise UsageError when a file of the bucket is not the one that was sealed; looked at
        once."""
        if bucket in self._whole:
            return
        if bucket in self._left_out.buckets:
            raise UsageError(
                f"these rows are not in the bundle: {self._left_out.text}",
                hint="who made it has them: `brokerstorm bundle RUN --max-size 200MB` takes more",
            )
        if damage := damaged_files(self._root, bucket, self._checksums):
            raise UsageError(
                f"the capture is damaged: {damage[0]}", hint="bring the file back from a copy"
            )
        self._whole.add(bucket)

    def read_first(
        self, table: str, buckets: Sequence[int], where: pc.Expression
    ) -> list[SealedRow]:
        """Rows of the first bucket that has any."""
        return next((rows for bucket in buckets if (rows := self.read(table, bucket, where))), [])

    def bucket_of_lane(self, lane: int) -> int:
        """Return the bucket that holds a lane's rows. Raises UsageError for an unknown lane."""
        for lanes in self._lanes:
            if lanes.first <= lane < lanes.first + lanes.count:
                return lanes.bucket(lane)
        last = max((lanes.first + lanes.count for lanes in self._lanes), default=0) - 1
        raise UsageError(f"this run has no lane {lane}: its lanes are 0..{last}", hint=EXAMPLES)

    def buckets_of_stream(self, stream: int) -> list[int]:
        """Where its rows should be, first; then everywhere, for rows that went astray."""
        topic, _, partition = self.context.stream_name(stream).rpartition("-")
        own = [
            lanes.buckets[int(partition) % len(lanes.buckets)]
            for lanes in self._lanes
            if lanes.topic == topic
        ]
        return list(dict.fromkeys([*own, *range(self.context.buckets)]))

    def stream_id(self, text: str) -> int:
        """Return the number of a stream. Raises UsageError for an unknown stream."""
        streams = self.context.streams
        if text in streams:
            return streams.index(text) + 1
        raise UsageError(
            f"this run has no stream {words.plain(text)!r}: it has "
            + (
                f"{streams[0]} .. {streams[-1]}"
                if len(streams) > 1
                else ", ".join(streams) or "none"
            ),
            hint=EXAMPLES,
        )


def _classes(result: Result) -> dict[MessageId, list[str]]:
    found: dict[MessageId, list[str]] = {}
    for finding in result.findings:
        named = (MessageId.parse(witness.message) for witness in finding.witnesses)
        for message in {name.whole for name in named if name}:
            found.setdefault(message, []).append(f"{finding.cls} ({finding.status})")
    return found


def _wall_ms(manifest: Manifest) -> float | None:
    try:
        return datetime.fromisoformat(manifest.epoch_wall).timestamp() * 1000
    except ValueError:
        return None
