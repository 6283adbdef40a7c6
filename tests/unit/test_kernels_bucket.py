"""Loading a bucket: lazy columns, constants for free, order restored, gaps in the files."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.capture.bucket import Bucket, Columns, is_constant, load_bucket, open_tables
from analysis.capture.context import Context
from analysis.capture.context_files import load_context
from harness.records import SEALED, Check
from tests.oracles.judging import judged
from tests.planted.tiny import History

ROOT = Path(__file__).resolve().parents[2]


def written(tmp_path: Path) -> tuple[str, Context]:
    history = History(partitions=2).sent(3).sent(2, partition=1).log(0, 1, 2).log(0, 1, partition=1)
    run = history.deliver(0, 1, 2).deliver(0, 1, partition=1).write(tmp_path / "run")
    return str(run.root), load_context(run)


def test_a_missing_table_is_empty_with_the_sealed_types(tmp_path: Path) -> None:
    bucket = load_bucket(str(tmp_path), 3, Context())
    for table, columns in SEALED.items():
        loaded = getattr(bucket, table)
        assert set(loaded) == {c.name for c in columns}
        assert {c.name: loaded[c.name].dtype for c in columns} == {
            c.name: np.dtype(c.dtype) for c in columns
        }
        assert all(len(loaded[c.name]) == 0 for c in columns)


def test_a_path_and_a_uri_give_the_same(tmp_path: Path) -> None:
    root, context = written(tmp_path)
    by_path, by_uri = load_bucket(root, 0, context), load_bucket(f"file://{root}", 0, context)
    for table in SEALED:
        for name, column in getattr(by_path, table).items():
            assert np.array_equal(column, getattr(by_uri, table)[name])


def test_a_column_of_one_value_takes_no_memory(tmp_path: Path) -> None:
    root, context = written(tmp_path)
    bucket = load_bucket(root, 0, context)
    assert is_constant(bucket.log["ledger"])
    assert is_constant(bucket.sends["instance"])
    assert bucket.sends["instance"].tolist() == [1] * 5
    assert bucket.sends["instance"].dtype == np.uint32
    assert not is_constant(bucket.log["position"])


def test_several_files_are_read_in_order_of_their_names(tmp_path: Path) -> None:
    for number, positions in ((1, [5, 6]), (0, [3, 4])):
        columns = {c.name: np.zeros(2, c.dtype) for c in SEALED["log"]} | {
            "position": np.array(positions)
        }
        path = tmp_path / "sealed" / "log" / "bucket=00" / f"part-{number}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), path)
    assert load_bucket(str(tmp_path), 0, Context()).log["position"].tolist() == [3, 4, 5, 6]


def test_row_groups_of_one_value_among_others(tmp_path: Path) -> None:
    """They are made from their statistics; without statistics all are decoded."""
    seqs = [7, 7, 7, 7, 1, 2, 3, 4, 5, 5, 9, 9, 8]
    for statistics in (True, False):
        columns = {c.name: np.zeros(len(seqs), c.dtype) for c in SEALED["log"]}
        columns |= {"seq": np.array(seqs), "attempt": np.array(seqs, np.uint16)}
        columns["position"] = np.arange(len(seqs))
        path = tmp_path / str(statistics) / "sealed" / "log" / "bucket=00" / "part-0.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(pa.table(columns), path, row_group_size=2, write_statistics=statistics)
        log = load_bucket(str(tmp_path / str(statistics)), 0, Context()).log
        assert log["seq"].tolist() == log["attempt"].tolist() == seqs
        assert (log["seq"].dtype, log["attempt"].dtype) == (np.int64, np.uint16)
        assert is_constant(log["ledger"]) is statistics


def test_judging_imports_no_pandas(tmp_path: Path) -> None:
    """It would cost each worker half a second before its first bucket."""
    root, _ = written(tmp_path)
    script = """
import sys
from pathlib import Path
from analysis.capture.context_files import load_context
from analysis.spark.judge import read_files
from analysis.verdict.result import grid_of
from analysis.spark.task import Task, judge_numbers
from harness.rundir import RunDir
run = RunDir(Path(sys.argv[1]))
context = load_context(run)
task = Task(str(run.root), (0,), context, grid_of(read_files(run), context))

(answer,) = judge_numbers(task, iter([0]))
import pickle
assert not pickle.loads(answer).error
sys.exit("pandas" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script, root], cwd=ROOT, check=False)
    assert done.returncode == 0


