"""One table on its way into bucket files: rows are checked, routed, gathered and written in row
groups.

One thread routes (cheap: a lookup, a radix sort of a few thousand small numbers, a copy of rows),
the pool converts and encodes whole row groups, which is where the time goes. Memory is bounded by
`BUFFER_BYTES` whatever the size of the run, and used again and again: on virtual machines a fresh
page costs more than what is done with it.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from harness.contracts.seal import Damage, SealedFile
from harness.records import (
    FORMAT_VERSION,
    HEADER_BYTES,
    HEADER_MAGIC,
    RAW,
    TABLE_NAMES,
    Check,
    Event,
    TableId,
)
from harness.rundir import RunDir
from harness.seal.columns import (
    NO_PIPELINES,
    ONE_CLOCK,
    Clocks,
    ColumnMemory,
    Pipelines,
    RowGroup,
    Rows,
    RowSource,
    sealed_columns,
)
from harness.seal.parquet import ROW_GROUP_ROWS, BucketFile
from harness.seal.route import IntArray, Router
from harness.seal.transactions import LogTransactions

#: Raw rows held back for all buckets together.
BUFFER_BYTES: Final = 384 << 20
_GROUPS: Final = 4
#: Row groups that may wait for the pool; more would only cost memory.
_MAX_PENDING: Final = 3
_MIN_GROUP_BYTES: Final = 1 << 20
#: As NumPy scalars: an IntEnum would widen the column it is compared with to 64 bits.
_INTACT: Final = np.uint8(Check.OK)
_DELIVER, _OUTPUT = np.uint8(Event.DELIVER), np.uint8(Event.OUTPUT)
#: The first eight bytes of a header as one little-endian number: magic, version, kind, run tag.
_WORD: Final = np.dtype(
    {"names": ["word"], "formats": ["<u8"], "offsets": [0], "itemsize": HEADER_BYTES}
)
_ANY_KIND: Final = np.uint64(0xFFFF_FFFF_00FF_FFFF)
_ANY_KIND_OR_RUN: Final = np.uint64(0x0000_0000_00FF_FFFF)
_OURS: Final = int.from_bytes(HEADER_MAGIC + bytes([FORMAT_VERSION]), "little")


_NO_ORDINALS: Final = np.empty(0, np.int64)


class BufferPool:
    """Buffers that all tables of a sealing share; safe from several threads.

    ``table_bytes``: raw bytes of the largest table. A bucket gets about `_GROUPS` row groups, so
    that a small run does not touch memory that it uses once, and a large one has large row groups.
    """

    def __init__(self, buckets: int, table_bytes: int) -> None:
        most = ROW_GROUP_ROWS * max(dtype.itemsize for dtype in RAW.values())
        wanted = table_bytes // (_GROUPS * buckets)
        group_bytes = max(_MIN_GROUP_BYTES, min(most, BUFFER_BYTES // buckets, wanted))
        self._group_words = group_bytes // 8
        self._spare: list[npt.NDArray[np.int64]] = []
        self._columns = threading.local()

    def take(self) -> npt.NDArray[np.int64]:
        """Room for one row group."""
        try:
            return self._spare.pop()
        except IndexError:
            return np.empty(self._group_words, np.int64)

    def give_back(self, memory: npt.NDArray[np.int64]) -> None:
        """Take a buffer back for the next row group."""
        self._spare.append(memory)

    def columns(self) -> ColumnMemory:
        """The calling thread's columns."""
        if not hasattr(self._columns, "own"):
            self._columns.own = ColumnMemory()
        own: ColumnMemory = self._columns.own
        return own


