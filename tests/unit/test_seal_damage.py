"""Sealing what a killed worker, a full disk or another run left: keep what is whole, count the
rest."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from harness.records import Check, Outcome, TableId
from harness.rundir import read_jsonl, write_jsonl
from harness.seal.seal import seal
from tests.planted.plans import RUN_TAG
from tests.planted.raw import raw_rows, segment_bytes, write_bytes, write_worker_names
from tests.unit.seal_rows import (
    STREAMS,
    all_rows,
    log_columns,
    new_run,
    plan_of,
    put,
    sealed,
    sends,
)

# -- damage


def test_a_killed_worker_leaves_whole_rows_and_one_torn(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    rows = raw_rows(TableId.SENDS, sends(5))
    begun = rows[:1].copy()
    begun["state"] = 0
    content = segment_bytes(TableId.SENDS, rows, owner=1, capacity=8)
    offset = len(content) - 3 * rows.itemsize
    content = content[:offset] + begun.tobytes() + content[offset + rows.itemsize :]
    write_bytes(run.worker("p-1") / "sends-1-0.seg", content)
    report = seal(run, plan_of())
    assert report.rows["sends"] == 5
    assert report.damage("p-1") == {"torn_rows": 1}
    assert report.problems() == ["p-1: 1 rows begun but not finished"]


def test_a_hole_in_a_segment_loses_only_the_hole(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    rows = raw_rows(TableId.SENDS, sends(6))
    rows[2:4] = np.zeros((), rows.dtype)
    put(run, "p-1", TableId.SENDS, 1, rows)
    report = seal(run, plan_of())
    assert report.rows["sends"] == 4
    assert report.damage("p-1") == {"torn_rows": 2}


@pytest.mark.parametrize(
    ("keep_bytes", "rows_left", "damage"),
    [
        (64 + 2 * 96 + 50, 2, {"short_files": 1}),
        (64, 0, {"short_files": 1}),
        (20, 0, {"short_files": 1}),
    ],
)
def test_a_truncated_file(
    tmp_path: Path, keep_bytes: int, rows_left: int, damage: dict[str, int]
) -> None:
    run = new_run(tmp_path / "run")
    content = segment_bytes(TableId.SENDS, raw_rows(TableId.SENDS, sends(5)), owner=1)
    write_bytes(run.worker("p-1") / "sends-1-0.seg", content[:keep_bytes])
    report = seal(run, plan_of())
    assert (report.rows["sends"], report.damage("p-1")) == (rows_left, damage)


def test_files_that_are_not_segments_of_this_run(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    rows = raw_rows(TableId.SENDS, sends(5))
    put(run, "p-1", TableId.SENDS, 1, rows)
    put(run, "p-1", TableId.SENDS, 1, rows, index=1, run_tag=RUN_TAG + 1)
    put(run, "p-1", TableId.SENDS, 1, rows, index=3)
    write_bytes(run.worker("p-1") / "other.seg", b"not a segment at all" * 10)
    write_bytes(run.worker("p-1") / "made-but-not-begun.seg", bytes(4096))
    write_bytes(run.worker("p-1") / "notes.txt", b"ignored")
    report = seal(run, plan_of())
    assert report.rows["sends"] == 10
    assert report.damage("p-1") == {"bad_magic": 1, "foreign_run": 1, "missing_segments": 2}


def test_a_send_without_outcome_is_info_and_its_completion_is_blank(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    rows = raw_rows(TableId.SENDS, sends(2))
    rows["outcome"][1] = 0  # position, stream ... of row 1 hold what a half-written completion left
    put(run, "p-1", TableId.SENDS, 1, rows)
    seal(run, plan_of())
    opened = next(r for r in all_rows(run, "sends") if r["lane"] == 1)
    assert opened["outcome"] == Outcome.INFO
    assert (opened["t_done_ns"], opened["stream"], opened["position"]) == (0, 0, -1)
    assert opened["t_start_ns"] > 0


def test_rows_that_claim_to_be_ours_are_checked(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    rows = raw_rows(TableId.LOG, log_columns(4))
    rows["header"]["magic"][1] = b"XX"
    rows["header"]["run_tag"][2] = RUN_TAG + 7
    put(run, "audit-1", TableId.LOG, 1, rows)
    report = seal(run, plan_of())
    log = all_rows(run, "log")
    assert [r["check"] for r in log] == [Check.OK, Check.FOREIGN, Check.OTHER_RUN, Check.OK]
    assert [r["instance"] for r in log] == [1, 0, 0, 1]
    assert report.damage("audit-1") == {"bad_headers": 1}


def test_unknown_instance_and_lane_are_kept_and_go_by_stream(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    columns = log_columns(1, instance=4_000_000_000, lane=3_000_000_000, seq=2**62, stream=2)
    put(run, "audit-1", TableId.LOG, 1, raw_rows(TableId.LOG, columns))
    assert seal(run, plan_of()).problems() == []
    (row,) = sealed(run, "log")[plan_of().stream_bucket("orders-1")]["instance"]
    assert row == 4_000_000_000


def test_a_sequence_beyond_63_bits_does_not_turn_negative(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    rows = raw_rows(TableId.LOG, log_columns(1))
    rows["header"]["seq"] = 2**64 - 1
    put(run, "audit-1", TableId.LOG, 1, rows)
    seal(run, plan_of())
    assert all_rows(run, "log")[0]["seq"] == 2**63 - 1


# -- names


def test_local_ids_of_two_workers_collide(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    streams = [("stream", f"orders-{p}") for p in range(STREAMS)]
    errors = {"p-1": ["TIMED_OUT", "QUEUE_FULL"], "p-2": ["QUEUE_FULL", "FENCED"]}
    for instance, (worker, texts) in enumerate(errors.items(), start=1):
        columns = sends(2, instance=instance)
        columns["error"][:] = [STREAMS + 1, STREAMS + 2]
        columns["outcome"][:] = Outcome.FAIL
        put(run, worker, TableId.SENDS, instance, raw_rows(TableId.SENDS, columns))
        write_worker_names(run, worker, streams + [("error", text) for text in texts])
    assert seal(run, plan_of()).problems() == []
    text = {row["id"]: row["text"] for row in read_jsonl(run.names)}
    assert [text[i] for i in range(1, STREAMS + 1)] == plan_of().streams()
    said = {(r["instance"], r["lane"]): text[r["error"]] for r in all_rows(run, "sends")}
    assert said == {
        (1, 0): "TIMED_OUT",
        (1, 1): "QUEUE_FULL",
        (2, 0): "QUEUE_FULL",
        (2, 1): "FENCED",
    }


def test_a_worker_that_numbers_streams_its_own_way(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    columns = log_columns(3)
    columns["stream"][:] = [1, 2, 4]
    columns["check"][:] = Check.FOREIGN  # routed by stream, so by the global id
    put(run, "audit-1", TableId.LOG, 1, raw_rows(TableId.LOG, columns))
    texts = [
        ("stream", "orders-2"),
        ("stream", "orders-0"),
        ("stream", "orders-1"),
        ("stream", "strangers-0"),
    ]
    write_worker_names(run, "audit-1", texts)
    write_jsonl(run.worker("audit-1") / "log_bounds.jsonl", [{"stream": "strangers-0", "end": 3}])
    seal(run, plan_of())
    names = {row["id"]: row["text"] for row in read_jsonl(run.names)}
    log = sealed(run, "log")
    found = {names[i] for bucket in log for i in bucket.get("stream", [])}
    assert found == {"orders-2", "orders-0", "strangers-0"}
    assert 3 in log[plan_of().stream_bucket("orders-2")]["stream"]
    assert names[read_jsonl(run.log_bounds)[0]["stream_id"]] == "strangers-0"


def test_an_id_that_was_never_named(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    columns = sends(4)
    columns["error"][:] = [77, 0, 77, 78]
    put(run, "p-1", TableId.SENDS, 1, raw_rows(TableId.SENDS, columns))
    (run.worker("p-1") / "names.jsonl").write_text(
        '{"id": 1, "kind": "stream", "text": "orders-0"}\n{"id": 77,'
    )
    report = seal(run, plan_of())
    assert report.damage("p-1") == {"unknown_names": 2}
    names = {row["id"]: row["text"] for row in read_jsonl(run.names)}
    unnamed = {names[r["error"]] for r in all_rows(run, "sends") if r["error"]}
    assert unnamed == {
        f"name {n} of worker p-1, which is missing in its names.jsonl" for n in (77, 78)
    }
