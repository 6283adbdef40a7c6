"""Tiny histories: exact sealed columns, positions as a broker would have acknowledged them,
files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from harness.contracts.plan import Plan
from harness.records import SEALED, Check, Event, Outcome
from harness.rundir import read_json, read_jsonl
from tests.planted.streams import MESSAGES, STREAMS, PlantedStream
from tests.planted.tiny import History


def test_tables_have_the_sealed_columns_and_types() -> None:
    tables = History().sent(3).log(0, 1, 2).deliver(0, 1, 2).tables()
    for table, columns in SEALED.items():
        assert list(tables[table]) == [c.name for c in columns]
        for column in columns:
            assert tables[table][column.name].dtype == np.dtype(column.dtype)


def test_acknowledged_positions_follow_the_log() -> None:
    sends = History().sent(4).send(4, "fail").log(0, 2, 1).tables()["sends"]
    assert sends["position"].tolist() == [0, 2, 1, 2, -1]  # 3 is lost: acked right after 2
    assert sends["stream"].tolist() == [1, 1, 1, 1, 0]


def test_delivery_takes_the_next_copy_and_assigns_once() -> None:
    deliveries = (
        History().sent(3).log(0, 1, 1, 2).deliver(0, 1, 1, 2).commit(4).tables()["deliveries"]
    )
    assert deliveries["event"].tolist() == [Event.ASSIGN, *[Event.DELIVER] * 4, Event.COMMIT]
    assert deliveries["position"].tolist() == [-1, 0, 1, 2, 3, 4]
    assert deliveries["ordinal"].tolist() == list(range(6))


def test_open_send_and_corrupt_row() -> None:
    tables = History().send(0, "open").log(0, check=Check.CORRUPT).tables()
    assert tables["sends"]["outcome"].tolist() == [Outcome.INFO]
    assert tables["sends"]["t_done_ns"].tolist() == [0]
    assert tables["log"]["instance"].tolist() == [0]
    assert tables["log"]["check"].tolist() == [Check.CORRUPT]


def test_write_makes_a_whole_run(tmp_path: Path) -> None:
    history = History(partitions=3, buckets=2, producers=2).sent(5).sent(5, partition=2, instance=2)
    history.log(0, 1, 2, 3, 4).log(0, 1, 2, 3, 4, partition=2, instance=2).deliver(0, 1)
    history.bounds(2, end=9, read_to=5, why="stall").fault("kill", "kafka-1", 1.0, 3.0)
    run = history.write(tmp_path / "run")
    assert Plan.model_validate_json(run.plan.read_text()) == history.plan
    assert read_json(run.manifest)["status"] == "complete"
    assert [r["event"] for r in read_jsonl(run.faults)] == ["inject", "effect", "heal", "healed"]
    assert read_jsonl(run.log_bounds)[2]["read_to"] == 5
    sends = pq.read_table(run.bucket_file("sends", 0, 0))
    assert sends["lane"].to_pylist() == [0] * 5 + [2] * 5
    assert not run.bucket_file("sends", 1, 0).exists()


@pytest.mark.parametrize("stream", STREAMS, ids=lambda s: s.name)
def test_planted_stream_is_what_it_says(stream: PlantedStream) -> None:
    tables = stream.history().tables()
    assert tables["sends"]["seq"].tolist() == list(range(MESSAGES))
    assert tables["log"]["seq"].tolist() == list(stream.log)
    assert tables["log"]["position"].tolist() == list(range(len(stream.log)))
    assert bool(stream.cls) == bool(stream.seqs)
