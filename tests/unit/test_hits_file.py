"""`analyze --hits`: every hit that the findings count, with the status that they have."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from analysis.findings import Result
from analysis.kernels import episodes
from analysis.verdict.hits_file import require_writable, write_hits
from harness.contracts.plan import ConsumerPromise
from harness.errors import UsageError
from harness.rundir import RunDir
from tests.planted.judged import hits_here, judge_here
from tests.planted.large import plant
from tests.planted.tiny import History
from tests.planted.tiny_pipelines import committed, made, piped
from tests.planted.tiny_transactions import stored, transaction

ANOMALIES = {
    "acked-lost-middle": 45,
    "acked-lost-tail": 2,
    "false-nack": 3,
    "info-stored": 60,
    "foreign": 2,
}


def rows_of(run: RunDir, path: Path) -> list[dict[str, Any]]:
    write_hits(path, *hits_here(run))
    rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return rows


def counted(result: Result) -> Counter[tuple[str, str]]:
    return Counter({(f.cls, str(f.status)): f.count for f in result.findings})


@pytest.mark.long
def test_every_hit_of_a_run_is_there(tmp_path: Path) -> None:
    truth = plant(tmp_path / "run", messages=20_000, partitions=4, anomalies=ANOMALIES, seed=11)
    run = RunDir(tmp_path / "run")
    rows = rows_of(run, tmp_path / "hits.parquet")
    result = judge_here(run)
    assert Counter((row["class"], row["status"]) for row in rows) == counted(result)
    assert sum(row["class"] == "acked-lost" for row in rows) == 47, "more than a report shows"
    names = ("instance", "lane", "seq", "attempt")
    lost = sorted([row[name] for name in names] for row in rows if row["class"] == "acked-lost")
    assert lost == truth.identities("acked-lost").tolist()
    shown = {w.message for f in result.findings for w in f.witnesses}
    assert shown <= {row["message"] or f"{row['stream']}@{row['position']}" for row in rows}


def test_a_row_says_where_and_beside_which_fault(tmp_path: Path) -> None:
    history = History()
    history.send(0, at_ms=0).send(1, at_ms=5_000).send(2, at_ms=9_000, position=0).log(2)
    history.fault("kill", "kafka-1", 4_900, 5_500)
    rows = rows_of(history.write(tmp_path / "run"), tmp_path / "hits.parquet")
    rows = [row for row in rows if row["class"] == "acked-lost"]
    assert [(row["message"], row["stream"], row["fault"]) for row in rows] == [
        ("1/0/0", "orders-0", None),
        ("1/0/1", "orders-0", 1),
    ]
    assert [round(row["t_s"]) for row in rows] == [0, 5]
    assert [row["session"] for row in rows] == [None, None]


def test_deliveries_in_the_wrong_order_across_buckets_are_there(tmp_path: Path) -> None:
    history = History(partitions=2, buckets=2)
    history.sent(3).send(7, partition=1, lane=1).log(0).log(7, lane=1, partition=0).log(1, 2)
    history.deliver(0, 1, 2, lane=0).deliver(7, lane=1)
    run = history.write(tmp_path / "run")
    rows = rows_of(run, tmp_path / "hits.parquet")
    assert Counter((row["class"], row["status"]) for row in rows) == counted(judge_here(run))


def test_folded_episodes_have_the_status_of_their_hits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a consumer whose settings are not known: suspect, also where episodes are folded
    together."""
    monkeypatch.setattr(episodes, "MAX_EPISODES", 1)
    reading = ConsumerPromise(unknown=["order"])
    history = History(reading=reading).sent(40).log(*range(40))
    for at in range(4):
        start = at * 10
        history.deliver(start + 1, start, at_ms=5_000 * (at + 1))
    run = history.write(tmp_path / "run")
    found = counted(judge_here(run))
    assert found["delivery-reorder", "suspect"] == 4
    assert ("delivery-reorder", "violation") not in found


def test_a_transaction_is_named_by_one_of_its_messages(tmp_path: Path) -> None:
    h = transaction(History(partitions=2, sessions=0), 1, 0, partitions=(0, 1))
    run = stored(stored(h, 0), 0, how="aborted", partition=1).write(tmp_path / "run")
    (row,) = rows_of(run, tmp_path / "hits.parquet")
    assert (row["class"], row["message"], row["attempt"]) == ("torn-transaction", "1/1/0", 0)


def test_an_output_has_its_input(tmp_path: Path) -> None:
    h = made(piped(sessions=0).sent(2).log(0, 1).deliver(0, 1), 0, 1, 1)
    rows = rows_of(committed(h, 2).write(tmp_path / "run"), tmp_path / "hits.parquet")
    assert [(row["class"], row["message"], row["input"]) for row in rows] == [
        ("input-twice", "2/1/2", "orders-0@1")
    ]


@pytest.mark.parametrize(
    ("name", "message"),
    [("hits.csv", "must end in .parquet"), ("no/hits.parquet", "cannot write to the folder")],
)
def test_a_file_that_cannot_be_written(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        require_writable(tmp_path / name)
