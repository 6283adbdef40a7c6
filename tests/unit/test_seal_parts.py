"""Sealing while a run goes on: cut anywhere, it makes what one sealing of the whole would have
made."""

from __future__ import annotations

import errno
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.capture.bucket import open_tables
from analysis.capture.capture import Capture
from harness.contracts.plan import Plan
from harness.contracts.rows import LaneMode
from harness.errors import UsageError
from harness.records import SEALED, TableId
from harness.run.sealing import Sealing
from harness.rundir import RunDir, read_jsonl, write_jsonl
from harness.seal import parquet
from harness.seal.seal import load_report, seal, seal_finished
from harness.seal.segments import Segment, is_finished
from tests.planted.raw import SegmentWriter, raw_rows
from tests.unit.seal_rows import Columns, new_run, plan_of, put, sends
from tests.unit.test_seal import captures

Captured = tuple[LaneMode, dict[TableId, dict[int, Columns]]]
_OWNER = {"sends": "instance", "log": "check", "deliveries": "session"}


def captured(run: RunDir, tables: dict[TableId, dict[int, Columns]], capacity: int) -> None:
    for table, owners in tables.items():
        for owner, columns in owners.items():
            writer = SegmentWriter(run, f"w-{owner}", table, owner, capacity=capacity)
            writer.append(raw_rows(table, columns))
            writer.close()
            names = [{"id": 9, "kind": "error", "text": f"of {owner}"}]
            write_jsonl(run.worker(f"w-{owner}") / "names.jsonl", names)


def rows_of(run: RunDir, plan: Plan) -> dict[str, list[Any]]:
    """What judging reads, bucket by bucket: rows of an owner in their order, names in words."""
    names = {row["id"]: row["text"] for row in read_jsonl(run.names)} | {0: ""}
    found: dict[str, list[Any]] = {}
    for bucket in range(plan.buckets):
        for table, columns in open_tables(str(run.root), bucket).items():
            arrays = {name: columns[name].tolist() for name in SEALED_NAMES[table]}
            rows = [
                dict(zip(arrays, values, strict=True))
                for values in zip(*arrays.values(), strict=True)
            ]
            for row in rows:
                row["error"] = names[row.get("error", 0)]
            owner = _OWNER[table]
            found[f"{table} {bucket}"] = (
                sorted(rows, key=str)
                if table == "log"
                else sorted(rows, key=lambda row: row[owner])
            )
    return found


SEALED_NAMES = {table: [column.name for column in columns] for table, columns in SEALED.items()}


@settings(max_examples=25, deadline=None)
@given(captures(), st.integers(3, 20), st.integers(0, 2**32 - 1))
def test_cut_anywhere_it_is_the_same(
    tmp_path_factory: pytest.TempPathFactory, capture: Captured, capacity: int, seed: int
) -> None:
    """Segments come one by one, passes at any time, and of some a kill left everything but the
    end."""
    mode, tables = capture
    plan, folder, rng = plan_of(mode), tmp_path_factory.mktemp("run"), np.random.default_rng(seed)
    whole, run = new_run(folder / "whole"), new_run(folder / "cut")
    captured(whole, tables, capacity)
    for path in sorted(
        whole.raw.glob("*/*"), key=lambda path: (path.name.rpartition("-")[2], path)
    ):
        target = run.raw / path.relative_to(whole.raw)
        target.parent.mkdir(exist_ok=True)
        shutil.copyfile(path, target)
        if rng.random() < 0.4:
            before = [*run.raw.glob("*/*.seg")]
            kept = {each: each.read_bytes() for each in before} if rng.random() < 0.5 else {}
            freed = seal_finished(run, plan)
            assert freed == 0 or not all(each.exists() for each in before)
            # killed after the line of the part, before they were removed
            for each, content in kept.items():
                each.write_bytes(content)
    seal(whole, plan)
    report = seal(run, plan)
    assert rows_of(run, plan) == rows_of(whole, plan)
    assert report.rows == load_report(whole).rows
    assert report.workers == load_report(whole).workers
    assert Capture.find(run).missing(report.rows) == []
    assert not run.sealed_parts.exists()


def test_what_may_change_waits(tmp_path: Path) -> None:
    """A segment with a call that is open, or was answered a moment ago, and all behind it of its
    owner."""
    run, plan = new_run(tmp_path / "run"), plan_of()
    rows = [raw_rows(TableId.SENDS, sends(6)) for _ in range(3)]
    rows[1]["t_done_ns"][2] = time.monotonic_ns()
    for index, each in enumerate(rows):
        put(run, "p-1", TableId.SENDS, 1, each, index=index)
    put(run, "p-2", TableId.SENDS, 2, raw_rows(TableId.SENDS, sends(6, instance=2)), capacity=7)
    assert seal_finished(run, plan, least_bytes=10_000) == 0
    assert seal_finished(run, plan) == rows[0].nbytes
    assert sorted(path.name for path in run.raw.glob("*/*.seg")) == [
        "sends-1-1.seg",
        "sends-1-2.seg",
        "sends-2-0.seg",
    ]
    assert seal(run, plan).rows["sends"] == 24


