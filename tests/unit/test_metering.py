"""Metrics of processes, also when a sample cannot be written."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from harness.contracts.worker import StatsLine
from harness.run import metering
from harness.run.metering import Meter
from harness.rundir import RunDir, append_jsonl, read_jsonl
from harness.waiting import wait_until


def test_a_sample_that_finds_no_room_is_not_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The disk may be full for as long as a fault lasts."""
    run = RunDir(tmp_path / "run").create()
    full = [True, True]

    def append(path: Path, row: dict[str, object]) -> None:
        if full:
            full.pop()
            raise OSError(errno.ENOSPC, "No space left on device")
        append_jsonl(path, row)

    monkeypatch.setattr(metering, "append_jsonl", append)
    monkeypatch.setattr(metering, "PERIOD_S", 0.01)
    workers = {
        "me": (os.getpid(), StatsLine(ok=3)),
        "gone": (2**22 + 1, StatsLine()),
        "not yet": (None, StatsLine()),
    }
    meter = Meter(run, workers=lambda: workers, nodes=dict)
    meter.start()
    assert wait_until(lambda: len(read_jsonl(run.metrics)) > 1, 20, every_s=0.01)
    meter.stop()
    rows = read_jsonl(run.metrics)
    assert {row["worker"] for row in rows if "worker" in row} == {"me"}
    mine, machine = (next(row for row in rows if key in row) for key in ("worker", "cores"))
    assert mine["ok"] == 3
    assert mine["rss_bytes"] > 0
    assert mine["descriptors"] > 0
    assert machine["busy_s"] >= machine["own_s"] > 0
    assert [record.getMessage() for record in caplog.records] == [
        "metrics: [Errno 28] No space left on device"
    ] * 2
