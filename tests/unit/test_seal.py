"""Sealing: what was recorded is what is sealed, in order, in the right bucket."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.contracts.plan import Plan
from harness.contracts.rows import LaneGroup, LaneMode
from harness.contracts.seal import SealReport
from harness.errors import BrokerstormError, UsageError
from harness.records import BUCKETED, RAW, SEALED, TABLE_NAMES, Check, Event, TableId
from harness.rundir import RunDir
from harness.seal.seal import drop_segments, load_report, seal
from tests.planted.plans import build_plan
from tests.planted.raw import SegmentWriter, headers, raw_rows
from tests.unit.seal_rows import STREAMS, Columns, blank, new_run, plan_of, put, sealed, sends

# -- round trip


@st.composite
def captures(draw: st.DrawFn) -> tuple[LaneMode, dict[TableId, dict[int, Columns]]]:
    """Any values a worker can write, owner by owner."""
    mode: LaneMode = draw(st.sampled_from(["partition", "key", "routed"]))
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    tables: dict[TableId, dict[int, Columns]] = {}
    for table in BUCKETED:
        owners = draw(st.lists(st.integers(1, 9), min_size=0, max_size=3, unique=True))
        tables[table] = {
            o: any_columns(table, o, draw(st.integers(0, 40)), rng) for o in sorted(owners)
        }
    return mode, tables


def any_columns(table: TableId, owner: int, count: int, rng: np.random.Generator) -> Columns:
    columns = {
        c.name: rng.integers(0, 1 << 15, count).astype(c.dtype) for c in SEALED[TABLE_NAMES[table]]
    }
    columns["stream"] = rng.integers(0, STREAMS + 1, count).astype(np.int32)
    columns["lane"] = rng.integers(0, 7, count).astype(np.uint32)  # some beyond the plan's lanes
    columns["kind"] = rng.integers(0, 3, count).astype(np.uint8)
    columns["position"][columns["stream"] == 0] = -1
    if table is TableId.SENDS:
        columns["instance"][:] = owner
        columns["outcome"] = rng.integers(1, 4, count).astype(np.uint8)
        columns["late_outcome"] %= 4
        # 0: not completed, it has no outcome
        np.maximum(columns["t_done_ns"], 1, out=columns["t_done_ns"])
        columns["error"][:] = 0
        columns["client_name"][:] = 0
        return columns
    columns["check"] = rng.integers(0, 4, count).astype(np.uint8)
    nameless = columns["check"] != Check.OK
    if table is TableId.DELIVERIES:
        columns["session"][:] = owner
        columns["subscription"][:] = 0
        columns["ordinal"] = np.arange(count, dtype=np.int64)
        columns["event"] = rng.integers(1, 13, count).astype(np.uint8)
        nameless |= columns["event"] != Event.DELIVER
    else:
        columns["txn"] %= 4
        columns["txn_end"][:] = -1  # said by no reader
        # there is no pipeline
        columns["source_partition"][:], columns["source_position"][:] = 0, -1
        columns["client_name"][:] = 0
        columns["t_intended_ns"][nameless] = 0
    for name in ("instance", "lane", "seq", "attempt", "kind"):
        columns[name][nameless] = 0
    return columns


def bucket_by_hand(plan: Plan, table: TableId, row: dict[str, Any]) -> set[int]:
    """The routing rule, said slowly and without lookup arrays."""
    streams = plan.streams()
    by_stream = plan.stream_bucket(streams[row["stream"] - 1]) if row["stream"] else 0
    if table is TableId.DELIVERIES and row["event"] != Event.DELIVER:
        return {by_stream} if row["stream"] else set(range(plan.buckets))
    if table is not TableId.SENDS and row["check"] != Check.OK:
        return {by_stream}
    for group in plan.lane_groups:
        if group.first <= row["lane"] < group.first + group.count:
            return {group.bucket(row["lane"])}
    return {by_stream}


@pytest.mark.long
@settings(max_examples=25, deadline=None)
@given(capture=captures(), capacity=st.integers(1, 17), threads=st.integers(1, 3))
def test_round_trip(
    tmp_path_factory: pytest.TempPathFactory,
    capture: tuple[LaneMode, dict[TableId, dict[int, Columns]]],
    capacity: int,
    threads: int,
) -> None:
    mode, tables = capture
    plan = plan_of(mode)
    run = new_run(tmp_path_factory.mktemp("run"))
    expected: dict[str, list[list[dict[str, Any]]]] = {}
    for table, owners in tables.items():
        buckets: list[list[dict[str, Any]]] = [[] for _ in range(plan.buckets)]
        for owner, columns in owners.items():
            writer = SegmentWriter(run, f"w-{owner}", table, owner, capacity=capacity)
            writer.append(raw_rows(table, columns))
            writer.close()
            for index in range(len(columns["stream"])):
                row = {name: array[index].item() for name, array in columns.items()}
                for bucket in bucket_by_hand(plan, table, row):
                    buckets[bucket].append(row)
        expected[TABLE_NAMES[table]] = buckets
    report = seal(run, plan, threads=threads)
    assert report.problems() == []
    for name in SEALED:
        assert report.rows[name] == sum(len(c["stream"]) for c in tables_named(tables, name))
        for bucket, rows in enumerate(expected[name]):
            path = run.bucket_file(name, bucket, 0)
            assert (pq.read_table(path).to_pylist() if path.exists() else []) == rows


def tables_named(tables: dict[TableId, dict[int, Columns]], name: str) -> list[Columns]:
    return next(
        list(owners.values()) for table, owners in tables.items() if TABLE_NAMES[table] == name
    )


# -- routing


def test_events_reach_the_bucket_of_the_stream(tmp_path: Path) -> None:
    run, plan = new_run(tmp_path / "run"), plan_of()
    columns = blank("deliveries", 5)
    columns["event"][:] = [
        Event.ASSIGN,
        Event.ASSIGN,
        Event.DELIVER,
        Event.COMMIT,
        Event.ROLLBACK_BEGIN,
    ]
    columns["stream"][:] = [1, 2, 2, 2, 0]
    columns["lane"][:] = [0, 0, 1, 0, 0]
    columns["instance"][2] = 1
    put(run, "c-1", TableId.DELIVERIES, 7, raw_rows(TableId.DELIVERIES, columns))
    report = seal(run, plan)
    buckets = sealed(run, "deliveries")
    # 4 names no stream: everywhere
    assert [b["ordinal"] for b in buckets] == [[0, 4], [1, 2, 3, 4]]
    assert buckets[1]["session"] == [7] * 4
    assert report.rows["deliveries"] == 5


@pytest.mark.parametrize("mode", ["key", "routed"])
def test_keyed_and_routed_topics_stay_whole(tmp_path: Path, mode: LaneMode) -> None:
    run, plan = new_run(tmp_path / "run"), plan_of(mode)
    lanes = 5 if mode == "key" else 1
    put(run, "p-1", TableId.SENDS, 1, raw_rows(TableId.SENDS, sends(10, lanes=lanes)))
    columns = blank("deliveries", STREAMS)
    columns["event"][:] = Event.ASSIGN
    columns["stream"][:] = range(1, STREAMS + 1)
    put(run, "c-1", TableId.DELIVERIES, 1, raw_rows(TableId.DELIVERIES, columns))
    seal(run, plan)
    home = plan.lane_groups[0].buckets[0]
    assert len(sealed(run, "sends")[home]["seq"]) == 10
    assert sealed(run, "deliveries")[home]["stream"] == [1, 2, 3]
    assert sealed(run, "sends")[1 - home] == {}


def test_a_plan_that_splits_a_stream_is_refused(tmp_path: Path) -> None:
    groups = [
        LaneGroup(topic="orders", mode="partition", first=0, count=STREAMS, buckets=[0, 1, 0]),
        LaneGroup(topic="orders", mode="key", first=STREAMS, count=5, buckets=[0]),
    ]
    plan = build_plan(topics={"orders": STREAMS}, buckets=2, groups=groups)
    with pytest.raises(BrokerstormError, match="orders-1 into buckets"):
        seal(new_run(tmp_path / "run"), plan)


# -- the whole of it


def test_order_is_owner_then_record_order(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    for worker, instance in (("a", 2), ("b", 1)):
        rows = raw_rows(TableId.SENDS, sends(9, instance=instance))
        put(run, worker, TableId.SENDS, instance, rows[4:], index=1)
        put(run, worker, TableId.SENDS, instance, rows[:4], index=0)
    seal(run, plan_of(buckets=1))
    (bucket,) = sealed(run, "sends", buckets=1)
    number = np.arange(9)
    assert bucket["instance"] == [1] * 9 + [2] * 9
    assert bucket["seq"] == (number // STREAMS).tolist() * 2
    assert bucket["lane"] == (number % STREAMS).tolist() * 2


def test_sealing_again_returns_the_first_report(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    put(run, "p-1", TableId.SENDS, 1, raw_rows(TableId.SENDS, sends(7)))
    calls: list[tuple[int, int]] = []
    first = seal(run, plan_of(), on_progress=lambda done, total: calls.append((done, total)))
    assert calls == [(7 * 96, 7 * 96)]
    changed = {p: p.stat().st_mtime_ns for p in run.sealed.rglob("*.parquet")}
    assert seal(run, plan_of()) == first == load_report(run)
    assert changed == {p: p.stat().st_mtime_ns for p in run.sealed.rglob("*.parquet")}
    assert isinstance(first, SealReport)
    assert first.tables["sends"].bytes == sum(p.stat().st_size for p in changed)


def test_raw_segments_are_dropped_only_when_undamaged(tmp_path: Path) -> None:
    for name, rows_lost in (("whole", 0), ("torn", 1)):
        run = new_run(tmp_path / name)
        rows = raw_rows(TableId.SENDS, sends(4))
        rows["state"][2 : 2 + rows_lost] = 0
        put(run, "p-1", TableId.SENDS, 1, rows)
        assert drop_segments(run) == 0  # not sealed yet
        seal(run, plan_of())
        assert (drop_segments(run) > 0) is (rows_lost == 0)
        assert len(list(run.raw.glob("*/*.seg"))) == rows_lost
        assert seal(run, plan_of()).rows["sends"] == 4 - rows_lost


def test_a_run_without_capture(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="neither raw/ nor sealed"):
        seal(RunDir(tmp_path / "nothing"), plan_of())
    judged = RunDir(tmp_path / "judged").create()
    judged.raw.rmdir()
    judged.result.write_text("{}")
    with pytest.raises(
        UsageError, match="was judged, and its captured data was removed since, by `keep`"
    ):
        seal(judged, plan_of())
    empty = seal(new_run(tmp_path / "empty"), plan_of())
    assert empty.rows == {"sends": 0, "log": 0, "deliveries": 0}


def test_row_width_of_the_format() -> None:
    assert {t: d.itemsize for t, d in RAW.items()} == {1: 96, 2: 104, 3: 104, 4: 64}
    assert headers(blank("log", 2)).itemsize == 48
