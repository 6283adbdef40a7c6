"""Planted captures end to end: written to disk, judged by Spark, read back from result.json."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

import analysis.spark.judge
from analysis.findings import Result, Status, Verdict
from analysis.spark.judge import judge
from harness.errors import Interrupted, UsageError
from harness.rundir import RunDir, read_json, write_json
from tests.planted.streams import STREAMS, PlantedStream
from tests.planted.tiny import History

if TYPE_CHECKING:
    from pyspark import SparkContext

pytestmark = pytest.mark.spark


def write(history: History, root: Path, **plan: Any) -> RunDir:
    """A run whose plan asks for no rate, which ten messages cannot reach."""
    history.plan = history.plan.model_copy(update={"rate_per_s": 0.0, **plan})
    return history.write(root)


def clean(partitions: int = 3, buckets: int = 3) -> History:
    history = History(partitions=partitions, buckets=buckets)
    for partition in range(partitions):
        seqs = range(20)
        history.sent(len(seqs), partition=partition).log(*seqs, partition=partition)
        history.deliver(*seqs, partition=partition).commit(len(seqs), partition)
    return history


def found(result: Result) -> dict[str, int]:
    """Count by class of what is a violation."""
    return {f.cls: f.count for f in result.findings if f.status is Status.VIOLATION}


def test_a_clean_capture_passes(spark: SparkContext, tmp_path: Path) -> None:
    run = write(clean(), tmp_path / "run")
    result = judge(run, spark)
    assert (result.verdict, result.reasons, result.exit_code) == (Verdict.PASS, [], 0)
    assert result.rows == {"sends": 60, "log": 60, "deliveries": 66, "log_probes": 0}
    assert result.sends["attempted"] == result.sends["ok"] == 60
    assert sum(result.timeline.ok) == 60
    assert result.latency_ms["max"] == 1.0


@pytest.mark.parametrize("stream", STREAMS, ids=lambda s: s.name)
def test_the_eleven_planted_streams_are_labelled_right(
    spark: SparkContext, tmp_path: Path, stream: PlantedStream
) -> None:
    result = judge(write(stream.history(), tmp_path / "run"), spark)
    if not stream.cls:
        assert (result.verdict, result.reasons) == (Verdict.PASS, [])
        return
    assert found(result) == {stream.cls: len(stream.seqs)}
    assert result.verdict is Verdict.FAIL
    assert result.exit_code == 1
    assert stream.cls in result.reasons[0]
    (finding,) = (f for f in result.findings if f.status is Status.VIOLATION)
    assert {w.message for w in finding.witnesses} == {f"1/0/{seq}" for seq in stream.seqs}
    assert all(w.sentence and w.around for w in finding.witnesses)
    if stream.shape:
        assert finding.split == {stream.shape: len(stream.seqs)}


def test_result_json_is_what_was_returned(spark: SparkContext, tmp_path: Path) -> None:
    run = write(STREAMS[5].history(), tmp_path / "run")
    result = judge(run, spark)
    document = read_json(run.result)
    assert document["schema_version"] == 1
    assert document["verdict"] == result.verdict
    assert document["findings"][0]["class"] == result.findings[0].cls
    assert (
        document["findings"][0]["witnesses"][0]["message"]
        == result.findings[0].witnesses[0].message
    )


def test_buckets_merge_into_one_finding_with_its_fault(spark: SparkContext, tmp_path: Path) -> None:
    """Six partitions in three buckets lose messages 100 ms after a kill at 2 s."""
    history = History(partitions=6, buckets=3)
    history.fault("kill", "kafka-1", 2000, 3000)
    for partition in range(6):
        for seq in range(100):
            history.send(seq, partition=partition, at_ms=seq * 100)
        kept = [seq for seq in range(100) if seq not in (21, 22)]
        history.log(*kept, partition=partition).deliver(*kept, partition=partition)
    history.at(10_000)
    result = judge(write(history, tmp_path / "run", faults=[{"fault": "kill"}]), spark)
    (finding,) = (f for f in result.findings if f.status is Status.VIOLATION)
    assert (finding.cls, finding.count, finding.episodes) == ("acked-lost", 12, 6)
    assert all(w.near is not None and w.near.fault == 1 for w in finding.witnesses)
    assert {round(w.near.after_s * 1000) for w in finding.witnesses if w.near} <= {
        100,
        101,
        200,
        201,
    }
    (share,) = finding.attribution
    assert (share.kind, share.inside, share.episodes) == ("kill", 6, 6)
    assert [f.kind for f in result.faults] == ["kill"]
    assert result.faults[0].effective


# -- what goes wrong can never pass


def swap(run: RunDir, table: str) -> None:
    first, second = run.bucket_file(table, 0, 0), run.bucket_file(table, 1, 0)
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)


def garble(run: RunDir, table: str) -> None:
    """Change one byte in the middle, which a reader of Parquet need not notice."""
    path = run.bucket_file(table, 1, 0)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(bytes(content))


@pytest.mark.parametrize(
    "table",
    [
        "sends",
        pytest.param("log", marks=pytest.mark.extended),
        pytest.param("deliveries", marks=pytest.mark.extended),
    ],
)
@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda run, table: run.bucket_file(table, 1, 0).unlink(), "is missing"),
        (garble, "is not the file that was sealed"),
        (swap, "is not the file that was sealed"),
    ],
    ids=["missing", "garbled", "swapped"],
)
def test_a_damaged_capture_is_unknown_and_accuses_nobody(
    spark: SparkContext,
    tmp_path: Path,
    table: str,
    damage: Callable[[RunDir, str], None],
    told: str,
) -> None:
    run = write(clean(), tmp_path / "run")
    damage(run, table)
    result = judge(run, spark)
    assert (result.verdict, found(result)) == (Verdict.UNKNOWN, {})
    assert f"sealed/{table}/bucket=01/part-0.parquet {told}" in "\n".join(result.reasons)


def test_changed_bounds_are_unknown(spark: SparkContext, tmp_path: Path) -> None:
    run = write(clean(), tmp_path / "run")
    run.log_bounds.write_text(run.log_bounds.read_text().replace("0", "1", 1))
    result = judge(run, spark)
    assert result.verdict is Verdict.UNKNOWN
    assert "log_bounds.jsonl is not the file that was sealed" in "\n".join(result.reasons)


@pytest.mark.parametrize(
    "tables", [("log",), ("sends", "log", "deliveries")], ids=["one file", "a bucket"]
)
def test_without_checksums_missing_rows_accuse_nobody(
    spark: SparkContext, tmp_path: Path, tables: tuple[str, ...]
) -> None:
    """As captures were sealed before there were checksums."""
    run = write(clean(), tmp_path / "run")
    write_json(run.seal_report, read_json(run.seal_report) | {"files": {}})
    for table in tables:
        run.bucket_file(table, 2, 0).unlink()
    result = judge(run, spark)
    assert (result.verdict, found(result)) == (Verdict.UNKNOWN, {})
    assert "20 of 60 log rows" in "\n".join(result.reasons)


def test_a_kernel_that_raises_is_unknown_and_named(spark: SparkContext, tmp_path: Path) -> None:
    run = write(clean(), tmp_path / "run")
    write_json(run.seal_report, read_json(run.seal_report) | {"files": {}})
    run.bucket_file("log", 1, 0).write_bytes(b"not parquet")
    result = judge(run, spark)
    assert result.verdict is Verdict.UNKNOWN
    assert "judging failed: bucket 1: ArrowInvalid" in "\n".join(result.reasons)
    assert result.exit_code == 3


def test_a_violation_elsewhere_survives_a_damaged_bucket(
    spark: SparkContext, tmp_path: Path
) -> None:
    history = clean()
    history.send(20, partition=2)
    history.send(21, partition=2).log(21, partition=2).deliver(21, partition=2)  # 20 is lost
    run = write(history, tmp_path / "run")
    run.bucket_file("log", 0, 0).write_bytes(b"not parquet")
    result = judge(run, spark)
    assert result.verdict is Verdict.FAIL
    assert found(result) == {"acked-lost": 1}
    assert "records are missing: sealed/log/bucket=00" in "\n".join(result.reasons)


def test_a_python_worker_that_dies_is_unknown(
    spark: SparkContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(_task: object, _numbers: Iterator[int]) -> Iterator[object]:
        os._exit(9)

    run = write(clean(), tmp_path / "run")
    monkeypatch.setattr(analysis.spark.judge, "judge_numbers", die)
    result = judge(run, spark)
    assert result.verdict is Verdict.UNKNOWN
    assert any("the Spark job failed" in reason for reason in result.reasons), result.reasons


def test_a_signal_is_not_taken_for_a_result(tmp_path: Path) -> None:
    """Py4J makes an error of its own of what a signal raises in it."""

    class Gateway:
        def parallelize(self, *_: object) -> None:
            raise RuntimeError("An error occurred while calling o113.collectToPython")

    def stopped() -> None:
        raise Interrupted("stopped by SIGTERM", signal_number=15)

    run = write(clean(), tmp_path / "run")
    with pytest.raises(Interrupted):
        judge(run, cast("SparkContext", Gateway()), stopped=stopped)
    assert not run.result.exists()


def test_an_unsealed_run_is_refused(spark: SparkContext, tmp_path: Path) -> None:
    run = write(clean(), tmp_path / "run")
    run.seal_report.unlink()
    with pytest.raises(UsageError, match=r"not sealed: seal\.json is missing"):
        judge(run, spark)


def test_an_empty_run_is_unknown(spark: SparkContext, tmp_path: Path) -> None:
    result = judge(write(History(), tmp_path / "run"), spark)
    assert result.verdict is Verdict.UNKNOWN
    assert any("no message was sent" in reason for reason in result.reasons)


def test_the_capture_may_be_a_uri(spark: SparkContext, tmp_path: Path) -> None:
    run = write(clean(), tmp_path / "run")
    assert judge(run, spark, root_uri=run.root.as_uri()).verdict is Verdict.PASS
    with pytest.raises(UsageError, match="cannot read the sealed tables in nosuch://x"):
        judge(run, spark, root_uri="nosuch://x")


def test_nothing_is_left_in_the_working_directory(
    spark: SparkContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write(clean(), tmp_path / "run")
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    judge(run, spark)
    assert list(empty.iterdir()) == []


def test_with_little_memory_buckets_are_judged_one_after_the_other(
    spark: SparkContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slices = []
    parallelize = spark.parallelize

    def counted(numbers: list[int], number: int) -> object:
        slices.append((sorted(numbers), number))
        return parallelize(numbers, number)

    monkeypatch.setattr(spark, "parallelize", counted)
    history = History(partitions=3, buckets=3)
    for partition in range(3):
        history.sent(2, partition=partition).log(0, 1, partition=partition).deliver(
            0, 1, partition=partition
        )
    run = write(history, tmp_path / "run")
    whole = judge(run, spark)
    monkeypatch.setattr(analysis.spark.judge, "free_memory_mb", lambda: 200)
    assert judge(run, spark).rows == whole.rows
    assert slices == [([0, 1, 2], 3), ([0, 1, 2], 1)]


def test_a_stream_over_two_buckets_is_judged_as_a_whole(
    spark: SparkContext, tmp_path: Path
) -> None:
    """Message 1/1/0 was stored in the wrong partition, and delivered after its successors there."""
    history = History(partitions=2, buckets=2)
    history.sent(3, partition=0).sent(2, partition=1)
    history.log(0, partition=0).log(0, lane=1, partition=0).log(1, 2, partition=0).log(
        1, partition=1
    )
    history.deliver(0, 1, 2, partition=0).deliver(0, lane=1, partition=0).deliver(1, partition=1)
    result = judge(write(history, tmp_path / "run"), spark)
    assert found(result) == {"wrong-partition": 1, "delivery-reorder": 1}
    assert result.rows == {"sends": 5, "log": 5, "deliveries": 7, "log_probes": 0}