class TableSealer:
    """Takes rows of one table in sealing order (`add`) and writes its bucket files (`finish`).

    Not thread-safe; it keeps ``pool`` busy itself. After an error call `abort`, which removes what
    is unfinished and waits for the pool's part of it.
    """

    def __init__(
        self,
        table: TableId,
        run: RunDir,
        *,
        router: Router,
        pool: Executor,
        memory: BufferPool,
        run_tag: int,
        transactions: LogTransactions | None = None,
        pipelines: Pipelines = NO_PIPELINES,
        clocks: Clocks = ONE_CLOCK,
        part: int = 0,
        ordinals: Counter[int] | None = None,
    ) -> None:
        """``transactions``: of the log, where its readers could not see them; None for every other
        table.

        ``pipelines``: whose rows of the log have a source. ``clocks``: of the producers of the
        log's rows that sent from other machines. ``part``: number of its files. ``ordinals``: by
        session, rows of its journal in the parts before; counted on.
        """
        self._clocks = clocks
        self._part = part
        self.table = table
        self._pipelines = pipelines
        self._transactions = transactions
        self.rows = 0
        self._run = run
        self._router = router
        self._pool = pool
        self._memory = memory
        self._expected = np.uint64(_OURS | run_tag << 32)
        self._open: dict[int, RowGroup] = {}
        self._files: dict[int, BucketFile] = {}
        self._last: dict[int, Future[None]] = {}
        self._pending: deque[Future[None]] = deque()
        self._ordinals: Counter[int] = Counter() if ordinals is None else ordinals

    def add(self, rows: Rows, source: RowSource, counts: Counter[str]) -> None:
        """Some thousand rows of one source, in its order; ``counts`` collects damage."""
        self.rows += len(rows)
        ordinals = self._next_ordinals(len(rows), source)
        if self.table is not TableId.SENDS:
            rows = self._with_true_check(rows, counts)
        buckets = self._buckets(rows, source)
        everywhere = self._everywhere(rows)
        if everywhere is not None:
            for bucket in range(self._router.buckets):
                chosen = np.flatnonzero((buckets == bucket) | everywhere)
                self._append(bucket, rows, chosen, ordinals, source)
            return
        order = np.argsort(buckets.astype(np.uint16), kind="stable")
        ends = np.cumsum(np.bincount(buckets, minlength=self._router.buckets))
        start = 0
        for bucket, end in enumerate(ends.tolist()):
            if end > start:
                self._append(bucket, rows, order[start:end], ordinals, source)
            start = end

    def finish(self) -> dict[Path, SealedFile]:
        """Write what is left and let the files appear."""
        for bucket in list(self._open):
            self._flush(bucket)
        self._wait(0)
        files = list(self._files.values())
        # mostly waiting for the disk, so side by side
        sealed = self._pool.map(BucketFile.commit, files)
        return dict(zip((file.path for file in files), sealed, strict=True))

    def abort(self) -> None:
        """Remove what is unfinished."""
        for future in self._pending:
            if not future.cancel():
                future.exception()  # wait for it; the first error is already on its way
        for file in self._files.values():
            file.abort()

    def _next_ordinals(self, count: int, source: RowSource) -> IntArray:
        """Numbers of the session's next rows; none for tables without them."""
        if self.table is not TableId.DELIVERIES:
            return _NO_ORDINALS
        first = self._ordinals[source.owner]
        self._ordinals[source.owner] += count
        return np.arange(first, first + count, dtype=np.int64)

    def _with_true_check(self, rows: Rows, counts: Counter[str]) -> Rows:
        """Rows marked ok must open with our header and this run's tag; the others get their true
        mark."""
        word, check = rows["header"].view(_WORD)["word"], rows["check"]
        wrong = (check == _INTACT) & ((word & _ANY_KIND) != self._expected)
        if self.table is TableId.DELIVERIES:
            wrong &= _has_message(rows)
        if not wrong.any():
            return rows
        ours = (word & _ANY_KIND_OR_RUN) == _OURS
        counts[Damage.BAD_HEADERS] += int(np.count_nonzero(wrong & ~ours))
        rows = rows.copy()
        rows["check"][wrong] = np.where(ours, Check.OTHER_RUN, Check.FOREIGN)[wrong]
        return rows

    def _buckets(self, rows: Rows, source: RowSource) -> IntArray:
        streams: npt.NDArray[np.int32] = rows["stream"]
        if not source.names.is_identity:
            streams = source.names.to_global(streams)
        if self.table is TableId.SENDS:
            return self._router.of_rows(rows["lane"], streams)
        buckets = self._router.of_rows(rows["header"]["lane"], streams)
        nameless = rows["check"] != _INTACT
        if self.table is TableId.DELIVERIES:
            nameless |= ~_has_message(rows)
        if nameless.any():
            buckets[nameless] = self._router.of_streams(streams[nameless])
        return buckets

    def _everywhere(self, rows: Rows) -> npt.NDArray[np.bool_] | None:
        """Events of a session that name no stream concern all of them: every bucket gets a copy."""
        if self.table is not TableId.DELIVERIES:
            return None
        streamless = ~_has_message(rows) & (rows["stream"] <= 0)
        return streamless if streamless.any() else None

    def _append(
        self,
        bucket: int,
        rows: Rows,
        chosen: npt.NDArray[np.intp],
        ordinals: IntArray,
        source: RowSource,
    ) -> None:
        words = rows.view(np.int64).reshape(len(rows), -1)
        while len(chosen):
            group = self._open.get(bucket)
            if group is None:
                group = self._open[bucket] = RowGroup(self.table, self._memory.take())
            count = min(len(chosen), group.room - group.used)
            now, chosen = chosen[:count], chosen[count:]
            into = slice(group.used, group.used + count)
            # mode="clip": "raise" makes NumPy gather into a buffer of its own first
            np.take(words, now, axis=0, out=group.words[into], mode="clip")
            if self.table is TableId.DELIVERIES:
                np.take(ordinals, now, out=group.ordinals[into], mode="clip")
            group.add_span(count, source)
            if group.used == group.room:
                self._flush(bucket)

    def _flush(self, bucket: int) -> None:
        group = self._open.pop(bucket)
        if bucket not in self._files:
            name = TABLE_NAMES[self.table]
            self._files[bucket] = BucketFile(self._run.bucket_file(name, bucket, self._part), name)
        future = self._pool.submit(self._write, group, self._files[bucket], self._last.get(bucket))
        self._last[bucket] = future
        self._pending.append(future)
        self._wait(_MAX_PENDING)

    def _write(self, group: RowGroup, file: BucketFile, before: Future[None] | None) -> None:
        columns = sealed_columns(group, self._memory.columns(), self._pipelines, self._clocks)
        if self._transactions is not None:
            self._transactions.fill(columns)
        self._memory.give_back(group.memory)
        if before is not None:
            # row groups of a file go out in order; it was submitted, so it runs or ran
            before.result()
        file.write(columns)

    def _wait(self, at_most: int) -> None:
        while len(self._pending) > at_most:
            self._pending.popleft().result()


def _has_message(rows: Rows) -> npt.NDArray[np.bool_]:
    """Rows of deliveries that name a message."""
    found: npt.NDArray[np.bool_] = (rows["kind"] == _DELIVER) | (rows["kind"] == _OUTPUT)
    return found
