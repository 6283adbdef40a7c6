"""A planted run of any length, written as a stream: one run of minutes, again and again.

    truth = plant_repeated(tmp / "run", messages=1_000_000_000, tile=5_000_000, each=2)
    truth["acked-lost"]                 # 1_200: three kinds, two of each in each of 200 tiles

A *tile* is what `tests.planted.large` makes. Every further one is the same rows moved on in
sequence, place and time, so that clients, lanes and journals go on through all of the run. What
lies in a tile is found in each. Messages of the first tile that the log holds again behind the last
(``far``) need all of the run to be found. Rows of a bucket are made some at a time: memory is that
of a tile.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from harness.contracts import read_document, read_rows
from harness.contracts.plan import Plan
from harness.contracts.rows import Bounds, LaneGroup
from harness.contracts.seal import SealedFile
from harness.plan.buckets import with_buckets
from harness.records import SEALED, Check, Event, Kind
from harness.rundir import RunDir, read_jsonl, write_json
from harness.seal.seal import sealed_documents, write_sealed_rows
from tests.planted.emitting import DELIVERY_LAG_NS, EPOCH_NS
from tests.planted.large import plant, write_documents
from tests.planted.planters import ALL_KINDS
from tests.planted.writing import GroupedFile

Columns = dict[str, npt.NDArray[Any]]
Ints = npt.NDArray[np.int64]
_TIMES = ("t_intended_ns", "t_start_ns", "t_done_ns", "t_ns")
_ONCE = "client-died"  # of clients: they die at the end
_CHUNK_ROWS = 1 << 18
_FAR_SEQ = 3  # no planted kind touches it


def plant_repeated(
    root: Path,
    *,
    messages: int,
    tile: int = 5_000_000,
    each: int = 2,
    far: int = 10,
    producers: int = 200,
    topics: int = 100,
    partitions: int = 3,
    seed: int = 7,
    threads: int = 2,
) -> dict[str, int]:
    """Write a complete run of about ``messages`` sends below ``root``; messages by class to be
    found.

    Args:
        tile: sends of a tile; there are ``messages // tile``, at least one.
        each: anomalies of each kind in a tile.
        far: streams that hold a message of their first second again at the very end.
    """
    names = [f"orders-{t:03d}" for t in range(topics)] if topics > 1 else ["orders"]
    lanes = [LaneGroup(name, "partition", 0, partitions, []) for name in names]
    buckets, _ = with_buckets(lanes, messages)
    once = RunDir(root.with_name(f"{root.name}-tile"))
    truth = plant(
        once.root,
        messages=min(tile, messages),
        producers=producers,
        topics=topics,
        partitions=partitions,
        buckets=buckets,
        anomalies=dict.fromkeys(ALL_KINDS, each),
        deaths=2,
        seed=seed,
        threads=threads,
    )
    times = max(messages // tile, 1)
    made = _Repeated(once, RunDir(root).create(), times, far, truth.dead)
    made.write(threads)
    shutil.rmtree(once.root)
    counts = Counter(
        {name: n * (1 if name == _ONCE else times) for name, n in truth.counts().items()}
    )
    counts["write-duplicate"] += far
    return dict(counts)


@dataclass(frozen=True, slots=True)
class _Steps:
    """By how much a tile moves rows on, by stream, by session, and for all."""

    messages: int  # of a producer in a lane
    load_ns: int
    places: Ints  # by stream id: length of its log
    ordinals: Ints  # by session
    epochs: Ints  # by session

    def moved(self, table: str, rows: Columns, tile: Ints) -> Columns:
        """Rows in their tiles, ``tile`` being the number of each one's."""
        by = {"seq": tile * self.messages * _is_message(table, rows)}
        by["position"] = tile * self.places[rows["stream"]] * (rows["position"] >= 0)
        by |= {name: tile * self.load_ns * (rows[name] > 0) for name in _TIMES if name in rows}
        if table == "log":
            by["broker_time_ms"] = tile * (self.load_ns // 1_000_000)
        if table == "deliveries":
            by["ordinal"] = tile * self.ordinals[rows["session"]]
            by["epoch"] = tile * self.epochs[rows["session"]]
        return rows | {
            name: (rows[name] + more).astype(rows[name].dtype) for name, more in by.items()
        }


def _is_message(table: str, rows: Columns) -> npt.NDArray[np.bool_]:
    is_message: npt.NDArray[np.bool_] = rows["kind"] != Kind.PROBE
    if table == "log":
        is_message &= rows["check"] == Check.OK
    if table == "deliveries":
        is_message &= (rows["check"] == Check.OK) & (rows["event"] == Event.DELIVER)
    return is_message


class _Repeated:
    """The run that is made of a tile. ``far``: how many streams repeat an early message at their
    end."""

    def __init__(
        self, once: RunDir, run: RunDir, times: int, far: int, dead: Sequence[str]
    ) -> None:
        self._once, self._run, self._times, self._dead = once, run, times, dead
        self._plan = read_document(once.plan, Plan)
        self._bounds = read_rows(once.log_bounds, Bounds)
        self._far = [bounds.stream_id for bounds in self._bounds[:far]]
        self._steps = self._measured()

    def _measured(self) -> _Steps:
        width = len(self._plan.consumers) + 1
        ordinals, epochs, messages = np.zeros(width, np.int64), np.zeros(width, np.int64), 0
        for bucket in range(self._plan.buckets):
            messages = max(messages, int(self._rows("sends", bucket)["seq"].max(initial=-1)) + 1)
            given = self._rows("deliveries", bucket)
            np.maximum.at(ordinals, given["session"], given["ordinal"] + 1)
            np.maximum.at(epochs, given["session"], given["epoch"].astype(np.int64))
        places = np.zeros(len(self._bounds) + 1, np.int64)
        for bounds in self._bounds:
            places[bounds.stream_id] = bounds.end
        load_ns = round(self._plan.load_s * 1e9)
        return _Steps(messages, load_ns, places, ordinals, epochs)

    def _rows(self, table: str, bucket: int) -> Columns:
        read = pq.ParquetFile(self._once.bucket_file(table, bucket, 0)).read()
        return {c.name: read[c.name].to_numpy() for c in SEALED[table]}

    def write(self, threads: int) -> None:
        load_s = self._plan.load_s * self._times
        plan = self._plan.model_copy(update={"load_s": load_s})
        write_documents(self._run, plan, round(load_s * 1e9), self._dead)
        with ThreadPoolExecutor(threads) as pool:
            found = list(pool.map(self._bucket, range(plan.buckets)))
        files = {name: file for written in found for name, file in written.items()}
        rows = {
            t: sum(f.rows for name, f in files.items() if name.startswith(f"{t}/")) for t in SEALED
        }
        bounds = [asdict(self._moved_bounds(each)) for each in self._bounds]
        lines = ((self._run.names, read_jsonl(self._once.names)), (self._run.log_bounds, bounds))
        files |= {path.name: write_sealed_rows(path, told) for path, told in lines}
        report = {
            "schema_version": 1,
            "rows": rows,
            "tables": {},
            "workers": {},
            "wall_s": 0.0,
            "cpu_s": 0.0,
        }
        report["files"] = {name: asdict(file) for name, file in sorted(files.items())}
        report["documents"] = {n: asdict(file) for n, file in sealed_documents(self._run).items()}
        write_json(self._run.seal_report, report)

    def _moved_bounds(self, bounds: Bounds) -> Bounds:
        end = bounds.end * self._times + (bounds.stream_id in self._far)
        return replace(bounds, end=end, read_to=end)

    def _bucket(self, bucket: int) -> dict[str, SealedFile]:
        done = {}
        for table in SEALED:
            path = self._run.bucket_file(table, bucket, 0)
            file = GroupedFile(path, table)
            for rows in self._tiles(table, bucket):
                file.write(rows)
            done[path.relative_to(self._run.sealed).as_posix()] = file.commit()
        return {name: file for name, file in done.items() if file is not None}

    def _tiles(self, table: str, bucket: int) -> Iterator[Columns]:
        """All tiles of a bucket, some at a time; then what is far from where it was first."""
        once = self._rows(table, bucket)
        count = len(once["seq"])
        step = max(_CHUNK_ROWS // max(count, 1), 1)
        for first in range(0, self._times, step):
            numbers = np.arange(first, min(first + step, self._times))
            rows = {name: np.tile(column, len(numbers)) for name, column in once.items()}
            yield self._steps.moved(table, rows, np.repeat(numbers, count))
        if table != "sends" and (chosen := self._first_of_far(once)).size:
            yield self._again(table, once, chosen)

    def _first_of_far(self, once: Columns) -> npt.NDArray[np.intp]:
        """A row of each far stream: its first message of a sequence that is whole everywhere."""
        rows = np.flatnonzero(
            np.isin(once["stream"], self._far)
            & (once["seq"] == _FAR_SEQ)
            & (once["kind"] == Kind.LOAD)
        )
        return rows[np.unique(once["stream"][rows], return_index=True)[1]]

    def _again(self, table: str, once: Columns, chosen: npt.NDArray[np.intp]) -> Columns:
        rows = {name: column[chosen] for name, column in once.items()}
        stream = rows["stream"]
        rows["position"] = self._times * self._steps.places[stream]
        if table == "deliveries":
            session = np.array([self._last_session(once, number) for number in stream.tolist()])
            rows["session"] = session.astype(once["session"].dtype)
            # Sessions number their rows through: those of other streams get other numbers.
            place = np.searchsorted(self._far, stream)
            rows["ordinal"] = self._times * self._steps.ordinals[session] + place
            rows["epoch"] = (self._times * self._steps.epochs[session]).astype(once["epoch"].dtype)
            rows["t_ns"] = (
                EPOCH_NS + self._times * self._steps.load_ns + DELIVERY_LAG_NS + place + 1
            )
        return rows

    @staticmethod
    def _last_session(once: Columns, stream: int) -> int:
        """Who has a stream at the end of a tile."""
        rows = np.flatnonzero((once["stream"] == stream) & (once["event"] == Event.COMMIT))
        return int(once["session"][rows[np.argmax(once["t_ns"][rows])]])
