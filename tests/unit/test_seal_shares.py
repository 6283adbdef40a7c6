"""Sealing by several machines: together they make what one would have made."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from analysis.capture.capture import Capture
from harness.clock_line import Anchor, ClockLine
from harness.contracts import typed
from harness.records import Check, Event, TableId
from harness.rundir import RunDir, read_jsonl, write_json, write_jsonl
from harness.seal.seal import load_report, seal, seal_share
from harness.seal.share import MachineShare, ShareReport
from tests.planted.raw import raw_rows
from tests.unit.seal_rows import Columns, blank, log_columns, new_run, plan_of, put, sends

#: The clock of the other machine shows so much less.
AHEAD_NS = 7 * 10**11
CLOCK = ClockLine((Anchor(10**12, AHEAD_NS, 10),))


def deliveries(session: int) -> Columns:
    columns = blank("deliveries", 6)
    columns["session"][:], columns["ordinal"] = session, np.arange(6)
    columns["event"][:], columns["check"][:] = Event.DELIVER, Check.OK
    columns["t_ns"], columns["stream"][:] = 10**12 + np.arange(6), 1
    columns["position"], columns["seq"] = np.arange(6), np.arange(6)
    columns["instance"][:], columns["kind"][:] = 2, 2
    return columns


def shifted(columns: Columns, by_ns: int, *names: str) -> Columns:
    return {name: array + by_ns if name in names else array for name, array in columns.items()}


def captured(run: RunDir, other: RunDir, away_ns: int) -> None:
    """A producer and the log in ``run``; a producer and a consumer in ``other``, whose clock is
    behind."""
    times = ("t_intended_ns", "t_start_ns", "t_done_ns")
    far = shifted(sends(30, instance=2), -away_ns, *times)
    far["error"][3], far["t_done_ns"][5] = 5, 0
    far["outcome"][3] = 2
    log = log_columns(8)
    log["instance"] = np.array([1, 2] * 4, np.uint32)
    log["t_intended_ns"] = 10**12 + np.arange(8) - np.where(log["instance"] == 2, away_ns, 0)
    put(run, "p-1", TableId.SENDS, 1, raw_rows(TableId.SENDS, sends(30)))
    put(run, "audit-1", TableId.LOG, 1, raw_rows(TableId.LOG, log))
    put(other, "p-2", TableId.SENDS, 2, raw_rows(TableId.SENDS, far))
    told = raw_rows(TableId.DELIVERIES, shifted(deliveries(1), -away_ns, "t_ns"))
    put(other, "c-1", TableId.DELIVERIES, 1, told)
    for where in {run.root: run, other.root: other}.values():
        if where.worker("p-2").exists():
            write_jsonl(
                where.worker("p-2") / "names.jsonl",
                [{"id": 5, "kind": "error", "text": "_TIMED_OUT"}],
            )


def rows_of(run: RunDir) -> dict[str, list[Any]]:
    """The rows of all files, by table, in an order of their own, names in words."""
    names = {row["id"]: row["text"] for row in read_jsonl(run.names)}
    found: dict[str, list[Any]] = {}
    for path in sorted(run.sealed.glob("*/bucket=*/*.parquet")):
        bucket = path.parent.name
        for row in pq.read_table(path, partitioning=None).to_pylist():
            row["error"] = names.get(row.get("error", 0), "")
            found.setdefault(path.parent.parent.name, []).append((bucket, json.dumps(row)))
    return {table: sorted(rows) for table, rows in found.items()}


def test_two_machines_seal_what_one_would_have(tmp_path: Path) -> None:
    plan, one = plan_of(), new_run(tmp_path / "one")
    captured(one, one, 0)
    seal(one, plan)

    here, there = new_run(tmp_path / "here"), new_run(tmp_path / "there")
    captured(here, there, AHEAD_NS)
    shutil.copytree(there.worker("p-2"), here.worker("p-2"), ignore=shutil.ignore_patterns("*.seg"))

    def shares(names: list[tuple[str, str]]) -> list[ShareReport]:
        report = seal_share(there, plan, MachineShare(1, names, CLOCK))
        for path in report.files:
            (here.sealed / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(there.sealed / path, here.sealed / path)
        return [typed(json.loads(json.dumps(asdict(report))), ShareReport, "a share")]

    told = seal(here, plan, shares=shares, clocks={2: CLOCK})
    assert rows_of(here) == rows_of(one)
    whole = load_report(one)
    assert told.rows == whole.rows
    assert {name: each.rows for name, each in told.workers.items() if each.segments} == {
        name: each.rows for name, each in whole.workers.items()
    }
    found = Capture.find(here)
    assert found.missing(told.rows) == []
    assert not found.changed_documents(here)
    assert {path.rpartition("/")[2] for path in told.files} >= {"part-0.parquet", "part-1.parquet"}


def test_a_share_that_did_not_come_is_missing(tmp_path: Path) -> None:
    run, other = new_run(tmp_path / "here"), new_run(tmp_path / "there")
    captured(run, other, AHEAD_NS)
    seal(run, plan_of(), shares=lambda names: [ShareReport.missing(["p-2", "c-1"])])
    assert Capture.find(run).torn() == [
        "rows of c-1, with damaged segments",
        "rows of p-2, with damaged segments",
    ]


def test_a_run_whose_command_was_killed_lacks_what_was_elsewhere(tmp_path: Path) -> None:
    """`analyze` seals what there is, and accuses nobody of what there is not."""
    run, other = new_run(tmp_path / "here"), new_run(tmp_path / "there")
    captured(run, other, AHEAD_NS)
    for worker in ("p-2.2", "c-1"):
        run.worker(worker).mkdir()
    executors = [{"number": 0, "clients": ["p-2", "c-1"]}]
    write_json(run.manifest, {"schema_version": 1, "status": "running", "executors": executors})
    assert seal(run, plan_of()).damaged_workers == {"p-2.2", "c-1"}


def test_names_that_a_share_alone_has_are_nobody_elses(tmp_path: Path) -> None:
    """An id that names.jsonl of a killed worker does not explain."""
    run, other = new_run(tmp_path / "here"), new_run(tmp_path / "there")
    captured(run, other, AHEAD_NS)
    (other.worker("p-2") / "names.jsonl").unlink()
    known = [("stream", f"orders-{n}") for n in range(3)] + [("error", "of another")]
    reports = [seal_share(other, plan_of(), MachineShare(part, known, CLOCK)) for part in (1, 2)]
    ids = [row.id for report in reports for row in report.names]
    assert len(set(ids)) == len(ids) == 2
    assert min(ids) > len(known)