def test_the_log_is_put_into_log_order() -> None:
    log = {
        "stream": np.array([2, 1, 2, 1]),
        "position": np.array([7, 1, 6, 0]),
        "seq": np.array([3, 1, 2, 0]),
    }
    bucket = Bucket(0, Context(), {}, log, {})  # type: ignore[arg-type]
    assert bucket.log["stream"].tolist() == [1, 1, 2, 2]
    assert bucket.log["position"].tolist() == [0, 1, 6, 7]
    assert bucket.log["seq"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "stretch", [1, 4], ids=["more stretches than are copied as they lie", "few"]
)
def test_interleaved_streams_are_sorted_and_rows_left_out(stretch: int) -> None:
    count = 12_000
    number = np.arange(count)
    stream = (number // stretch) % 3
    gone = np.flatnonzero((number // stretch) % 2)
    log = Columns.from_arrays("log", {"stream": stream, "position": number})
    log.drop_rows(gone)
    log.sort(["stream", "position"])
    left = np.delete(number, gone)
    assert log["position"].tolist() == left[np.lexsort([left, np.delete(stream, gone)])].tolist()


def test_dropped_columns_come_back_in_the_same_order() -> None:
    log = Columns.from_arrays(
        "log", {"stream": np.array([2, 1, 2]), "position": np.array([0, 0, 1])}
    )
    log.sort(("stream", "position"))
    before = log["position"].tolist()
    log.drop("position")
    assert log["position"].tolist() == before == [0, 0, 1]


def sealed_sends(root: Path) -> Columns:
    """Two files of row groups of three rows; some have one value, the second file lacks a
    column."""
    folder = root / "sealed" / "sends" / "bucket=00"
    folder.mkdir(parents=True)
    rows = {"seq": [5, 5, 5, 6, 7, 9, 8, 8], "kind": [2] * 8, "stream": [1, 1, 1, 1, 1, 1, 4, 4]}
    for part, missing in enumerate(["", "stream"]):
        columns = [c for c in SEALED["sends"] if c.name in rows and c.name != missing]
        table = pa.table({c.name: np.array(rows[c.name], c.dtype) for c in columns})
        pq.write_table(table, folder / f"part-{part}.parquet", row_group_size=3)
    return open_tables(str(root), 0)["sends"]


@pytest.mark.parametrize("held", [(), ("seq",), ("seq", "kind", "stream")])
def test_rows_that_pass_are_those_of_the_whole_columns(
    tmp_path: Path, held: tuple[str, ...]
) -> None:
    sends, names = sealed_sends(tmp_path), ("seq", "kind", "stream")
    for name in held:
        assert len(sends[name]) == 16
    passed = list(sends.in_turn(*names))
    for name in names:
        found = np.concatenate([chunk[name] for chunk in passed])
        assert found.dtype == sends[name].dtype
        assert found.tolist() == sends[name].tolist()
    sends.drop_rows(np.array([0, 4]))
    assert [row for chunk in sends.in_turn("seq") for row in chunk["seq"].tolist()] == sends[
        "seq"
    ].tolist()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.integers(-1, 15), max_size=4), max_size=8))
def test_some_rows_are_those_of_the_whole_column(
    tmp_path_factory: pytest.TempPathFactory, asked: list[list[int]]
) -> None:
    root = tmp_path_factory.mktemp("run")
    sends, whole = sealed_sends(root), open_tables(str(root), 0)["sends"]
    for rows in asked:
        for name in ("seq", "kind", "stream"):
            found = sends.take(name, np.array(rows, np.int32))
            assert found.dtype == whole[name].dtype
            assert found.tolist() == whole[name][rows].tolist()


def test_the_context_is_picklable_and_small(tmp_path: Path) -> None:
    _, context = written(tmp_path)
    again = pickle.loads(pickle.dumps(context))
    assert again == context
    assert again.lane_streams() == {0: 1, 1: 2}
    assert len(pickle.dumps(context)) < 5_000


def test_what_others_wrote_and_nobody_of_ours_sent_is_judged_too() -> None:
    """No message at all, and deliveries that are none: a log with gaps in its places."""
    history = History().log(0, check=Check.OTHER_RUN, position=3).assign(0)
    assert {e.cls for e in judged(history).episodes} == {"phantom"}
