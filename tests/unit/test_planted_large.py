"""Large planted runs: both ways of making them agree, and the truth holds against a slow obvious
reading."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from harness.contracts import read_rows
from harness.contracts.plan import Plan
from harness.contracts.rows import Bounds
from harness.records import SEALED, Check, Event, Outcome
from harness.rundir import RunDir, read_jsonl
from harness.seal.seal import load_report, seal
from tests.planted.large import plant
from tests.planted.planters import ALL_KINDS, Truth

SHAPE: dict[str, Any] = {
    "messages": 6_000,
    "producers": 4,
    "topics": 2,
    "partitions": 3,
    "buckets": 4,
}
EVERYTHING = dict.fromkeys(ALL_KINDS, 3)
Rows = list[dict[str, Any]]
Ids = tuple[int, ...]


def rows_of(run: RunDir, table: str, bucket: int) -> Rows:
    path = run.bucket_file(table, bucket, 0)
    return pq.read_table(path).to_pylist() if path.exists() else []


def all_rows(run: RunDir, table: str) -> Rows:
    return [row for bucket in range(4) for row in rows_of(run, table, bucket)]


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunDir, Truth]:
    root = tmp_path_factory.mktemp("planted") / "run"
    return RunDir(root), plant(root, **SHAPE, anomalies=EVERYTHING, seed=3)


@pytest.mark.long
def test_sealing_the_raw_form_gives_the_sealed_form(
    tmp_path: Path, planted: tuple[RunDir, Truth]
) -> None:
    run, truth = planted
    raw = RunDir(tmp_path / "raw")
    same = plant(raw.root, **SHAPE, anomalies=EVERYTHING, seed=3, raw=True)
    assert same.found == truth.found
    report = seal(raw, Plan.model_validate_json(raw.plan.read_text()))
    assert report.problems() == []
    assert report.rows == truth.rows == load_report(run).rows | truth.rows
    assert read_jsonl(raw.names) == read_jsonl(run.names)
    bounds = [replace(row, reader="") for row in read_rows(raw.log_bounds, Bounds)]
    assert bounds == read_rows(run.log_bounds, Bounds)
    for table in SEALED:
        for bucket in range(4):
            assert rows_of(raw, table, bucket) == rows_of(run, table, bucket)


def test_another_seed_is_another_run(tmp_path: Path, planted: tuple[RunDir, Truth]) -> None:
    other = plant(tmp_path / "other", **SHAPE, anomalies=EVERYTHING, seed=4)
    assert other.counts() == planted[1].counts()
    assert other.found != planted[1].found


def test_counts_of_rows_and_outcomes(planted: tuple[RunDir, Truth]) -> None:
    run, truth = planted
    assert {table: len(all_rows(run, table)) for table in SEALED} == truth.rows
    sends = all_rows(run, "sends")
    outcomes = {
        o.name.lower(): sum(r["outcome"] == o for r in sends)
        for o in (Outcome.OK, Outcome.FAIL, Outcome.INFO)
    }
    assert {"attempted": len(sends), **outcomes} == truth.sends


def identity(row: dict[str, Any]) -> Ids:
    return row["instance"], row["lane"], row["seq"], row["attempt"]


def test_truth_of_log_and_outcomes(planted: tuple[RunDir, Truth]) -> None:
    """Set arithmetic over all rows, written without regard to how the run was made."""
    run, truth = planted
    sends = {identity(r): r for r in all_rows(run, "sends")}
    log = [r for r in all_rows(run, "log") if r["check"] == Check.OK]
    stored: dict[Ids, Rows] = defaultdict(list)
    for row in log:
        stored[identity(row)].append(row)
    bad = {
        (r["stream"], r["position"]) for r in all_rows(run, "log") if r["check"] == Check.CORRUPT
    }

    def sent(outcome: Outcome, *, is_stored: bool) -> set[Ids]:
        return {
            i for i, r in sends.items() if r["outcome"] == outcome and (i in stored) is is_stored
        }

    absent = sent(Outcome.OK, is_stored=False)
    corrupt = {i for i in absent if (sends[i]["stream"], sends[i]["position"]) in bad}
    assert corrupt == found(truth, "corrupt")
    assert absent - corrupt == found(truth, "acked-lost")
    assert sent(Outcome.FAIL, is_stored=True) == found(truth, "false-nack")
    assert sent(Outcome.INFO, is_stored=True) == found(truth, "info-stored")
    assert sent(Outcome.INFO, is_stored=False) == found(truth, "info-not-stored")
    unsent = set(stored) - set(sends)
    assert unsent == {*found(truth, "phantom", "never sent"), *found(truth, "send-record-missing")}
    strays = {identity(r) for r in log if r["stream"] != r["lane"] + 1}
    assert strays == found(truth, "wrong-partition")


def found(truth: Truth, cls: str, split: str | None = None) -> set[Ids]:
    return {
        i for (c, s), ids in truth.found.items() if c == cls and split in (None, s) for i in ids
    }


def test_truth_of_copies_and_order(planted: tuple[RunDir, Truth]) -> None:
    run, truth = planted
    sent = {identity(r) for r in all_rows(run, "sends")}
    per_lane: dict[Ids, list[int]] = defaultdict(list)
    attempts: dict[Ids, set[int]] = defaultdict(set)
    log = sorted(all_rows(run, "log"), key=lambda r: (r["stream"], r["position"]))
    for row in log:
        if row["check"] == Check.OK and identity(row) in sent:
            attempts[identity(row)[:3]].add(row["attempt"])
            if row["attempt"] == 0:
                per_lane[row["instance"], row["lane"], row["stream"]].append(row["seq"])
    duplicate: set[Ids] = set()
    late: set[Ids] = set()
    premature: set[Ids] = set()
    for (instance, lane, _), seqs in per_lane.items():
        for label, result in zip(disorder(seqs), (duplicate, late, premature), strict=True):
            result.update((instance, lane, seq, 0) for seq in label)
    assert duplicate == found(truth, "write-duplicate", "same send")
    assert late == found(truth, "producer-reorder")
    assert premature == found(truth, "premature-then-repeat")
    resent = {(*key, max(values)) for key, values in attempts.items() if len(values) > 1}
    assert resent == found(truth, "write-duplicate", "application re-send")


def disorder(seqs: list[int]) -> tuple[set[int], set[int], set[int]]:
    """Duplicates, late and premature ones of one lane's log, quadratic near an anomaly only."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for where, seq in enumerate(seqs):
        first.setdefault(seq, where)
        last[seq] = where
    in_order = sorted(first)
    premature = {
        seq
        for n, seq in enumerate(in_order)
        if last[seq] > first[seq]
        and any(first[seq] < first[b] < last[seq] for b in in_order[max(n - 8, 0) : n])
    }
    place = {seq: last[seq] if seq in premature else first[seq] for seq in in_order}
    late = {
        seq
        for n, seq in enumerate(in_order)
        if any(place[a] < place[seq] for a in in_order[n + 1 : n + 9])
    }
    duplicate = {seq for seq in in_order if last[seq] > first[seq]} - premature
    return duplicate, late - premature, premature


