"""A planted run judged in this process, without Spark."""

from __future__ import annotations

import pickle

import pyarrow as pa

from analysis.capture.capture import Capture
from analysis.capture.context_files import load_context
from analysis.findings import Result
from analysis.kernels import deaths
from analysis.kernels.bucket_report import BucketReport
from analysis.spark.judge import read_files
from analysis.spark.task import Task, judge_batches
from analysis.verdict.result import grid_of, result_of
from harness.rundir import RunDir


def task_of(run: RunDir) -> Task:
    """What each Spark task of a run is given."""
    context, capture = load_context(run), Capture.find(run)
    return Task(capture.root_uri, capture.buckets(), context, grid_of(read_files(run), context))


def judge_here(run: RunDir) -> Result:
    """What `analysis.spark.judge` makes of a run, its tasks one after the other."""
    task = task_of(run)
    numbers = pa.RecordBatch.from_pydict({"id": list(range(len(task.order)))})
    answers = [
        a for batch in judge_batches(task, iter([numbers])) for a in batch.column("report").to_pylist()
    ]
    whole = BucketReport(deaths.WHOLE_RUN, deaths.judge(task.context))
    reports = [whole, *(pickle.loads(answer) for answer in answers)]
    return result_of(read_files(run), task.context, Capture.find(run), task.grid, reports, 0.0)
