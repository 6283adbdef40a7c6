"""The code that runs on an executor: a bucket in, one report out.

A task reads its bucket's Parquet files as Arrow, hands NumPy arrays to the kernels and returns a
pickled `BucketReport`. This module and all it imports need nothing but the standard library, NumPy
and PyArrow.
"""

from __future__ import annotations

import pickle
import time
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from analysis.capture.bucket import load_bucket
from analysis.capture.capture import damaged_files
from analysis.capture.context import Context
from analysis.kernels.across import SplitStreams, judge_split, stream_rows
from analysis.kernels.bucket_report import BucketReport
from analysis.kernels.classify import classify
from analysis.kernels.contradictions import as_far_as_certain, contradictions
from analysis.kernels.exposure import Calls
from analysis.kernels.partial import Partial
from analysis.series import NEEDED, Grid, series_of
from harness.records import SEALED

SECOND_PASS = -1  # in the place of a bucket's number


@dataclass(frozen=True, slots=True)
class Task:
    """The data that every task needs; it is pickled once and sent with the task."""

    root_uri: str
    # buckets, largest first; or, in the second pass, split streams
    order: tuple[int | SplitStreams, ...]
    context: Context
    grid: Grid
    # of the sealed files, as in `Capture`
    checksums: Mapping[str, str] = field(default_factory=dict)
    with_hits: bool = False  # list every hit, not only witnesses
    largest: int = 0  # rows of the largest bucket, 0 unknown


def judge_numbers(task: Task, numbers: Iterator[int]) -> Iterator[bytes]:
    """Judge the i-th unit of the order for each number i; a pickled report each."""
    for number in numbers:
        yield pickle.dumps(_judge_unit(task, task.order[number]))


def judge_units(task: Task) -> list[BucketReport]:
    """Every unit of the order, one after the other in this process."""
    return [_judge_unit(task, unit) for unit in task.order]


def _judge_unit(task: Task, unit: int | SplitStreams) -> BucketReport:
    return _judge_split(task, unit) if isinstance(unit, SplitStreams) else judge_bucket(task, unit)


def judge_bucket(task: Task, number: int) -> BucketReport:
    """Judge one bucket. An error is part of the answer, so that other buckets are still judged."""
    began = time.monotonic()
    try:
        if damage := damaged_files(task.root_uri, number, task.checksums):
            return BucketReport(number, damage=tuple(damage))
        bucket = load_bucket(task.root_uri, number, task.context)
        rows = {table: getattr(bucket, table).rows_read for table in SEALED}
        streams = stream_rows(bucket)
        lanes, piped = task.context.lane_streams(), task.context.piped_lanes()
        calls = Calls(task.context)
        sends = calls.watching(bucket.sends.in_turn(*{*NEEDED, *Calls.NEEDED}))
        series = series_of(sends, bucket.deliveries, task.grid, lanes, piped)
        told = contradictions(bucket)
        judged = classify(as_far_as_certain(bucket), calls, with_hits=task.with_hits)
    except Exception as error:  # noqa: BLE001 - the wall of a kernel: its failure is an unknown
        return BucketReport(number, error=f"bucket {number}: {summary(error)}")
    took_s = time.monotonic() - began
    return BucketReport(number, judged, series, rows, took_s, streams=streams, contradictions=told)


def _judge_split(task: Task, split: SplitStreams) -> BucketReport:
    try:
        found = judge_split(task.root_uri, split, task.context, every_hit=task.with_hits)
    except Exception as error:  # noqa: BLE001 - as above
        names = ", ".join(map(task.context.stream_name, split.streams[:3]))
        more = f" and {len(split.streams) - 3} more" if len(split.streams) > 3 else ""
        return BucketReport(SECOND_PASS, error=f"{names}{more} as a whole: {summary(error)}")
    judged = Partial(bucket=SECOND_PASS, episodes=found.episodes, hits=tuple(found.hits))
    return BucketReport(SECOND_PASS, judged, contradictions=tuple(found.contradictions))


def summary(error: BaseException) -> str:
    """One line: type, message, and where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:300]}{where}"
