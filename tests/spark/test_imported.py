"""Captures of other tools: flat Parquet tables, repartitioned by Spark, judged by the same kernels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.capture.imports import import_capture
from analysis.findings import Status, Verdict
from analysis.spark.judge import judge
from harness.errors import UsageError
from harness.plan.model import Plan
from harness.rundir import RunDir, read_json, write_jsonl
from tests.live.run_rig import brokerstorm
from tests.planted.streams import STREAMS, PlantedStream
from tests.planted.tiny import History

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

#: What a tool that knows none of our finer points would have.
COLUMNS = {
    "sends": (
        "instance", "lane", "seq", "t_intended_ns", "t_start_ns", "t_done_ns", "outcome", "stream",
        "position",
    ),
    "log": ("stream", "position", "instance", "lane", "seq"),
    "deliveries": ("session", "ordinal", "t_ns", "event", "stream", "position", "instance", "lane", "seq"),
}  # fmt: skip


def flat(history: History, folder: Path, *, bounds: bool = True) -> str:
    """Each table as files of a few rows, in no order and without buckets."""
    for table, columns in history.tables().items():
        (folder / table).mkdir(parents=True)
        rows = pa.table({name: columns[name] for name in COLUMNS[table]})
        for number, start in enumerate(range(0, max(rows.num_rows, 1), 7)):
            part = rows.slice(start, 7)
            pq.write_table(
                part.take(list(reversed(range(part.num_rows)))), folder / table / f"{number}.parquet"
            )
    write_jsonl(folder / "names.jsonl", history.texts)
    if bounds:
        write_jsonl(folder / "log_bounds.jsonl", history.log_bounds())
    return str(folder)


def stream(name: str) -> PlantedStream:
    return next(s for s in STREAMS if s.name == name)


@pytest.mark.parametrize("name", ["clean", "premature-then-repeat", "phantom"])
def test_an_imported_capture_is_judged_as_a_recorded_one(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    planted = stream(name)
    run = import_capture(flat(planted.history(), tmp_path / "source"), RunDir(tmp_path / "run"), spark)
    result = judge(run, spark)
    violations = {f.cls: f.count for f in result.findings if f.status is Status.VIOLATION}
    assert violations == ({planted.cls: len(planted.seqs)} if planted.cls else {})
    assert result.verdict is (Verdict.FAIL if planted.cls else Verdict.PASS), result.reasons


def test_partitions_go_to_buckets_of_their_own(spark: SparkSession, tmp_path: Path) -> None:
    history = History(partitions=5)
    for partition in range(5):
        history.sent(20, partition=partition).log(*range(20), partition=partition)
        history.deliver(*range(20), partition=partition)
    run = import_capture(flat(history, tmp_path / "source"), RunDir(tmp_path / "run"), spark, buckets=4)
    assert len(list((run.sealed / "log").glob("bucket=*"))) == 4
    assert Plan.model_validate(read_json(run.plan)).buckets == 4
    result = judge(run, spark)
    assert (result.verdict, result.reasons) == (Verdict.PASS, [])
    assert result.rows["sends"] == 100


def test_without_bounds_the_tail_is_not_proved(spark: SparkSession, tmp_path: Path) -> None:
    history = stream("acked-loss-last-two").history()
    source = flat(history, tmp_path / "source", bounds=False)
    result = judge(import_capture(source, RunDir(tmp_path / "run"), spark), spark)
    assert result.verdict is Verdict.UNKNOWN
    assert any("orders-0 not read" in reason for reason in result.reasons)
    assert [f.status for f in result.findings if f.cls == "acked-lost"] == [Status.SUSPECT]


def test_the_command_makes_a_run_that_every_other_one_understands(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A capture of another tool is judged, and judged again as the run it has become."""
    source, runs = flat(stream("acked-loss-last-two").history(), tmp_path / "source"), str(tmp_path / "runs")
    done = brokerstorm("--json", "--run-dir", runs, "analyze", "--import", source)
    document = done.document
    assert (done.code, document["verdict"]) == (1, "fail"), done.err
    assert [(f["class"], f["count"]) for f in document["findings"] if f["status"] == "violation"] == [
        ("acked-lost", 2)
    ]
    assert (tmp_path / "runs" / "latest" / "report.html").exists()
    again = brokerstorm("--json", "--run-dir", runs, "analyze")
    assert again.document["run_id"] == document["run_id"]
    assert again.code == 1, again.err
    assert spark.range(3).count() == 3, "a session that was open stays open"

    assert brokerstorm("--run-dir", runs, "analyze", "latest", "--import", source).code == 2
    assert brokerstorm("--run-dir", runs, "analyze", "--import", str(tmp_path / "nowhere")).code == 2
    assert [p.name for p in (tmp_path / "runs").iterdir() if not p.is_symlink()] == [document["run_id"]]


def test_a_missing_column_is_named(spark: SparkSession, tmp_path: Path) -> None:
    source = flat(stream("clean").history(), tmp_path / "source")
    for path in (tmp_path / "source" / "log").iterdir():
        pq.write_table(pq.read_table(path).drop_columns(["position"]), path)
    with pytest.raises(UsageError, match=r"source/log: column 'position' is missing"):
        import_capture(source, RunDir(tmp_path / "run"), spark)


def test_a_folder_without_tables_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    with pytest.raises(UsageError, match="folder sends/ is missing"):
        import_capture(str(tmp_path / "source"), RunDir(tmp_path / "run"), spark)
    with pytest.raises(UsageError, match="cannot read a capture from"):
        import_capture(str(tmp_path / "nowhere"), RunDir(tmp_path / "run"), spark)


def test_streams_without_names_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    source = flat(stream("clean").history(), tmp_path / "source")
    (tmp_path / "source" / "names.jsonl").unlink()
    with pytest.raises(UsageError, match="names no stream"):
        import_capture(source, RunDir(tmp_path / "run"), spark)


@pytest.mark.parametrize(
    ("table", "column", "value", "text"),
    [
        ("sends", "seq", -1, "sends: seq must be 0 or more, found -1"),
        ("log", "lane", -2, "log: lane must be 0 or more, found -2"),
        ("deliveries", "instance", None, "deliveries: 1 messages have no instance"),
    ],
)
def test_numbers_that_name_no_message_are_refused(
    spark: SparkSession, tmp_path: Path, table: str, column: str, value: int | None, text: str
) -> None:
    source = flat(History().sent(5).log(*range(5)).deliver(*range(5)), tmp_path / "source")
    path = tmp_path / "source" / table / "0.parquet"
    rows = pq.read_table(path)
    at = rows.schema.get_field_index(column)
    values = [value, *rows.column(column).to_pylist()[1:]]
    pq.write_table(rows.set_column(at, column, pa.array(values, pa.int64())), path)
    with pytest.raises(UsageError, match=text):
        import_capture(source, RunDir(tmp_path / "run"), spark)
    assert not (tmp_path / "run").exists()
