"""Segments, names and freezes of the Python kit, without a client."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from harness.records import RAW_SENDS, SEGMENT_HEADER
from harness.workers import KIT
from workers.python_kit.worker_kit import freeze, segments
from workers.python_kit.worker_kit import layouts as lay
from workers.python_kit.worker_kit.failure import WorkerFailure
from workers.python_kit.worker_kit.names import Names
from workers.python_kit.worker_kit.protocol import Control
from workers.python_kit.worker_kit.spec import read_spec


def test_segments_are_numbered_full_size_and_headed(tmp_path: Path) -> None:
    writer = segments.SegmentWriter(tmp_path, lay.SENDS, 9, 0xAB, capacity=3)
    for _ in range(2):
        rows, at, end = writer.rotate()
        assert (at, end) == (64, 64 + 3 * 96) == (64, len(rows))
    assert [p.name for p in sorted(tmp_path.iterdir())] == [
        "sends-9-000000.seg",
        "sends-9-000001.seg",
    ]
    head = np.fromfile(tmp_path / "sends-9-000001.seg", SEGMENT_HEADER, count=1)[0]
    assert (head["table"], head["owner"], head["index"], head["capacity"], head["run_tag"]) == (
        1,
        9,
        1,
        3,
        0xAB,
    )


def test_a_row_completed_after_rotation_is_in_its_file(tmp_path: Path) -> None:
    writer = segments.SegmentWriter(tmp_path, lay.SENDS, 1, 1, capacity=1)
    first, at, _ = writer.rotate()
    lay.SENDS_OPEN.pack_into(first, at, 1, 0, 2, 5, 6, 7, 1)
    writer.rotate()
    lay.SENDS_DONE.pack_into(first, at + lay.SENDS_DONE_OFFSET, 8, 9, 0, 0, 1, 0, 0, 0, lay.OK)
    row = np.fromfile(tmp_path / "sends-1-000000.seg", RAW_SENDS, offset=64)[0]
    assert (row["seq"], row["position"], row["outcome"]) == (5, 9, 1)


def test_a_missing_folder_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(WorkerFailure, match="cannot write capture file"):
        segments.SegmentWriter(tmp_path / "gone", lay.LOG, 1, 1).rotate()


def test_a_killed_writer_leaves_every_row_it_wrote(tmp_path: Path) -> None:
    code = f"""
        import os, signal
        from pathlib import Path
        from worker_kit import layouts as lay
        from worker_kit.segments import SegmentWriter
        writer = SegmentWriter(Path({str(tmp_path)!r}), lay.SENDS, 1, 1, capacity=100)
        rows, at, end = writer.rotate()
        for seq in range(250):
            if at == end:
                rows, at, end = writer.rotate()
            lay.SENDS_OPEN.pack_into(rows, at, 1, 0, 2, seq, 6, 7, 1)
            at += 96
        os.kill(os.getpid(), signal.SIGKILL)
    """
    env = {"PYTHONPATH": str(KIT)}
    assert (
        subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env=env).returncode
        == -signal.SIGKILL
    )
    rows = np.concatenate(
        [np.fromfile(p, RAW_SENDS, offset=64) for p in sorted(tmp_path.glob("*.seg"))]
    )
    assert rows["seq"][rows["state"] != 0].tolist() == list(range(250))


def test_names_are_on_disk_before_the_id_is_known(tmp_path: Path) -> None:
    names = Names(tmp_path, {"orders-0": 1, "orders-1": 2})
    assert names.id("stream", "orders-1") == 2
    assert names.id("error", "x: é") == 3
    assert names.id("error", "x: é") == 3
    assert names.id("stream", "other-0") == 4
    lines = [json.loads(line) for line in (tmp_path / "names.jsonl").read_text().splitlines()]
    assert lines == [
        {"id": 1, "kind": "stream", "text": "orders-0"},
        {"id": 2, "kind": "stream", "text": "orders-1"},
        {"id": 3, "kind": "error", "text": "x: é"},
        {"id": 4, "kind": "stream", "text": "other-0"},
    ]


def test_a_stopped_process_notices_that_it_was_frozen() -> None:
    code = """
        import sys, time
        from worker_kit.freeze import FreezeDetector
        watch = FreezeDetector()
        print("up", flush=True)
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            watch.check()
            time.sleep(0.02)
        print(watch.frozen_ns)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={"PYTHONPATH": str(KIT)}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    begun_ns = time.monotonic_ns()
    os.kill(process.pid, signal.SIGSTOP)
    time.sleep(0.8)
    os.kill(process.pid, signal.SIGCONT)
    frozen_ns = int(process.communicate(timeout=60)[0])
    assert 0.5e9 < frozen_ns < time.monotonic_ns() - begun_ns


def test_a_thread_that_hogs_the_cpu_is_not_a_freeze(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = {"wall": 0, "cpu": 0}
    monkeypatch.setattr(freeze.time, "monotonic_ns", lambda: clock["wall"])
    monkeypatch.setattr(freeze.time, "process_time_ns", lambda: clock["cpu"])
    told: list[int] = []
    watch = freeze.FreezeDetector(told.append)
    clock.update(wall=10**9, cpu=9 * 10**8)
    watch.check()
    assert told == []
    clock.update(wall=2 * 10**9)
    watch.check()
    assert told == [950_000_000] == [watch.frozen_ns]


def test_commands() -> None:
    control = Control()
    control.handle("start 123\n")
    assert (control.started.is_set(), control.t0_ns, control.stop_load) == (True, 123, False)
    control.handle("stop-load\n")
    assert (control.stop_load, control.draining) == (True, False)
    control.handle("drain 456\n")
    assert (control.draining, control.deadline_ns, control.stopped) == (True, 456, False)
    control.handle("stop\n")
    assert control.stopped


def test_end_of_input_means_stop() -> None:
    control = Control()
    control.read_from(iter(["start 1\n"]))  # type: ignore[arg-type]
    assert control.stopped


def test_unknown_commands_are_reported_and_ignored(capsys: pytest.CaptureFixture[str]) -> None:
    control = Control()
    control.handle("start soon\n")
    assert not control.started.is_set()
    assert "start soon" in json.loads(capsys.readouterr().out)["text"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ('{"protocol": 2}', "asks for protocol 2"),
        ('{"protocol": 1}', "lacks 'client'"),
    ],
)
def test_bad_specs(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "spec.json"
    path.write_text(text)
    with pytest.raises(WorkerFailure, match=message):
        read_spec(path, tmp_path / "worker.toml")


def test_the_workers_own_options_give_way_to_the_scenario(tmp_path: Path) -> None:
    settings, path = tmp_path / "worker.toml", tmp_path / "spec.json"
    settings.write_text('[options.audit]\nlinger = "5"\nacks = "all"\n')
    keys = ("run_id", "name", "capture_dir", "bootstrap")
    client = {"library": "x", "version": "", "options": {"linger": 10}}
    raw = {
        "protocol": 1,
        "run_tag": 1,
        "role": "audit",
        "streams": {},
        "client": client,
        "audit": {},
    }
    path.write_text(json.dumps({**dict.fromkeys(keys, "x"), **raw}))
    assert read_spec(path, settings).options == {"linger": "10", "acks": "all"}
