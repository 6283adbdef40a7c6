"""Sealing of pipelines: the input of each output, and what their groups had committed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from analysis.capture.bucket import load_bucket
from analysis.capture.context import Context
from analysis.capture.context_files import load_context
from harness.contracts import read_document
from harness.contracts.plan import Plan
from harness.records import Check, TableId
from harness.rundir import RunDir, read_jsonl, write_jsonl
from harness.seal.seal import load_report, seal
from tests.planted.plans import build_plan, with_pipeline
from tests.planted.raw import raw_rows
from tests.planted.tiny_pipelines import committed, made, piped
from tests.unit.seal_rows import Columns, blank, log_columns, new_run, put


def logged(instance: int, position: int, **values: int) -> Columns:
    return log_columns(
        1, instance=instance, lane=1, stream=2, position=position, source_partition=3, **values
    )


def sealed_log(run: RunDir, plan: Plan) -> list[dict[str, Any]]:
    seal(run, plan)
    return pq.read_table(run.bucket_file("log", 0, 0)).to_pylist()


def test_the_input_of_an_output_is_read_from_its_header(tmp_path: Path) -> None:
    """Of members and their later lives; other producers have the same bytes for nothing."""
    run, plan = new_run(tmp_path / "run"), with_pipeline(build_plan(topics={"orders": 1}), 1)
    for worker, instance in (("p-1", 1), ("pipeline-billing-1", 2), ("pipeline-billing-1.2", 3)):
        put(
            run,
            worker,
            TableId.SENDS,
            instance,
            raw_rows(TableId.SENDS, blank("sends", 0)),
            capacity=1,
        )
    last = 2**32 - 1
    rows = [
        logged(1, 0, source_position=7),
        logged(2, 1, source_position=8),
        logged(3, 2, source_position=last),
        logged(2, 3, source_position=9, check=Check.CORRUPT),
        logged(70_000, 4, source_position=9),
    ]
    for index, columns in enumerate(rows):
        put(run, "audit-1", TableId.LOG, 1, raw_rows(TableId.LOG, columns), index=index)
    found = sealed_log(run, plan)
    sources = [(row["instance"], row["source_partition"], row["source_position"]) for row in found]
    assert sources == [(1, 0, -1), (2, 3, 8), (3, 3, last), (0, 0, -1), (70_000, 0, -1)]
    assert load_report(run).damage("audit-1") == {}, "no byte of a header is damage"


def test_what_groups_had_committed_is_sealed_with_the_numbers_of_streams(tmp_path: Path) -> None:
    run, plan = new_run(tmp_path / "run"), with_pipeline(build_plan(topics={"orders": 2}), 1)
    told = {"group": "billing", "stream": "orders-1", "position": 5, "t_ns": 9}
    write_jsonl(run.raw_committed_offsets, [told])
    put(run, "audit-1", TableId.LOG, 1, raw_rows(TableId.LOG, logged(1, 0)))
    seal(run, plan)
    assert read_jsonl(run.committed_offsets) == [told | {"stream_id": 2}]
    assert run.committed_offsets.name in load_report(run).files


def test_a_capture_of_before_has_no_inputs(tmp_path: Path) -> None:
    run = committed(made(piped().sent(1).log(0), 0), 1).write(tmp_path / "run")
    path = run.bucket_file("log", 0, 0)
    assert load_bucket(str(run.root), 0, Context()).log["source_position"].tolist() == [-1, 0]
    (pipeline,) = load_context(run).pipelines
    assert (pipeline.group, pipeline.committed) == ("billing", {1: 1})
    rows = pq.read_table(path, partitioning=None).drop_columns(
        ["source_partition", "source_position"]
    )
    pq.write_table(rows, path)
    run.committed_offsets.unlink()
    log = load_bucket(str(run.root), 0, Context()).log
    assert log["source_position"].tolist() == [-1, -1]
    assert log["source_partition"].tolist() == [0, 0]
    assert load_context(run).pipelines[0].committed == {}
    assert read_document(run.plan, Plan).pipelines
