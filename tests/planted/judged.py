"""A planted run judged in this process, without Spark."""

from __future__ import annotations

import pickle
from dataclasses import replace

from analysis.capture.capture import Capture
from analysis.capture.context import Context
from analysis.capture.context_files import load_context
from analysis.findings import Result
from analysis.kernels import deaths, replicas, unsent
from analysis.kernels.across import splits_of
from analysis.kernels.bucket_report import BucketReport
from analysis.kernels.class_hits import ClassHits
from analysis.spark.judge import judged_buckets, read_files
from analysis.spark.task import Task, judge_numbers, judge_units
from analysis.verdict.result import grid_of
from harness.rundir import RunDir


def task_of(run: RunDir) -> Task:
    """What each Spark task of a run is given."""
    context, capture = load_context(run), Capture.find(run)
    return Task(capture.root_uri, capture.buckets(), context, grid_of(read_files(run), context))


def reports_of(task: Task) -> list[BucketReport]:
    """What is found in a run, its tasks one after the other, those of spread streams included."""
    once = [
        kernel.judge(task.context, with_hits=task.with_hits)
        for kernel in (deaths, replicas, unsent)
    ]
    reports = [*(BucketReport(each.bucket, each) for each in once), *_answers(task)]
    split = splits_of([report.streams for report in reports if report.streams])
    return [*reports, *_answers(replace(task, order=tuple(split)))]


def _answers(task: Task) -> list[BucketReport]:
    return [pickle.loads(answer) for answer in judge_numbers(task, iter(range(len(task.order))))]


def hits_here(run: RunDir) -> tuple[list[ClassHits], Context]:
    """Every hit of a run, and its context."""
    judged = judged_buckets(run, judge_units, with_hits=True)
    partials = [report.partial for report in judged.reports if report.partial]
    return [each for partial in partials for each in partial.hits], judged.context


def judge_here(run: RunDir) -> Result:
    """What `analysis.spark.judge` makes of a run."""
    return judged_buckets(run, judge_units).result(0.0)
