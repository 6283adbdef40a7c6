"""Sealing that is cut off: by SIGKILL at any moment, by a full disk. Doing it again is all it
takes."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from harness.errors import EnvironmentNotReady, Exit, UsageError
from harness.records import BUCKETED, SEALED, TABLE_NAMES, Kind, Outcome, TableId
from harness.rundir import RunDir
from harness.seal import parquet
from harness.seal.seal import drop_segments, seal
from tests.planted.plans import build_plan
from tests.planted.raw import SegmentWriter, raw_rows

PLAN = build_plan(topics={"orders": 3}, buckets=2, producers=2)
ROWS = 20_000
SEGMENT_ROWS = 4096
_SEAL_AND_STOP_AT = """
import sys
from pathlib import Path
from harness.contracts.plan import Plan
from harness.rundir import RunDir
from harness.seal.seal import seal

run, plan_file, stop_at = RunDir(Path(sys.argv[1])), Path(sys.argv[2]), int(sys.argv[3])
calls = 0

def on_progress(done, total):
    global calls
    calls += 1
    if calls == stop_at:
        print("here", flush=True)
        sys.stdin.read()

seal(run, Plan.model_validate_json(plan_file.read_text()), on_progress=on_progress)
"""


def record(root: Path) -> RunDir:
    """A run with raw segments only: 3 tables, incompressible times."""
    run = RunDir(root).create()
    rng = np.random.default_rng(1)
    for table in BUCKETED:
        columns = {c.name: np.zeros(ROWS, c.dtype) for c in SEALED[TABLE_NAMES[table]]}
        columns["lane"][:] = np.arange(ROWS) % 3
        columns["seq"][:] = np.arange(ROWS) // 3
        columns["stream"][:] = columns["lane"] + 1
        columns["kind"][:] = Kind.LOAD
        time_name = {
            TableId.SENDS: "t_done_ns",
            TableId.LOG: "t_intended_ns",
            TableId.DELIVERIES: "t_ns",
        }
        columns[time_name[table]][:] = rng.integers(1, 2**60, ROWS)
        if table is TableId.SENDS:
            columns["outcome"][:] = Outcome.OK
            columns["instance"][:] = 1
        if table is TableId.DELIVERIES:
            columns["event"][:] = 1
        writer = SegmentWriter(run, "w-1", table, 1, capacity=SEGMENT_ROWS)
        writer.append(raw_rows(table, columns))
        writer.close()
    return run


def content(run: RunDir) -> dict[str, bytes]:
    """Every sealed file but the report, which holds times."""
    files = (
        p for p in run.sealed.rglob("*") if p.is_file() and p.name not in ("seal.json", ".lock")
    )
    return {str(p.relative_to(run.sealed)): p.read_bytes() for p in files}


@pytest.mark.long
@pytest.mark.parametrize("stop_at", [1, 7, 14])
def test_sigkill_in_the_middle(tmp_path: Path, stop_at: int) -> None:
    run = record(tmp_path / "run")
    plan_file = tmp_path / "plan.json"
    plan_file.write_text(PLAN.model_dump_json())
    argv = [sys.executable, "-c", _SEAL_AND_STOP_AT, str(run.root), str(plan_file), str(stop_at)]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        process.send_signal(signal.SIGKILL)
        assert process.wait(30) == -signal.SIGKILL
    assert not run.seal_report.exists()
    report = seal(run, PLAN)
    assert report.rows == dict.fromkeys(SEALED, ROWS)
    assert list(run.sealed.rglob("*.part")) == []
    untouched = record(tmp_path / "untouched")
    seal(untouched, PLAN)
    assert content(run) == content(untouched)


def test_disk_full_while_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = record(tmp_path / "run")
    written: list[str] = []

    def full(self: parquet.BucketFile, columns: parquet.Columns) -> None:
        written.append(str(self.path))
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(parquet.BucketFile, "write", full)
        with pytest.raises(EnvironmentNotReady, match="no space left") as raised:
            seal(run, PLAN)
    assert raised.value.exit_code is Exit.ENVIRONMENT
    assert "brokerstorm analyze" in raised.value.hint
    assert written
    assert list(run.sealed.rglob("*.parquet*")) == []
    assert seal(run, PLAN).rows == dict.fromkeys(SEALED, ROWS)


def test_a_file_that_is_given_up_is_closed(tmp_path: Path) -> None:
    """A removed file that is open still fills the disk."""
    part = tmp_path / f"part-0.parquet{parquet.PART_SUFFIX}"
    part.symlink_to("/dev/full")
    file = parquet.BucketFile(tmp_path / "part-0.parquet", "sends")
    columns = {c.name: np.zeros(ROWS, c.dtype) for c in SEALED["sends"]}
    # kept, as by whoever reports it: it holds all frames, and what they opened
    with pytest.raises(OSError, match="No space left") as _full:
        file.write(columns)
    file.abort()
    assert "/dev/full" not in open_files()
    assert not part.is_symlink()


def open_files() -> list[str]:
    """Paths of what this process has open."""
    return [os.path.realpath(fd) for fd in Path("/proc/self/fd").iterdir()]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A 256 KiB file system; needs the right to mount."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount")
    if os.geteuid() != 0 or mount is None:
        pytest.skip("mounting a small file system needs root")
    done = subprocess.run(
        [mount, "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)], capture_output=True
    )
    if done.returncode != 0:
        pytest.skip(f"cannot mount a tmpfs here: {done.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_disk_really_full(tmp_path: Path, small_disk: Path) -> None:
    run = record(tmp_path / "run")
    run.sealed.symlink_to(small_disk, target_is_directory=True)
    with pytest.raises(EnvironmentNotReady, match="no space left"):
        seal(run, PLAN)
    assert not run.seal_report.exists()
    assert list(run.sealed.rglob("*.part")) == []
    run.sealed.unlink()
    assert seal(run, PLAN).rows == dict.fromkeys(SEALED, ROWS)


def test_what_was_sealed_is_never_replaced_by_less(tmp_path: Path) -> None:
    """The raw segments are gone, as after every judged run, and then seal.json is."""
    run = record(tmp_path / "run")
    seal(run, PLAN)
    assert drop_segments(run) > 0
    run.seal_report.unlink()
    before = content(run)
    with pytest.raises(
        UsageError, match=r"seal\.json is missing, and .* holds 20,000 rows of sends"
    ):
        seal(run, PLAN)
    assert content(run) == before


def test_unreadable_names_are_named(tmp_path: Path) -> None:
    run = record(tmp_path / "run")
    (run.worker("w-1") / "names.jsonl").write_text("garbage\n" * 3)
    with pytest.raises(UsageError, match=r"names\.jsonl, line 1: not JSON"):
        seal(run, PLAN)


@pytest.mark.long
def test_sealed_twice_at_once_gives_one_result(tmp_path: Path) -> None:
    run = record(tmp_path / "run")
    plan_file = tmp_path / "plan.json"
    plan_file.write_text(PLAN.model_dump_json())
    argv = [sys.executable, "-c", _SEAL_AND_STOP_AT, str(run.root), str(plan_file), "-1"]
    racing = [subprocess.Popen(argv) for _ in range(2)]
    assert [p.wait(60) for p in racing] == [0, 0]
    tables = {
        t: sum(pq.read_metadata(p).num_rows for p in run.sealed.glob(f"{t}/*/*.parquet"))
        for t in SEALED
    }
    assert tables == dict.fromkeys(SEALED, ROWS)