def test_a_part_that_was_cut_off_is_made_again(tmp_path: Path) -> None:
    run, plan = new_run(tmp_path / "run"), plan_of()
    put(run, "p-1", TableId.SENDS, 1, raw_rows(TableId.SENDS, sends(6)))
    seal_finished(run, plan)
    put(run, "p-1", TableId.SENDS, 1, raw_rows(TableId.SENDS, sends(6)), index=1)
    run.bucket_file("sends", 0, part=1).write_bytes(b"half")
    assert seal(run, plan).rows["sends"] == 12
    run.seal_report.unlink()  # and when the raw segments are gone, nothing is made of less
    for path in run.raw.glob("*/*.seg"):
        path.unlink()
    with pytest.raises(UsageError, match="would destroy the capture"):
        seal(run, plan)


def test_a_segment_that_cannot_be_read_is_missing_and_the_rest_is_sealed(tmp_path: Path) -> None:
    run, plan = new_run(tmp_path / "run"), plan_of()
    for index in range(3):
        put(run, "p-1", TableId.SENDS, 1, raw_rows(TableId.SENDS, sends(6)), index=index)
    broken = run.worker("p-1") / "sends-1-1.seg"
    broken.unlink()
    broken.mkdir()  # for root every mode is readable
    assert seal_finished(run, plan) == 6 * 96
    report = seal(run, plan)
    assert report.rows["sends"] == 12
    assert report.workers["p-1"].damage == {"missing_segments": 1, "unreadable": 1}
    assert report.damaged_workers == {"p-1"}


def test_a_full_disk_is_told_once_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, plan, told = new_run(tmp_path / "run"), plan_of(), list[str]()
    rows = raw_rows(TableId.SENDS, sends(200_000))
    put(run, "p-1", TableId.SENDS, 1, rows)
    sealing = Sealing(plan, run, told.append)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(parquet.BucketFile, "write", full)
        sealing.seal_now()
        sealing.seal_now()
    assert len(told) == 1
    assert "not sealed during the run: no space left on the disk" in told[0]
    assert [path.name for path in run.raw.glob("*/*.seg")] == ["sends-1-0.seg"]
    sealing.seal_now()
    assert not [*run.raw.glob("*/*.seg")]
    assert seal(run, plan).rows["sends"] == len(rows)


def test_what_is_left_when_it_is_stopped_is_for_those_who_give_way_to_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = list[int]()
    sealing = Sealing(plan_of(), new_run(tmp_path / "run"), print)

    def more(*_: object, least_bytes: int) -> int:
        calls.append(least_bytes)
        if len(calls) == 3:
            sealing.stop()
        return 5 * least_bytes if len(calls) < 9 else 0

    monkeypatch.setattr("harness.run.sealing.seal_finished", more)
    sealing.seal_now()
    assert len(calls) == 3


def test_a_name_keeps_its_number_when_others_come_before_it(tmp_path: Path) -> None:
    """Numbers go by worker: one that captures its first error later would take those of all behind
    it."""
    run, plan = new_run(tmp_path / "run"), plan_of()
    for instance in (2, 1):
        columns = sends(6, instance=instance)
        columns["error"][:] = 9
        put(run, f"p-{instance}", TableId.SENDS, instance, raw_rows(TableId.SENDS, columns))
        named = [{"id": 9, "kind": "error", "text": f"of {instance}"}]
        write_jsonl(run.worker(f"p-{instance}") / "names.jsonl", named)
        seal_finished(run, plan)
    seal(run, plan)
    names = {row["id"]: row["text"] for row in read_jsonl(run.names)}
    rows = [row for bucket in (0, 1) for row in zip_rows(run, bucket)]
    assert {(instance, names[error]) for instance, error in rows} == {(1, "of 1"), (2, "of 2")}


def test_a_name_that_is_written_while_a_part_begins_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker writes a name, then the last row of a segment, between two steps of the sealing."""
    run, plan = new_run(tmp_path / "run"), plan_of()
    columns = sends(6)
    columns["error"][:] = 9
    put(run, "p-1", TableId.SENDS, 1, raw_rows(TableId.SENDS, columns))

    def finished(segment: Segment, before_ns: int) -> bool:
        write_jsonl(run.worker("p-1") / "names.jsonl", [{"id": 9, "kind": "error", "text": "new"}])
        return is_finished(segment, before_ns)

    monkeypatch.setattr("harness.seal.seal.is_finished", finished)
    seal_finished(run, plan)
    assert not seal(run, plan).problems()


def zip_rows(run: RunDir, bucket: int) -> list[tuple[int, int]]:
    columns = open_tables(str(run.root), bucket)["sends"]
    return list(zip(columns["instance"].tolist(), columns["error"].tolist(), strict=True))
