"""Judges a sealed run: one Spark task per bucket, merged on the driver.

Nothing is shuffled: sealing has put everything one task needs into one bucket. Streams with rows in several
buckets (messages in the wrong partition) get a second, small pass (`analysis.kernels.across`). An exception
in a task becomes a line in ``reasons`` and the verdict *unknown*; it can never turn into a pass.
"""

from __future__ import annotations

import pickle
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.capture.capture import Capture
from analysis.capture.context_files import load_context
from analysis.findings import Result
from analysis.kernels import deaths
from analysis.kernels.across import splits_of
from analysis.kernels.bucket_report import BucketReport
from analysis.report.documents import write_result
from analysis.spark.session import WarmSession, spark_reason
from analysis.spark.task import SCHEMA, SECOND_PASS, Task, judge_batches
from analysis.verdict.hits_file import write_hits
from analysis.verdict.result import RunFiles, grid_of, result_of, trusted
from harness.faultlog import read_faults
from harness.rundir import RunDir, read_json, read_jsonl

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def judge(
    run: RunDir,
    session: SparkSession,
    *,
    root_uri: str | None = None,
    hits: Path | None = None,
) -> Result:
    """Judge a sealed run and write result.json.

    Args:
        root_uri: where executors find the run's ``sealed`` folder, any URI that pyarrow.fs knows; None =
            the run folder, which they must then be able to read.
        hits: a Parquet file for every hit (`analysis.verdict.hits_file`); None = witnesses only.

    Raises:
        UsageError: plan, manifest or all sealed tables are missing or cannot be read. (A sealed file that is
            missing or was changed is not an error: what rests on it is unknown.)
    """
    began = time.monotonic()
    context = load_context(run)
    files = read_files(run)
    capture = Capture.find(run, root_uri)
    grid = grid_of(files, context)
    task = Task(capture.root_uri, capture.buckets(), context, grid, capture.checksums, hits is not None)
    if changed := capture.changed_documents(run):
        reports = [BucketReport(SECOND_PASS, damage=tuple(changed))]
    else:
        reports = [
            BucketReport(deaths.WHOLE_RUN, deaths.judge(context, with_hits=task.with_hits)),
            *run_tasks(session, task),
        ]
    damaged = {report.bucket for report in reports if report.damage}
    splits = splits_of([report.streams for report in reports if report.streams])
    if split := [each for each in splits if damaged.isdisjoint((each.home, *each.unread))]:
        reports += run_tasks(session, replace(task, order=tuple(split)))
    result = result_of(files, context, capture, grid, reports, time.monotonic() - began)
    write_result(run, result)
    if hits is not None:
        partials = (report.partial for report in trusted(reports, capture))
        write_hits(hits, (each for partial in partials if partial for each in partial.hits), context)
    return result


def read_files(run: RunDir) -> RunFiles:
    """The small files of a run.

    Raises:
        UsageError: one is missing or is not JSON.
    """
    return RunFiles(
        manifest=read_json(run.manifest),
        plan=read_json(run.plan),
        bounds=read_jsonl(run.log_bounds),
        faults=read_faults(run.faults),
        metrics=read_jsonl(run.metrics),
        events=read_jsonl(run.events),
    )


def run_tasks(session: SparkSession, task: Task) -> list[BucketReport]:
    """One report a unit of the task's order. A job that Spark gives up is one report with its error."""
    count = len(task.order)
    if not count:
        return []
    try:
        frame = session.range(0, count, 1, count).mapInArrow(partial(judge_batches, task), SCHEMA)
        rows = frame.collect()
    except Exception as error:  # noqa: BLE001 - a worker that died takes the job with it: unknown
        return [BucketReport(SECOND_PASS, error=f"the Spark job failed: {spark_reason(error)}")]
    return [pickle.loads(row["report"]) for row in rows]


def analyze(run: RunDir, master: str | None = None) -> Result:
    """Open a session on ``master`` (None = this machine), judge, close.

    Raises:
        EnvironmentNotReady: Spark cannot start.
        UsageError: the run cannot be read.
    """
    with WarmSession(master) as warm:
        return judge(run, warm.get())