def test_truth_of_deliveries(planted: tuple[RunDir, Truth]) -> None:
    """Each stream's journal replayed in time over all sessions."""
    run, truth = planted
    log = {(r["stream"], r["position"]): r for r in all_rows(run, "log")}
    journal = sorted(all_rows(run, "deliveries"), key=lambda r: r["t_ns"])
    labels: dict[str, list[Ids]] = defaultdict(list)
    given: dict[tuple[int, int], int] = {}  # position -> tenure
    tenure: dict[int, int] = defaultdict(int)
    highest: dict[int, int] = {}
    committed: dict[int, int] = defaultdict(int)
    at_start: dict[int, int] = {}
    for row in journal:
        stream, position, event = row["stream"], row["position"], row["event"]
        if event == Event.ASSIGN:
            tenure[stream] += 1
            highest[stream] = -1
            at_start[stream] = committed[stream]
        elif event == Event.COMMIT:
            committed[stream] = position
        elif event == Event.DELIVER:
            place = (stream, position)
            if place in given and given[place] == tenure[stream]:
                labels["same assignment"].append(identity(row))
            elif place in given:
                rewound = position < at_start[stream]
                labels["rewind" if rewound else "after rebalance"].append(identity(row))
            elif position < highest[stream]:
                labels["reorder"].append(identity(row))
            given[place] = tenure[stream]
            highest[stream] = max(highest[stream], position)
    assert set(labels["same assignment"]) == found(truth, "delivery-duplicate", "same assignment")
    assert set(labels["after rebalance"]) == found(truth, "delivery-duplicate", "after rebalance")
    assert set(labels["rewind"]) == found(truth, "rewind-past-commit")
    assert set(labels["reorder"]) == found(truth, "delivery-reorder")
    missing = {identity(log[place]) for place in set(log) - set(given)}
    assert missing == found(truth, "not-dispatched")


def test_journals_are_dense_and_times_follow(planted: tuple[RunDir, Truth]) -> None:
    run, _ = planted
    sessions: dict[int, Rows] = defaultdict(list)
    for row in all_rows(run, "deliveries"):
        sessions[row["session"]].append(row)
    assert set(sessions) == {1, 2}
    done = {identity(r): r["t_done_ns"] for r in all_rows(run, "sends")}
    for journal in sessions.values():
        journal.sort(key=lambda r: r["ordinal"])
        assert [r["ordinal"] for r in journal] == list(range(len(journal)))
        times, epochs = [r["t_ns"] for r in journal], [r["epoch"] for r in journal]
        assert times == sorted(times)
        assert epochs == sorted(epochs)
        assert epochs[0] == 1
        known = [r for r in journal if r["event"] == Event.DELIVER and identity(r) in done]
        assert all(r["t_ns"] > done[identity(r)] for r in known)


@pytest.mark.parametrize("producers", [1, 3])
def test_every_producer_serves_every_topic_when_there_are_few(
    tmp_path: Path, producers: int
) -> None:
    truth = plant(
        tmp_path / "run", messages=9000, producers=producers, topics=5, partitions=2, sessions=1
    )
    plan = Plan.model_validate_json((tmp_path / "run" / "plan.json").read_text())
    assert all(p.groups == [0, 1, 2, 3, 4] for p in plan.producers)
    assert truth.counts() == {}
    assert truth.sends["attempted"] == truth.rows["log"] == 9000


def test_asking_for_too_much_or_for_something_else(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot plant \\['gremlin'\\]"):
        plant(tmp_path / "a", messages=1000, anomalies={"gremlin": 1})
    with pytest.raises(ValueError, match="need 500 blocks"):
        plant(tmp_path / "b", messages=1000, anomalies={"phantom": 500})
