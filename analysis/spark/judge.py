"""Judges a sealed run: one Spark task per bucket, merged on the driver.

Without a session, this process judges one bucket after the other, by the same kernels: a small run
takes less time so.

Nothing is shuffled: sealing has put everything one task needs into one bucket. So the job is one of
plain Python partitions: planning and compiling a query would take longer than all else Spark does
here. Streams with rows in several buckets (messages in the wrong partition) get a second, small
pass (`analysis.kernels.across`). An exception in a task becomes a line in ``reasons`` and the
verdict *unknown*; it can never turn into a pass.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.capture.capture import Capture
from analysis.capture.context import Context
from analysis.capture.context_files import load_context
from analysis.findings import Result
from analysis.kernels import atomicity, deaths, replicas, unsent
from analysis.kernels.across import SplitStreams, splits_of
from analysis.kernels.bucket_report import BucketReport
from analysis.report.documents import result_of_document, write_result
from analysis.series import Grid
from analysis.spark.lost import ends_without_executors
from analysis.spark.session import WarmSession, is_local, spark_reason
from analysis.spark.task import SECOND_PASS, Task, judge_numbers, judge_units
from analysis.verdict.hits_file import write_hits
from analysis.verdict.left_out import beside_what_was_judged
from analysis.verdict.result import RunFiles, grid_of, result_of, trusted
from harness.contracts import read_document, read_rows
from harness.contracts.plan import Plan
from harness.contracts.rows import Bounds, EventRow, Manifest, MetricRow
from harness.faultlog import read_faults
from harness.memory import free_memory_mb, judging_mb
from harness.rundir import RunDir, reading

if TYPE_CHECKING:
    from pyspark import SparkContext


def judge(
    run: RunDir,
    session: SparkContext | None,
    *,
    root_uri: str | None = None,
    hits: Path | None = None,
    stopped: Callable[[], None] = lambda: None,
) -> Result:
    """Judge a sealed run and write result.json.

    Args:
        session: runs the tasks; None = this process judges one bucket after the other.
        root_uri: where executors find the run's ``sealed`` folder, any URI that pyarrow.fs knows;
            None = the run folder, which they must then be able to read.
        hits: a Parquet file for every hit (`analysis.verdict.hits_file`); None = witnesses only.
        stopped: raises if a signal came, which ends a job without a word of its own; nothing is
            written then.

    Raises:
        UsageError: plan, manifest or all sealed tables are missing or cannot be read. (A sealed
            file that is missing or was changed is not an error: what rests on it is unknown.)
    """
    began = time.monotonic()
    answers = judge_units if session is None else partial(run_tasks, session, stopped)
    judged = judged_buckets(run, answers, root_uri=root_uri, with_hits=hits is not None)
    result = judged.result(time.monotonic() - began)
    write_result(run, result)
    if hits is not None:
        partials = (report.partial for report in trusted(judged.reports, judged.capture))
        write_hits(
            hits, (each for partial in partials if partial for each in partial.hits), judged.context
        )
    return result


@dataclass(frozen=True, slots=True)
class JudgedBuckets:
    """The reports of every bucket of a run, and of its split streams, before they are put
    together."""

    run: RunDir
    files: RunFiles
    context: Context
    capture: Capture
    grid: Grid
    reports: list[BucketReport]
    splits: list[SplitStreams]

    def result(self, judging_s: float) -> Result:
        """The result of the run. What a bundle leaves out stays as it was judged before.

        Raises:
            UsageError: a document of the run is damaged.
        """
        with reading(self.run):
            made = result_of(
                self.files, self.context, self.capture, self.grid, self.reports, judging_s
            )
        if not (left_out := self.capture.left_out):
            return made
        return beside_what_was_judged(made, result_of_document(left_out.before, self.run.left_out))


def judged_buckets(
    run: RunDir,
    answers: Callable[[Task], list[BucketReport]],
    *,
    root_uri: str | None = None,
    with_hits: bool = False,
) -> JudgedBuckets:
    """Judge the buckets of a sealed run, then its split streams; ``answers``: judges the units of a
    task.

    Raises:
        UsageError: as `judge`.
    """
    context = load_context(run)
    files = read_files(run)
    capture = Capture.find(run, root_uri)
    left_out = capture.left_out
    with reading(run):
        grid = grid_of(files, context)
    order = tuple(bucket for bucket in capture.buckets() if bucket not in left_out.buckets)
    task = Task(
        capture.root_uri, order, context, grid, capture.checksums, with_hits, capture.largest()
    )
    split: list[SplitStreams] = []
    with reading(run):
        changed = [*capture.changed_documents(run), *files.missing_faults()]
    if changed:
        reports = [BucketReport(SECOND_PASS, damage=tuple(changed))]
    else:
        reports = [
            BucketReport(deaths.WHOLE_RUN, deaths.judge(context, with_hits=task.with_hits)),
            BucketReport(deaths.WHOLE_RUN, replicas.judge(context, with_hits=task.with_hits)),
            BucketReport(deaths.WHOLE_RUN, unsent.judge(context, with_hits=task.with_hits)),
            *answers(task),
            *(BucketReport(bucket, damage=(left_out.text,)) for bucket in sorted(left_out.buckets)),
        ]
        damaged = {report.bucket for report in reports if report.damage}
        splits = splits_of([report.streams for report in reports if report.streams])
        split = [each for each in splits if damaged.isdisjoint((each.home, *each.unread))]
    if split:
        reports += answers(replace(task, order=tuple(split)))
    parts = [report.partial.atoms for report in reports if report.partial and report.partial.atoms]
    is_whole = not any(report.error or report.damage for report in reports)
    whole = atomicity.judge(context, parts, is_whole=is_whole, with_hits=task.with_hits)
    reports.append(BucketReport(atomicity.WHOLE_RUN, whole))
    return JudgedBuckets(run, files, context, capture, grid, reports, split)


def read_files(run: RunDir) -> RunFiles:
    """The small files of a run.

    Raises:
        UsageError: one is missing or is not JSON.
    """
    return RunFiles(
        manifest=read_document(run.manifest, Manifest),
        plan=read_document(run.plan, Plan),
        bounds=read_rows(run.log_bounds, Bounds),
        faults=read_faults(run.faults),
        metrics=read_rows(run.metrics, MetricRow),
        events=read_rows(run.events, EventRow),
    )


def run_tasks(session: SparkContext, stopped: Callable[[], None], task: Task) -> list[BucketReport]:
    """One report a unit of the task's order. A job that Spark gives up is one report with its
    error."""
    count = len(task.order)
    if not count:
        return []
    try:
        at_once = min(count, _at_once(session, task))
        in_turn = [number for first in range(at_once) for number in range(first, count, at_once)]
        numbers = session.parallelize(in_turn, at_once)
        with ends_without_executors(session):
            answers = numbers.mapPartitions(partial(judge_numbers, task)).collect()
    except Exception as error:  # noqa: BLE001 - a worker that died takes the job with it: unknown
        stopped()  # the gateway makes an error of its own of what a signal raises in it
        return [BucketReport(SECOND_PASS, error=f"the Spark job failed: {spark_reason(error)}")]
    return [pickle.loads(answer) for answer in answers]


def _at_once(session: SparkContext, task: Task) -> int:
    """How many tasks may begin: all, or as many as this machine has memory for. What executors
    elsewhere have is not known."""
    if not is_local(session.master) or not task.largest:
        return len(task.order)
    fit = free_memory_mb() // judging_mb(task.largest)
    return len(task.order) if fit >= session.defaultParallelism else max(fit, 1)


def analyze(run: RunDir, master: str | None = None) -> Result:
    """Open a session on ``master`` (None = this machine), judge, close.

    Raises:
        EnvironmentNotReady: Spark cannot start.
        UsageError: the run cannot be read.
    """
    with WarmSession(master) as warm:
        return judge(run, warm.get())
